// SPDX-License-Identifier: Apache-2.0
#include "sys/seccomp/compile.hpp"

#include <linux/seccomp.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace sandbox::sys::seccomp {

namespace {

using Program = std::vector<sock_filter>;

// Values of linux/seccomp.h; the low 16 bits of an answer are the errno.
constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr std::uint32_t kEperm = SECCOMP_RET_ERRNO | 1;    // EPERM
constexpr std::uint32_t kEnosys = SECCOMP_RET_ERRNO | 38;  // ENOSYS
constexpr std::uint32_t kKill = SECCOMP_RET_KILL_PROCESS;
constexpr std::uint32_t kX32Bit = 0x40000000U;             // asm/unistd.h, __X32_SYSCALL_BIT

// A jump of a condition reaches 255 instructions (sock_filter::jt and jf are bytes).
constexpr std::size_t kFar = 255;

sock_filter statement(unsigned code, std::uint32_t value)
{
    return sock_filter{static_cast<std::uint16_t>(code), 0, 0, value};
}

sock_filter branch(unsigned code, std::uint32_t value, std::size_t if_true, std::size_t if_false)
{
    return sock_filter{static_cast<std::uint16_t>(code), static_cast<std::uint8_t>(if_true),
                       static_cast<std::uint8_t>(if_false), value};
}

sock_filter give(std::uint32_t action) { return statement(BPF_RET | BPF_K, action); }

sock_filter load_number()
{
    return statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
}

sock_filter load_argument(std::uint8_t argument)
{
    // Both architectures are little-endian: the low half comes first.
    const std::size_t at = offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t);
    return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(at));
}

// One condition: falls through when it holds, else skips `otherwise` instructions.
Program test(const Condition& condition, std::size_t otherwise)
{
    // Classic BPF has one register: each condition loads its argument anew.
    Program code{load_argument(condition.argument)};
    if (condition.test == Test::any_bit) {
        code.push_back(branch(BPF_JMP | BPF_JSET | BPF_K, condition.mask, 0, otherwise));
        return code;
    }
    if (condition.mask != 0xffffffffU)
        code.push_back(statement(BPF_ALU | BPF_AND | BPF_K, condition.mask));
    code.push_back(branch(BPF_JMP | BPF_JEQ | BPF_K, condition.value, 0, otherwise));
    return code;
}

// All conditions of a match, then the answer; falls off the end when one does not hold.
Program match_block(const Match& match, std::uint32_t action)
{
    Program code{give(action)};
    // From the last condition to the first: each needs the length of what it has to skip.
    for (auto condition = match.rbegin(); condition != match.rend(); ++condition) {
        Program head = test(*condition, code.size());
        head.insert(head.end(), code.begin(), code.end());
        code = std::move(head);
    }
    return code;
}

// Plain comparisons of one argument need one load and one instruction a value.
bool is_value_list(const Rule& rule)
{
    const auto plain = [&rule](const Match& match) {
        return match.size() == 1 && match[0].test == Test::equal &&
               match[0].mask == rule.matches[0][0].mask &&
               match[0].argument == rule.matches[0][0].argument;
    };
    return rule.matches.size() > 1 && rule.matches.size() < kFar &&
           std::all_of(rule.matches.begin(), rule.matches.end(), plain);
}

Program value_list(const Rule& rule, std::uint32_t on_match, std::uint32_t otherwise)
{
    const Condition& first = rule.matches[0][0];
    Program code{load_argument(first.argument)};
    if (first.mask != 0xffffffffU) code.push_back(statement(BPF_ALU | BPF_AND | BPF_K, first.mask));
    const std::size_t count = rule.matches.size();
    // Each jump is to the answer behind the list.
    for (std::size_t at = 0; at < count; ++at)
        code.push_back(branch(BPF_JMP | BPF_JEQ | BPF_K, rule.matches[at][0].value, count - at, 0));
    code.push_back(give(otherwise));
    code.push_back(give(on_match));
    return code;
}

// What happens to one call, from the point where its number is known.
Program body(const Rule& rule)
{
    if (rule.verdict == Verdict::allow) return {give(kAllow)};
    if (rule.verdict == Verdict::no_such_call) return {give(kEnosys)};
    const bool only_if = rule.verdict == Verdict::allow_only_if;
    const std::uint32_t on_match = only_if ? kAllow : kEperm;
    const std::uint32_t otherwise = only_if ? kEperm : kAllow;
    if (is_value_list(rule)) return value_list(rule, on_match, otherwise);
    Program code;
    for (const Match& match : rule.matches) {
        const Program block = match_block(match, on_match);
        code.insert(code.end(), block.begin(), block.end());
    }
    code.push_back(give(otherwise));
    return code;
}

bool same(const sock_filter& one, const sock_filter& other)
{
    return one.code == other.code && one.jt == other.jt && one.jf == other.jf && one.k == other.k;
}

// All numbers from `first` up to the next range's first share one body.
struct Range {
    std::uint32_t first = 0;
    Program code;
};

std::vector<Range> ranges_of(std::span<const Rule> rules, Arch arch)
{
    const auto last = static_cast<std::size_t>(last_known_number(arch));
    // A number nobody lists gets EPERM; one we do not know at all ENOSYS, so that a libc falls
    // back.
    std::vector<Program> by_number(last + 1, Program{give(kEperm)});
    for (const Rule& rule : rules) {
        const auto number = syscall_number(rule.syscall, arch);
        if (number) by_number[static_cast<std::size_t>(*number)] = body(rule);
    }
    by_number.push_back({give(kEnosys)});
    std::vector<Range> ranges;
    // Neighbours with one answer share it: few hundred numbers become some dozen ranges.
    for (std::size_t number = 0; number < by_number.size(); ++number) {
        Program& code = by_number[number];
        if (!ranges.empty() && std::equal(code.begin(), code.end(), ranges.back().code.begin(),
                                          ranges.back().code.end(), same))
            continue;
        ranges.push_back(Range{static_cast<std::uint32_t>(number), std::move(code)});
    }
    return ranges;
}

// A balanced search: every number is decided after about log2(ranges) comparisons.
// By recursion over halves: depth and size are bounded by the number of ranges.
Program search(std::span<const Range> ranges)
{
    if (ranges.size() == 1) return ranges.front().code;
    const std::size_t middle = ranges.size() / 2;
    Program below = search(ranges.first(middle));
    const Program above = search(ranges.subspan(middle));
    Program code;
    const std::uint32_t pivot = ranges[middle].first;
    // A conditional jump holds 8 bits; farther targets take an unconditional one, which holds 32.
    if (below.size() <= kFar) {
        code.push_back(branch(BPF_JMP | BPF_JGE | BPF_K, pivot, below.size(), 0));
    } else {
        code.push_back(branch(BPF_JMP | BPF_JGE | BPF_K, pivot, 0, 1));
        code.push_back(statement(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(below.size())));
    }
    code.insert(code.end(), std::make_move_iterator(below.begin()),
                std::make_move_iterator(below.end()));
    code.insert(code.end(), above.begin(), above.end());
    return code;
}

}  // namespace

std::vector<sock_filter> compile(std::span<const Rule> rules, Arch arch)
{
    // The architecture first: numbers mean other calls on another one (seccomp(2), caveats).
    Program code{
        statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        branch(BPF_JMP | BPF_JEQ | BPF_K, audit_arch(arch), 1, 0),
        give(kKill),
        load_number(),
    };
    if (arch == Arch::x86_64) {
        // x32 shares the architecture mark and is told by a bit of the number.
        code.push_back(branch(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1));
        code.push_back(give(kKill));
    }
    const Program tree = search(ranges_of(rules, arch));
    code.insert(code.end(), tree.begin(), tree.end());
    return code;
}

std::vector<sock_filter> compile(Profile profile, Arch arch)
{
    return compile(rules(profile), arch);
}

}  // namespace sandbox::sys::seccomp
