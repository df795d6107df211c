// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.hpp"
#include "plan/plan.hpp"

// How big a guest is. Pure arithmetic: a table tests it.
namespace sandbox::resolve {

struct HostSize {
    std::uint32_t cpus = 0;    // 0: unknown
    std::uint64_t memory = 0;  // bytes, as the kernel counts them; 0: unknown
};

struct GuestSize {
    std::uint32_t cpus = 1;
    Bytes memory{0};  // whole MiB
    bool operator==(const GuestSize&) const = default;
};

// What was said of the size; the profile's word before the operator's.
struct NamedSize {
    std::optional<std::uint32_t> cpus;
    std::optional<Bytes> memory;
};

// `named` as it is; what is not named follows the curves: processors = min(core curve, share / 512
// MiB), at least 1; memory = max(512 MiB, min(processors * 1 GiB, share)), where a guest's share of
// a machine is one eighth of its memory.
GuestSize guest_size(const HostSize& host, const NamedSize& named);

// The guest's own kernel and PID 1: what a workload's limit leaves free of the guest's memory.
inline constexpr std::uint64_t kGuestReserve = 96ULL << 20;
// Below it Debian's kernel and PID 1 alone fill the machine.
inline constexpr std::uint64_t kLeastGuestMemory = 160ULL << 20;

// What VMM and virtiofsd use beside the guest's memory, at most. Beyond it the host's OOM killer
// ends the sandbox.
Bytes vmm_overhead(plan::Accelerator accelerator, Bytes guest_memory, std::uint32_t share_servers);

}  // namespace sandbox::resolve
