// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <concepts>
#include <limits>

#include "canon/json.hpp"
#include "ledger/records.hpp"

namespace sandbox::ledger {

namespace {

using canon::Json;

// Small fixed objects: nothing legitimate is longer.
constexpr canon::Limits kLimits{.bytes = 1024, .depth = 2};

std::unexpected<Error> damaged(std::string_view what, std::string_view text)
{
    return fail(Code::corrupt, "ledger: wanted " + std::string(what) + ", found \"" +
                                   std::string(text.substr(0, 200)) +
                                   "\": the file is damaged, restore it from a copy");
}

// Exactly the fields we write: one more or one less is damage or a newer release, never ignored.
Result<Json> object(std::string_view text, std::size_t fields, std::string_view what)
{
    auto json = canon::parse(text, kLimits);
    if (!json || !json->is_object() || json->size() != fields) return damaged(what, text);
    return json;
}

// An integer as a JSON number, or as a decimal string where it may exceed 2^53-1.
template <std::integral T>
bool read(const Json& json, const char* key, T& out)
{
    const auto field = json.find(key);
    if (field == json.end()) return false;
    if (field->is_string()) {
        const auto& text = field->get_ref<const std::string&>();
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
        return code == std::errc{} && end == text.data() + text.size();
    }
    if (!field->is_number_integer()) return false;
    const auto number = field->get<std::int64_t>();
    if (!std::in_range<T>(number)) return false;
    out = static_cast<T>(number);
    return true;
}

std::string dump(const Json& json)
{
    // Integers and hex only: serialising cannot fail.
    return canon::serialize(json).value_or("");
}

}  // namespace

std::string encode(const ProcessIdentity& identity)
{
    return dump({{"boot_id", identity.boot_id},
                 {"pid", identity.pid},
                 {"pidfd_inode", std::to_string(identity.pidfd_inode)},
                 {"start_time", std::to_string(identity.start_time)}});
}

std::string encode(const FileIdentity& identity)
{
    return dump(
        {{"device", std::to_string(identity.device)}, {"inode", std::to_string(identity.inode)}});
}

std::string encode(const IdRange& range)
{
    return dump({{"count", range.count}, {"first", range.first}});
}

Result<ProcessIdentity> decode_process(std::string_view text)
{
    const auto json = TRY(object(text, 4, "a process"));
    ProcessIdentity identity;
    const auto boot = json.find("boot_id");
    if (boot == json.end() || !boot->is_string() || !read(json, "pid", identity.pid) ||
        !read(json, "pidfd_inode", identity.pidfd_inode) ||
        !read(json, "start_time", identity.start_time)) {
        return damaged("a process", text);
    }
    identity.boot_id = boot->get<std::string>();
    return identity;
}

Result<FileIdentity> decode_file(std::string_view text)
{
    const auto json = TRY(object(text, 2, "a file"));
    FileIdentity identity;
    if (!read(json, "device", identity.device) || !read(json, "inode", identity.inode)) {
        return damaged("a file", text);
    }
    return identity;
}

Result<IdRange> decode_range(std::string_view text)
{
    const auto json = TRY(object(text, 2, "an id range"));
    IdRange range;
    if (!read(json, "first", range.first) || !read(json, "count", range.count)) {
        return damaged("an id range", text);
    }
    return range;
}

}  // namespace sandbox::ledger
