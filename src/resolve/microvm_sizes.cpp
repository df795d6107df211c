// SPDX-License-Identifier: Apache-2.0
#include "resolve/microvm_sizes.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace sandbox::resolve {

namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::uint64_t kMemoryOfCpu = kGiB;           // a build runs one job a processor
constexpr std::uint64_t kLeastForCpu = 512 * kMiB;     // fewer processors before starved ones
constexpr std::uint64_t kLeastMemory = 512 * kMiB;
constexpr std::uint64_t kShareOfHost = 8;

// Room for the machine's own work grows faster than a guest's use for more processors.
constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 4> kCoreCurve{
    {{24, 12}, {16, 6}, {12, 4}, {8, 2}}};

std::uint32_t core_curve(std::uint32_t cores)
{
    for (const auto& [least, given] : kCoreCurve)
        if (cores >= least) return given;
    return 1;
}

// A machine sold with 8 GiB shows a little less: firmware and kernel took theirs.
std::uint64_t nominal(std::uint64_t memory) { return (memory + kGiB - 1) / kGiB * kGiB; }

}  // namespace

GuestSize guest_size(const HostSize& host, const NamedSize& named)
{
    const std::uint64_t share = nominal(host.memory) / kShareOfHost;
    const std::uint64_t fed = std::min<std::uint64_t>(share / kLeastForCpu, UINT32_MAX);
    GuestSize size;
    size.cpus = named.cpus.value_or(
        std::max(1U, std::min(core_curve(host.cpus), static_cast<std::uint32_t>(fed))));
    const std::uint64_t memory = named.memory ? named.memory->count
                                              : std::max(kLeastMemory,
                                                         std::min(size.cpus * kMemoryOfCpu, share));
    size.memory = Bytes{memory / kMiB * kMiB};
    return size;
}

Bytes vmm_overhead(plan::Accelerator accelerator, Bytes guest_memory, std::uint32_t share_servers)
{
    // QEMU beside an idle guest of Debian's kernel: 110 MiB measured, of it 45 the kernel's file;
    // device queues and thread stacks under load take the rest.
    constexpr std::uint64_t kVmm = 192 * kMiB;
    constexpr std::uint64_t kShareServer = 32 * kMiB;  // 4 MiB idle; its buffers and open files
    constexpr std::uint64_t kPageTables = 64;  // 1/512 twice (VMM and KVM), and spare
    std::uint64_t overhead = kVmm + share_servers * kShareServer + guest_memory.count / kPageTables;
    if (accelerator == plan::Accelerator::tcg) overhead += plan::kTranslationCache.count;
    return Bytes{(overhead + kMiB - 1) / kMiB * kMiB};
}

}  // namespace sandbox::resolve
