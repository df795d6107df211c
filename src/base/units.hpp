// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sandbox {

struct Bytes {
    std::uint64_t count = 0;
    auto operator<=>(const Bytes&) const = default;
};

// Thousandths of a CPU: 1.5 CPUs are 1500. Plans hold no floats.
struct MilliCpus {
    std::uint32_t count = 0;
    auto operator<=>(const MilliCpus&) const = default;
};

using Millis = std::chrono::milliseconds;

// "512MiB", "1GiB", "64KiB", "0", "4096": a whole number with an optional binary unit
// (B KiB MiB GiB TiB). Nothing for anything else, decimal units and overflow included.
std::optional<Bytes> parse_bytes(std::string_view text) noexcept;

// "30s", "250ms", "2h", "1h30m": whole numbers with units in falling order (h m s ms), or "0".
std::optional<Millis> parse_duration(std::string_view text) noexcept;

// The shortest exact spelling: parse(format(x)) == x.
std::string format(Bytes bytes);
std::string format_duration(Millis duration);
std::string format(MilliCpus cpus);  // "1.5"

}  // namespace sandbox
