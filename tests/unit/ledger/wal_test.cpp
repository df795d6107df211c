// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "ledger/vfs.hpp"
#include "support.hpp"

namespace {
int syncs = 0;
}

// SQLite is linked in: its syncs come here and are counted on their way to the kernel.
extern "C" int fdatasync(int fd)
{
    ++syncs;
    return static_cast<int>(syscall(SYS_fdatasync, fd));
}

extern "C" int fsync(int fd)
{
    ++syncs;
    return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace sandbox::ledger::test {
namespace {

std::string wal_of(const TempDir& dir) { return read_bytes(dir.file("ledger.db-wal")); }

void make_emptied(const TempDir& dir)
{
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "n1"));
    EXPECT_OK(ledger.compact());
}

std::size_t count(const TempDir& dir)
{
    Ledger ledger = open(dir, OpenMode::read_write);
    EXPECT_OK(ledger.check());
    return VALUE(ledger.list(ListScope::all)).size();
}

TEST(LedgerWal, KeepsItsLengthWhenItIsEmptied)
{
    const TempDir dir;
    make_emptied(dir);
    EXPECT_EQ(wal_of(dir).size(), static_cast<std::size_t>(kKeptWal));
    EXPECT_EQ(wal_end(wal_of(dir)), 0U);
    Ledger ledger = open(dir);
    add(ledger, sandbox(2, "n2"));
    EXPECT_GT(wal_end(wal_of(dir)), 0U);
    EXPECT_EQ(wal_of(dir).size(), static_cast<std::size_t>(kKeptWal));
}

TEST(LedgerWal, OfARushIsCutWhenItIsEmptied)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    for (unsigned i = 1; wal_of(dir).size() <= static_cast<std::size_t>(kLargestKeptWal); ++i) {
        add(ledger, sandbox(i, "n" + std::to_string(i)));
        ASSERT_LT(i, 1000U);
    }
    EXPECT_OK(ledger.compact());
    EXPECT_EQ(wal_of(dir).size(), 0U);
}

TEST(LedgerWal, ThatIsShortIsLeftWhenOnlyALargeOneIsToBeEmptied)
{
    const TempDir dir;
    make_emptied(dir);
    Ledger ledger = open(dir);
    add(ledger, sandbox(2, "n2"));
    EXPECT_OK(ledger.compact(CompactWhen::large));
    const std::size_t left = wal_end(wal_of(dir));
    EXPECT_GT(left, 0U);
    for (unsigned i = 3; i < 60; ++i) add(ledger, sandbox(i, "n" + std::to_string(i)));
    EXPECT_OK(ledger.compact(CompactWhen::large));
    EXPECT_EQ(wal_end(wal_of(dir)), 0U);
    EXPECT_EQ(count(dir), 59U);
}

TEST(LedgerWal, StaleFramesBehindANewHeaderAreNeverReplayed)
{
    const TempDir dir;
    {
        Ledger ledger = open(dir);
        for (unsigned i = 1; i <= 20; ++i) add(ledger, sandbox(i, "n" + std::to_string(i)));
        EXPECT_OK(ledger.compact());
    }
    const std::string stale = wal_of(dir);
    ASSERT_NE(stale.substr(32, 4096), std::string(4096, '\0')) << "the old frames are still there";
    const pid_t child = fork();
    if (child == 0) {
        // All removed again; one commit of few frames, in front of the many old ones.
        Ledger ledger = open(dir, OpenMode::read_write);
        auto transaction = VALUE(ledger.begin());
        for (unsigned i = 1; i <= 20; ++i) {
            EXPECT_OK(transaction.set_state(id(i), State::deleted));
        }
        EXPECT_EQ(VALUE(transaction.prune(0)).size(), 20U);
        EXPECT_OK(transaction.insert(sandbox(77, "new")));
        EXPECT_OK(transaction.commit());
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const std::string now = wal_of(dir);
    ASSERT_GT(now.size(), wal_end(now));
    EXPECT_NE(now.substr(16, 8), stale.substr(wal_end(now) + 8, 8)) << "other salts";
    Ledger ledger = open(dir, OpenMode::read_write);
    EXPECT_OK(ledger.check());
    const auto left = VALUE(ledger.list(ListScope::all));
    ASSERT_EQ(left.size(), 1U);
    EXPECT_EQ(left.front().id, id(77));
}

TEST(LedgerWal, OldHeaderThatComesBackAfterAPowerCutChangesNothing)
{
    const TempDir dir;
    std::string before;
    {
        Ledger ledger = open(dir);
        for (unsigned i = 1; i <= 5; ++i) add(ledger, sandbox(i, "n" + std::to_string(i)));
        before = wal_of(dir);
        EXPECT_OK(ledger.compact());
    }
    std::string back = wal_of(dir);
    back.replace(0, 32, before.substr(0, 32));
    write_bytes(dir.file("ledger.db-wal"), back);
    EXPECT_EQ(count(dir), 5U);
}

TEST(LedgerWal, CommitTakesOneSyncAndTheFirstAfterEmptyingTwo)
{
    const TempDir dir;
    make_emptied(dir);
    syncs = 0;
    Ledger ledger = open(dir, OpenMode::read_write);
    add(ledger, sandbox(2, "n2"));
    EXPECT_EQ(syncs, 2) << "the new header, then the frames; not the folder";
    add(ledger, sandbox(3, "n3"));
    EXPECT_EQ(syncs, 3);
    Ledger other = open(dir, OpenMode::read_write);
    add(other, sandbox(4, "n4"));
    EXPECT_EQ(syncs, 4) << "another opener announces nothing again";
}

TEST(LedgerWal, NameIsMadeDurableByWhoeverFindsAnUnfinishedOne)
{
    const TempDir dir;
    make_emptied(dir);
    for (const std::size_t size : {0U, 32U}) {
        write_bytes(dir.file("ledger.db-wal"), std::string(size, '\0'));
        syncs = 0;
        Ledger ledger = open(dir, OpenMode::read_write);
        add(ledger, sandbox(10 + static_cast<unsigned>(size), "x" + std::to_string(size)));
        EXPECT_EQ(syncs, 3) << "header, folder, frames";
        EXPECT_OK(ledger.compact());
    }
}

TEST(LedgerWal, ForgettingAuditLinesSyncsNothingAndTheNextCommitStillDoes)
{
    const TempDir dir;
    make_emptied(dir);
    Ledger ledger = open(dir, OpenMode::read_write);
    for (std::uint64_t seq = 1; seq <= 3; ++seq) {
        const AuditHead expected = VALUE(ledger.audit_head());
        auto transaction = VALUE(ledger.begin());
        EXPECT_OK(transaction.queue_audit(expected, {seq, "d"}, "line"));
        EXPECT_OK(transaction.commit());
        syncs = 0;
        EXPECT_OK(ledger.forget_queued_audit(seq));
        EXPECT_EQ(syncs, 0) << seq;
        EXPECT_TRUE(VALUE(ledger.queued_audit()).empty());
        add(ledger, sandbox(10 + static_cast<unsigned>(seq), "x" + std::to_string(seq)));
        EXPECT_EQ(syncs, 1) << seq;
    }
}

}  // namespace
}  // namespace sandbox::ledger::test
