// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "sys/process.hpp"

// The effects of the microvm driver: virtiofsd, the VMM and the relay, each in a jail of its own.
namespace sandbox::driver::microvm {

// Ids of a sandbox's range that no workload has: of the VMM, of relay and first processes.
inline constexpr std::uint32_t kVmmUid = 65533;
inline constexpr std::uint32_t kKeeperUid = 65532;

// Of Launched::helpers.
inline constexpr std::string_view kVmmProgram = "vmm";  // QEMU itself, not its PID 1
inline constexpr std::string_view kRelay = "relay";

const Backend& backend();

// kHz of the time stamp counter as /proc/cpuinfo gives it; 0: it does not say.
std::uint32_t tsc_khz();

}  // namespace sandbox::driver::microvm
