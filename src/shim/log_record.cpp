// SPDX-License-Identifier: Apache-2.0
#include "shim/log_record.hpp"

#include <array>

#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "canon/json.hpp"

namespace sandbox::shim {

namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// RFC 4648 section 4.
std::string to_base64(std::string_view bytes)
{
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const auto byte = [&](std::size_t k) {
            return k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0U;
        };
        const unsigned group = (byte(i) << 16) | (byte(i + 1) << 8) | byte(i + 2);
        out += kAlphabet[(group >> 18) & 63];
        out += kAlphabet[(group >> 12) & 63];
        out += i + 1 < bytes.size() ? kAlphabet[(group >> 6) & 63] : '=';
        out += i + 2 < bytes.size() ? kAlphabet[group & 63] : '=';
    }
    return out;
}

// Strict: what our encoder would not write is damage.
std::optional<std::string> from_base64(std::string_view text)
{
    if (text.size() % 4 != 0) return std::nullopt;
    std::string out;
    for (std::size_t i = 0; i < text.size(); i += 4) {
        unsigned group = 0;
        std::size_t padding = 0;
        for (std::size_t k = 0; k < 4; ++k) {
            const char c = text[i + k];
            group <<= 6;
            if (c == '=' && i + 4 == text.size() && k >= 2) {
                ++padding;
                continue;
            }
            const std::size_t value = kAlphabet.find(c);
            if (value == std::string_view::npos || padding > 0) return std::nullopt;
            group |= static_cast<unsigned>(value);
        }
        out += static_cast<char>(group >> 16);
        if (padding < 2) out += static_cast<char>((group >> 8) & 255U);
        if (padding < 1) out += static_cast<char>(group & 255U);
    }
    return out;
}

std::optional<Stream> stream_of(std::string_view name)
{
    for (const Stream stream : {Stream::out, Stream::err, Stream::supervisor}) {
        if (to_string(stream) == name) return stream;
    }
    return std::nullopt;
}

}  // namespace

std::string_view to_string(Stream stream) noexcept
{
    switch (stream) {
    case Stream::out: return "stdout";
    case Stream::err: return "stderr";
    case Stream::supervisor: return "supervisor";
    }
    return "supervisor";
}

LogRecord LineSplitter::take(const std::string& time, bool partial)
{
    LogRecord record{
        .time = time, .stream = stream_, .offset = offset_, .log = {}, .partial = partial};
    // The newline counts: offsets are those of the raw stream.
    offset_ += line_.size() + (partial ? 0 : 1);
    record.log = std::move(line_);
    line_.clear();
    return record;
}

std::string encode(const LogRecord& record)
{
    std::string out = "{\"time\":\"";
    append_escaped(out, record.time);
    out += "\",\"stream\":\"";
    out += to_string(record.stream);
    out += "\",\"offset\":" + std::to_string(record.offset);
    // Most lines are UTF-8, and then readable with any tool.
    if (is_valid_utf8(record.log)) {
        out += ",\"log\":\"";
        append_escaped(out, record.log);
    } else {
        out += ",\"log_b64\":\"" + to_base64(record.log);
    }
    out += record.partial ? "\",\"partial\":true" : "\",\"partial\":false";
    if (record.dropped != 0) out += ",\"dropped\":" + std::to_string(record.dropped);
    return out + "}\n";
}

Result<LogRecord> decode(std::string_view line)
{
    // Base64 grows a record by a third, escapes up to six times.
    // The longest record there can be, with all that may grow it.
    const canon::Json json = TRY(canon::parse(line, {.bytes = 8 * kLongestRecord, .depth = 2}));
    const auto bad = [] { return fail(Code::corrupt, "not a log record"); };
    if (!json.is_object()) return bad();
    const auto text = [&](const char* key) -> std::optional<std::string> {
        const auto it = json.find(key);
        if (it == json.end() || !it->is_string()) return std::nullopt;
        return it->get<std::string>();
    };
    const auto number = [&](const char* key) -> std::optional<std::uint64_t> {
        const auto it = json.find(key);
        if (it == json.end() || !it->is_number_unsigned()) return std::nullopt;
        return it->get<std::uint64_t>();
    };
    const auto time = text("time");
    const auto stream = text("stream");
    const auto kind = stream ? stream_of(*stream) : std::nullopt;
    const auto offset = number("offset");
    const auto partial = json.find("partial");
    // Unknown members are allowed here: a newer log worker may add some, and old logs outlive
    // releases.
    if (!time || !kind || !offset || partial == json.end() || !partial->is_boolean()) return bad();
    LogRecord record{.time = *time,
                     .stream = *kind,
                     .offset = *offset,
                     .log = {},
                     .partial = partial->get<bool>(),
                     .dropped = number("dropped").value_or(0)};
    if (auto plain = text("log")) {
        record.log = std::move(*plain);
        return record;
    }
    const auto coded = text("log_b64");
    auto bytes = coded ? from_base64(*coded) : std::nullopt;
    if (!bytes) return bad();
    record.log = std::move(*bytes);
    return record;
}

}  // namespace sandbox::shim
