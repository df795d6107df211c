// SPDX-License-Identifier: Apache-2.0
#include "shim/timing.hpp"

#include <fcntl.h>

#include <algorithm>

#include "canon/json.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

void Timing::mark(std::string_view step)
{
    // BOOTTIME, as every time of the ledger: the marks can be compared with its rows.
    const auto now = static_cast<std::uint64_t>(sys::boottime_ns());
    const auto known = std::ranges::find(marks_, step, &decltype(marks_)::value_type::first);
    // A vector: a dozen steps are found faster than hashed.
    if (known == marks_.end()) marks_.emplace_back(step, now);
}

Status Timing::save(int state_dir) const
{
    canon::Json times = canon::Json::object();
    for (const auto& [step, time] : marks_) times[std::string(step)] = time;
    const std::string text = TRY(canon::serialize({{"boottime_ns", std::move(times)}})) + "\n";
    auto file = TRY(
        sys::open_at2(state_dir, kTimingName, O_WRONLY | O_CREAT | O_TRUNC, 0600, sys::kBeneath));
    return sys::write_all(file.get(), text);
}

}  // namespace sandbox::shim
