// SPDX-License-Identifier: Apache-2.0
#include "confine/session.hpp"

#include <grp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "sys/cgroup/join.hpp"
#include "sys/seccomp/load.hpp"

namespace sandbox::confine {

namespace {

int errno_if(bool failed) noexcept { return failed ? errno : 0; }

int apply_rlimits(const Spec& spec) noexcept
{
    for (const sys::Rlimit& limit : spec.rlimits)
        if (const int bad = sys::apply_rlimit(limit)) return bad;
    return 0;
}

int start_session(const Spec& spec) noexcept
{
    if (spec.new_session && ::setsid() < 0) return errno;
    // 0: never taken from another session that has it.
    return errno_if(spec.controlling_terminal && ::ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0);
}

// Raw calls: glibc's wrappers for ids signal all threads, which a forked child must not.
int set_groups(const Spec& spec) noexcept
{
    // With an empty list too: the parent's groups would stay otherwise.
    return errno_if(::syscall(SYS_setgroups, spec.groups.size(), spec.groups.data()) != 0);
}

int set_gid(const Spec& spec) noexcept
{
    return errno_if(::syscall(SYS_setresgid, spec.gid, spec.gid, spec.gid) != 0);
}

int set_uid(const Spec& spec) noexcept
{
    // Leaving uid 0 clears the permitted set; what is to be kept must survive until capset.
    const unsigned long keep = spec.capabilities != 0 ? 1 : 0;
    if (::prctl(PR_SET_KEEPCAPS, keep, 0UL, 0UL, 0UL) != 0) return errno;
    return errno_if(::syscall(SYS_setresuid, spec.uid, spec.uid, spec.uid) != 0);
}

int set_capabilities(const Spec& spec) noexcept
{
    return sys::apply_caps(sys::CapState{spec.capabilities, spec.capabilities, spec.capabilities});
}

int enter_cwd(const Spec& spec) noexcept { return errno_if(::chdir(spec.cwd.c_str()) != 0); }

int apply_landlock(const Spec& spec, Outcome& outcome) noexcept
{
    return spec.landlock.abi == 0 ? 0 : sys::apply_landlock(spec.landlock, &outcome.detail);
}

int run(Step step, const Spec& spec, Outcome& outcome) noexcept
{
    switch (step) {
    case Step::none: return 0;
    case Step::join_cgroup: return sys::cgroup::join_self(spec.cgroup_tasks);
    case Step::new_session: return start_session(spec);
    case Step::rlimits: return apply_rlimits(spec);
    case Step::umask: ::umask(spec.umask); return 0;
    case Step::bounding_set: return sys::drop_bounding(spec.capabilities);
    case Step::groups: return set_groups(spec);
    case Step::gid: return set_gid(spec);
    case Step::uid: return set_uid(spec);
    case Step::capabilities: return set_capabilities(spec);
    case Step::ambient_set: return sys::set_ambient(spec.capabilities);
    case Step::cwd: outcome.detail = spec.cwd.c_str(); return enter_cwd(spec);
    case Step::no_new_privs: outcome.detail = nullptr; return sys::set_no_new_privs();
    case Step::landlock: return apply_landlock(spec, outcome);
    case Step::seccomp: return spec.bpf.empty() ? 0 : sys::seccomp::load(spec.bpf);
    }
    return EINVAL;
}

constexpr Step kOrder[] = {Step::join_cgroup,  Step::new_session, Step::rlimits, Step::umask,
                           Step::bounding_set, Step::groups,      Step::gid,     Step::uid,
                           Step::capabilities, Step::ambient_set, Step::cwd,     Step::no_new_privs,
                           Step::landlock,     Step::seccomp};

}  // namespace

std::string_view to_string(Step step) noexcept
{
    switch (step) {
    case Step::none: return "none";
    case Step::join_cgroup: return "join the session's cgroup";
    case Step::new_session: return "start a terminal session (setsid)";
    case Step::rlimits: return "set resource limits";
    case Step::umask: return "set the umask";
    case Step::bounding_set: return "drop the capability bounding set";
    case Step::groups: return "set supplementary groups";
    case Step::gid: return "set the group id";
    case Step::uid: return "set the user id";
    case Step::capabilities: return "set the capability sets";
    case Step::ambient_set: return "set the ambient capabilities";
    case Step::cwd: return "enter the working directory";
    case Step::no_new_privs: return "set no_new_privs";
    case Step::landlock: return "restrict by Landlock";
    case Step::seccomp: return "load the seccomp filter";
    }
    return "none";
}

Error to_error(const Outcome& outcome)
{
    const std::string_view subject = outcome.detail != nullptr ? outcome.detail : "";
    return Error::from_errno(outcome.errnum, to_string(outcome.failed), subject);
}

Outcome apply(const Spec& spec) noexcept
{
    Outcome outcome;
    for (const Step step : kOrder) {
        const int bad = run(step, spec, outcome);
        if (bad == 0) continue;
        outcome.failed = step;
        outcome.errnum = bad;
        return outcome;
    }
    return outcome;
}

}  // namespace sandbox::confine
