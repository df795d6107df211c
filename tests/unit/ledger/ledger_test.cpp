// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "support.hpp"

namespace sandbox::ledger::test {
namespace {

const Alive kAllAlive = [](const ProcessIdentity&) { return true; };
const Alive kKernelSays = [](const ProcessIdentity& identity) {
    auto handle = sys::Pidfd::open(identity);
    return handle.has_value() && !handle->ended().value_or(true);
};

ClaimRequest request(const std::string& operation, unsigned number = 1)
{
    return {operation, id(number), "run", "digest", self(), "start", kFarFuture};
}

TEST(LedgerOpen, MakesAFileOnlyItsOwnerCanRead)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    for (const auto* name : {"ledger.db", "ledger.db-wal", "ledger.db-shm"}) {
        struct stat info{};
        ASSERT_EQ(stat(dir.file(name).c_str(), &info), 0) << name;
        EXPECT_EQ(info.st_mode & 07777, 0600U) << name;
    }
}

TEST(LedgerOpen, RefusesAMissingFileUnlessAskedToMakeOne)
{
    const TempDir dir;
    EXPECT_CODE(Ledger::open(dir.host(), OpenMode::read_write), Code::not_found);
    EXPECT_CODE(Ledger::open(dir.host(), OpenMode::read_only), Code::not_found);
}

TEST(LedgerOpen, RefusesALinkAndAFileOthersMayWrite)
{
    const TempDir dir;
    {
        Ledger made = open(dir);
    }
    chmod(dir.file("ledger.db").c_str(), 0666);
    EXPECT_CODE(Ledger::open(dir.host(), OpenMode::read_write), Code::permission_denied);
    const TempDir other;
    ASSERT_EQ(symlink(dir.file("ledger.db").c_str(), other.file("ledger.db").c_str()), 0);
    EXPECT_CODE(Ledger::open(other.host(), OpenMode::read_write), Code::permission_denied);
}

TEST(LedgerOpen, WorksBelowAPathLongerThanSqliteAllows)
{
    const TempDir dir;
    std::string path = dir.path();
    while (path.size() < 900) {
        path += "/" + std::string(100, 'x');
        ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    }
    Ledger ledger = VALUE(Ledger::open(HostPath(path), OpenMode::create));
    add(ledger, sandbox(1, "deep"));
    Ledger again = VALUE(Ledger::open(HostPath(path), OpenMode::read_only));
    EXPECT_TRUE(VALUE(again.find(id(1))).has_value());
}

TEST(LedgerOpen, ReadsWithoutWritingAndRefusesToWriteThen)
{
    const TempDir dir;
    {
        Ledger ledger = open(dir);
        add(ledger, sandbox(1, "a"));
    }
    Ledger reader = open(dir, OpenMode::read_only);
    EXPECT_EQ(VALUE(reader.list(ListScope::live)).size(), 1U);
    auto transaction = reader.begin();
    EXPECT_FALSE(transaction.has_value() && transaction->insert(sandbox(2, "b")).has_value());
}

TEST(LedgerSandbox, IsFoundByIdNameAndPrefix)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    Sandbox first = sandbox(0xabcd0001, "web");
    first.id = SandboxId("abcd0000000000000000000000000001");
    Sandbox second = sandbox(2, "db");
    second.id = SandboxId("abcd0000000000000000000000000002");
    add(ledger, first);
    add(ledger, second);
    EXPECT_EQ(VALUE(ledger.find(first.id)), first);
    EXPECT_EQ(VALUE(ledger.find_name(SandboxName("db"))), second);
    EXPECT_EQ(VALUE(ledger.resolve("web")), first);
    EXPECT_EQ(VALUE(ledger.resolve(second.id.str())), second);
    EXPECT_CODE(ledger.resolve("abcd"), Code::conflict);
    EXPECT_CODE(ledger.resolve("abc"), Code::not_found);
    EXPECT_CODE(ledger.resolve("ffff"), Code::not_found);
    EXPECT_CODE(ledger.resolve("nobody"), Code::not_found);
    EXPECT_EQ(VALUE(ledger.list(ListScope::live)), (std::vector{first, second}));
}

TEST(LedgerSandbox, ANameIsUniqueWhileItLivesAndFreeAfterwards)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "web"));
    {
        auto transaction = VALUE(ledger.begin());
        EXPECT_CODE(transaction.insert(sandbox(2, "web")), Code::already_exists);
    }
    {
        auto transaction = VALUE(ledger.begin());
        EXPECT_OK(transaction.set_state(id(1), State::deleted));
        EXPECT_OK(transaction.insert(sandbox(2, "web")));
        EXPECT_OK(transaction.commit());
    }
    EXPECT_EQ(VALUE(ledger.resolve("web")).id, id(2));
    EXPECT_EQ(VALUE(ledger.list(ListScope::live)).size(), 1U);
    EXPECT_EQ(VALUE(ledger.list(ListScope::all)).size(), 2U);
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.set_state(id(2), State::deleted));
    EXPECT_OK(transaction.commit());
    EXPECT_EQ(VALUE(ledger.resolve("web")).id, id(2)) << "the newest of the removed ones, for logs";
}

TEST(LedgerTransaction, LeavesNothingUnlessCommitted)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    {
        auto transaction = VALUE(ledger.begin());
        EXPECT_OK(transaction.insert(sandbox(2, "b")));
        EXPECT_OK(transaction.set_state(id(1), State::created));
    }
    EXPECT_EQ(VALUE(ledger.list(ListScope::all)).size(), 1U);
    EXPECT_EQ(VALUE(ledger.find(id(1)))->state, State::prepared);
}

TEST(LedgerTransaction, RefusesAnIllegalTransition)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    auto transaction = VALUE(ledger.begin());
    EXPECT_CODE(transaction.set_state(id(1), State::paused), Code::conflict);
    EXPECT_CODE(transaction.set_state(id(9), State::created), Code::not_found);
}

TEST(LedgerTransaction, UpdateLeavesWhatHasItsOwnCalls)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    Sandbox changed = sandbox(1, "a");
    changed.plan_digest = "sha256:new";
    changed.state = State::running;
    changed.generation = 9;
    changed.exit = Exit{};
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.update(changed));
    EXPECT_OK(transaction.set_desired(id(1), Desired::stopped));
    EXPECT_OK(transaction.commit());
    const Sandbox stored = *VALUE(ledger.find(id(1)));
    EXPECT_EQ(stored.plan_digest, "sha256:new");
    EXPECT_EQ(stored.desired, Desired::stopped);
    EXPECT_EQ(stored.state, State::prepared);
    EXPECT_EQ(stored.generation, 0U);
    EXPECT_FALSE(stored.exit.has_value());
}

TEST(LedgerEntries, GroupIntentsInOneCommitInOrder)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    EXPECT_FALSE(VALUE(ledger.has_history()));
    add(ledger, sandbox(1, "a"));
    const std::vector<Intent> intents{{EntryKind::state_dir, "s"}, {EntryKind::run_dir, "r"}};
    auto transaction = VALUE(ledger.begin());
    const auto first = VALUE(transaction.intend(id(1), intents));
    EXPECT_OK(transaction.observed(first + 1, R"({"device":"1","inode":"2"})"));
    EXPECT_OK(transaction.commit());
    EXPECT_TRUE(VALUE(ledger.has_history()));
    const auto entries = VALUE(ledger.entries(id(1)));
    ASSERT_EQ(entries.size(), 2U);
    EXPECT_EQ(entries[0].name, "s");
    EXPECT_EQ(entries[0].state, EntryState::intent);
    EXPECT_EQ(entries[1].seq, entries[0].seq + 1);
    EXPECT_EQ(entries[1].state, EntryState::observed);
    EXPECT_EQ(VALUE(ledger.open_entries()), entries);
}

TEST(LedgerEntries, AreUndoneOnceAndCannotComeBack)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    const Intent intent{EntryKind::run_dir, "r"};
    auto transaction = VALUE(ledger.begin());
    const auto seq = VALUE(transaction.intend(id(1), {&intent, 1}));
    EXPECT_OK(transaction.undone(seq));
    EXPECT_OK(transaction.undone(seq));
    EXPECT_CODE(transaction.observed(seq, "{}"), Code::conflict);
    EXPECT_OK(transaction.commit());
    EXPECT_TRUE(VALUE(ledger.open_entries()).empty());
}

TEST(LedgerEntries, KeepASandboxFromBeingDeletedUntilAllButItsLogsAreUndone)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    const std::vector<Intent> intents{{EntryKind::log_files, "l"}, {EntryKind::run_dir, "r"}};
    auto transaction = VALUE(ledger.begin());
    const auto first = VALUE(transaction.intend(id(1), intents));
    EXPECT_CODE(transaction.set_state(id(1), State::deleted), Code::conflict);
    EXPECT_OK(transaction.undone(first + 1));
    EXPECT_OK(transaction.set_state(id(1), State::deleted));
    EXPECT_CODE(transaction.intend(id(1), intents), Code::conflict);
}

TEST(LedgerIdRanges, AreTheLowestFreeAndNotReusedBeforeTheyAreProvenGone)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    const IdPool pool{100000, 3};
    for (unsigned i = 1; i <= 4; ++i) add(ledger, sandbox(i, "n" + std::to_string(i)));
    auto transaction = VALUE(ledger.begin());
    EXPECT_EQ(VALUE(transaction.allocate_ids(id(1), pool)).first, 100000U);
    EXPECT_EQ(VALUE(transaction.allocate_ids(id(2), pool)).first, 165536U);
    EXPECT_EQ(VALUE(transaction.allocate_ids(id(2), pool)).first, 165536U) << "it keeps its own";
    EXPECT_EQ(VALUE(transaction.allocate_ids(id(3), pool)).first, 231072U);
    EXPECT_CODE(transaction.allocate_ids(id(4), pool), Code::resource_exhausted);
    EXPECT_OK(transaction.commit());
    const auto entry = VALUE(ledger.entries(id(1))).at(0);
    EXPECT_EQ(entry.name, "100000+65536");
    auto release = VALUE(ledger.begin());
    EXPECT_OK(release.undone(entry.seq));
    EXPECT_EQ(VALUE(release.allocate_ids(id(4), pool)).first, 100000U);
    EXPECT_FALSE(VALUE(release.get(id(1))).ids.has_value());
}

TEST(LedgerIdRanges, DoNotOverlapRangesOfAPoolThatWasMoved)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    add(ledger, sandbox(2, "b"));
    auto transaction = VALUE(ledger.begin());
    EXPECT_EQ(VALUE(transaction.allocate_ids(id(1), {150000, 1})).first, 150000U);
    EXPECT_EQ(VALUE(transaction.allocate_ids(id(2), {100000, 4})).first, 231072U);
}

TEST(LedgerExit, IsRecordedExactlyOnceAGeneration)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    auto transaction = VALUE(ledger.begin());
    EXPECT_EQ(VALUE(transaction.begin_generation(id(1))), 1U);
    EXPECT_CODE(transaction.record_exit(id(1), 2, {}), Code::conflict);
    EXPECT_EQ(VALUE(transaction.take_exit(id(1))), std::nullopt);
    EXPECT_OK(transaction.record_exit(id(1), 1, {7, 0, ExitReason::exited, 0}));
    EXPECT_CODE(transaction.record_exit(id(1), 1, {8, 0, ExitReason::exited, 0}), Code::conflict);
    EXPECT_EQ(VALUE(transaction.take_exit(id(1)))->code, 7);
    EXPECT_EQ(VALUE(transaction.take_exit(id(1))), std::nullopt) << "delivered once";
    EXPECT_EQ(VALUE(transaction.begin_generation(id(1))), 2U);
    EXPECT_CODE(transaction.record_exit(id(1), 1, {}), Code::conflict);
    EXPECT_OK(transaction.record_exit(id(1), 2, {137, 9, ExitReason::oom, 1}));
    EXPECT_OK(transaction.commit());
    EXPECT_EQ(VALUE(ledger.find(id(1)))->exit, (Exit{137, 9, ExitReason::oom, 1}));
}

TEST(LedgerClaim, IsHeldByOneAtATime)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    const Moment moment = VALUE(now());
    auto transaction = VALUE(ledger.begin());
    EXPECT_EQ(VALUE(transaction.claim(request("op1"), moment, kAllAlive)).kind,
              ClaimOutcome::Kind::acquired);
    EXPECT_EQ(VALUE(transaction.claim(request("op1"), moment, kAllAlive)).kind,
              ClaimOutcome::Kind::acquired)
        << "its own holder may ask again";
    EXPECT_CODE(transaction.claim(request("op2"), moment, kAllAlive), Code::conflict);
    EXPECT_OK(transaction.claim(request("op3", 2), moment, kAllAlive));
    EXPECT_OK(transaction.finish("op1", self(), R"({"ok":true})"));
    EXPECT_OK(transaction.claim(request("op2"), moment, kAllAlive));
}

TEST(LedgerClaim, GivesTheRecordedResultToWhoeverRepeatsTheOperation)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    const Moment moment = VALUE(now());
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.claim(request("op1"), moment, kAllAlive));
    EXPECT_OK(transaction.finish("op1", self(), R"({"code":7})"));
    const auto again = VALUE(transaction.claim(request("op1"), moment, kAllAlive));
    EXPECT_EQ(again.kind, ClaimOutcome::Kind::recorded);
    EXPECT_EQ(again.result, R"({"code":7})");
    auto other = request("op1");
    other.request_digest = "another";
    EXPECT_CODE(transaction.claim(other, moment, kAllAlive), Code::conflict);
}

TEST(LedgerClaim, OfALateHolderOrAnotherBootIsForfeit)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    Moment moment = VALUE(now());
    auto late = request("late");
    late.deadline_ns = moment.boottime_ns + 1;
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.claim(late, moment, kAllAlive));
    EXPECT_CODE(transaction.claim(request("op2"), moment, kAllAlive), Code::conflict);
    moment.boottime_ns += 2;
    const auto outcome = VALUE(transaction.claim(request("op2"), moment, kAllAlive));
    EXPECT_EQ(outcome.kind, ClaimOutcome::Kind::taken_over);
    EXPECT_EQ(outcome.previous->operation, "late");
    EXPECT_CODE(transaction.finish("late", self(), "{}"), Code::conflict) << "it must stop acting";
    EXPECT_CODE(transaction.set_step("late", self(), "x", 1), Code::conflict);
    moment.boot_id = "another boot";
    EXPECT_EQ(VALUE(transaction.claim(request("op4"), moment, kAllAlive)).kind,
              ClaimOutcome::Kind::taken_over);
}

TEST(LedgerClaim, OfAProcessThatDiedIsTakenOver)
{
    const TempDir dir;
    {
        Ledger made = open(dir);
    }
    const pid_t child = fork();
    if (child == 0) {
        auto ledger = Ledger::open(dir.host(), OpenMode::read_write);
        auto transaction = ledger->begin();
        const bool claimed = transaction->claim(request("childs"), *now(), kAllAlive).has_value() &&
                             transaction->commit().has_value();
        _exit(claimed ? 0 : 1);
    }
    siginfo_t info{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
    ASSERT_EQ(info.si_status, 0);
    Ledger ledger = open(dir);
    ASSERT_EQ(VALUE(ledger.claim_of(id(1)))->holder.pid, child);
    auto transaction = VALUE(ledger.begin());
    // Still a zombie here: dead all the same.
    const auto outcome = VALUE(transaction.claim(request("mine"), *now(), kKernelSays));
    EXPECT_EQ(outcome.kind, ClaimOutcome::Kind::taken_over);
    EXPECT_EQ(outcome.previous->operation, "childs");
    EXPECT_OK(transaction.commit());
    waitpid(child, nullptr, 0);
    EXPECT_EQ(VALUE(ledger.claims()).size(), 1U);
}

TEST(LedgerClaim, CanBeHandedToAnotherProcess)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    const ProcessIdentity shim{1, 2, "b", 3};
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.claim(request("op"), VALUE(now()), kAllAlive));
    EXPECT_OK(transaction.set_step("op", self(), "launch", kFarFuture));
    EXPECT_OK(transaction.hand_over("op", self(), shim));
    EXPECT_CODE(transaction.finish("op", self(), "{}"), Code::conflict);
    EXPECT_OK(transaction.finish("op", shim, "{}"));
}

TEST(LedgerAudit, HeadAdvancesOnlyFromWhatIsStored)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    EXPECT_EQ(VALUE(ledger.audit_head()), AuditHead{});
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.advance_audit({}, {1, "d1"}));
    EXPECT_CODE(transaction.advance_audit({}, {1, "other"}), Code::conflict);
    EXPECT_OK(transaction.advance_audit({1, "d1"}, {2, "d2"}));
    EXPECT_OK(transaction.commit());
    EXPECT_EQ(VALUE(ledger.audit_head()), (AuditHead{2, "d2"}));
}

TEST(LedgerAudit, QueuedLinesComeAndGoWithTheirCommit)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    {
        auto dropped = VALUE(ledger.begin());
        EXPECT_OK(dropped.queue_audit({}, {1, "d1"}, "never committed"));
    }
    EXPECT_TRUE(VALUE(ledger.queued_audit()).empty());
    auto transaction = VALUE(ledger.begin());
    EXPECT_OK(transaction.queue_audit({}, {1, "d1"}, "one"));
    EXPECT_CODE(transaction.queue_audit({}, {1, "d1"}, "again"), Code::conflict);
    EXPECT_OK(transaction.queue_audit({1, "d1"}, {2, "d2"}, "two"));
    EXPECT_OK(transaction.commit());
    ASSERT_EQ(VALUE(ledger.queued_audit()).size(), 2U);
    EXPECT_OK(ledger.forget_queued_audit(1));
    EXPECT_EQ(VALUE(ledger.queued_audit()).at(0).line, "two");
    EXPECT_EQ(VALUE(ledger.audit_head()), (AuditHead{2, "d2"}));
}

TEST(LedgerRetention, ForgetsTheOldestRemovedSandboxesFirst)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    auto transaction = VALUE(ledger.begin());
    for (unsigned i = 1; i <= 5; ++i) {
        EXPECT_OK(transaction.insert(sandbox(i, "n" + std::to_string(i))));
        if (i != 2) {
            EXPECT_OK(transaction.set_state(id(i), State::deleted));
        }
    }
    const auto gone = VALUE(transaction.prune(2));
    EXPECT_OK(transaction.commit());
    ASSERT_EQ(gone.size(), 2U);
    EXPECT_FALSE(VALUE(ledger.find(id(1))).has_value());
    EXPECT_FALSE(VALUE(ledger.find(id(3))).has_value());
    EXPECT_TRUE(VALUE(ledger.find(id(2))).has_value()) << "a live one is never forgotten";
    EXPECT_TRUE(VALUE(ledger.find(id(5))).has_value());
}

TEST(LedgerCompact, EmptiesTheWalAndLosesNothing)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "a"));
    EXPECT_GT(std::filesystem::file_size(dir.file("ledger.db-wal")), 0U);
    EXPECT_OK(ledger.compact());
    EXPECT_EQ(wal_end(read_bytes(dir.file("ledger.db-wal"))), 0U);
    EXPECT_TRUE(VALUE(ledger.find(id(1))).has_value());
    Ledger other = open(dir);
    auto writer = VALUE(other.begin());
    EXPECT_OK(writer.insert(sandbox(2, "b")));
    EXPECT_OK(ledger.compact()) << "a busy ledger is compacted another time";
    EXPECT_OK(writer.commit());
}

}  // namespace
TEST(LedgerManaged, AFileStandsBehindASandboxUntilItIsForgotten)
{
    const TempDir dir;
    Ledger ledger = open(dir);
    add(ledger, sandbox(1, "web"));
    {
        auto transaction = VALUE(ledger.begin());
        EXPECT_CODE(transaction.set_managed({id(2), Origin::apply, "/srv/web.toml"}),
                    Code::not_found);
    }
    const auto keep_by = [&](const Managed& managed) {
        auto transaction = VALUE(ledger.begin());
        EXPECT_OK(transaction.set_managed(managed));
        EXPECT_OK(transaction.commit());
    };
    keep_by({id(1), Origin::apply, "/srv/web.toml"});
    keep_by({id(1), Origin::profiles_d, "/etc/sandbox/profiles.d/web.toml"});
    const std::vector<Managed> wanted{
        {id(1), Origin::profiles_d, "/etc/sandbox/profiles.d/web.toml"}};
    EXPECT_EQ(VALUE(ledger.managed()), wanted);
    {
        auto transaction = VALUE(ledger.begin());
        EXPECT_OK(transaction.set_state(id(1), State::deleted));
        EXPECT_OK(transaction.commit());
    }
    EXPECT_TRUE(VALUE(ledger.managed()).empty());
    {
        auto transaction = VALUE(ledger.begin());
        EXPECT_EQ(VALUE(transaction.prune(0)).size(), 1U);
        EXPECT_OK(transaction.commit());
    }
    EXPECT_OK(ledger.check());
}

}  // namespace sandbox::ledger::test
