// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/jail_inside.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/failpoint.hpp"
#include "sys/caps.hpp"
#include "sys/file.hpp"
#include "sys/landlock.hpp"
#include "sys/mount.hpp"
#include "sys/seccomp/load.hpp"
#include "sys/signals.hpp"

namespace sandbox::driver::microvm {

namespace {

constexpr int kSignalBase = 128;
// Folders and empty files under the binds; a furnished tree brings mounts of its own.
constexpr std::uint64_t kTreeSize = 1U << 20;
constexpr std::uint64_t kNodeSize = 64U << 10;  // a node takes a page
// Every host has it, and a mount over it is seen by nobody else.
constexpr const char* kBuildSite = "/tmp";
constexpr const char* kProc = "proc";

Status check(int errnum, const char* what)
{
    if (errnum == 0) return {};
    return fail(Error::from_errno(errnum, what, {}));
}

// --- the tree -------------------------------------------------------------------------------------

Status make_parents(int root, const std::string& path)
{
    for (std::size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
        const auto made = sys::mkdir_at(root, path.substr(0, slash), 0755);
        if (!made && made.error().code() != Code::already_exists) return made;
    }
    return {};
}

Status place(int root, const JailBind& bind, const sys::UniqueFd& mount)
{
    const std::string below = bind.path.substr(1);
    TRY_VOID(make_parents(root, below));
    TRY_VOID(sys::write_file_at(root, below, "", 0444));
    return sys::attach_tree(mount.get(), root, below);
}

// A node that is the program's and nobody else's: the host's belongs to a group that has no number in
// here. On a mount of its own, the only one that takes devices.
Status make_node(int root, const JailBind& bind, const JailSpec& spec)
{
    struct stat status{};
    if (::fstat(bind.from.get(), &status) != 0) return fail_errno("stat", bind.path);
    if (!S_ISCHR(status.st_mode)) return fail(Code::conflict, bind.path + " is no device");
    const std::string below = bind.path.substr(1);
    TRY_VOID(make_parents(root, below));
    const std::size_t slash = below.rfind('/');
    if (slash == std::string::npos) return fail(Code::invalid_argument, bind.path);
    const std::string name = below.substr(slash + 1);
    sys::MountAttributes flags;
    flags.no_suid = true;
    flags.no_exec = true;
    const sys::UniqueFd folder = TRY(sys::make_tmpfs(kNodeSize, 0755, flags));
    if (::mknodat(folder.get(), name.c_str(), S_IFCHR | 0600, status.st_rdev) != 0)
        return fail_errno("mknod", bind.path);
    const auto range = std::ranges::find_if(spec.ids, [&](const sys::IdMapping& ids) {
        return spec.uid >= ids.inside && spec.uid - ids.inside < ids.count;
    });
    if (range == spec.ids.end()) return fail(Code::invalid_argument, "a user outside the ids");
    const std::uint32_t owner = range->outside + (spec.uid - range->inside);
    if (::fchownat(folder.get(), name.c_str(), owner, owner, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno("chown", bind.path);
    flags.read_only = true;
    TRY_VOID(sys::set_mount_attributes(folder.get(), flags, sys::Depth::single));
    return sys::attach_tree(folder.get(), root, below.substr(0, slash));
}

Status make_tree(const JailStart& start)
{
    const JailSpec& spec = start.spec;
    TRY_VOID(sys::make_all_private());
    sys::MountAttributes flags;
    flags.no_suid = true;
    flags.no_dev = true;
    const sys::UniqueFd mount = TRY(sys::make_tmpfs(kTreeSize, 0755, flags));
    TRY_VOID(sys::attach_tree(mount.get(), AT_FDCWD, kBuildSite));
    const sys::UniqueFd root = TRY(sys::open_dir(kBuildSite));
    for (std::size_t i = 0; i < spec.binds.size(); ++i)
        if (spec.binds[i].use == JailUse::device)
            TRY_VOID(make_node(root.get(), spec.binds[i], spec));
        else
            TRY_VOID(place(root.get(), spec.binds[i], start.mounts[i]));
    if (spec.with_proc) {
        flags.no_exec = true;
        const sys::UniqueFd proc = TRY(sys::make_filesystem(kProc, {}, flags));
        TRY_VOID(sys::mkdir_at(root.get(), kProc, 0555));
        TRY_VOID(sys::attach_tree(proc.get(), root.get(), kProc));
    }
    if (spec.furnish) TRY_VOID(spec.furnish(root.get(), kBuildSite));
    sys::MountAttributes sealed;
    sealed.read_only = true;
    TRY_VOID(sys::set_mount_attributes(mount.get(), sealed, sys::Depth::single));
    TRY_VOID(sys::pivot_root_into(root.get()));
    // Nothing mounted here goes anywhere, even once a program makes mounts of its own.
    return sys::make_all_private();
}

// --- dropping -------------------------------------------------------------------------------------

// Root of this host until here, an unprivileged id of the sandbox's range from here on.
Status become(int user_namespace, std::uint32_t id)
{
    if (::setns(user_namespace, CLONE_NEWUSER) != 0) return fail_errno("setns", "user namespace");
    if (::setgroups(0, nullptr) != 0) return fail_errno("setgroups");
    if (::setresgid(id, id, id) != 0) return fail_errno("setresgid");
    if (::setresuid(id, id, id) != 0) return fail_errno("setresuid");
    return {};
}

Status shed_capabilities(sys::CapSet keep)
{
    TRY_VOID(check(sys::drop_bounding(keep), "drop the bounding set"));
    sys::CapState state;
    state.effective = keep;
    state.permitted = keep;
    TRY_VOID(check(sys::set_ambient(0), "clear the ambient set"));
    return check(sys::apply_caps(state), "capset");
}

// What the tree holds, again: should a mount flag or a path look-up fail one day.
sys::LandlockRules landlock_rules(const JailSpec& spec)
{
    namespace landlock = sys::landlock;
    sys::LandlockRules rules;
    rules.abi = sys::landlock_abi();
    rules.handled_fs = landlock::all_fs(rules.abi);
    rules.handled_net = landlock::all_net(rules.abi);
    rules.scopes = landlock::all_scopes(rules.abi);
    for (const JailBind& bind : spec.binds) {
        std::uint64_t access = landlock::kReadFile;
        if (bind.use == JailUse::execute) access |= landlock::kExecute;
        if (bind.use == JailUse::device) access |= landlock::kWriteFile | landlock::kIoctlDev;
        rules.paths.push_back({bind.path, access & rules.handled_fs});
    }
    return rules;
}

// The owner's handlers, mask and umask are its own business (law 11).
void reset_process()
{
    sys::reset_signals();
    ::umask(0022);
}

// Number N becomes descriptors[N]; `report` stays open behind them, until exec. Up first, then down:
// no number is overwritten before it was copied.
Result<int> place_descriptors(const std::vector<int>& descriptors, int report)
{
    std::vector<int> high;
    const int count = static_cast<int>(descriptors.size());
    for (const int fd : descriptors) {
        // Above whatever the owner may have open: its own ceiling is far below (RLIMIT_NOFILE).
        const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, count + 1);
        if (copy < 0) return fail_errno("fcntl", "F_DUPFD_CLOEXEC");
        high.push_back(copy);
    }
    const int kept = ::fcntl(report, F_DUPFD_CLOEXEC, count + 1);
    if (kept < 0) return fail_errno("fcntl", "F_DUPFD_CLOEXEC");
    for (int number = 0; number < count; ++number)
        if (::dup3(high[static_cast<std::size_t>(number)], number, O_CLOEXEC) < 0)
            return fail_errno("dup3");
    if (::dup3(kept, count, O_CLOEXEC) < 0) return fail_errno("dup3");
    TRY_VOID(check(sys::close_range(static_cast<unsigned>(count) + 1, ~0U), "close_range"));
    for (int number = 0; number < count; ++number) TRY_VOID(sys::keep_on_exec(number));
    return count;
}

Status say_ready(int report)
{
    if (::write(report, kReady.data(), kReady.size()) < 0) return fail_errno("write", "report");
    return {};
}

// --- the program's process ------------------------------------------------------------------------

Status confine_and_run(const JailStart& start, int& report)
{
    const JailSpec& spec = start.spec;
    reset_process();
    if (::setsid() < 0) return fail_errno("setsid");
    TRY_VOID(check(sys::cgroup::join_self(start.program_tasks), "join the program's cgroup"));
    TRY_VOID(sys::unshare_namespaces(CLONE_NEWCGROUP));
    const int user_namespace = ::fcntl(start.user_namespace.get(), F_DUPFD_CLOEXEC, 0);
    if (user_namespace < 0) return fail_errno("fcntl", "F_DUPFD_CLOEXEC");
    for (const sys::Rlimit& limit : spec.rlimits)
        TRY_VOID(check(sys::apply_rlimit(limit), "setrlimit"));
    TRY_VOID(become(user_namespace, spec.uid));
    report = TRY(place_descriptors(spec.descriptors, report));
    TRY_VOID(shed_capabilities(spec.power == Power::namespace_root ? spec.capabilities : 0));
    TRY_VOID(check(sys::set_no_new_privs(), "no_new_privs"));
    TRY_VOID(say_ready(report));
    failpoint("jail.confined");
    if (spec.power == Power::none) {
        const sys::LandlockRules rules = landlock_rules(spec);
        const char* path = nullptr;
        if (const int bad = sys::apply_landlock(rules, &path))
            return fail(Error::from_errno(bad, "landlock", path != nullptr ? path : ""));
        TRY_VOID(check(sys::seccomp::load(start.filter), "seccomp"));
    }
    if (spec.function) {
        sys::close_number(report);
        ::_exit(spec.function());
    }
    std::vector<char*> argv;
    for (const std::string& argument : spec.argv)
        argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    // Law 11: no variable of ours.
    char* const envp[] = {nullptr};
    // PRIVILEGED: nothing is left to lose; what runs is what was bound there.
    ::execve(spec.program.c_str(), argv.data(), envp);
    return fail_errno("execve", spec.program);
}

[[noreturn]] void run_program(const JailStart& start)
{
    int report = start.report.get();
    const Status failed = confine_and_run(start, report);
    const std::string text = failed.error().message();
    [[maybe_unused]] const ssize_t told = ::write(report, text.data(), text.size());
    ::_exit(kKeeperFailed);
}

// --- PID 1 ----------------------------------------------------------------------------------------

Result<sys::CloneResult> start_program(const JailStart& start)
{
    TRY_VOID(check(sys::cgroup::join_self(start.keeper_tasks), "join the keeper's cgroup"));
    TRY_VOID(make_tree(start));
    failpoint("jail.tree");
    sys::CloneOptions options;
    options.cgroup_dir = start.program_dir;
    auto child = TRY(sys::clone_process(options));
    if (child.pid == 0) run_program(start);
    return child;
}

Status drop_everything(const JailStart& start)
{
    TRY_VOID(become(start.user_namespace.get(), start.spec.keeper_uid));
    TRY_VOID(shed_capabilities(0));
    TRY_VOID(check(sys::set_no_new_privs(), "no_new_privs"));
    if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl", "PR_SET_DUMPABLE");
    // Set last: a change of credentials takes it away.
    return sys::set_parent_death_signal(SIGKILL);
}

// Until the lifeline closes (nothing: the end of this process is the end of all) or the program has
// ended (its status).
int watch(int lifeline, pid_t program)
{
    for (;;) {
        pollfd end{lifeline, POLLIN, 0};
        int status = 0;
        const pid_t gone = ::waitpid(-1, &status, WNOHANG);
        if (gone == program)
            return WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
        if (gone > 0) continue;  // an orphan
        // SIGCHLD is handled by nobody but ends the wait: it is blocked in between, so none is lost.
        sigset_t none;
        ::sigemptyset(&none);
        if (::ppoll(&end, 1, nullptr, &none) > 0) return 0;
    }
}

void on_child(int /*signal*/) {}

}  // namespace

void run_keeper(JailStart start)
{
    reset_process();
    relabel_process(start.spec.label);
    struct sigaction action{};
    action.sa_handler = on_child;
    ::sigaction(SIGCHLD, &action, nullptr);
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, nullptr);

    const auto program = start_program(start);
    Status ready = program ? drop_everything(start) : Status(fail(program.error()));
    if (!ready) {
        const std::string text = ready.error().message();
        [[maybe_unused]] const ssize_t told = ::write(start.report.get(), text.data(), text.size());
        ::_exit(kKeeperFailed);
    }
    const int lifeline = start.lifeline.get();
    // 0 is where it stays: no other descriptor of the owner's is open here.
    if (::dup2(lifeline, 0) != 0 || sys::close_range(1, ~0U) != 0) ::_exit(kKeeperFailed);
    ::_exit(watch(0, program->pid));
}

}  // namespace sandbox::driver::microvm
