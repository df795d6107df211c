// SPDX-License-Identifier: Apache-2.0
#include "profile/reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/diagnostic.hpp"
#include "canon/json.hpp"
#include "profile/check.hpp"
#include "profile/normal.hpp"

namespace sandbox::profile {

using canon::Json;

namespace {

constexpr std::string_view kDigits = "0123456789";

std::string in_quotes(std::string_view text) { return "\"" + escaped(text) + "\""; }

// "512MB" -> "512MiB": what was probably meant, for a hint only.
std::string size_hint(std::string_view text)
{
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kUnits{
        {{"k", "KiB"}, {"m", "MiB"}, {"g", "GiB"}, {"t", "TiB"}}};
    const std::string general = "a whole number with B, KiB, MiB, GiB or TiB, such as \"512MiB\"";
    const std::size_t end = text.find_first_not_of(kDigits);
    if (end == 0 || end == std::string_view::npos) return general;
    std::string unit;
    for (const char c : text.substr(end)) {
        if (c != ' ') unit += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    }
    // "512MB", "512 M", "512mib": one of four letters, whatever stands around it.
    for (const auto& [letter, proper] : kUnits) {
        const std::string one(letter);
        if (unit != one && unit != one + "b" && unit != one + "i" && unit != one + "ib") continue;
        const std::string guess = std::string(text.substr(0, end)) + std::string(proper);
        // Only if it can be read then; the number may be too large.
        if (parse_bytes(guess)) return "units are binary: \"" + guess + "\"";
    }
    return general;
}

// Tells "too large" from "no size": parse_bytes() gives nothing for both.
bool is_size_syntax(std::string_view text)
{
    const std::size_t end = text.find_first_not_of(kDigits);
    if (end == 0) return false;
    if (end == std::string_view::npos) return text.size() == 1 || text.front() != '0';
    // The unit is judged with a number that surely fits.
    const std::string one = "1" + std::string(text.substr(end));
    return text.front() != '0' && parse_bytes(one).has_value();
}

}  // namespace

const Json* Reader::find(std::string_view name) const
{
    // Null for a table that is not there: every look-up in it then finds nothing.
    if (json_ == nullptr || !json_->is_object()) return nullptr;
    const auto found = json_->find(std::string(name));
    return found == json_->end() ? nullptr : &*found;
}

Reader Reader::table(std::string_view name) const
{
    const Json* found = find(name);
    // Of another type: absent; the schema has complained.
    const bool usable = found != nullptr && found->is_object();
    return {document_, usable ? found : nullptr, path(name)};
}

std::vector<Reader> Reader::tables(std::string_view name) const
{
    std::vector<Reader> items;
    const Json* found = find(name);
    if (found == nullptr || !found->is_array()) return items;
    for (std::size_t i = 0; i < found->size(); ++i) {
        const Json& item = (*found)[i];
        // Keeps its place, so that later indices stay right.
        items.push_back({document_, item.is_object() ? &item : nullptr, item_path(path(name), i)});
    }
    return items;
}

std::vector<std::string> Reader::keys() const
{
    std::vector<std::string> names;
    if (json_ == nullptr || !json_->is_object()) return names;
    for (const auto& [name, value] : json_->items()) names.push_back(name);
    return names;
}

std::optional<std::string> Reader::text(std::string_view name) const
{
    const Json* found = find(name);
    if (found == nullptr || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
}

std::optional<bool> Reader::flag(std::string_view name) const
{
    const Json* found = find(name);
    if (found == nullptr || !found->is_boolean()) return std::nullopt;
    return found->get<bool>();
}

std::optional<std::uint64_t> Reader::integer(std::string_view name) const
{
    const Json* found = find(name);
    if (found == nullptr || !found->is_number_integer()) return std::nullopt;
    // A document that came from TOML has signed 64-bit integers only.
    const auto value = found->get<std::int64_t>();
    if (value < 0 || static_cast<std::uint64_t>(value) > kMostInteger) return std::nullopt;
    return static_cast<std::uint64_t>(value);
}

std::optional<std::uint32_t> Reader::small(std::string_view name) const
{
    const auto value = integer(name);
    if (!value || *value > UINT32_MAX) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
}

std::optional<Bytes> Reader::size(std::string_view name)
{
    const auto written = text(name);
    if (!written) return std::nullopt;
    const auto bytes = parse_bytes(*written);
    // Bytes are kept as JSON integers, which end at 2^53-1 (RFC 7493, section 2.2).
    if (bytes && bytes->count <= kMostInteger) return bytes;
    if (bytes || is_size_syntax(*written)) {
        refuse("out-of-range", name, in_quotes(*written) + " is too large, at most 8191TiB");
    } else {
        refuse("bad-unit", name, in_quotes(*written) + " is not a size", size_hint(*written));
    }
    return std::nullopt;
}

std::optional<Millis> Reader::duration(std::string_view name)
{
    const auto written = text(name);
    if (!written) return std::nullopt;
    const auto value = parse_duration(*written);
    if (value) return value;
    // A bare number is the usual mistake: seconds in some programs, milliseconds in others.
    const bool number = written->find_first_not_of(kDigits) == std::string::npos;
    refuse("bad-unit", name, in_quotes(*written) + " is not a duration of at most 100 years",
           number && !written->empty()
               ? "give the unit: \"" + *written + "s\" or \"" + *written + "ms\""
               : "whole numbers with h, m, s and ms in this order, such as \"1h30m\"");
    return std::nullopt;
}

std::optional<MilliCpus> Reader::cpus(std::string_view name)
{
    const Json* found = find(name);
    if (found == nullptr || !found->is_number()) return std::nullopt;
    // A fraction, so a double; only the thousandths that it stands for are kept.
    const auto value = found->get<double>();
    if (value < 0.001 || value > 8192) return std::nullopt;  // the schema's bounds
    const double thousandths = value * 1000;
    const double whole = std::round(thousandths);
    // A double holds 1.001 only nearly; what is further off than that was written finer.
    if (std::abs(thousandths - whole) > 1e-6) {
        refuse("bad-number", name, "is finer than a thousandth of a CPU", "write three decimals");
        return std::nullopt;
    }
    return MilliCpus{static_cast<std::uint32_t>(whole)};
}

std::optional<std::uint32_t> Reader::mode(std::string_view name, std::uint32_t most)
{
    const auto written = text(name);
    if (!written) return std::nullopt;
    const auto value = parse_mode(*written, most);
    // "" has its complaint already.
    if (!value && !written->empty()) {
        refuse("bad-mode", name,
               in_quotes(*written) + " is not an octal mode up to " + format_mode(most),
               "such as \"0022\"");
    }
    return value;
}

std::vector<std::string> Reader::texts(std::string_view name) const
{
    std::vector<std::string> list;
    const Json* found = find(name);
    if (found == nullptr || !found->is_array()) return list;
    // An item of another type keeps its place, so that later indices stay right.
    for (const Json& item : *found) list.push_back(item.is_string() ? item.get<std::string>() : "");
    return list;
}

void Reader::refuse(std::string code, std::string_view name, std::string message, std::string hint)
{
    refuse_at(std::move(code), path(name), std::move(message), std::move(hint));
}

void Reader::refuse_at(std::string code, const std::string& place, std::string message,
                       std::string hint)
{
    // Here and not only in add_new, whose look-up of known keys costs as many steps as there are.
    if (document_->diagnostics.size() >= kMostDiagnostics) return;
    // The place of the nearest written ancestor where the key itself is not in the file.
    add_new(document_->diagnostics, {{std::move(code), place, locate(document_->where, place),
                                      std::move(message), std::move(hint)}});
}

void add_new(std::vector<Diagnostic>& diagnostics, std::vector<Diagnostic> more)
{
    // Once per call: the callers bring many at a time.
    std::set<std::string> known;
    for (const Diagnostic& diagnostic : diagnostics) known.insert(diagnostic.key);
    for (Diagnostic& diagnostic : more) {
        if (diagnostics.size() >= kMostDiagnostics) return;
        // The first says why; later ones about the same key often follow from it.
        if (known.contains(diagnostic.key)) continue;
        diagnostics.push_back(std::move(diagnostic));
    }
}

}  // namespace sandbox::profile
