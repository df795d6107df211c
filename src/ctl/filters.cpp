// SPDX-License-Identifier: Apache-2.0
#include "ctl/filters.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <map>

#include "base/units.hpp"
#include "canon/json.hpp"
#include "supervisor/inspect.hpp"

namespace sandbox::ctl {

namespace {

// "status" is docker's word for "state".
constexpr std::array<std::string_view, 6> kFilterKeys{"id",    "label",  "name",
                                                      "state", "status", "profile"};

bool has_label(const std::string& labels, const std::string& wanted)
{
    // Our own JSON, from the ledger; if it cannot be read it has no labels.
    const auto json = canon::parse(labels);
    if (!json || !json->is_object()) return false;
    const std::size_t equals = wanted.find('=');
    const auto found = json->find(wanted.substr(0, equals));
    if (found == json->end()) return false;
    return equals == std::string::npos || *found == wanted.substr(equals + 1);
}

bool holds(const Filter& filter, const supervisor::Listed& listed)
{
    const ledger::Sandbox& s = listed.sandbox;
    // Like every other place that takes an id.
    if (filter.key == "id") return s.id.str().starts_with(filter.value);
    if (filter.key == "name") return s.name.str().find(filter.value) != std::string::npos;
    if (filter.key == "profile") return s.profile == filter.value;
    if (filter.key == "label") return has_label(s.labels, filter.value);
    // As shown by `ps`, not as stored: a dead sandbox is not "running".
    return supervisor::shown_state(listed) == filter.value;
}

std::string utc_text(std::time_t seconds)
{
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    std::array<char, 32> text{};
    // No zone: records are compared as text, and theirs has more digits behind the second.
    const std::size_t length = strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    return {text.data(), length};
}

// Only the shape: a day that does not exist sorts where one would look for it.
bool is_utc(std::string_view text)
{
    constexpr std::string_view kShape = "0000-00-00T00:00:00";
    if (text.size() <= kShape.size() || !text.ends_with('Z')) return false;
    for (std::size_t i = 0; i < kShape.size(); ++i) {
        const bool digit = text[i] >= '0' && text[i] <= '9';
        if (kShape[i] == '0' ? !digit : text[i] != kShape[i]) return false;
    }
    const std::string_view fraction = text.substr(kShape.size(), text.size() - kShape.size() - 1);
    return fraction.empty() ||
           (fraction.front() == '.' && fraction.size() > 1 &&
            fraction.substr(1).find_first_not_of("0123456789") == std::string_view::npos);
}

}  // namespace

Result<std::vector<Filter>> parse_filters(const std::vector<std::string>& words)
{
    std::vector<Filter> filters;
    for (const std::string& word : words) {
        const std::size_t equals = word.find('=');
        const std::string key = word.substr(0, equals);
        if (equals == std::string::npos ||
            std::ranges::find(kFilterKeys, key) == kFilterKeys.end()) {
            return fail(
                Code::invalid_argument,
                "--filter wants KEY=VALUE with one of id, name, state, profile, label; found '" +
                    word + "'");
        }
        // One name inside.
        filters.push_back({key == "status" ? "state" : key, word.substr(equals + 1)});
    }
    return filters;
}

bool matches(const std::vector<Filter>& filters, const supervisor::Listed& listed)
{
    std::map<std::string, bool> by_key;
    // Without a filter everything passes: an empty map has nothing that fails.
    for (const Filter& filter : filters) {
        // Labels all hold; of the others, one of each key.
        const auto [at, first] = by_key.try_emplace(filter.key, filter.key == "label");
        const bool held = holds(filter, listed);
        at->second = filter.key == "label" ? at->second && held : at->second || held;
    }
    return std::ranges::all_of(by_key, [](const auto& one) { return one.second; });
}

// A line may be several records (partial ones, docs/formats); lines are counted, records kept.
void Tail::add(std::string record, bool ends_line)
{
    kept_.push_back(std::move(record));
    marks_.push_back({ends_line});
    if (ends_line) ++ends_;
    // What stands behind the last end is a line too, the last one.
    const auto too_many = [&] { return ends_ + (marks_.back().ends_line ? 0 : 1) > lines_; };
    while (!kept_.empty() && too_many()) {
        bool ended = false;
        while (!kept_.empty() && !ended) {
            ended = marks_.front().ends_line;
            kept_.pop_front();
            marks_.pop_front();
        }
        if (ended) --ends_;
        if (kept_.empty()) break;
    }
}

// Records have no number of their own, so bytes and times must do.
bool CatchUp::is_new(std::string_view record, std::string_view time)
{
    if (!behind_) return true;
    // The very record that was shown last: what follows it is new.
    if (record == last_) {
        behind_ = false;
        return false;
    }
    // Rotated away: then whatever is younger is new. Two records of one time may be lost in that
    // case, which no reader can tell.
    if (time <= time_) return false;
    behind_ = false;
    return true;
}

Result<std::string> parse_since(const std::string& text, std::int64_t now_s)
{
    // Without the Z: a prefix of what the records have, so ">=" includes that second.
    if (is_utc(text)) return text.substr(0, text.size() - 1);
    std::int64_t seconds = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, seconds);
    // Seconds since 1970 before durations: a plain number is no duration.
    if (error == std::errc{} && at == end && seconds >= 0) return utc_text(seconds);
    if (const auto span = parse_duration(text)) {
        return utc_text(now_s - std::chrono::duration_cast<std::chrono::seconds>(*span).count());
    }
    return fail(Code::invalid_argument,
                "--since wants a UTC time (2026-01-02T03:04:05Z), seconds since 1970 or a duration "
                "(10m); found '" +
                    text + "'");
}

Result<PruneFilter> parse_prune(const std::vector<std::string>& words, std::int64_t now_s)
{
    constexpr std::string_view kUntil = "until=";
    PruneFilter filter;
    std::vector<std::string> others;
    for (const std::string& word : words) {
        if (word.starts_with(kUntil)) {
            // The last one stands; two of them would be a contradiction without an order.
            filter.until = TRY(parse_since(word.substr(kUntil.size()), now_s));
        } else {
            others.push_back(word);
        }
    }
    filter.filters = TRY(parse_filters(others));
    return filter;
}

bool may_prune(const PruneFilter& filter, const supervisor::Listed& listed)
{
    // Text of one form: it sorts as time does.
    if (!filter.until.empty() && listed.sandbox.created.utc >= filter.until) return false;
    return matches(filter.filters, listed);
}

}  // namespace sandbox::ctl
