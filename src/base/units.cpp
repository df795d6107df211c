// SPDX-License-Identifier: Apache-2.0
#include "base/units.hpp"

#include <array>
#include <charconv>
#include <utility>

namespace sandbox {

namespace {

constexpr std::array<std::pair<std::string_view, unsigned>, 5> kBinaryUnits{
    {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}};

constexpr std::array<std::pair<std::string_view, std::int64_t>, 4> kTimeUnits{
    {{"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};

// Takes the digits at the front; no sign, no white space, no leading zero but "0" itself.
std::optional<std::uint64_t> take_number(std::string_view& text) noexcept
{
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc{} || digits == 0) return std::nullopt;
    if (digits > 1 && text.front() == '0') return std::nullopt;
    text.remove_prefix(digits);
    return value;
}

}  // namespace

std::optional<Bytes> parse_bytes(std::string_view text) noexcept
{
    const auto number = take_number(text);
    if (!number) return std::nullopt;
    if (text.empty()) return Bytes{*number};
    for (const auto& [unit, shift] : kBinaryUnits) {
        if (text != unit) continue;
        if (*number > (UINT64_MAX >> shift)) return std::nullopt;
        return Bytes{*number << shift};
    }
    return std::nullopt;
}

std::optional<Millis> parse_duration(std::string_view text) noexcept
{
    if (text == "0") return Millis{0};
    std::int64_t total = 0;
    std::size_t next_unit = 0;
    if (text.empty()) return std::nullopt;
    while (!text.empty()) {
        const auto number = take_number(text);
        // 100 years in milliseconds bounds every sum below.
        if (!number || *number > 3'153'600'000'000ULL) return std::nullopt;
        bool found = false;
        for (std::size_t i = next_unit; i < kTimeUnits.size() && !found; ++i) {
            const auto& [unit, scale] = kTimeUnits.at(i);
            if (!text.starts_with(unit) || (unit == "m" && text.starts_with("ms"))) continue;
            text.remove_prefix(unit.size());
            if (static_cast<std::int64_t>(*number) > (3'153'600'000'000LL - total) / scale) {
                return std::nullopt;
            }
            total += static_cast<std::int64_t>(*number) * scale;
            next_unit = i + 1;
            found = true;
        }
        if (!found) return std::nullopt;
    }
    return Millis{total};
}

std::string format(Bytes bytes)
{
    if (bytes.count == 0) return "0";
    for (const auto& [unit, shift] : kBinaryUnits) {
        if (shift == 0) break;
        if (bytes.count % (1ULL << shift) == 0) {
            return std::to_string(bytes.count >> shift) + std::string(unit);
        }
    }
    return std::to_string(bytes.count);
}

std::string format_duration(Millis duration)
{
    std::int64_t rest = duration.count();
    if (rest == 0) return "0";
    std::string text;
    for (const auto& [unit, scale] : kTimeUnits) {
        if (rest >= scale) {
            text += std::to_string(rest / scale) + std::string(unit);
            rest %= scale;
        }
    }
    return text;
}

std::string format(MilliCpus cpus)
{
    std::string text = std::to_string(cpus.count / 1000);
    const std::uint32_t fraction = cpus.count % 1000;
    if (fraction == 0) return text;
    std::string digits = std::to_string(1000 + fraction).substr(1);
    while (digits.back() == '0') digits.pop_back();
    return text + "." + digits;
}

}  // namespace sandbox
