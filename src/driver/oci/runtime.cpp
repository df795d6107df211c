// SPDX-License-Identifier: Apache-2.0
#include "driver/oci/runtime.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "base/failpoint.hpp"
#include "canon/canon.hpp"
#include "driver/tree_build.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"
#include "sys/process.hpp"
#include "sys/signals.hpp"

namespace sandbox::driver::oci {
namespace {

constexpr int kFailed = 125;
// Bundle, crun's state and its own temporary files: a few KiB (config.json is the largest).
constexpr std::uint64_t kScratchSize = 16ULL << 20;
// The private tmpfs lies over /tmp, which every host has: crun's own temporary files stay in it,
// and all of it goes with the mount namespace (a killed crun leaves /tmp/crun.* behind).
constexpr const char* kScratch = "/tmp";
constexpr const char* kBundle = "bundle";
constexpr const char* kState = "/tmp/state";

Status into_cgroups(RuntimeStart& order)
{
    if (const int errnum = sys::cgroup::join_self(order.top_tasks))
        return fail(Error::from_errno(errnum, "write", "tasks of the sandbox's cgroup"));
    // Rooted at <id>, not at <id>/control: under nsdelegate a leaf outside the namespace's root
    // could not be joined from inside (ENOENT).
    TRY_VOID(sys::unshare_namespaces(CLONE_NEWCGROUP));
    if (order.control_dir >= 0) {
        // v2: a second birth, into the leaf, as a sibling: <id> is empty once the first is gone.
        sys::CloneOptions options;
        options.flags = CLONE_PARENT;
        options.exit_signal = 0;  // CLONE_PARENT: that of the first (clone(2))
        options.cgroup_dir = order.control_dir;
        const auto child = TRY(sys::clone_process(options));
        if (child.pid != 0) {
            const bool told = ::write(order.left, &child.pid, sizeof child.pid) ==
                              static_cast<ssize_t>(sizeof child.pid);
            ::_exit(told ? 0 : kFailed);
        }
    } else if (const int errnum = sys::cgroup::join_self(order.control_tasks)) {
        return fail(Error::from_errno(errnum, "write", "tasks of the control cgroup"));
    }
    sys::close_number(order.left);
    return {};
}

// crun 1.8.1 refuses every container while it sees a v2 hierarchy with controllers beside v1.
Status cover_unified(const sys::cgroup::Host& host)
{
    const auto* unified = host.v2();
    if (!host.cover_unified || unified == nullptr) return {};
    const sys::UniqueFd cover = TRY(sys::make_tmpfs(4096, 0755, {.read_only = true}));
    return sys::attach_tree(cover.get(), AT_FDCWD, unified->mount);
}

// The scratch tmpfs holds bundle, file tree and crun's state. It lives in this namespace only: a
// crun that is killed leaves nothing anywhere, and no `crun delete` is ever needed. Returns the
// bundle's folder, open.
Result<sys::UniqueFd> make_bundle(RuntimeStart& order)
{
    sys::MountAttributes flags;
    flags.no_suid = true;
    flags.no_dev = true;
    const sys::UniqueFd mount = TRY(sys::make_tmpfs(kScratchSize, 0755, flags));
    TRY_VOID(sys::attach_tree(mount.get(), AT_FDCWD, kScratch));
    const sys::UniqueFd scratch = TRY(sys::open_dir(kScratch));
    TRY_VOID(sys::mkdir_at(scratch.get(), "state"));
    TRY_VOID(sys::mkdir_at(scratch.get(), kBundle, 0755));
    TRY_VOID(sys::mkdir_at(scratch.get(), std::string(kBundle) + "/rootfs", 0755));
    TRY_VOID(build_tree(order.artifact.steps, std::move(order.sources), scratch.get(), kScratch,
                        std::string(kBundle) + "/rootfs"));
    sys::UniqueFd bundle = TRY(sys::open_at(scratch.get(), kBundle, O_RDONLY | O_DIRECTORY));
    TRY_VOID(sys::write_file_at(bundle.get(), "config.json", order.artifact.config_json, 0400));
    return bundle;
}

// What the bundle holds, read back and hashed.
Result<std::string> check_config(int bundle, const OciArtifact& artifact)
{
    std::string written = TRY(
        sys::read_file_at(bundle, "config.json", artifact.config_json.size()));
    if (canon::digest(written) != artifact.digest)
        return fail(Code::conflict, "config.json is not what was compiled");
    return written;
}

// Read once more, against bytes that were hashed: the same proof without hashing them again.
Status recheck_config(int bundle, const std::string& hashed)
{
    if (TRY(sys::read_file_at(bundle, "config.json", hashed.size())) != hashed)
        return fail(Code::conflict, "config.json changed after it was checked");
    return {};
}

// 0 to 5 in their places, the runtime at 6, nothing else. Up first, then down, so that no number
// is overwritten before it was copied.
Status place_descriptors(const RuntimeStart& order)
{
    const std::array<int, 8> wanted{order.input, order.output,    order.output,  order.channel,
                                    order.init,  order.bootstrap, order.runtime, -1};
    std::array<int, 8> high{};
    constexpr int kCount = 7;
    for (std::size_t i = 0; i < kCount; ++i) {
        high[i] = ::fcntl(wanted[i], F_DUPFD_CLOEXEC, 64);
        if (high[i] < 0) return fail_errno("fcntl", "F_DUPFD_CLOEXEC");
    }
    for (std::size_t i = 0; i < kCount; ++i) {
        const int flags = i == kCount - 1 ? O_CLOEXEC : 0;
        if (::dup3(high[i], static_cast<int>(i), flags) < 0) return fail_errno("dup3");
    }
    if (const int errnum = sys::close_range(kCount, ~0U))
        return fail(Error::from_errno(errnum, "close_range", {}));
    return {};
}

// The shim's handlers, mask and umask are its own business (law 11).
void reset_process()
{
    sys::reset_signals();
    ::umask(0022);
}

// Law 6: a shim that is killed takes the runtime with it, in whichever cgroup it is by then.
Status die_with(pid_t shim)
{
    TRY_VOID(sys::set_parent_death_signal(SIGKILL));
    if (::getppid() != shim) return fail(Code::unavailable, "the shim is gone");
    return {};
}

Status become_runtime(RuntimeStart& order)
{
    reset_process();
    if (::setsid() < 0) return fail_errno("setsid");
    TRY_VOID(die_with(order.shim));
    failpoint("launcher.begin");
    TRY_VOID(into_cgroups(order));
    TRY_VOID(die_with(order.shim));  // on v2 it was born anew, and the signal is not inherited
    failpoint("launcher.in-cgroups");
    TRY_VOID(sys::unshare_namespaces(CLONE_NEWNS));
    TRY_VOID(sys::make_all_private());
    // Past here nothing mounted is seen by the host.
    TRY_VOID(cover_unified(order.host));
    const sys::UniqueFd bundle = TRY(make_bundle(order));
    const std::string hashed = TRY(check_config(bundle.get(), order.artifact));
    // root.path is relative to here: an absolute one would be walked by the container's root, which
    // may not pass our 0700 folders.
    if (::fchdir(bundle.get()) != 0) return fail_errno("fchdir", "bundle");
    std::string id = order.binding.id.str();
    TRY_VOID(recheck_config(bundle.get(), hashed));
    TRY_VOID(place_descriptors(order));
    failpoint("launcher.before-exec");

    // Law 11: the runtime inherits no variable. Its options are these and no others.
    const char* argv[] = {"crun", "--cgroup-manager", "disabled",       "--root", kState,
                          "run",  "--detach",         "--preserve-fds", "3",      "--bundle",
                          ".",    id.c_str(),         nullptr};
    const char* envp[] = {nullptr};
    // PRIVILEGED: what runs are the bytes that were hashed; a sealed memfd also spares crun its own
    // copy of itself.
    ::syscall(SYS_execveat, 6, "", argv, envp, AT_EMPTY_PATH);
    return fail_errno("execveat", "the sealed runtime");
}

}  // namespace

void run_runtime(RuntimeStart order)
{
    int output = order.output;
    const auto failed = become_runtime(order);
    const std::string text = failed.error().message();
    // After place_descriptors the number is 2.
    if (::write(output, text.data(), text.size()) < 0) {
        [[maybe_unused]] const ssize_t again = ::write(STDERR_FILENO, text.data(), text.size());
    }
    ::_exit(kFailed);
}

}  // namespace sandbox::driver::oci
