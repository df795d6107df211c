// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "../ledger/support.hpp"
#include "driver/resources.hpp"

namespace sandbox::driver {
namespace {

namespace fs = std::filesystem;
using ledger::Entry;
using ledger::EntryKind;
using ledger::EntryState;
using ledger::test::id;
using ledger::test::TempDir;

class Resources : public testing::Test {
protected:
    Resources()
    {
        for (const auto* folder : {"run", "state", "state/sandboxes", "outside"}) {
            fs::create_directory(dir_.file(folder));
        }
        run_ = VALUE(sys::open_dir(dir_.file("run")));
        state_ = VALUE(sys::open_dir(dir_.file("state")));
        context_.run_root = run_.get();
        context_.state_root = state_.get();
        context_.boot_id = VALUE(sys::boot_id());
    }

    static Entry entry(EntryKind kind, const std::string& name, const std::string& identity = {})
    {
        return {id(1),   1,    1,
                kind,    name, identity.empty() ? EntryState::intent : EntryState::observed,
                identity};
    }
    Presence seen(const Entry& e) { return VALUE(observe(e, context_)); }

    TempDir dir_;
    sys::UniqueFd run_;
    sys::UniqueFd state_;
    ResourceContext context_;
};

TEST_F(Resources, RefuseANameTheIdDoesNotGive)
{
    ledger::test::write_bytes(dir_.file("outside/file"), "x");
    const std::string other = id(2).str();
    for (const auto& bad :
         {entry(EntryKind::run_dir, "../outside"), entry(EntryKind::run_dir, ""),
          entry(EntryKind::run_dir, other), entry(EntryKind::state_dir, "sandboxes"),
          entry(EntryKind::door_socket, other + "/v.sock"), entry(EntryKind::cgroup_root, "/"),
          entry(EntryKind::cgroup_root, "/sandbox"),
          entry(EntryKind::cgroup_root, "/sandbox/../" + id(1).str()),
          entry(EntryKind::cgroup_root, "sandbox/" + id(1).str()),
          entry(EntryKind::cgroup_session, "/s/" + id(1).str() + "/workload/"),
          entry(EntryKind::cgroup_session, "/s/" + id(1).str() + "/workload/../.."),
          entry(EntryKind::placeholder, "relative"),
          entry(EntryKind::placeholder, "/tmp/../etc/passwd"),
          entry(EntryKind::shim_process, "shim:" + other)}) {
        EXPECT_CODE(undo(bad, context_), Code::corrupt) << bad.name;
        EXPECT_CODE(observe(bad, context_), Code::corrupt) << bad.name;
    }
    EXPECT_TRUE(fs::exists(dir_.file("outside/file")));
}

TEST_F(Resources, NamesDeriveFromTheId)
{
    for (int i = 0; i <= static_cast<int>(EntryKind::log_files); ++i) {
        const auto kind = static_cast<EntryKind>(i);
        const std::string name = resource_name(kind, id(1), "/sandbox", "detail");
        if (kind == EntryKind::id_range || kind == EntryKind::placeholder)
            EXPECT_EQ(name, "detail");
        else
            EXPECT_NE(name.find(id(1).str()), std::string::npos) << to_string(kind);
    }
    EXPECT_EQ(resource_name(EntryKind::cgroup_session, id(1), "/sandbox", "s1"),
              "/sandbox/" + id(1).str() + "/workload/s1");
}

TEST_F(Resources, AFolderThatIsALinkIsUnlinkedNotFollowed)
{
    ledger::test::write_bytes(dir_.file("outside/file"), "x");
    fs::create_symlink(dir_.file("outside"), dir_.file("run/" + id(1).str()));
    const Entry run_dir = entry(EntryKind::run_dir, id(1).str());
    EXPECT_EQ(seen(run_dir), Presence::present);
    EXPECT_OK(undo(run_dir, context_));
    EXPECT_EQ(seen(run_dir), Presence::absent);
    EXPECT_TRUE(fs::exists(dir_.file("outside/file")));
    // And a socket "below" a link is out of reach.
    fs::create_symlink(dir_.file("outside"), dir_.file("run/" + id(1).str()));
    ledger::test::write_bytes(dir_.file("outside/v.sock"), "x");
    EXPECT_FALSE(
        undo(entry(EntryKind::door_socket, id(1).str() + "/v.sock"), context_).has_value());
    EXPECT_TRUE(fs::exists(dir_.file("outside/v.sock")));
}

TEST_F(Resources, UndoOfWhatIsNotThereIsSuccessTwice)
{
    for (const auto kind : {EntryKind::state_dir, EntryKind::run_dir, EntryKind::door_socket,
                            EntryKind::shim_socket, EntryKind::log_files, EntryKind::cgroup_root,
                            EntryKind::shim_process, EntryKind::pid1_process}) {
        const Entry e = entry(kind, resource_name(kind, id(1), "/sandbox"));
        EXPECT_OK(undo(e, context_)) << to_string(kind);
        EXPECT_OK(undo(e, context_)) << to_string(kind);
        EXPECT_EQ(seen(e), Presence::absent) << to_string(kind);
    }
}

TEST_F(Resources, TheStateFolderKeepsItsLogsAndTheyGoLast)
{
    const std::string folder = dir_.file("state/sandboxes/" + id(1).str());
    fs::create_directories(folder + "/logs");
    fs::create_directories(folder + "/other/deep");
    ledger::test::write_bytes(folder + "/plan.json", "{}");
    const Entry state_dir = entry(EntryKind::state_dir, "sandboxes/" + id(1).str());
    const Entry logs = entry(EntryKind::log_files, "sandboxes/" + id(1).str() + "/logs");
    EXPECT_EQ(seen(state_dir), Presence::present);
    EXPECT_OK(undo(state_dir, context_));
    EXPECT_EQ(seen(state_dir), Presence::absent);
    EXPECT_EQ(seen(logs), Presence::present);
    EXPECT_OK(undo(logs, context_));
    EXPECT_EQ(seen(logs), Presence::absent);
    EXPECT_FALSE(fs::exists(folder));
}

class Placeholders : public Resources {
protected:
    std::string target_ = dir_.file("outside/secret");
    Entry made(PlaceholderType type)
    {
        return entry(EntryKind::placeholder, target_,
                     ledger::encode(VALUE(make_placeholder(id(1), target_, type))));
    }
};

TEST_F(Placeholders, AreRemovedWhileEmptyAndTheSame)
{
    for (const auto type : {PlaceholderType::file, PlaceholderType::folder}) {
        const Entry e = made(type);
        EXPECT_EQ(seen(e), Presence::present);
        EXPECT_OK(undo(e, context_));
        EXPECT_EQ(seen(e), Presence::absent);
        EXPECT_FALSE(fs::exists(target_));
        EXPECT_OK(undo(e, context_));
    }
}

TEST_F(Placeholders, AreKeptOnceSomebodyFilledThem)
{
    const Entry file = made(PlaceholderType::file);
    ledger::test::write_bytes(target_, "now mine");
    EXPECT_OK(undo(file, context_));
    EXPECT_EQ(seen(file), Presence::foreign);
    EXPECT_EQ(ledger::test::read_bytes(target_), "now mine");
    fs::remove(target_);
    const Entry folder = made(PlaceholderType::folder);
    ledger::test::write_bytes(target_ + "/x", "");
    EXPECT_OK(undo(folder, context_));
    EXPECT_TRUE(fs::exists(target_ + "/x"));
}

TEST_F(Placeholders, AreKeptWhenAnotherFileHasTheName)
{
    const Entry e = made(PlaceholderType::file);
    ledger::test::write_bytes(dir_.file("outside/new"), "");
    fs::rename(dir_.file("outside/new"), target_);
    EXPECT_EQ(seen(e), Presence::foreign);
    EXPECT_OK(undo(e, context_));
    EXPECT_TRUE(fs::exists(target_));
}

TEST_F(Placeholders, OfALostObservationAreKnownByTheirMark)
{
    (void)made(PlaceholderType::file);
    const Entry lost = entry(EntryKind::placeholder, target_);
    EXPECT_EQ(seen(lost), Presence::present);
    Entry others = lost;
    others.sandbox = id(2);
    EXPECT_EQ(seen(others), Presence::foreign);
    EXPECT_OK(undo(lost, context_));
    EXPECT_FALSE(fs::exists(target_));
    ledger::test::write_bytes(target_, "");
    EXPECT_EQ(seen(lost), Presence::foreign) << "an empty file of the user's has no mark";
    EXPECT_OK(undo(lost, context_));
    EXPECT_TRUE(fs::exists(target_));
}

TEST_F(Placeholders, NeedATargetThatIsMissingAndAParentThatIsNoLink)
{
    ledger::test::write_bytes(target_, "");
    EXPECT_CODE(make_placeholder(id(1), target_, PlaceholderType::file), Code::already_exists);
    EXPECT_CODE(make_placeholder(id(1), target_, PlaceholderType::folder), Code::already_exists);
    EXPECT_CODE(make_placeholder(id(1), dir_.file("nowhere/x"), PlaceholderType::file),
                Code::not_found);
    fs::create_symlink(dir_.file("outside"), dir_.file("link"));
    EXPECT_FALSE(make_placeholder(id(1), dir_.file("link/x"), PlaceholderType::file).has_value());
}

}  // namespace
}  // namespace sandbox::driver
