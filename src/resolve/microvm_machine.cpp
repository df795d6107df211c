// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>

#include "resolve/limits.hpp"
#include "resolve/microvm.hpp"
#include "resolve/microvm_sizes.hpp"

namespace sandbox::resolve {

namespace name = facts::name;

namespace {

constexpr std::uint64_t kMebibyte = 1ULL << 20;

// Threads of QEMU (one a processor, the main loop, its workers: 64 at most, util/thread-pool.c) and
// of two virtiofsd, and their PID 1.
constexpr std::uint32_t kVmmPids = 128;

std::optional<std::uint64_t> count_in(std::string_view text)
{
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

std::uint32_t clamped(std::optional<std::uint64_t> value)
{
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(value.value_or(0), UINT32_MAX));
}

// The profile's word, else the operator's; a limit on CPUs or memory asks for a machine that can
// reach it.
NamedSize named_size(Draft& draft, const GuestSize& curve)
{
    const profile::Profile& profile = draft.profile();
    NamedSize named{profile.microvm.cpus, profile.microvm.memory};
    const auto cpus = count_in(draft.value_of(name::kGuestCpus));
    const auto memory = count_in(draft.value_of(name::kGuestMemory));
    if (!named.cpus && cpus) named.cpus = clamped(cpus);
    if (!named.cpus && profile.resources.cpus) {
        named.cpus = std::max(1U, (profile.resources.cpus->count + 999) / 1000);
    }
    if (!named.memory && memory) named.memory = Bytes{*memory};
    if (!named.memory && profile.resources.memory) {
        const std::uint64_t asked = profile.resources.memory->count;
        if (asked < UINT64_MAX - kGuestReserve - kMebibyte) {
            const std::uint64_t wanted = (asked + kGuestReserve + kMebibyte - 1) / kMebibyte *
                                         kMebibyte;
            named.memory = Bytes{std::max(wanted, curve.memory.count)};
        }
    }
    return named;
}

// What the profile says and the machine cannot give is denied, never cut.
void check_size(Draft& draft, const GuestSize& size)
{
    const auto deny = [&](std::string reason, std::string key, std::string requirement,
                          std::string fact, std::string mend) {
        draft.deny({.denial_class = DenialClass::unsupported_requirement,
                    .reason = std::move(reason),
                    .key = std::move(key),
                    .requirement = std::move(requirement),
                    .fact = std::move(fact),
                    .mend = std::move(mend),
                    .source = {}});
    };
    if (size.memory.count < kLeastGuestMemory) {
        deny("guest-memory-too-small", "microvm.memory", "memory = " + format(size.memory),
             "a guest's kernel and PID 1 need " + format(Bytes{kLeastGuestMemory}),
             "set microvm.memory to at least " + format(Bytes{kLeastGuestMemory}));
        return;
    }
    const auto& asked = draft.profile().resources.memory;
    // The kernel's part is not the workload's to use.
    if (asked && asked->count > size.memory.count - kGuestReserve) {
        deny("memory-above-guest", "resources.memory", "memory = " + format(*asked),
             "the guest has " + format(size.memory) + ", of which its kernel keeps " +
                 format(Bytes{kGuestReserve}),
             "set microvm.memory to " + format(Bytes{kGuestReserve}) +
                 " more than resources.memory, or leave it out");
    }
    if (draft.profile().resources.swap && draft.profile().resources.swap->count > 0) {
        deny("swap-in-guest", "resources.swap", "swap = " + format(*draft.profile().resources.swap),
             "a guest has no swap", "remove swap");
    }
}

// Inside: cgroup v2 of the guest's own kernel. CPU, I/O and CPU sets are held outside, where the
// guest cannot touch them.
plan::ResourcePlan guest_limits(const profile::Resources& asked, const GuestSize& size)
{
    plan::ResourcePlan out;
    out.version = plan::CgroupVersion::v2;
    out.controllers = {"cpu", "memory", "pids"};
    // Never below zero: a machine that is too small has been denied, and the plan is not made.
    const std::uint64_t free = size.memory.count > kGuestReserve ? size.memory.count - kGuestReserve
                                                                 : 0;
    const std::uint64_t memory = asked.memory ? std::min(asked.memory->count, free) : free;
    // Whole pages, as the kernel reads it back.
    const std::uint64_t whole = memory / kPage * kPage;
    // In this order they are written.
    out.workload = {{"pids", "pids.max", std::to_string(asked.pids)},
                    {"memory", "memory.max", std::to_string(whole)},
                    {"memory", "memory.swap.max", "0"}};
    out.control = {{"pids", "pids.max", std::to_string(kControlPids)},
                   {"memory", "memory.max", std::to_string(kControlMemory)}};
    return out;
}

// The host's cgroup holds VMM and helpers: all of the guest's memory is theirs.
profile::Resources host_request(const profile::Resources& asked, const plan::MicrovmPlan& microvm)
{
    profile::Resources host = asked;
    host.memory = Bytes{microvm.memory.count + microvm.overhead.count};
    // Memory without a word of swap means none: a guest's memory never goes to the host's swap.
    host.swap = std::nullopt;
    // A processor of the guest is a thread of the VMM.
    host.pids = kVmmPids + microvm.cpus;
    return host;
}

}  // namespace

void resolve_machine(Draft& draft)
{
    plan::MicrovmPlan& microvm = *draft.plan.microvm;
    const HostSize host{clamped(count_in(draft.value_of(name::kCpuCount))),
                        count_in(draft.value_of(name::kMemoryTotal)).value_or(0)};
    const GuestSize curve = guest_size(host, {});
    const GuestSize size = guest_size(host, named_size(draft, curve));
    check_size(draft, size);
    microvm.cpus = size.cpus;
    microvm.memory = size.memory;
    // One server for all shares of a kind, see vmm_overhead().
    const auto servers = [&](bool read_only) {
        return std::any_of(microvm.shares.begin(), microvm.shares.end(),
                           [&](const auto& share) { return share.read_only == read_only; });
    };
    const std::uint32_t count = (servers(true) ? 1U : 0U) + (servers(false) ? 1U : 0U);
    microvm.overhead = vmm_overhead(microvm.accelerator, size.memory, count);
    draft.plan.resources = guest_limits(draft.profile().resources, size);
    microvm.host = host_limits(draft, host_request(draft.profile().resources, microvm));
}

}  // namespace sandbox::resolve
