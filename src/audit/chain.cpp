// SPDX-License-Identifier: Apache-2.0
#include "audit/audit.hpp"
#include "canon/json.hpp"

namespace sandbox::audit {

using canon::Json;

namespace {

// A record holds a whole plan's controls; the caller of a hostile workload bounds nothing here.
constexpr std::size_t kMostLine = 1U << 20;

// What is wrong with `line` as the successor of `head`; empty when nothing is.
std::string flaw(const Head& head, std::string_view line)
{
    const auto json = canon::parse(line, {.bytes = kMostLine, .depth = 16});
    if (!json) return "not a line of ours: " + json.error().message();
    if (!json->is_object()) return "not a line of ours: an object is wanted";
    const Json seq = json->value("seq", Json());
    const Json prev = json->value("prev", Json());
    if (!seq.is_number_unsigned() || !prev.is_string()) return "seq or prev is missing";
    if (seq.get<std::uint64_t>() != head.seq + 1) {
        return "seq is " + seq.dump() + ", wanted is " + std::to_string(head.seq + 1) +
               ": lines were removed, added or moved";
    }
    if (prev.get_ref<const std::string&>() != head.digest) {
        return "prev does not match the line before: that line or this one was changed";
    }
    const auto record = record_from_json(*json);
    if (!record) return record.error().message();
    // Two spellings of one line would both be plausible; only one was written.
    const auto bytes = canon::serialize(*json);
    if (!bytes || *bytes != line) return "not in canonical form: it was rewritten";
    return {};
}

}  // namespace

Result<Line> next_line(const Head& head, const AuditRecord& record)
{
    Json json = to_json(record);
    json["seq"] = head.seq + 1;
    json["prev"] = head.digest;
    Line line;
    line.text = TRY_WITH(canon::serialize(json), "write an audit record");
    if (line.text.size() > kMostLine) {
        return fail(Code::resource_exhausted, "an audit record of " +
                                                  std::to_string(line.text.size()) +
                                                  " bytes, at most " + std::to_string(kMostLine));
    }
    line.head = {head.seq + 1, canon::digest(line.text)};
    return line;
}

bool Verifier::feed(std::string_view line)
{
    if (broken_) return false;
    if (std::string why = flaw(head_, line); !why.empty()) {
        broken_ = Broken{head_.seq + 1, escaped(why)};
        return false;
    }
    head_ = {head_.seq + 1, canon::digest(line)};
    return true;
}

std::optional<Broken> Verifier::finish(const Head& expected) const
{
    if (broken_) return broken_;
    if (head_.seq < expected.seq) {
        return Broken{head_.seq + 1, "the log was cut: the ledger knows " +
                                         std::to_string(expected.seq) + " lines"};
    }
    if (head_.seq > expected.seq) {
        return Broken{expected.seq + 1, "appended without the ledger, which knows " +
                                            std::to_string(expected.seq) + " lines"};
    }
    if (head_.digest != expected.digest) {
        return Broken{head_.seq, "not the line the ledger knows: the end was rewritten"};
    }
    return std::nullopt;
}

std::optional<Broken> verify(std::string_view log, const Head& expected)
{
    Verifier verifier;
    while (!log.empty()) {
        const std::size_t end = log.find('\n');
        if (end == std::string_view::npos) {
            auto broken = verifier.finish(verifier.head());
            if (broken) return broken;
            return Broken{verifier.head().seq + 1, "torn: the last line has no end"};
        }
        if (!verifier.feed(log.substr(0, end))) break;
        log.remove_prefix(end + 1);
    }
    return verifier.finish(expected);
}

}  // namespace sandbox::audit
