// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <gtest/gtest.h>

#include "../sys/child.hpp"
#include "confine/session.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/seccomp/compile.hpp"

namespace sandbox::confine {

namespace {

using testing::in_child;
using testing::TempDir;
namespace rules = sys::seccomp;

Spec plain_spec()
{
    Spec spec;
    spec.uid = 1000;
    spec.gid = 1001;
    spec.umask = 027;
    spec.bpf = rules::compile(rules::Profile::standard, *rules::native_arch());
    return spec;
}

// Applies `spec` in a child, then runs `body` there with what the child reads of itself.
template <class Body>
int confined(const Spec& spec, Body&& body)
{
    return in_child([&] {
               sys::close_range(3, ~0U);
               const auto witness = SelfWitness::open();
               if (!witness) return 240;
               const Outcome outcome = apply(spec);
               if (!outcome.ok()) return 200 + static_cast<int>(outcome.failed);
               const auto report = witness->read();
               return report ? body(*report) : 241;
           })
        .code;
}

int code_of(Step step) { return 200 + static_cast<int>(step); }

class Confine : public ::testing::Test {
protected:
    void SetUp() override
    {
        if (!testing::is_root()) GTEST_SKIP() << "changing ids needs root";
    }
};

}  // namespace

TEST_F(Confine, PutsEverythingInForceAndReadsItBack)
{
    const Spec spec = plain_spec();
    EXPECT_EQ(confined(spec,
                       [&](const SelfReport& report) {
                           const auto& status = report.status;
                           if (status.uid != std::array<std::uint32_t, 4>{1000, 1000, 1000, 1000})
                               return 1;
                           if (status.gid != std::array<std::uint32_t, 4>{1001, 1001, 1001, 1001})
                               return 2;
                           if (!status.groups.empty()) return 3;
                           if ((status.cap_bounding | status.cap_permitted | status.cap_effective |
                                status.cap_inheritable | status.cap_ambient) != 0)
                               return 4;
                           if (!status.no_new_privs || status.seccomp != 2) return 5;
                           if (report.open_fds != std::vector<int>{0, 1, 2}) return 6;
                           if (::getsid(0) != ::getpid()) return 7;
                           return differences(spec, report, 1).empty() ? 0 : 8;
                       }),
              0);
}

TEST_F(Confine, LeavesUserZeroWithoutAnyCapability)
{
    Spec spec = plain_spec();
    spec.uid = 0;
    spec.gid = 0;
    EXPECT_EQ(confined(spec,
                       [&](const SelfReport& report) {
                           if (!differences(spec, report, 1).empty()) return 1;
                           return ::setuid(1) != 0 && errno == EPERM ? 0 : 2;
                       }),
              0);
}

TEST_F(Confine, KeepsTheListedCapabilitiesThroughTheChangeOfUser)
{
    Spec spec = plain_spec();
    spec.capabilities = 1U << 10;  // CAP_NET_BIND_SERVICE
    EXPECT_EQ(confined(spec,
                       [&](const SelfReport& report) {
                           return differences(spec, report, 1).empty() ? 0 : 1;
                       }),
              0);
}

TEST_F(Confine, GivesExactlyTheListedGroups)
{
    Spec spec = plain_spec();
    spec.groups = {27, 4};
    EXPECT_EQ(confined(spec,
                       [&](const SelfReport& report) {
                           return report.status.groups == std::vector<std::uint32_t>{4, 27} ? 0 : 1;
                       }),
              0);
}

TEST_F(Confine, RefusesWhatTheFilterRefuses)
{
    EXPECT_EQ(in_child([] { return ::unshare(CLONE_NEWUSER) == 0 ? 0 : errno; }).code, 0);
    EXPECT_EQ(confined(plain_spec(),
                       [](const SelfReport&) {
                           return ::unshare(CLONE_NEWUSER) != 0 && errno == EPERM ? 0 : 1;
                       }),
              0);
}

TEST_F(Confine, AppliesLimitsUmaskAndFolder)
{
    Spec spec = plain_spec();
    spec.rlimits = {{RLIMIT_NOFILE, 64, 64}, {RLIMIT_CORE, 0, 0}};
    spec.cwd = "/usr";
    EXPECT_EQ(confined(spec,
                       [](const SelfReport& report) {
                           if (report.status.umask != 027) return 1;
                           rlimit limit{};
                           ::getrlimit(RLIMIT_NOFILE, &limit);
                           if (limit.rlim_cur != 64 || limit.rlim_max != 64) return 2;
                           char where[64];
                           return std::string(::getcwd(where, sizeof where)) == "/usr" ? 0 : 3;
                       }),
              0);
}

TEST_F(Confine, EntersTheFolderWithTheFinalIds)
{
    const TempDir dir;  // 0700, root's
    Spec spec = plain_spec();
    spec.cwd = dir.path();
    EXPECT_EQ(confined(spec, [](const SelfReport&) { return 0; }), code_of(Step::cwd));
}

TEST_F(Confine, AppliesLandlockAndStillReadsItsOwnState)
{
    const int abi = sys::landlock_abi();
    if (abi == 0) SKIP_VACUOUS("this kernel has no Landlock");
    Spec spec = plain_spec();
    spec.landlock.abi = abi;
    spec.landlock.handled_fs = sys::landlock::all_fs(abi);
    spec.landlock.paths = {{"/usr", sys::landlock::kReadExecute}};
    EXPECT_EQ(confined(spec,
                       [&](const SelfReport& report) {
                           if (!differences(spec, report, 1).empty()) return 1;
                           if (::open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0) return 2;
                           return ::open("/usr/bin/env", O_RDONLY | O_CLOEXEC) >= 0 ? 0 : 3;
                       }),
              0);
}

TEST_F(Confine, NamesTheLandlockPathThatIsMissing)
{
    if (sys::landlock_abi() == 0) SKIP_VACUOUS("this kernel has no Landlock");
    Spec spec = plain_spec();
    spec.landlock.abi = sys::landlock_abi();
    spec.landlock.handled_fs = sys::landlock::kReadFile;
    spec.landlock.paths = {{"/nonexistent", sys::landlock::kReadFile}};
    EXPECT_EQ(in_child([&] {
                  const Outcome outcome = apply(spec);
                  if (outcome.failed != Step::landlock || outcome.errnum != ENOENT) return 1;
                  const std::string text = to_error(outcome).message();
                  return text.find("/nonexistent") != std::string::npos ? 0 : 2;
              }).code,
              0);
}

TEST_F(Confine, JoinsItsCgroupBeforeAnythingElse)
{
    const auto host = sys::cgroup::detect();
    const std::string path = "/sandbox-test-confine-" + std::to_string(::getpid());
    const std::vector<std::string> controllers{"pids"};
    const auto* hierarchy = host->with("pids");
    if (hierarchy == nullptr || hierarchy->version != sys::cgroup::Version::v1)
        GTEST_SKIP() << "the pids controller is not in a v1 hierarchy here";
    const auto tree = sys::cgroup::CgroupTree::create(*host, path, controllers);
    ASSERT_TRUE(tree.has_value()) << tree.error().message();
    Spec spec = plain_spec();
    const auto handles = tree->join_handles();
    spec.cgroup_tasks = handles->task_numbers();
    const int result = in_child([&] {
                           if (!apply(spec).ok()) return 1;
                           const auto lines = sys::ProcDir::self()->cgroup();
                           for (const auto& line : *lines)
                               if (line.controllers == controllers && line.path == path) return 0;
                           return 2;
                       }).code;
    EXPECT_EQ(result, 0);
    EXPECT_TRUE(tree->remove(sys::Deadline::after(Millis(5000))).has_value());
    spec.cgroup_tasks = {9999};
    EXPECT_EQ(in_child([&] { return code_of(apply(spec).failed); }).code,
              code_of(Step::join_cgroup));
}

TEST_F(Confine, StopsAtTheFirstStepThatFails)
{
    Spec spec = plain_spec();
    spec.rlimits = {{999, 1, 1}};
    EXPECT_EQ(in_child([&] {
                  const Outcome outcome = apply(spec);
                  if (outcome.failed != Step::rlimits || outcome.errnum != EINVAL) return 1;
                  return ::getuid() == 0 ? 0 : 2;  // nothing after it was done
              }).code,
              0);
}

TEST(ConfineDifferences, NameWhatIsNotInForce)
{
    Spec spec;
    SelfReport report;
    report.status.uid = {65534, 65534, 65534, 65534};
    report.status.gid = {65534, 65534, 65534, 65534};
    report.status.umask = 022;
    report.status.no_new_privs = true;
    report.status.seccomp = 2;
    report.status.seccomp_filters = 1;
    EXPECT_TRUE(differences(spec, report, 1).empty());
    EXPECT_EQ(differences(spec, report, 2).size(), 1U);
    report.status.cap_bounding = 1;
    report.status.uid[3] = 0;
    report.status.groups = {0};
    report.status.no_new_privs = false;
    const auto found = differences(spec, report, 1);
    ASSERT_EQ(found.size(), 4U);
    EXPECT_EQ(found[0], "uid is 65534 65534 65534 0, planned is 65534 65534 65534 65534");
    EXPECT_EQ(found[2], "bounding set is CAP_CHOWN, planned is empty");
}

}  // namespace sandbox::confine
