// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "shim/keeper.hpp"

namespace sandbox::shim {

// One connection to shim.sock, or the launcher's.
struct Keeper::Client {
    std::uint64_t number = 0;
    sys::UniqueFd socket;
    Loop::Token watch = 0;
    bool waits = false;
    bool is_launcher = false;
};

// The same text in every audit line of it, so that they can be counted.
inline constexpr const char* kOomDetail = "OOM kills in the workload's cgroup";
inline constexpr const char* kGuestOomDetail = "OOM kills in the guest, as the guest tells it";

}  // namespace sandbox::shim
