// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The allowlist as data, without one system call: a library of its own (dep_seccomp_rules), so that
// pure code may use it. A change here changes every plan's digest.
namespace sandbox::sys::seccomp {

// outer: loaded by the OCI runtime, in force for PID 1 (which makes session children by clone3).
// standard, strict: what every session gets on top, just before exec.
enum class Profile { outer, standard, strict };
std::string_view to_string(Profile profile) noexcept;

enum class Arch { x86_64, aarch64 };
std::string_view to_string(Arch arch) noexcept;
std::uint32_t audit_arch(Arch arch) noexcept;  // AUDIT_ARCH_*
std::optional<Arch> native_arch() noexcept;  // of this build

// The kernel numbers; nothing when the architecture has no such call.
std::optional<int> syscall_number(std::string_view name, Arch arch) noexcept;
std::string_view syscall_name(int number, Arch arch) noexcept;  // empty when unknown
// The highest number in our table. Above it the answer is ENOSYS, so that a newer libc falls back.
int last_known_number(Arch arch) noexcept;

enum class Test {
    equal,  // (low 32 bits of the argument & mask) == value
    any_bit  // (low 32 bits of the argument & mask) != 0
};

// The high half of an argument is never looked at: the kernel takes these as 32-bit values, so a
// caller that sets high bits (CVE-2019-10063) gains nothing.
struct Condition {
    std::uint8_t argument = 0;
    Test test = Test::equal;
    std::uint32_t mask = 0xffffffffU;
    std::uint32_t value = 0;
    bool operator==(const Condition&) const = default;
};
bool holds(const Condition& condition, std::uint64_t argument) noexcept;
using Match = std::vector<Condition>;  // all of them

enum class Verdict {
    allow,  // whatever the arguments
    allow_only_if,  // one of the matches holds, else EPERM
    allow_unless,  // EPERM when one of the matches holds
    no_such_call  // ENOSYS: callers have a fall-back that we can check
};

struct Rule {
    std::string_view syscall;
    Verdict verdict = Verdict::allow;
    std::vector<Match> matches;
    bool operator==(const Rule&) const = default;
};

// What a call is answered with, by the meaning of the rules alone: the oracle for compile(). Tests
// only; nothing decides by it at run time.
enum class Answer { allow, eperm, enosys, kill };
// `audit_arch` and `number` as seccomp_data carries them.
Answer answer(std::span<const Rule> rules, Arch arch, std::uint32_t audit_arch, int number,
              std::span<const std::uint64_t, 6> arguments);

// Sorted by name, each name once. A name not listed: EPERM. A foreign architecture, x32 included:
// the process is killed.
const std::vector<Rule>& rules(Profile profile);

// The rules as text: one line each, the thing that is digested and that `inspect` may show.
std::string canonical_text(Profile profile);

}  // namespace sandbox::sys::seccomp
