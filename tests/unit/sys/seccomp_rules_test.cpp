// SPDX-License-Identifier: Apache-2.0
#include <seccomp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "bpf_evaluator.hpp"
#include "sys/file.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/digest.hpp"
#include "sys/seccomp/rules.hpp"

namespace sandbox::sys::seccomp {

namespace {

using testing::evaluate;
using Arguments = std::array<std::uint64_t, 6>;

constexpr std::uint32_t kIa32 = 0x40000003U;  // AUDIT_ARCH_I386
constexpr std::uint32_t kX32 = 0x40000000U;
constexpr std::array kProfiles{Profile::outer, Profile::standard, Profile::strict};

Answer meaning(std::uint32_t action)
{
    if (action == SECCOMP_RET_ALLOW) return Answer::allow;
    if (action == (SECCOMP_RET_ERRNO | EPERM)) return Answer::eperm;
    if (action == (SECCOMP_RET_ERRNO | ENOSYS)) return Answer::enosys;
    EXPECT_EQ(action, SECCOMP_RET_KILL_PROCESS);
    return Answer::kill;
}

seccomp_data make_data(std::uint32_t arch, std::uint32_t number, const Arguments& arguments)
{
    seccomp_data data{};
    data.nr = static_cast<int>(number);
    data.arch = arch;
    std::copy(arguments.begin(), arguments.end(), data.args);
    return data;
}

const Rule* rule_of(Profile profile, std::string_view name)
{
    for (const Rule& rule : rules(profile))
        if (rule.syscall == name) return &rule;
    return nullptr;
}

// Arguments on both sides of every condition of the call, with and without high bits, and a few
// random ones.
std::vector<Arguments> samples(const Rule* rule, std::mt19937_64& random)
{
    std::vector<Arguments> all{{}, {~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL, ~0ULL}};
    for (int at = 0; at < 2; ++at)
        all.push_back({random(), random(), random(), random(), random(), random()});
    if (rule == nullptr) return all;
    for (const Match& match : rule->matches) {
        Arguments hit{};
        for (const Condition& one : match)
            hit[one.argument] = one.test == Test::equal ? one.value : one.mask;
        all.push_back(hit);
        for (const Condition& one : match) {
            for (int bit = 0; bit < 33; ++bit) {
                Arguments near = hit;
                near[one.argument] ^= 1ULL << bit;
                all.push_back(near);
                near[one.argument] |= 0xdead000000000000ULL;
                all.push_back(near);
                Arguments single = hit;
                single[one.argument] = 1ULL << bit;
                all.push_back(single);
            }
        }
    }
    return all;
}

// Every 32-bit value but these, as masked comparisons: libseccomp knows no "not masked-equal".
void complement(const std::set<std::uint32_t>& values, std::uint32_t prefix, int bits,
                std::vector<std::pair<std::uint32_t, std::uint32_t>>& out)
{
    const std::uint32_t mask = bits == 0 ? 0 : ~0U << (32 - bits);
    bool inside = false;
    for (const std::uint32_t value : values) inside = inside || (value & mask) == prefix;
    if (!inside) {
        out.emplace_back(mask, prefix);
        return;
    }
    if (bits == 32) return;
    complement(values, prefix, bits + 1, out);
    complement(values, prefix | 1U << (31 - bits), bits + 1, out);
}

class Reference {
public:
    explicit Reference(Profile profile) : context_(seccomp_init(SCMP_ACT_ERRNO(EPERM)))
    {
        seccomp_attr_set(context_, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
        for (const Rule& rule : rules(profile)) add(rule);
    }
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;
    ~Reference() { seccomp_release(context_); }

    std::vector<sock_filter> program() const
    {
        auto file = make_memfd("reference");
        EXPECT_TRUE(file.has_value());
        EXPECT_EQ(seccomp_export_bpf(context_, file->get()), 0);
        EXPECT_EQ(::lseek(file->get(), 0, SEEK_SET), 0);
        const auto bytes = read_all(file->get(), 1U << 20);
        EXPECT_TRUE(bytes.has_value());
        std::vector<sock_filter> program(bytes->size() / sizeof(sock_filter));
        std::memcpy(program.data(), bytes->data(), program.size() * sizeof(sock_filter));
        return program;
    }

private:
    void allow(int number, std::vector<scmp_arg_cmp> compare)
    {
        EXPECT_EQ(seccomp_rule_add_array(context_, SCMP_ACT_ALLOW, number,
                                         static_cast<unsigned>(compare.size()), compare.data()),
                  0)
            << number;
    }

    static scmp_arg_cmp masked(unsigned argument, std::uint32_t mask, std::uint32_t value)
    {
        return scmp_arg_cmp{argument, SCMP_CMP_MASKED_EQ, mask, value};
    }

    void allow_unless(int number, const Rule& rule)
    {
        if (rule.matches.size() == 1) {
            // not (a and b) is (not a) or (not b); the bits of `any_bit` must all be clear.
            for (const Condition& one : rule.matches[0]) {
                ASSERT_EQ(one.test, Test::any_bit);
                allow(number, {masked(one.argument, one.mask, 0)});
            }
            return;
        }
        std::set<std::uint32_t> values;
        for (const Match& match : rule.matches) {
            ASSERT_EQ(match.size(), 1U);
            ASSERT_EQ(match[0].mask, 0xffffffffU);
            values.insert(match[0].value);
        }
        std::vector<std::pair<std::uint32_t, std::uint32_t>> others;
        complement(values, 0, 0, others);
        for (const auto& [mask, value] : others)
            allow(number, {masked(rule.matches[0][0].argument, mask, value)});
    }

    void add(const Rule& rule)
    {
        const auto found = syscall_number(rule.syscall, Arch::x86_64);
        if (!found) return;
        switch (rule.verdict) {
        case Verdict::allow: allow(*found, {}); break;
        case Verdict::no_such_call:
            EXPECT_EQ(seccomp_rule_add(context_, SCMP_ACT_ERRNO(ENOSYS), *found, 0), 0);
            break;
        case Verdict::allow_unless: allow_unless(*found, rule); break;
        case Verdict::allow_only_if:
            for (const Match& match : rule.matches) {
                std::vector<scmp_arg_cmp> compare;
                for (const Condition& one : match)
                    compare.push_back(masked(one.argument, one.mask, one.value));
                allow(*found, compare);
            }
            break;
        }
    }

    scmp_filter_ctx context_;
};

class SeccompFilter : public ::testing::TestWithParam<Profile> {};

}  // namespace

// All numbers, three ABIs, arguments around every condition: our compiler against libseccomp's
// program of the same rules. Numbers that no table knows differ on purpose: ENOSYS, not EPERM.
TEST_P(SeccompFilter, AnswersAsLibseccompsProgramOfTheSameRules)
{
    if (native_arch() != Arch::x86_64)
        GTEST_SKIP() << "libseccomp compiles for the native architecture, which is not x86_64";
    const auto ours = compile(GetParam(), Arch::x86_64);
    const auto theirs = Reference(GetParam()).program();
    std::mt19937_64 random(42);
    long compared = 0;
    for (std::uint32_t number = 0; number < 1024; ++number) {
        const auto name = syscall_name(static_cast<int>(number), Arch::x86_64);
        for (const Arguments& arguments : samples(rule_of(GetParam(), name), random)) {
            for (const auto& [arch, bit] :
                 {std::pair{audit_arch(Arch::x86_64), 0U}, std::pair{kIa32, 0U},
                  std::pair{audit_arch(Arch::x86_64), kX32}}) {
                const auto data = make_data(arch, number | bit, arguments);
                const auto mine = evaluate(ours, data);
                const auto other = evaluate(theirs, data);
                ASSERT_TRUE(mine && other);
                const bool unknown = arch != kIa32 && bit == 0 &&
                                     static_cast<int>(number) > last_known_number(Arch::x86_64);
                const Answer expected = unknown ? Answer::enosys : meaning(other->action);
                ASSERT_EQ(meaning(mine->action), expected)
                    << name << " " << number << " arch " << arch << " bit " << bit;
                ++compared;
            }
        }
    }
    EXPECT_GT(compared, 10'000);
}

TEST_P(SeccompFilter, AnswersAsTheRulesMeanOnBothArchitectures)
{
    std::mt19937_64 random(43);
    for (const Arch arch : {Arch::x86_64, Arch::aarch64}) {
        const auto program = compile(GetParam(), arch);
        for (int number = -1; number < 1024; ++number) {
            const auto name = syscall_name(number, arch);
            for (const Arguments& arguments : samples(rule_of(GetParam(), name), random)) {
                const auto data = make_data(audit_arch(arch), static_cast<std::uint32_t>(number),
                                            arguments);
                const auto result = evaluate(program, data);
                ASSERT_TRUE(result.has_value());
                ASSERT_EQ(meaning(result->action),
                          answer(rules(GetParam()), arch, data.arch, number, arguments))
                    << name << " " << number;
            }
        }
    }
}

TEST_P(SeccompFilter, IsSmallAndDecidesPlainCallsInFewSteps)
{
    for (const Arch arch : {Arch::x86_64, Arch::aarch64}) {
        const auto program = compile(GetParam(), arch);
        EXPECT_LT(program.size(), 400U);
        for (const char* name : {"read", "write", "futex", "mmap", "close"}) {
            const auto number = syscall_number(name, arch);
            ASSERT_TRUE(number.has_value());
            const auto result = evaluate(
                program, make_data(audit_arch(arch), static_cast<std::uint32_t>(*number), {}));
            ASSERT_TRUE(result.has_value());
            EXPECT_LE(result->steps, 16) << name;
        }
    }
}

TEST_P(SeccompFilter, HasSortedUniqueRulesForCallsThatExist)
{
    std::string_view before;
    for (const Rule& rule : rules(GetParam())) {
        EXPECT_LT(before, rule.syscall);
        before = rule.syscall;
        EXPECT_TRUE(syscall_number(rule.syscall, Arch::x86_64) ||
                    syscall_number(rule.syscall, Arch::aarch64))
            << rule.syscall;
        const bool conditional = rule.verdict == Verdict::allow_only_if ||
                                 rule.verdict == Verdict::allow_unless;
        EXPECT_EQ(conditional, !rule.matches.empty()) << rule.syscall;
    }
}

INSTANTIATE_TEST_SUITE_P(Profiles, SeccompFilter, ::testing::ValuesIn(kProfiles),
                         [](const auto& row) { return std::string(to_string(row.param)); });

TEST(SeccompTable, AgreesWithLibseccompAsFarAsItKnows)
{
    int compared = 0;
    for (const auto& [arch, token] :
         {std::pair{Arch::x86_64, SCMP_ARCH_X86_64}, std::pair{Arch::aarch64, SCMP_ARCH_AARCH64}}) {
        for (int number = 0; number <= last_known_number(arch); ++number) {
            const std::string name(syscall_name(number, arch));
            if (name.empty()) continue;
            EXPECT_EQ(syscall_number(name, arch), number);
            const int theirs = seccomp_syscall_resolve_name_arch(static_cast<std::uint32_t>(token),
                                                                 name.c_str());
            if (theirs == __NR_SCMP_ERROR) continue;  // newer than this libseccomp
            EXPECT_EQ(theirs, number) << name;
            ++compared;
        }
    }
    EXPECT_GT(compared, 600);
}

TEST(SeccompRules, NeverListTheCallsThatReachOutOfASandbox)
{
    // clang-format off: a list to read as a block
    const std::array never{
        "unshare", "setns", "io_uring_setup", "io_uring_enter", "io_uring_register", "bpf",
        "perf_event_open", "keyctl", "add_key", "request_key", "userfaultfd", "ptrace",
        "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "mount", "umount2",
        "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
        "mount_setattr", "open_tree_attr", "open_by_handle_at", "init_module", "finit_module",
        "delete_module", "kexec_load", "kexec_file_load", "iopl", "ioperm", "acct", "swapon",
        "swapoff", "quotactl", "quotactl_fd", "fanotify_init", "fanotify_mark", "syslog",
        "clock_settime", "clock_adjtime", "settimeofday", "adjtimex", "reboot", "chroot",
        "memfd_secret", "sethostname", "setdomainname", "modify_ldt", "lookup_dcookie"};
    // clang-format on
    for (const Profile profile : kProfiles)
        for (const char* name : never) EXPECT_EQ(rule_of(profile, name), nullptr) << name;
}

TEST(SeccompRules, GiveStrictNothingThatStandardLacks)
{
    for (const Rule& rule : rules(Profile::strict))
        EXPECT_NE(rule_of(Profile::standard, rule.syscall), nullptr) << rule.syscall;
    EXPECT_LT(rules(Profile::strict).size(), rules(Profile::standard).size());
}

TEST(SeccompRules, GiveTheInnerRingNothingThatTheOuterRefuses)
{
    std::mt19937_64 random(44);
    for (const Rule& rule : rules(Profile::standard)) {
        const auto number = syscall_number(rule.syscall, Arch::x86_64);
        if (!number) continue;
        for (const Arguments& arguments : samples(&rule, random)) {
            const auto inner = answer(rules(Profile::standard), Arch::x86_64,
                                      audit_arch(Arch::x86_64), *number, arguments);
            const auto outer = answer(rules(Profile::outer), Arch::x86_64, audit_arch(Arch::x86_64),
                                      *number, arguments);
            EXPECT_TRUE(inner != Answer::allow || outer == Answer::allow) << rule.syscall;
        }
    }
}

TEST(SeccompRules, LetOnlyTheOuterRingMakeProcessesByClone3)
{
    EXPECT_EQ(rule_of(Profile::outer, "clone3")->verdict, Verdict::allow);
    EXPECT_EQ(rule_of(Profile::standard, "clone3")->verdict, Verdict::no_such_call);
    EXPECT_EQ(rule_of(Profile::strict, "clone3")->verdict, Verdict::no_such_call);
}

TEST(SeccompDigest, IsStableAndDiffersByProfile)
{
    std::set<std::string> digests;
    for (const Profile profile : kProfiles) {
        EXPECT_EQ(rules_digest(profile), rules_digest(profile));
        EXPECT_TRUE(rules_digest(profile).starts_with("sha256:"));
        digests.insert(rules_digest(profile));
        digests.insert(program_digest(compile(profile, Arch::x86_64)));
    }
    EXPECT_EQ(digests.size(), 6U);
}

TEST(SeccompText, HasOneLineARule)
{
    const std::string text = canonical_text(Profile::strict);
    EXPECT_NE(text.find("\nread allow\n"), std::string::npos);
    EXPECT_NE(text.find("\nclone3 enosys\n"), std::string::npos);
    EXPECT_NE(text.find("\nclone allow-unless arg0 & 0x7e020000 != 0x0\n"), std::string::npos);
    EXPECT_NE(text.find("\nsocket allow-only-if arg0 & 0xffffffff == 0x1\n"), std::string::npos);
    EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')),
              rules(Profile::strict).size() + 4);
}

}  // namespace sandbox::sys::seccomp
