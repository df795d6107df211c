// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "canon/canon.hpp"
#include "driver/groups.hpp"
#include "driver/native/launch.hpp"
#include "driver/oci/launch.hpp"
#include "live.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/file.hpp"
#include "sys/procfs.hpp"

// A real crun, a real confine, a real sandbox-init, as root.
namespace sandbox::driver::test {
namespace {

std::string failures(const std::vector<Evidence>& evidence)
{
    std::string text;
    for (const Evidence& one : evidence)
        if (!one.held)
            text += one.name + ": planned " + one.planned + ", observed " + one.observed + "\n";
    return text;
}

std::size_t mounts_seen() { return sys::ProcDir::self()->mountinfo()->size(); }

struct stat stat_of(const char* path)
{
    struct stat status{};
    ::stat(path, &status);
    return status;
}

void make_file(const std::string& path, const std::string& text, uid_t owner = 1000,
               mode_t mode = 0644)
{
    std::ofstream(path) << text;
    ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

std::string make_folder(const std::string& path, uid_t owner = 1000)
{
    EXPECT_EQ(::mkdir(path.c_str(), 0755), 0);
    EXPECT_EQ(::chown(path.c_str(), owner, owner), 0);
    return path;
}

class Launch : public ::testing::TestWithParam<profile::Driver> {};

std::string name_of(const ::testing::TestParamInfo<profile::Driver>& driver)
{
    return std::string(profile::to_string(driver.param));
}

}  // namespace

// One behaviour for every driver that runs on the host's kernel.
INSTANTIATE_TEST_SUITE_P(Driver, Launch,
                         ::testing::Values(profile::Driver::oci, profile::Driver::native), name_of);

TEST_P(Launch, RunsASessionWithEveryControlWitnessed)
{
    const std::size_t mounts_before = mounts_seen();
    std::vector<std::string> folders;
    {
        LiveSandbox box(plain_content(GetParam()));
        ASSERT_EQ(box.start(), "");
        const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
        ASSERT_TRUE(seen) << seen.error().message();
        EXPECT_EQ(failures(*seen), "");
        folders = box.cgroup_folders();
        EXPECT_FALSE(folders.empty());

        const Ran ran = box.shell("s1", "echo out; echo err >&2; id -u; exit 7");
        EXPECT_EQ(ran.trouble, "");
        EXPECT_EQ(failures(box.session_evidence), "");
        EXPECT_EQ(ran.out, "out\n1000\n");
        EXPECT_EQ(ran.err, "err\n");
        EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 7}));
    }
    for (const std::string& folder : folders)
        EXPECT_NE(::access(folder.c_str(), F_OK), 0) << folder;
    EXPECT_EQ(mounts_seen(), mounts_before);
}

// crun gives its standard streams to the container's root: the host's /dev/null must not be one.
TEST_P(Launch, LeavesTheHostsNullDeviceAlone)
{
    const auto before = stat_of("/dev/null");
    {
        LiveSandbox box(plain_content(GetParam()));
        ASSERT_EQ(box.start(), "");
    }
    const auto after = stat_of("/dev/null");
    EXPECT_EQ(before.st_uid, after.st_uid);
    EXPECT_EQ(before.st_mode, after.st_mode);
}

TEST_P(Launch, RunsNothingOfTheServiceBeforeGo)
{
    plan::PlanContent content = plain_content(GetParam());
    ScratchDir grant;
    ASSERT_EQ(::chown(grant.path().c_str(), 1000, 1000), 0);
    content.mounts = {{profile::MountType::bind, HostPath(grant.path()), GuestPath("/work"), false,
                       plan::Ownership::idmap_user, std::nullopt, 0}};
    content.process.argv = {"/bin/sh", "-c", "echo ran > /work/canary; exit 3"};
    LiveSandbox box(content);
    ASSERT_EQ(box.start(), "");
    const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_EQ(failures(*seen), "");

    const auto service = box.session("service");
    auto in = sys::make_pipe();
    auto out = sys::make_pipe();
    const int fds[] = {in->read.get(), out->write.get(), out->write.get()};
    service->send_open(service_open(*box.plan), fds);
    const auto confined = service->session<wire::Confined>();
    ASSERT_TRUE(confined);
    const auto pid = find_session_pid(*box.plan, box.binding, "service",
                                      static_cast<int>(confined->pid));
    ASSERT_TRUE(pid) << pid.error().message();
    const auto session = observe_session(*box.plan, box.binding, box.launched->init_pid, *pid,
                                         *confined);
    ASSERT_TRUE(session) << session.error().message();
    EXPECT_EQ(failures(*session), "");
    std::vector<Evidence> all = *seen;
    all.insert(all.end(), session->begin(), session->end());
    EXPECT_TRUE(verify(*box.plan, all)) << verify(*box.plan, all).error().message();
    const std::string canary = grant.path() + "/canary";
    EXPECT_NE(::access(canary.c_str(), F_OK), 0) << "the workload ran before GO";

    service->send(wire::Go{});
    const Ran ran = guest::test::collect(*service);
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 3}));
    const auto status = stat_of(canary.c_str());
    EXPECT_EQ(status.st_uid, 1000U);  // the idmapped mount wrote it as the user it is on the host
}

TEST_P(Launch, HidesTheHostAndRefusesWhatReachesForIt)
{
    LiveSandbox box(plain_content(GetParam()));
    ASSERT_EQ(box.start(), "");
    const Ran ran = box.shell(
        "s1",
        "cat /etc/hostname; ls /; ls /proc/self/fd | wc -l; cat /proc/1/environ 2>&1;"
        "unshare -U true 2>&1; mount -t tmpfs x /tmp 2>&1; touch /x 2>&1; touch /usr/x 2>&1;"
        "echo hi > /tmp/t && cat /tmp/t; echo hi > /dev/null; cat /proc/kcore 2>&1 | wc -c;"
        "kill -9 1; cat /proc/1/status | grep -c Name; echo 1 > /proc/sys/kernel/pid_max 2>&1");
    EXPECT_EQ(ran.trouble, "");
    EXPECT_EQ(ran.out.find("/root/"), std::string::npos);
    EXPECT_NE(ran.out.find("sample\n"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("hi\n"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("touch: cannot touch '/x'"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("unshare"), std::string::npos) << ran.out;
    // PID 1 took no harm: the next session runs.
    EXPECT_EQ(box.shell("s2", "exit 0").exit, (wire::Exit{wire::ExitOutcome::exited, 0}));
}

TEST_P(Launch, GrantsTheUserItsOwnFilesAndNobodyElses)
{
    ScratchDir grant;
    const std::string mine = make_folder(grant.path() + "/mine");
    make_file(mine + "/own", "own");
    make_file(mine + "/foreign", "foreign", 2345, 0600);
    make_file(mine + "/root", "root", 0, 0600);
    plan::PlanContent content = plain_content(GetParam());
    content.mounts = {{profile::MountType::bind, HostPath(mine), GuestPath("/work"), false,
                       plan::Ownership::idmap_user, std::nullopt, 0}};
    LiveSandbox box(content);
    ASSERT_EQ(box.start(), "");
    const Ran ran = box.shell(
        "s1", "cd /work; cat own; cat foreign root 2>/dev/null || echo refused; stat -c %u own "
              "foreign root; echo new > made; chmod 4755 made 2>/dev/null || echo no-setid; "
              "cp /bin/true t; echo more >> own");
    EXPECT_EQ(ran.trouble, "");
    EXPECT_NE(ran.out.find("ownrefused"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("1000\n65534\n65534\n"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("no-setid"), std::string::npos) << ran.out;
    EXPECT_EQ(stat_of((mine + "/made").c_str()).st_uid, 1000U);
    EXPECT_EQ(stat_of((mine + "/made").c_str()).st_mode & 07000, 0U);
}

TEST_P(Launch, KeepsMasksWhereTheyAreWhenAncestorsAreRenamed)
{
    ScratchDir grant;
    const std::string top = make_folder(grant.path() + "/top");
    make_folder(top + "/a");
    make_folder(top + "/a/b");
    make_file(top + "/a/b/secret", "secret");
    plan::PlanContent content = plain_content(GetParam());
    content.mounts = {{profile::MountType::bind, HostPath(top), GuestPath("/work"), false,
                       plan::Ownership::idmap_user, std::nullopt, 0}};
    content.masks = {GuestPath("/work/a/b/missing"), GuestPath("/work/a/b/secret")};
    {
        LiveSandbox box(content);
        ASSERT_EQ(box.start(), "");
        EXPECT_EQ(box.placeholders.size(), 1U);
        const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
        ASSERT_TRUE(seen) << seen.error().message();
        EXPECT_EQ(failures(*seen), "");
        const Ran ran = box.shell(
            "s1", "cd /work; wc -c < a/b/secret; mv a c 2>/dev/null || echo busy; mv a/b a/d "
                  "2>/dev/null || echo busy; rm a/b/secret 2>/dev/null || echo stays; "
                  "echo x > a/b/missing 2>/dev/null || echo closed");
        EXPECT_EQ(ran.out, "0\nbusy\nbusy\nstays\nclosed\n") << ran.err;
    }
    EXPECT_NE(::access((top + "/a/b/missing").c_str(), F_OK), 0) << "the placeholder was left";
    EXPECT_EQ(stat_of((top + "/a/b/secret").c_str()).st_size, 6);
}

TEST_P(Launch, RunsAFolderAsRootWithoutChangingIt)
{
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP()
        << "fact: sandbox-init with sanitizers is not static, and this root has no libraries";
#endif
    ScratchDir tree;
    const std::string root = make_folder(tree.path() + "/root", 0);
    for (const char* name : {"/usr", "/etc", "/tmp", "/dev", "/proc"}) make_folder(root + name, 0);
    make_folder(root + "/usr/bin", 0);
    const std::string busybox = "/bin/busybox";
    if (::access(busybox.c_str(), X_OK) != 0)
        GTEST_SKIP() << "fact: no static program at " << busybox;
    ASSERT_EQ(std::system(("cp " + busybox + " " + root + "/usr/bin/sh").c_str()), 0);
    ASSERT_EQ(::symlink("usr/bin", (root + "/bin").c_str()), 0);
    plan::PlanContent content = plain_content(GetParam());
    content.rootfs.kind = "dir";
    content.rootfs.source = HostPath(root);
    content.rootfs.strategy = plan::RootfsStrategy::overlay_tmpfs;
    content.rootfs.ownership = plan::Ownership::idmap_all;
    LiveSandbox box(content);
    ASSERT_EQ(box.start(), "");
    const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_EQ(failures(*seen), "");
    const Ran ran = box.shell("s1", "echo $0; read x < /etc/hostname; echo $x");
    EXPECT_EQ(ran.out, "/bin/sh\nsample\n") << ran.err;
    EXPECT_NE(::access((root + "/etc/hostname").c_str(), F_OK), 0);
}

TEST_P(Launch, KillsAMemoryHogAndNotPidOne)
{
    LiveSandbox box(plain_content(GetParam()));
    ASSERT_EQ(box.start(), "");
    const auto peer = box.session("hog");
    peer->send(exec_open(*box.plan, {"/bin/sh", "-c", "a=x; while :; do a=$a$a; done"}));
    ASSERT_TRUE(peer->session<wire::Confined>());
    peer->send(wire::Go{});
    const Ran ran = guest::test::collect(*peer);
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::signaled, SIGKILL}));
    EXPECT_GE(oom_kills(*box.plan, box.binding).value_or(0), 1U);
    EXPECT_EQ(box.shell("after", "exit 0").exit, (wire::Exit{wire::ExitOutcome::exited, 0}));
}

TEST_P(Launch, EndsWithItsChannelAndLeavesNoProcess)
{
    LiveSandbox box(plain_content(GetParam()));
    ASSERT_EQ(box.start(), "");
    const auto peer = box.session("long");
    peer->send(exec_open(*box.plan, {"/bin/sh", "-c", "sleep 1000 & sleep 1000"}));
    ASSERT_TRUE(peer->session<wire::Confined>());
    peer->send(wire::Go{});
    ASSERT_TRUE(peer->session<wire::Started>());
    box.control.reset();
    box.launched->channel.reset();
    const auto ended = box.launched->init.wait_ended(sys::Deadline::after(Millis(20'000)));
    ASSERT_TRUE(ended);
    EXPECT_TRUE(*ended);
}

TEST_P(Launch, LetsAWritableRootBeWrittenAndLeavesTheHostAsItWas)
{
    plan::PlanContent content = plain_content(GetParam());
    content.rootfs.read_only = false;
    content.rootfs.strategy = plan::RootfsStrategy::overlay_tmpfs;
    content.rootfs.ownership = plan::Ownership::idmap_all;
    content.process.uid = 0;
    content.process.gid = 0;
    LiveSandbox box(content);
    ASSERT_EQ(box.start(), "");
    const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_EQ(failures(*seen), "");
    const std::string name = "sandbox-test-" + std::to_string(::getpid());
    const Ran ran = box.shell("s1", "echo x > /" + name + " && echo y > /usr/" + name +
                                        " && cat /" + name + " /usr/" + name + "; id -u");
    EXPECT_EQ(failures(box.session_evidence), "");
    EXPECT_EQ(ran.out, "x\ny\n0\n") << ran.err;
    EXPECT_NE(::access(("/usr/" + name).c_str(), F_OK), 0);
}

TEST_P(Launch, KeepsTheWorkloadsCapabilitiesAndNoOther)
{
    plan::PlanContent content = plain_content(GetParam());
    content.security.capabilities = {"CAP_NET_BIND_SERVICE"};
    LiveSandbox box(content);
    ASSERT_EQ(box.start(), "");
    const Ran ran = box.shell("s1", "grep Cap /proc/self/status");
    EXPECT_EQ(failures(box.session_evidence), "");
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
        EXPECT_NE(ran.out.find(std::string(set) + ":\t0000000000000400"), std::string::npos)
            << ran.out;
}

TEST_P(Launch, SharesTheHostsNetworkOnlyWhereThePlanSaysSo)
{
    plan::PlanContent content = plain_content(GetParam());
    content.network.mode = profile::NetworkMode::host;
    std::erase(content.security.namespaces, "net");
    content.security.landlock_abi = 6;
    LiveSandbox box(content);
    ASSERT_EQ(box.start(), "");
    const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_EQ(failures(*seen), "");
    const Ran ran = box.shell("s1", "readlink /proc/self/ns/net");
    char host[64] = {};
    ASSERT_GT(::readlink("/proc/self/ns/net", host, sizeof host - 1), 0);
    EXPECT_EQ(ran.out, std::string(host) + "\n");
}

TEST_P(Launch, PlacesMountsInsideMounts)
{
    ScratchDir grant;
    const std::string outer = make_folder(grant.path() + "/outer");
    make_folder(outer + "/sub");
    const std::string inner = make_folder(grant.path() + "/inner");
    make_file(inner + "/f", "inner");
    make_file(grant.path() + "/file", "single");
    using profile::MountType;
    plan::PlanContent content = plain_content(GetParam());
    content.mounts = {
        {MountType::bind, HostPath(grant.path() + "/file"), GuestPath("/opt/one/file"), true,
         plan::Ownership::idmap_user, std::nullopt, 0},
        {MountType::tmpfs, HostPath(), GuestPath("/scratch"), false, plan::Ownership::overflow,
         Bytes{1U << 20}, 0700},
        {MountType::bind, HostPath(outer), GuestPath("/work"), true, plan::Ownership::idmap_user,
         std::nullopt, 0},
        {MountType::bind, HostPath(inner), GuestPath("/work/sub"), false,
         plan::Ownership::idmap_user, std::nullopt, 0},
    };
    {
        LiveSandbox box(content);
        ASSERT_EQ(box.start(), "");
        const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
        ASSERT_TRUE(seen) << seen.error().message();
        EXPECT_EQ(failures(*seen), "");
        const Ran ran = box.shell(
            "s1", "cat /opt/one/file /work/sub/f; touch /work/x 2>/dev/null || echo ro; "
                  "touch /work/sub/x && echo rw; stat -c '%u %a' /scratch; "
                  "head -c 2m /dev/zero > /scratch/big 2>/dev/null || echo full");
        EXPECT_EQ(ran.out, "singleinnerro\nrw\n1000 700\nfull\n") << ran.err;
    }
    // A target that the operator's folder does not have is not made in it.
    content.mounts[3].target = GuestPath("/work/missing");
    LiveSandbox box(content);
    EXPECT_NE(box.start().find("must exist"), std::string::npos);
    EXPECT_NE(::access((outer + "/missing").c_str(), F_OK), 0);
}

// Passing a controller on from the root of the hierarchy changes the host: taken back afterwards.
class RestoredControllers {
public:
    explicit RestoredControllers(std::string file)
        : file_(std::move(file)), before_(sys::read_file(file_, 4096).value_or(""))
    {
    }
    ~RestoredControllers()
    {
        std::istringstream now(sys::read_file(file_, 4096).value_or(""));
        for (std::string one; now >> one;) {
            if (before_.find(one) == std::string::npos)
                static_cast<void>(sys::write_control_at(AT_FDCWD, file_, "-" + one));
        }
    }
    RestoredControllers(const RestoredControllers&) = delete;
    RestoredControllers& operator=(const RestoredControllers&) = delete;

private:
    std::string file_;
    std::string before_;
};

// On a hybrid host the v2 hierarchy may keep a controller nobody else wanted: enough to walk the
// whole v2 path (births into cgroups, controllers passed on, leaves joined from inside).
TEST_P(Launch, JoinsCgroupsOfTheUnifiedHierarchy)
{
    const auto host = sys::cgroup::detect();
    ASSERT_TRUE(host);
    const auto* unified = host->v2();
    if (unified == nullptr || unified->controllers.empty())
        GTEST_SKIP() << "fact: no v2 hierarchy with a controller is mounted here";
    const bool hugetlb = std::ranges::find(unified->controllers, "hugetlb") !=
                         unified->controllers.end();
    plan::PlanContent content = plain_content(GetParam());
    content.resources.version = plan::CgroupVersion::v2;
    content.resources.controllers = {hugetlb ? "hugetlb" : "pids"};
    content.resources.control = {};
    content.resources.workload = {};
    if (hugetlb)
        content.resources.workload = {{"hugetlb", "hugetlb.2MB.max", "4194304"}};
    else
        content.resources.workload = {{"pids", "pids.max", "64"}};
    const RestoredControllers restored(unified->mount + "/cgroup.subtree_control");
    LiveSandbox box(content);
    ASSERT_EQ(box.start(), "");
    const auto seen = observe_sandbox(*box.plan, box.binding, *box.launched);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_EQ(failures(*seen), "");
    const Ran ran = box.shell("s1", "grep ^0: /proc/self/cgroup; exit 6");
    EXPECT_EQ(ran.trouble, "");
    EXPECT_EQ(failures(box.session_evidence), "");
    EXPECT_EQ(ran.out, "0::/workload/s1\n") << "the cgroup namespace is rooted at <id>";
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 6}));
}

TEST_P(Launch, PowersOffInsideItsNamespaceOnly)
{
    LiveSandbox box(plain_content(GetParam()));
    ASSERT_EQ(box.start(), "");
    box.control->send(wire::Poweroff{});
    EXPECT_TRUE(box.control->control<wire::PoweroffAck>());
    const auto ended = box.launched->init.wait_ended(sys::Deadline::after(Millis(20'000)));
    EXPECT_TRUE(ended.value_or(false));
}

TEST_P(Launch, StopsAForkBombAtItsLimit)
{
    LiveSandbox box(plain_content(GetParam()));
    ASSERT_EQ(box.start(), "");
    const Ran ran = box.shell("bomb", "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); "
                                      "done; echo all");
    EXPECT_EQ(ran.out.find("all"), std::string::npos) << "200 processes below a limit of 64";
    EXPECT_EQ(box.shell("after", "exit 0").exit, (wire::Exit{wire::ExitOutcome::exited, 0}));
}

TEST_P(Launch, ReadsLimitsAnewThroughGroupsThatWereOpenedOnce)
{
    LiveSandbox box(plain_content(GetParam()));
    ASSERT_EQ(box.start(), "");
    const auto groups = open_groups(*box.plan, box.binding);
    ASSERT_TRUE(groups) << groups.error().message();
    auto seen = observe_sandbox(*box.plan, box.binding, *box.launched, &*groups);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_EQ(failures(*seen), "");
    ASSERT_TRUE(
        groups->workload->set(std::vector<sys::cgroup::Setting>{{"pids", "pids.max", "63"}}));
    seen = observe_sandbox(*box.plan, box.binding, *box.launched, &*groups);
    ASSERT_TRUE(seen) << seen.error().message();
    EXPECT_NE(failures(*seen).find("planned 64, observed 63"), std::string::npos)
        << failures(*seen);
}

TEST(OciLaunch, SaysWhatTheRuntimeSaidWhenItFails)
{
    LiveSandbox box(plain_content());
    auto artifact = oci::compile(*box.plan, box.binding);
    ASSERT_TRUE(artifact);
    artifact->config_json = "{}";
    artifact->digest = canon::digest("{}");
    const auto programs = sealed_programs(box.plan->content().artifacts);
    ASSERT_TRUE(programs) << programs.error().message();
    ASSERT_TRUE(create_cgroups(*box.plan, box.binding));
    const auto launched = oci::launch(*box.plan, box.binding, *artifact, *programs);
    ASSERT_FALSE(launched);
    EXPECT_NE(launched.error().message().find("the runtime said: "), std::string::npos)
        << launched.error().message();
}

TEST(OciLaunch, RefusesAConfigThatIsNotWhatWasCompiled)
{
    LiveSandbox box(plain_content());
    auto artifact = oci::compile(*box.plan, box.binding);
    ASSERT_TRUE(artifact);
    artifact->digest = canon::digest("another");
    const auto programs = sealed_programs(box.plan->content().artifacts);
    ASSERT_TRUE(programs);
    ASSERT_TRUE(create_cgroups(*box.plan, box.binding));
    const auto launched = oci::launch(*box.plan, box.binding, *artifact, *programs);
    ASSERT_FALSE(launched);
    EXPECT_NE(launched.error().message().find("not what was compiled"), std::string::npos)
        << launched.error().message();
}

TEST_P(Launch, RefusesSourcesThatReachTheHost)
{
    ScratchDir folder;
    const std::string link = folder.path() + "/link";
    ASSERT_EQ(::symlink("/proc", link.c_str()), 0);
    for (const std::string& source : {std::string("/"), std::string("/run"), link}) {
        plan::PlanContent content = plain_content(GetParam());
        content.mounts = {{profile::MountType::bind, HostPath(source), GuestPath("/work"), true,
                           plan::Ownership::overflow, std::nullopt, 0}};
        LiveSandbox box(content);
        const std::string error = box.start();
        EXPECT_NE(error.find("never granted"), std::string::npos) << source << ": " << error;
    }
}

TEST(NativeLaunch, SaysWhatFailedInsideAndLeavesNothing)
{
    LiveSandbox box(plain_content(profile::Driver::native));
    auto artifact = native::compile(*box.plan, box.binding);
    ASSERT_TRUE(artifact);
    artifact->box.hostname = std::string(100, 'x');  // longer than the kernel takes
    const auto programs = sealed_programs(box.plan->content().artifacts);
    ASSERT_TRUE(programs) << programs.error().message();
    ASSERT_TRUE(create_cgroups(*box.plan, box.binding));
    const auto launched = native::launch(*box.plan, box.binding, *artifact, *programs);
    ASSERT_FALSE(launched);
    EXPECT_NE(launched.error().message().find("sethostname"), std::string::npos)
        << launched.error().message();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
}

// Whatever a root inside regained: mount, pid and ipc namespaces are not its own.
TEST(NativeLaunch, KeepsTheMountNamespaceOutOfTheBoxesReach)
{
    LiveSandbox box(plain_content(profile::Driver::native));
    ASSERT_EQ(box.start(), "");
    const auto owner = [&](const std::string& name) {
        const auto process = sys::ProcDir::open(box.launched->init_pid);
        const auto space = process->open_namespace(name);
        const sys::UniqueFd user(::ioctl(space->get(), NS_GET_USERNS));
        struct stat status{};
        ::fstat(user.get(), &status);
        return status.st_ino;
    };
    const auto inside =
        stat_of(("/proc/" + std::to_string(box.launched->init_pid) + "/ns/user").c_str()).st_ino;
    const auto here = stat_of("/proc/self/ns/user").st_ino;
    for (const char* name : {"mnt", "pid", "ipc", "uts"}) EXPECT_EQ(owner(name), here) << name;
    EXPECT_EQ(owner("net"), inside);
}

TEST(OciLaunch, RefusesAnotherProgramThanThePlanned)
{
    const auto programs = seal(
        {{"oci.runtime", {HostPath("/usr/bin/crun"), canon::digest("another")}}});
    ASSERT_FALSE(programs);
    EXPECT_EQ(programs.error().code(), Code::conflict);
}

}  // namespace sandbox::driver::test
