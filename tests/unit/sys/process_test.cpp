// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>

#include "child.hpp"
#include "sys/caps.hpp"
#include "sys/landlock.hpp"
#include "sys/mount.hpp"
#include "sys/procfs.hpp"
#include "sys/rlimit.hpp"

namespace sandbox::sys {

namespace {

using testing::in_child;
using testing::TempDir;

Deadline soon() { return Deadline::after(Millis(20'000)); }

Pidfd start_sleeper()
{
    auto child = clone_process({});
    EXPECT_TRUE(child.has_value());
    if (child->pid == 0)
        for (;;) ::pause();
    return Pidfd(std::move(child->pidfd), child->pid);
}

// Runs with mounts of its own; 0 when `body` is true.
template <class Body>
int in_mount_namespace(Body&& body)
{
    return in_child([&] {
               if (!unshare_namespaces(CLONE_NEWNS) || !make_all_private()) return 200;
               return body() ? 0 : 1;
           })
        .code;
}

bool is_read_only(const std::string& path)
{
    return ::access(path.c_str(), W_OK) != 0 && errno == EROFS;
}

}  // namespace

TEST(ProcessIdentity, TellsAProcessFromItsSuccessor)
{
    const Pidfd child = start_sleeper();
    const auto identity = identity_of(child.pid());
    ASSERT_TRUE(identity.has_value()) << identity.error().message();
    EXPECT_EQ(identity->boot_id, *boot_id());
    EXPECT_GT(identity->start_time, 0U);
    EXPECT_TRUE(*child.still_same(*identity));
    EXPECT_TRUE(Pidfd::open(*identity).has_value());
    ProcessIdentity other = *identity;
    other.start_time += 1;
    EXPECT_FALSE(*child.still_same(other));
    EXPECT_EQ(Pidfd::open(other).error().code(), Code::foreign);
    other = *identity;
    other.boot_id = "00000000-0000-0000-0000-000000000000";
    EXPECT_EQ(Pidfd::open(other).error().code(), Code::foreign);
    ASSERT_TRUE(child.send_signal(SIGKILL).has_value());
    EXPECT_EQ((*child.wait_exit(soon()))->signal, SIGKILL);
    EXPECT_EQ(Pidfd::open(*identity).error().code(), Code::not_found);
    EXPECT_EQ(identity_of(child.pid()).error().code(), Code::not_found);
    EXPECT_EQ(child.send_signal(SIGTERM).error().code(), Code::not_found);
    EXPECT_FALSE(*child.still_same(*identity));
}

TEST(Pidfd, TellsRunningFromEndedAndKeepsTheExitCode)
{
    const Pidfd child = start_sleeper();
    EXPECT_FALSE(*child.ended());
    EXPECT_FALSE(*child.wait_ended(Deadline::after(Millis(1))));
    EXPECT_FALSE(child.wait_exit(Deadline::after(Millis(1)))->has_value());
    ASSERT_TRUE(child.send_signal(SIGTERM).has_value());
    EXPECT_TRUE(*child.wait_ended(soon()));
    EXPECT_TRUE(*child.ended());
    EXPECT_EQ(**child.wait_exit(soon()), (ExitStatus{0, SIGTERM, false}));
    EXPECT_EQ(in_child([] { return 7; }), (ExitStatus{7, 0, false}));
}

TEST(ReapAny, CollectsAnOrphanOfASubreaper)
{
    EXPECT_EQ(in_child([] {
                  if (!become_subreaper()) return 1;
                  const pid_t middle = ::fork();
                  if (middle == 0) {
                      if (::fork() == 0) ::_exit(9);
                      ::_exit(3);
                  }
                  int seen = 0;
                  while (seen != 3 + 9) {
                      const auto reaped = reap_any();
                      if (!reaped) return 2;
                      if (*reaped) seen += (*reaped)->status.code;
                  }
                  return reap_any()->has_value() ? 3 : 0;
              }).code,
              0);
}

TEST(UserNamespace, HasACompleteMapOrOneId)
{
    if (!testing::is_root()) GTEST_SKIP() << "writing id maps needs root";
    const std::vector<IdMapping> complete{{0, 700'000, 65'536}};
    const std::vector<IdMapping> one{{1000, 1000, 1}};
    for (const auto& map : {complete, one}) {
        const auto made = make_user_namespace(map, map);
        ASSERT_TRUE(made.has_value()) << made.error().message();
        EXPECT_NE(identity_of_fd(made->get())->inode, *ProcDir::self()->namespace_inode("user"));
        const int found = in_child([&] {
                              if (::setns(made->get(), CLONE_NEWUSER) != 0) return 1;
                              const auto self = ProcDir::self();
                              return *self->uid_map() == map && *self->gid_map() == map ? 0 : 2;
                          }).code;
        EXPECT_EQ(found, 0);
    }
    EXPECT_FALSE(reap_any()->has_value());  // the helper child is gone
    EXPECT_FALSE(make_user_namespace({{0, 0, 0}}, one).has_value());
    EXPECT_FALSE(reap_any()->has_value());
}

TEST(Mounts, CloneATreeReadOnlyWithItsSubmounts)
{
    if (!testing::is_root()) GTEST_SKIP() << "mounting needs root";
    const TempDir dir;
    ASSERT_TRUE(make_dirs(dir / "source/sub").has_value());
    ASSERT_TRUE(make_dirs(dir / "target").has_value());
    EXPECT_EQ(in_mount_namespace([&] {
                  auto tmpfs = make_tmpfs(1U << 20, 0755, {});
                  if (!tmpfs || !attach_tree(tmpfs->get(), AT_FDCWD, dir / "source/sub"))
                      return false;
                  const auto tree = clone_tree(AT_FDCWD, dir / "source", Depth::recursive);
                  MountAttributes attributes;
                  attributes.read_only = true;
                  attributes.no_suid = true;
                  attributes.no_dev = true;
                  if (!tree || !set_mount_attributes(tree->get(), attributes, Depth::recursive) ||
                      !attach_tree(tree->get(), AT_FDCWD, dir / "target"))
                      return false;
                  const auto mounts = ProcDir::self()->mountinfo();
                  int covered = 0;
                  for (const MountInfo& mount : *mounts)
                      if (mount.target.starts_with(dir / "target") && mount.has("ro") &&
                          mount.has("nosuid") && mount.has("nodev"))
                          ++covered;
                  return covered == 2 && is_read_only(dir / "target/sub") &&
                         !is_read_only(dir / "source/sub");
              }),
              0);
}

TEST(Mounts, MapOneIdSoThatOnlyItsOwnerWrites)
{
    if (!testing::is_root()) GTEST_SKIP() << "mounting needs root";
    const TempDir dir;
    ASSERT_TRUE(make_dirs(dir / "source", 0755).has_value());
    ASSERT_TRUE(make_dirs(dir / "target").has_value());
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "source/own", "x", 0600).has_value());
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "source/foreign", "x", 0600).has_value());
    ASSERT_EQ(::chown((dir / "source/own").c_str(), 1000, 1000), 0);
    // Others must be able to enter it: no capability counts on a folder whose owner is not mapped.
    const int result = in_mount_namespace([&] {
        const auto users = make_user_namespace({{1000, 201'000, 1}}, {{1000, 201'000, 1}});
        auto tree = clone_tree(AT_FDCWD, dir / "source", Depth::single);
        MountAttributes idmap;
        idmap.userns_fd = users ? users->get() : -1;
        if (!users || !tree || !set_mount_attributes(tree->get(), idmap, Depth::single) ||
            !attach_tree(tree->get(), AT_FDCWD, dir / "target"))
            return false;
        struct stat own{};
        struct stat foreign{};
        return ::stat((dir / "target/own").c_str(), &own) == 0 && own.st_uid == 201'000 &&
               ::stat((dir / "target/foreign").c_str(), &foreign) == 0 && foreign.st_uid == 65534;
    });
    EXPECT_EQ(result, 0);
}

TEST(Mounts, LayATmpfsOverAFolderAsAnOverlay)
{
    if (!testing::is_root()) GTEST_SKIP() << "mounting needs root";
    const TempDir dir;
    for (const char* name : {"lower", "scratch", "merged"})
        ASSERT_TRUE(make_dirs(dir / name).has_value());
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "lower/f", "old", 0644).has_value());
    EXPECT_EQ(in_mount_namespace([&] {
                  auto scratch = make_tmpfs(1U << 20, 0700, {});
                  if (!scratch || !attach_tree(scratch->get(), AT_FDCWD, dir / "scratch") ||
                      !make_dirs(dir / "scratch/up") || !make_dirs(dir / "scratch/work"))
                      return false;
                  MountAttributes attributes;
                  attributes.no_suid = true;
                  auto overlay = make_overlay({dir / "lower"}, dir / "scratch/up",
                                              dir / "scratch/work", attributes);
                  if (!overlay || !attach_tree(overlay->get(), AT_FDCWD, dir / "merged"))
                      return false;
                  auto merged = open_dir(dir / "merged");
                  if (!replace_file_at(merged->get(), "f", "new", 0644)) return false;
                  overlay->reset();
                  const bool busy = !unmount(dir / "merged").has_value();
                  merged->reset();
                  return busy && *read_file(dir / "merged/f", 9) == "new" &&
                         unmount(dir / "merged").has_value();
              }),
              0);
    EXPECT_EQ(*read_file(dir / "lower/f", 9), "old");
    EXPECT_FALSE(make_overlay({"/a:b"}, "/u", "/w", {}).has_value());
}

TEST(Mounts, PivotIntoANewRootAndLoseTheOld)
{
    if (!testing::is_root()) GTEST_SKIP() << "mounting needs root";
    const TempDir dir;
    EXPECT_EQ(in_mount_namespace([&] {
                  auto root = make_tmpfs(1U << 20, 0755, {});
                  if (!root || !attach_tree(root->get(), AT_FDCWD, dir.path())) return false;
                  const auto inside = open_dir(dir.path());
                  return pivot_root_into(inside->get()).has_value() && open_dir("/").has_value() &&
                         ::access("/proc", F_OK) != 0;
              }),
              0);
}

TEST(Mounts, SayWhatTheFilesystemDisliked)
{
    if (!testing::is_root()) GTEST_SKIP() << "mounting needs root";
    const auto made = make_filesystem("tmpfs", {{"nonsense", "1"}}, {});
    ASSERT_FALSE(made.has_value());
    EXPECT_NE(made.error().message().find("nonsense"), std::string::npos);
    EXPECT_FALSE(make_filesystem("no-such-fs", {}, {}).has_value());
}

TEST(Caps, HaveANameForEveryNumberOfThisKernel)
{
    const auto last = read_file("/proc/sys/kernel/cap_last_cap", 16);
    ASSERT_TRUE(last.has_value());
    for (int number = 0; number <= std::atoi(last->c_str()); ++number) {
        EXPECT_FALSE(cap_name(number).empty()) << number;
        EXPECT_EQ(cap_number(cap_name(number)), number);
    }
    EXPECT_FALSE(cap_number("CAP_NONSENSE").has_value());
    EXPECT_FALSE(cap_number("cap_chown").has_value());
    const std::vector<std::string> names{"CAP_CHOWN", "CAP_NET_ADMIN"};
    EXPECT_EQ(*cap_set(names), 1U | 1U << 12);
    EXPECT_EQ(cap_names(1U | 1U << 12), names);
    const std::vector<std::string> unknown{"CAP_X"};
    EXPECT_FALSE(cap_set(unknown).has_value());
}

TEST(Caps, DropEverythingButWhatIsKept)
{
    if (!testing::is_root()) GTEST_SKIP() << "dropping the bounding set needs CAP_SETPCAP";
    EXPECT_EQ(in_child([] {
                  constexpr CapSet kept = 1U << 5;  // CAP_KILL
                  if (drop_bounding(kept) != 0) return 1;
                  if (apply_caps(CapState{kept, kept, kept}) != 0) return 2;
                  if (set_ambient(kept) != 0) return 3;
                  const auto status = ProcDir::self()->status();
                  if (status->cap_bounding != kept || status->cap_ambient != kept) return 4;
                  if (status->cap_permitted != kept || status->cap_effective != kept) return 5;
                  return *get_caps() == CapState{kept, kept, kept} ? 0 : 6;
              }).code,
              0);
}

TEST(Rlimits, AreKnownByNameAndApplied)
{
    EXPECT_EQ(rlimit_number("nofile"), RLIMIT_NOFILE);
    EXPECT_EQ(rlimit_name(RLIMIT_CORE), "core");
    EXPECT_FALSE(rlimit_number("NOFILE").has_value());
    EXPECT_TRUE(rlimit_name(999).empty());
    EXPECT_EQ(in_child([] {
                  if (apply_rlimit(Rlimit{RLIMIT_NOFILE, 17, 19}) != 0) return 1;
                  return *get_rlimit(RLIMIT_NOFILE) == Rlimit{RLIMIT_NOFILE, 17, 19} ? 0 : 2;
              }).code,
              0);
    EXPECT_EQ(apply_rlimit(Rlimit{999, 0, 0}), EINVAL);
}

TEST(Landlock, KnowsTheAccessesOfEachAbi)
{
    EXPECT_EQ(landlock::all_fs(0), 0U);
    EXPECT_EQ(landlock::all_fs(1), 0x1fffU);
    EXPECT_EQ(landlock::all_fs(2), 0x3fffU);
    EXPECT_EQ(landlock::all_fs(4), 0x7fffU);
    EXPECT_EQ(landlock::all_fs(7), 0xffffU);
    EXPECT_EQ(landlock::all_net(3), 0U);
    EXPECT_EQ(landlock::all_net(4), 3U);
    EXPECT_EQ(landlock::all_scopes(5), 0U);
    EXPECT_EQ(landlock::all_scopes(6), 3U);
    EXPECT_EQ(landlock::file_only(0xffffU) & landlock::kReadDir, 0U);
}

TEST(Landlock, ForbidsWhatNoRuleGives)
{
    const int abi = landlock_abi();
    if (abi == 0) SKIP_VACUOUS("this kernel has no Landlock");
    const TempDir dir;
    ASSERT_TRUE(make_dirs(dir / "in").has_value());
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "in/f", "x", 0644).has_value());
    ASSERT_TRUE(write_file_at(AT_FDCWD, dir / "out", "x", 0644).has_value());
    ASSERT_TRUE(open_file(dir / "out", O_RDONLY).has_value());  // the control
    LandlockRules rules;
    rules.abi = abi;
    rules.handled_fs = landlock::all_fs(abi);
    rules.paths = {{dir / "in", landlock::kReadExecute}};
    EXPECT_EQ(in_child([&] {
                  const char* blamed = nullptr;
                  if (set_no_new_privs() != 0 || apply_landlock(rules, &blamed) != 0) return 1;
                  if (!open_file(dir / "in/f", O_RDONLY)) return 2;
                  if (open_file(dir / "in/f", O_WRONLY)) return 3;
                  return open_file(dir / "out", O_RDONLY).has_value() ? 4 : 0;
              }).code,
              0);
}

TEST(Landlock, NeverSkipsAPathThatIsNotThere)
{
    const int abi = landlock_abi();
    if (abi == 0) SKIP_VACUOUS("this kernel has no Landlock");
    LandlockRules rules;
    rules.abi = abi;
    rules.handled_fs = landlock::all_fs(abi);
    rules.paths = {{"/dev/null", landlock::kReadFile}, {"/nonexistent", landlock::kReadFile}};
    const auto made = make_ruleset(rules);
    ASSERT_FALSE(made.has_value());
    EXPECT_NE(made.error().message().find("/nonexistent"), std::string::npos);
    rules.paths.pop_back();
    EXPECT_TRUE(make_ruleset(rules).has_value());
    rules.abi = abi + 1;
    EXPECT_EQ(make_ruleset(rules).error().code(), Code::unavailable);
    rules.abi = 1;
    EXPECT_FALSE(make_ruleset(rules).has_value());  // bits that ABI 1 does not know
}

TEST(Landlock, ClosesAbstractSocketsAndPortsOutside)
{
    const int abi = landlock_abi();
    if (abi < 6) SKIP_VACUOUS("Landlock scopes need ABI 6, this kernel has " + std::to_string(abi));
    const std::string name = "sandbox-unit-" + std::to_string(::getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener.get(), generic, size), 0);
    ASSERT_EQ(::listen(listener.get(), 4), 0);
    const auto connect = [&](bool restricted) {
        return in_child([&] {
                   LandlockRules rules;
                   rules.abi = abi;
                   rules.handled_net = landlock::all_net(abi);
                   rules.scopes = landlock::all_scopes(abi);
                   if (restricted &&
                       (set_no_new_privs() != 0 || apply_landlock(rules, nullptr) != 0))
                       return 200;
                   const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
                   return ::connect(client.get(), generic, size) == 0 ? 0 : errno;
               })
            .code;
    };
    EXPECT_EQ(connect(false), 0);
    EXPECT_EQ(connect(true), EPERM);
}

}  // namespace sandbox::sys
