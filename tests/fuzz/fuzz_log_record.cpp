// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.hpp"
#include "fuzz.hpp"
#include "shim/log_record.hpp"

// The log: any bytes a workload prints come back as they were, in lines that are one each, and a
// damaged line is refused.
namespace sandbox::fuzz {

namespace {

void check_round_trip(const shim::LogRecord& record)
{
    const std::string line = shim::encode(record);
    HOLDS(line.ends_with('\n') && line.find('\n') == line.size() - 1);
    HOLDS(is_valid_utf8(line));
    const auto back = shim::decode(std::string_view(line).substr(0, line.size() - 1));
    HOLDS(back.has_value() && *back == record);
}

}  // namespace

FUZZ_TARGET(log_record)
{
    if (const auto record = shim::decode(input)) check_round_trip(*record);

    std::uint32_t seed = input.empty() ? 0 : static_cast<unsigned char>(input.front());
    shim::LineSplitter splitter(shim::Stream::err);
    std::string joined;
    const auto keep = [&](shim::LogRecord&& record) {
        HOLDS(record.offset == joined.size());
        HOLDS(record.log.size() <= shim::kLongestRecord);
        HOLDS(record.log.find('\n') == std::string::npos);
        check_round_trip(record);
        joined += record.log;
        if (!record.partial) joined += '\n';
    };
    for (std::string_view rest = input; !rest.empty();) {
        seed = seed * 1664525U + 1013904223U;  // Numerical Recipes, chapter 7
        const std::string_view piece = rest.substr(0, 1 + (seed >> 24));
        splitter.feed(piece, "2026-01-02T03:04:05.678901234Z", keep);
        rest.remove_prefix(piece.size());
    }
    if (auto last = splitter.finish("2026-01-02T03:04:05.678901234Z")) keep(std::move(*last));
    HOLDS(joined == input);
}

}  // namespace sandbox::fuzz
