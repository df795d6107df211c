// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <map>

#include "../unit/sys/bpf_evaluator.hpp"
#include "fuzz.hpp"
#include "sys/seccomp/compile.hpp"

// Any rule set, compiled and run by a plain evaluator of classic BPF, answers each call as the
// rules mean it. Input: architecture, rules, then calls.
namespace sandbox::fuzz {

namespace {

using namespace sys::seccomp;

const std::vector<std::string_view>& names_of(Arch arch)
{
    static const auto all = [] {
        std::map<Arch, std::vector<std::string_view>> names;
        for (const Arch one : {Arch::x86_64, Arch::aarch64}) {
            for (int number = 0; number <= last_known_number(one); ++number) {
                if (const auto name = syscall_name(number, one); !name.empty()) {
                    names[one].push_back(name);
                }
            }
        }
        return names;
    }();
    return all.at(arch);
}

Match match_from(Bytes& bytes)
{
    Match match(1 + bytes.byte() % 3);
    for (Condition& one : match) {
        one.argument = static_cast<std::uint8_t>(bytes.byte() % 6);
        one.test = bytes.byte() % 2 == 0 ? Test::equal : Test::any_bit;
        one.mask = bytes.byte() % 4 == 0 ? bytes.word() : 0xffffffffU;
        // Small numbers, so that conditions of one call meet.
        one.value = bytes.byte() % 4 == 0 ? bytes.word() : bytes.byte() % 8;
    }
    return match;
}

std::vector<Rule> rules_from(Bytes& bytes, Arch arch)
{
    std::map<std::string_view, Rule> by_name;
    const std::size_t count = bytes.byte() % 16;
    for (std::size_t i = 0; i < count; ++i) {
        Rule rule;
        rule.syscall = names_of(arch)[bytes.below(names_of(arch).size())];
        rule.verdict = static_cast<Verdict>(bytes.byte() % 4);
        if (rule.verdict == Verdict::allow_only_if || rule.verdict == Verdict::allow_unless) {
            const std::size_t matches = 1 + bytes.byte() % 4;
            for (std::size_t k = 0; k < matches; ++k) rule.matches.push_back(match_from(bytes));
        }
        by_name.insert_or_assign(rule.syscall, rule);
    }
    std::vector<Rule> rules;
    for (auto& [name, rule] : by_name) rules.push_back(std::move(rule));
    return rules;
}

std::uint32_t action_of(Answer answer)
{
    switch (answer) {
    case Answer::allow: return SECCOMP_RET_ALLOW;
    case Answer::eperm: return SECCOMP_RET_ERRNO | EPERM;
    case Answer::enosys: return SECCOMP_RET_ERRNO | ENOSYS;
    case Answer::kill: return SECCOMP_RET_KILL_PROCESS;
    }
    return 0;
}

using Arguments = std::array<std::uint64_t, 6>;

void check_call(const std::vector<Rule>& rules, const std::vector<sock_filter>& program, Arch arch,
                std::uint32_t audit, std::uint32_t number, const Arguments& arguments)
{
    seccomp_data data{};
    data.nr = static_cast<int>(number);
    data.arch = audit;
    std::ranges::copy(arguments, data.args);
    const auto found = testing::evaluate(program, data);
    HOLDS(found.has_value());
    HOLDS(found->action == action_of(answer(rules, arch, audit, data.nr, arguments)));
}

}  // namespace

FUZZ_TARGET_OF(seccomp, 4000)
{
    constexpr std::uint32_t kIa32 = 0x40000003U;  // AUDIT_ARCH_I386
    constexpr std::uint32_t kX32 = 0x40000000U;   // __X32_SYSCALL_BIT
    Bytes bytes(input);
    const Arch arch = bytes.byte() % 2 == 0 ? Arch::x86_64 : Arch::aarch64;
    const std::vector<Rule> rules = rules_from(bytes, arch);
    const std::vector<sock_filter> program = compile(rules, arch);
    HOLDS(!program.empty() && program.size() <= 4096);  // BPF_MAXINSNS
    const std::uint32_t native = audit_arch(arch);
    for (const Rule& rule : rules) {
        const auto number = static_cast<std::uint32_t>(*syscall_number(rule.syscall, arch));
        Arguments arguments{};
        for (std::uint64_t& one : arguments) one = bytes.byte() % 8;
        check_call(rules, program, arch, native, number, arguments);
        for (const Match& match : rule.matches) {
            for (const Condition& one : match) arguments[one.argument] = one.value;
            check_call(rules, program, arch, native, number, arguments);
            // CVE-2019-10063: bits that the kernel drops.
            arguments[match.front().argument] |= 0xdead00000000ULL;
            check_call(rules, program, arch, native, number, arguments);
        }
        check_call(rules, program, arch, kIa32, number, arguments);
        check_call(rules, program, arch, native, number | kX32, arguments);
    }
    const Arguments none{};
    for (int i = 0; i < 8; ++i) check_call(rules, program, arch, native, bytes.word() % 1024, none);
    check_call(rules, program, arch, native, bytes.word(), none);
    check_call(rules, program, arch, bytes.word(), 0, none);
}

}  // namespace sandbox::fuzz
