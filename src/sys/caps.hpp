// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace sandbox::sys {

// Bit n is capability number n of linux/capability.h. capabilities(7) says what each set means.
using CapSet = std::uint64_t;

struct CapState {
    CapSet effective = 0;
    CapSet permitted = 0;
    CapSet inheritable = 0;
    bool operator==(const CapState&) const = default;
};

// "CAP_NET_ADMIN" <-> 12. Names are upper case with the prefix.
std::optional<int> cap_number(std::string_view name) noexcept;
std::string_view cap_name(int number) noexcept;  // empty when unknown
std::span<const std::string_view> all_cap_names() noexcept;  // index is the number
// Code::invalid_argument names the first unknown one.
[[nodiscard]] Result<CapSet> cap_set(std::span<const std::string> names);
std::vector<std::string> cap_names(CapSet set);

// Of the calling thread, capget(2).
[[nodiscard]] Result<CapState> get_caps();

// Async-signal-safe, of the calling thread: 0 or an errno.
int apply_caps(const CapState& state) noexcept;
// Drops everything outside `keep` from the bounding set, also numbers newer than our table.
// Requires: CAP_SETPCAP.
int drop_bounding(CapSet keep) noexcept;
// Clears first. Needs each in permitted and inheritable: EPERM otherwise.
int set_ambient(CapSet set) noexcept;  // clears first
// For ever, for this thread and what it executes (no_new_privs, kernel 3.5).
int set_no_new_privs() noexcept;

}  // namespace sandbox::sys
