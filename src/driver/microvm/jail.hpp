// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "sys/caps.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"
#include "sys/procfs.hpp"
#include "sys/rlimit.hpp"
#include "sys/seccomp/rules.hpp"

// A program that is started as if it were already lost to an attacker: in namespaces of its own, in
// a tree that holds what it needs and nothing else, without capabilities, and with no descriptor
// but those it is given. The first process of its pid namespace is ours and ends when its lifeline
// closes; the kernel then ends the rest. Its owner's death is therefore the program's.
namespace sandbox::driver::microvm {

enum class JailUse {
    read,  // data and libraries
    execute,  // the program and its loader
    device  // a device node, read and written: one of the jail's own, in a folder of its own
};

// Bound into the tree read-only (of a device node only its number is taken), from a descriptor that
// is open already: what was checked is what is seen.
struct JailBind {
    sys::UniqueFd from;  // of a file, O_PATH is enough
    std::string path;  // absolute, in the jail
    JailUse use = JailUse::read;
};

enum class Power {
    none,  // no capability anywhere; the jail's filter and Landlock on top
    namespace_root  // capabilities in its own user namespace, for a program that confines itself
    // further (virtiofsd): it makes namespaces and mounts, which those would forbid
};

struct JailSpec {
    std::string name;  // in messages
    std::string label;  // what takes the place of the owner's arguments in PID 1's command line
    std::vector<JailBind> binds;
    std::string program;  // path of one of them
    std::vector<std::string> argv;
    // In place of a program: what the process does, its exit status. A copy of the owner's memory.
    std::function<int()> function;
    std::vector<int>
        descriptors;  // number N in the program is descriptors[N]; nothing else is open
    std::vector<sys::IdMapping> ids;  // of its user namespace, uids and gids alike
    std::uint32_t uid = 0;  // the program's, inside; its gid has the same number
    std::uint32_t keeper_uid = 0;  // PID 1's, inside
    Power power = Power::none;
    sys::CapSet capabilities = 0;  // namespace_root only: its bounding set
    bool with_proc = false;  // a /proc of its own pid namespace; only for namespace_root
    std::vector<sys::Rlimit> rlimits;
    // Adds what is not a plain file; called in the jail's mount namespace before it is sealed.
    // `root` is the tree's folder, `path` where it lies at that moment.
    std::function<Status(int root, const std::string& path)> furnish;
    const sys::cgroup::CgroupTree* keeper_group = nullptr;  // may be null: stays where it is
    const sys::cgroup::CgroupTree* program_group = nullptr;  // the same
};

// Plain parts, for whoever keeps them: dropping the lifeline ends the jail, reaping is the owner's.
struct Jailed {
    sys::Pidfd keeper{sys::UniqueFd(), 0};  // our child: PID 1 of the jail's pid namespace
    sys::UniqueFd lifeline;  // closing it ends the jail
    sys::Pidfd program{sys::UniqueFd(), 0};  // its child; not ours to reap
};

// Starts it and returns once the program's own code runs (execve succeeded). On failure nothing is
// left. Single-threaded callers that may make namespaces (root). The error says which step failed.
[[nodiscard]] Result<Jailed> start_jail(JailSpec spec, sys::Deadline deadline);

// Ends it and waits until its pid namespace is empty. Idempotent.
[[nodiscard]] Status end_jail(Jailed& jail, sys::Deadline deadline);

// The exit of PID 1: what its program's was, 128 + signal when a signal ended it.
inline constexpr int kKeeperFailed = 125;  // of PID 1 itself

// The system calls of a program with Power::none: those of a session, without new processes,
// sockets and listening. Sorted by name.
std::vector<sys::seccomp::Rule> jail_rules();

// The files that the dynamic loader opens for `program` (an open ELF file), each by the path under
// which the loader looks for it, the loader itself included. Asks the loader (`ld.so --list`), with
// no environment.
[[nodiscard]] Result<std::vector<JailBind>> libraries_of(int program);

// Replaces the whole command line of this process, as /proc shows it. Too long: cut.
void relabel_process(const std::string& label) noexcept;

}  // namespace sandbox::driver::microvm
