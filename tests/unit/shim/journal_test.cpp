// SPDX-License-Identifier: Apache-2.0
#include "shim/journal.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "canon/canon.hpp"
#include "shim/audit_log.hpp"
#include "support.hpp"

namespace sandbox::shim {
namespace {

using ledger::EntryKind;
using ledger::EntryState;
using test::TempDir;

// A prepared sandbox in a real ledger, with the intents of its first generation.
class Ledgered : public testing::Test {
protected:
    Ledgered() : ledger_(ledger::test::open(dir_))
    {
        request_ = test::request_below(dir_.path());
        auto transaction = VALUE(ledger_.begin());
        EXPECT_OK(transaction.insert(ledger::test::sandbox(1, "web")));
        EXPECT_EQ(VALUE(transaction.begin_generation(id())), 1U);
        const ledger::Moment now = VALUE(ledger::now());
        EXPECT_OK(transaction.claim({request_.operation, id(), "run", "digest",
                                     ledger::test::self(), "start", ledger::test::kFarFuture},
                                    now, [](const sys::ProcessIdentity&) { return true; }));
        const std::vector<ledger::Intent> intents{
            {EntryKind::state_dir, "sandboxes/" + id().str()},
            {EntryKind::log_files, "sandboxes/" + id().str() + "/logs"},
            {EntryKind::run_dir, id().str()},
            {EntryKind::placeholder, "/srv/a"},
            {EntryKind::placeholder, "/srv/b"},
            {EntryKind::shim_process, "shim:" + id().str()},
            {EntryKind::log_worker, "log:" + id().str()}};
        std::uint64_t seq = VALUE(transaction.intend(id(), intents));
        EXPECT_OK(transaction.commit());
        for (const auto& intent : intents) {
            request_.intents.push_back(
                {seq++, std::string(ledger::to_string(intent.kind)), intent.name});
        }
    }

    SandboxId id() const { return ledger::test::id(1); }
    Journal journal(OnExit on_exit = OnExit::keep)
    {
        request_.on_exit = on_exit;
        auto journal = VALUE(Journal::open(dir_.path()));
        journal.bind(request_);
        return journal;
    }
    ledger::Sandbox row() { return VALUE(ledger_.find(id())).value(); }
    std::string audit_text() const { return test::read_bytes(dir_.file(kAuditName)); }
    // The file against the head that the ledger keeps.
    void expect_sound_audit()
    {
        const auto stored = VALUE(ledger_.audit_head());
        const auto broken = audit::verify(audit_text(), {stored.seq, stored.digest});
        EXPECT_FALSE(broken) << broken->line << ": " << broken->why;
    }
    static audit::Launched launched()
    {
        audit::Launched event;
        event.plan_digest = "sha256:" + std::string(64, 'a');
        event.driver = "oci";
        event.isolation_class = "shared-kernel";
        return event;
    }

    TempDir dir_;
    ledger::Ledger ledger_;
    LaunchRequest request_;
};

constexpr ledger::Exit kSeven{
    .code = 7, .signal = 0, .reason = ledger::ExitReason::exited, .oom_kills = 0};

TEST_F(Ledgered, ARehearsalLeavesNothingBehindAndTheRealCommitStillHolds)
{
    Journal j = journal();
    j.observed(EntryKind::run_dir, "{\"device\":1,\"inode\":2}");
    const auto before = row().state;
    j.rehearse();
    EXPECT_EQ(row().state, before);
    EXPECT_FALSE(row().exit);
    EXPECT_EQ(VALUE(ledger_.entries(id()))[2].state, EntryState::intent);
    EXPECT_TRUE(VALUE(ledger_.queued_audit()).empty());
    EXPECT_OK(j.running(ledger::test::self(), launched()));
    EXPECT_EQ(VALUE(ledger_.entries(id()))[2].state, EntryState::observed);
    EXPECT_EQ(row().state, ledger::State::running);
}

TEST_F(Ledgered, RunningMakesObservationsStateAndAuditDurableTogether)
{
    Journal j = journal();
    j.observed(EntryKind::run_dir, "{\"device\":1,\"inode\":2}");
    j.observed_name(EntryKind::placeholder, "/srv/b", "{\"device\":3,\"inode\":4}");
    EXPECT_EQ(VALUE(ledger_.entries(id()))[2].state, EntryState::intent)
        << "written before the commit";
    EXPECT_OK(j.running(ledger::test::self(), launched()));
    const auto entries = VALUE(ledger_.entries(id()));
    EXPECT_EQ(entries[2].state, EntryState::observed);
    EXPECT_EQ(entries[2].identity, "{\"device\":1,\"inode\":2}");
    EXPECT_EQ(entries[3].state, EntryState::intent) << "the other placeholder";
    EXPECT_EQ(entries[4].state, EntryState::observed);
    EXPECT_EQ(row().state, ledger::State::running);
    EXPECT_EQ(row().pid1, ledger::test::self());
    const auto queued = VALUE(ledger_.queued_audit());
    ASSERT_EQ(queued.size(), 1U);
    EXPECT_NE(queued[0].line.find("\"launched\""), std::string::npos);
}

TEST_F(Ledgered, EndedIsRecordedExactlyOnce)
{
    Journal j = journal();
    EXPECT_OK(j.running(ledger::test::self(), launched()));
    EXPECT_OK(j.ended(kSeven, {}));
    EXPECT_EQ(row().exit, kSeven);
    EXPECT_EQ(row().state, ledger::State::stopped);
    const auto head = VALUE(ledger_.audit_head());
    ledger::Exit other = kSeven;
    other.code = 0;
    EXPECT_CODE(j.ended(other, {}), Code::conflict);
    EXPECT_EQ(row().exit, kSeven);
    EXPECT_EQ(VALUE(ledger_.audit_head()).seq, head.seq) << "an audit line of a commit that failed";
}

TEST_F(Ledgered, EndedPutsViolationsBeforeTheExitInTheAudit)
{
    Journal j = journal();
    EXPECT_OK(j.running(ledger::test::self(), launched()));
    EXPECT_OK(j.ended({.code = 137, .signal = 9, .reason = ledger::ExitReason::oom, .oom_kills = 2},
                      {{"limit.memory", "OOM kills", 2}}));
    EXPECT_OK(j.settle());
    const std::string text = audit_text();
    EXPECT_LT(text.find("\"violation\""), text.find("\"exited\""));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
    expect_sound_audit();
}

TEST_F(Ledgered, OpenEntriesLeaveOutWhatRestsWithAKeptSandbox)
{
    const auto kinds = [](const std::vector<ledger::Entry>& entries) {
        std::vector<EntryKind> list;
        for (const auto& e : entries) list.push_back(e.kind);
        return list;
    };
    Journal kept = journal(OnExit::keep);
    EXPECT_EQ(kinds(VALUE(kept.open_entries())),
              (std::vector{EntryKind::run_dir, EntryKind::placeholder, EntryKind::placeholder,
                           EntryKind::log_worker}));
    Journal removed = journal(OnExit::remove);
    EXPECT_EQ(kinds(VALUE(removed.open_entries())),
              (std::vector{EntryKind::state_dir, EntryKind::run_dir, EntryKind::placeholder,
                           EntryKind::placeholder, EntryKind::log_worker}));
}

TEST_F(Ledgered, CleanedClosesTheClaimAndRestsInItsState)
{
    Journal j = journal(OnExit::keep);
    EXPECT_OK(j.running(ledger::test::self(), launched()));
    EXPECT_OK(j.ended(kSeven, {}));
    EXPECT_OK(j.cleaned({.gone = VALUE(j.open_entries()), .foreign = {}, .left = {}},
                        ledger::State::stopped));
    EXPECT_EQ(row().state, ledger::State::stopped);
    EXPECT_FALSE(VALUE(ledger_.claim_of(id())));
    for (const auto& e : VALUE(ledger_.entries(id()))) {
        const bool rests = e.kind == EntryKind::state_dir || e.kind == EntryKind::log_files;
        EXPECT_EQ(e.state == EntryState::undone, !rests) << e.name;
    }
    EXPECT_OK(j.settle());
    expect_sound_audit();
}

TEST_F(Ledgered, CleanedDeletesTheSandboxOfARunThatRemoves)
{
    Journal j = journal(OnExit::remove);
    EXPECT_OK(j.running(ledger::test::self(), launched()));
    EXPECT_OK(j.ended(kSeven, {}));
    EXPECT_OK(j.cleaned({.gone = VALUE(j.open_entries()), .foreign = {}, .left = {}},
                        ledger::State::stopped));
    EXPECT_EQ(row().state, ledger::State::deleted);
    EXPECT_EQ(row().exit, kSeven) << "kept exactly once, also for a removed sandbox";
}

TEST_F(Ledgered, CleanedKeepsWhatCouldNotBeRemovedForTheNextReconcile)
{
    Journal j = journal(OnExit::remove);
    EXPECT_OK(j.running(ledger::test::self(), launched()));
    EXPECT_OK(j.ended(kSeven, {}));
    auto entries = VALUE(j.open_entries());
    const ledger::Entry stuck = entries.back();
    entries.pop_back();
    EXPECT_OK(j.cleaned({.gone = entries, .foreign = {}, .left = {{stuck, "busy"}}},
                        ledger::State::stopped));
    EXPECT_EQ(row().state, ledger::State::stopped) << "not deleted while something is left";
    const auto open = VALUE(ledger_.open_entries());
    EXPECT_TRUE(
        std::any_of(open.begin(), open.end(), [&](const auto& e) { return e.seq == stuck.seq; }));
}

TEST_F(Ledgered, FailedKeepsWhatWasObservedAndNamesTheStep)
{
    Journal j = journal();
    j.observed(EntryKind::run_dir, "{\"device\":1,\"inode\":2}");
    EXPECT_OK(j.failed({"sha256:" + std::string(64, 'a'), "crun", "no \x1b such thing", {}}));
    EXPECT_EQ(VALUE(ledger_.entries(id()))[2].state, EntryState::observed);
    EXPECT_OK(j.settle());
    EXPECT_NE(audit_text().find("\"crun\""), std::string::npos);
    expect_sound_audit();
}

TEST_F(Ledgered, IntendsOneMoreEntryForASession)
{
    Journal j = journal();
    const auto seq = VALUE(j.intend(EntryKind::cgroup_session, "/sandbox/x/workload/s2"));
    const auto entries = VALUE(ledger_.entries(id()));
    EXPECT_EQ(entries.back().seq, seq);
    EXPECT_EQ(entries.back().state, EntryState::intent);
}

TEST_F(Ledgered, FlushingWritesEachQueuedLineOnceHoweverOftenItIsCalled)
{
    Journal j = journal();
    for (int i = 0; i < 5; ++i) {
        EXPECT_OK(j.acted("kill", "number " + std::to_string(i)));
        EXPECT_OK(flush_audit(ledger_, dir_.path()));
        EXPECT_OK(flush_audit(ledger_, dir_.path()));
        const std::string text = audit_text();
        EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), i + 1);
    }
    EXPECT_TRUE(VALUE(ledger_.queued_audit()).empty());
    expect_sound_audit();
}

// Cuts the flush of five lines at every byte, as a host that goes down does, and flushes again.
TEST_F(Ledgered, AFlushThatWasInterruptedAnywhereIsCompletedByTheNext)
{
    Journal j = journal();
    EXPECT_OK(j.acted("stop", "before"));
    EXPECT_OK(flush_audit(ledger_, dir_.path()));
    const std::string before = audit_text();
    for (int i = 0; i < 4; ++i) EXPECT_OK(j.acted("kill", "number " + std::to_string(i)));
    std::string whole = before;
    for (const auto& queued : VALUE(ledger_.queued_audit())) whole += queued.line + "\n";
    for (std::size_t cut = before.size(); cut <= whole.size(); cut += 13) {
        const TempDir copy;
        ledger::test::copy_ledger(dir_, copy);
        test::write_bytes(copy.file(kAuditName), whole.substr(0, cut));
        auto other = ledger::test::open(copy);
        EXPECT_OK(flush_audit(other, copy.path()));
        EXPECT_EQ(test::read_bytes(copy.file(kAuditName)), whole) << "cut at " << cut;
        EXPECT_TRUE(VALUE(other.queued_audit()).empty());
    }
}

TEST_F(Ledgered, FlushingRefusesToGoOnBehindALineItCannotRead)
{
    Journal j = journal();
    EXPECT_OK(j.acted("kill", "one"));
    for (const char* damaged : {"rubbish\n", "[]\n", "{\"seq\":\"one\"}\n", "\n"}) {
        test::write_bytes(dir_.file(kAuditName), damaged);
        EXPECT_CODE(flush_audit(ledger_, dir_.path()), Code::corrupt) << damaged;
        EXPECT_EQ(audit_text(), damaged);
    }
    EXPECT_EQ(VALUE(ledger_.queued_audit()).size(), 1U) << "dropped though it was not written";
}

TEST_F(Ledgered, ChainsTheLinesOfTwoShimsIntoOneLog)
{
    Journal a = journal();
    Journal b = journal();
    for (int i = 0; i < 3; ++i) {
        EXPECT_OK(a.acted("kill", "a"));
        EXPECT_OK(b.acted("stop", "b"));
    }
    EXPECT_OK(b.settle());
    EXPECT_OK(a.settle());
    const std::string text = audit_text();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
    expect_sound_audit();
}

TEST(JournalOpen, RefusesAStateFolderWithoutALedger)
{
    const TempDir dir;
    EXPECT_FALSE(Journal::open(dir.path()));
    EXPECT_FALSE(Journal::open(dir.file("none")));
}

}  // namespace
}  // namespace sandbox::shim
