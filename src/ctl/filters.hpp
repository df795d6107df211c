// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "supervisor/service.hpp"

// What `ps --filter`, `prune --filter` and `logs --tail --since` let through. Pure: the time is
// handed in.
namespace sandbox::ctl {

// "name=web" (part of it), "id=6e1f" (its beginning), "state=running" (also "status"),
// "profile=web", "label=team" or "label=team=ml". Filters of one key are alternatives, different
// keys all hold, as with podman.
struct Filter {
    std::string key;
    std::string value;
};
// invalid_argument: no KEY=VALUE, or an unknown key.
[[nodiscard]] Result<std::vector<Filter>> parse_filters(const std::vector<std::string>& words);
// True without filters.
bool matches(const std::vector<Filter>& filters, const supervisor::Listed& listed);

// Of the present records, those of the last `lines` whole lines; then, once caught up, everything.
// Memory: what those lines have, not what the log has. 0 lines keep nothing.
class Tail {
public:
    explicit Tail(std::uint64_t lines) : lines_(lines) {}

    void add(std::string record, bool ends_line);
    // Once, oldest first; empty afterwards.
    std::deque<std::string> take() { return std::move(kept_); }

private:
    struct Kept {
        bool ends_line;
    };
    std::uint64_t lines_;
    std::uint64_t ends_ = 0;
    std::deque<std::string> kept_;
    std::deque<Kept> marks_;
};

// Told the records of a second reading, lets through what the first had not: the log may have been
// rotated in between. Without a last record everything is new.
class CatchUp {
public:
    CatchUp(std::string last_record, std::string last_time)
        : last_(std::move(last_record)), time_(std::move(last_time)), behind_(!last_.empty())
    {
    }
    bool is_new(std::string_view record, std::string_view time);

private:
    std::string last_;
    std::string time_;
    bool behind_;
};

// "2026-01-02T03:04:05Z" (a fraction is allowed), seconds since 1970, or a duration before `now_s`
// (seconds since 1970): as the records spell a time, in UTC and to the second, to be compared as
// text. invalid_argument: none of the three.
[[nodiscard]] Result<std::string> parse_since(const std::string& text, std::int64_t now_s);

// Of `prune`: the same filters and "until=TIME" (as --since): made before then.
struct PruneFilter {
    std::vector<Filter> filters;
    std::string until;  // empty: whenever
};
[[nodiscard]] Result<PruneFilter> parse_prune(const std::vector<std::string>& words,
                                              std::int64_t now_s);
bool may_prune(const PruneFilter& filter, const supervisor::Listed& listed);

}  // namespace sandbox::ctl
