// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"

#include <set>
#include <vector>

#include "base/utf8.hpp"

namespace sandbox::canon {

namespace {

constexpr std::int64_t kLargestInteger = 9'007'199'254'740'991;  // 2^53-1, RFC 7493 section 2.2

// Refuses while parsing, so that a hostile document never builds a tree past the ceilings.
class StrictHandler : public nlohmann::json_sax<Json> {
public:
    StrictHandler(Json& root, std::size_t depth) : inner_(root, false), depth_(depth) {}

    bool null() override { return inner_.null(); }
    bool boolean(bool value) override { return inner_.boolean(value); }
    bool number_integer(number_integer_t value) override
    {
        if (value < -kLargestInteger) return refuse("an integer below -(2^53-1)");
        return inner_.number_integer(value);
    }
    bool number_unsigned(number_unsigned_t value) override
    {
        if (value > static_cast<std::uint64_t>(kLargestInteger)) {
            return refuse("an integer above 2^53-1");
        }
        return inner_.number_unsigned(value);
    }
    bool number_float(number_float_t /*value*/, const string_t& /*text*/) override
    {
        return refuse("a number with a fraction or exponent");
    }
    bool string(string_t& value) override { return inner_.string(value); }
    bool binary(binary_t& value) override { return inner_.binary(value); }
    bool start_object(std::size_t count) override
    {
        keys_.emplace_back();
        if (keys_.size() + arrays_ > depth_) return refuse("nesting too deep");
        return inner_.start_object(count);
    }
    bool key(string_t& value) override
    {
        if (!keys_.back().insert(value).second) return refuse("the key '" + value + "' twice");
        return inner_.key(value);
    }
    bool end_object() override
    {
        keys_.pop_back();
        return inner_.end_object();
    }
    bool start_array(std::size_t count) override
    {
        ++arrays_;
        if (keys_.size() + arrays_ > depth_) return refuse("nesting too deep");
        return inner_.start_array(count);
    }
    bool end_array() override
    {
        --arrays_;
        return inner_.end_array();
    }
    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& /*error*/) override
    {
        return refuse("no valid JSON at byte " + std::to_string(position));
    }

    const std::string& why() const { return why_; }

private:
    bool refuse(std::string why)
    {
        if (why_.empty()) why_ = std::move(why);
        return false;
    }

    nlohmann::detail::json_sax_dom_parser<Json> inner_;
    std::size_t depth_;
    std::vector<std::set<std::string>> keys_;
    std::size_t arrays_ = 0;
    std::string why_;
};

void append_string(std::string& out, const std::string& text)
{
    static constexpr std::string_view kHex = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        switch (c) {
        case '"': out += "\\\""; break;
        case '\\': out += "\\\\"; break;
        case '\b': out += "\\b"; break;
        case '\f': out += "\\f"; break;
        case '\n': out += "\\n"; break;
        case '\r': out += "\\r"; break;
        case '\t': out += "\\t"; break;
        default:
            if (static_cast<unsigned char>(c) < 0x20) {
                out += "\\u00";
                out += kHex[static_cast<unsigned char>(c) >> 4];
                out += kHex[static_cast<unsigned char>(c) & 15U];
            } else {
                out += c;
            }
        }
    }
    out += '"';
}

// RFC 8785 orders keys by UTF-16 code units; that differs from byte order only above U+FFFF.
std::u16string utf16(std::string_view text)
{
    std::u16string out;
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        if (c.value >= 0x10000) {
            out += static_cast<char16_t>(0xD800 + ((c.value - 0x10000) >> 10));
            out += static_cast<char16_t>(0xDC00 + ((c.value - 0x10000) & 0x3FF));
        } else {
            out += static_cast<char16_t>(c.value);
        }
        text.remove_prefix(c.length == 0 ? 1 : c.length);
    }
    return out;
}

Status append(std::string& out, const Json& value);

Status append_object(std::string& out, const Json& value)
{
    std::vector<std::pair<std::u16string, Json::const_iterator>> members;
    for (auto it = value.begin(); it != value.end(); ++it) {
        if (!is_valid_utf8(it.key())) return fail(Code::corrupt, "a JSON key is not UTF-8");
        members.emplace_back(utf16(it.key()), it);
    }
    std::sort(members.begin(), members.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    out += '{';
    bool first = true;
    for (const auto& [order, it] : members) {
        if (!first) out += ',';
        first = false;
        append_string(out, it.key());
        out += ':';
        TRY_VOID(append(out, it.value()));
    }
    out += '}';
    return {};
}

Status append(std::string& out, const Json& value)
{
    switch (value.type()) {
    case Json::value_t::null: out += "null"; return {};
    case Json::value_t::boolean: out += value.get<bool>() ? "true" : "false"; return {};
    case Json::value_t::number_unsigned:
        if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(kLargestInteger)) {
            return fail(Code::invalid_argument, "an integer above 2^53-1 has no canonical form");
        }
        out += std::to_string(value.get<std::uint64_t>());
        return {};
    case Json::value_t::number_integer:
        if (value.get<std::int64_t>() > kLargestInteger ||
            value.get<std::int64_t>() < -kLargestInteger) {
            return fail(Code::invalid_argument, "an integer beyond 2^53-1 has no canonical form");
        }
        out += std::to_string(value.get<std::int64_t>());
        return {};
    case Json::value_t::string:
        if (!is_valid_utf8(value.get_ref<const std::string&>())) {
            return fail(Code::corrupt, "a JSON string is not UTF-8");
        }
        append_string(out, value.get_ref<const std::string&>());
        return {};
    case Json::value_t::array: {
        out += '[';
        bool first = true;
        for (const Json& item : value) {
            if (!first) out += ',';
            first = false;
            TRY_VOID(append(out, item));
        }
        out += ']';
        return {};
    }
    case Json::value_t::object: return append_object(out, value);
    case Json::value_t::number_float:
        return fail(Code::invalid_argument, "a number with a fraction has no place in a plan");
    case Json::value_t::binary:
    case Json::value_t::discarded: break;
    }
    return fail(Code::internal, "a value that JSON cannot hold");
}

}  // namespace

Result<Json> parse(std::string_view text, Limits limits)
{
    if (text.size() > limits.bytes) {
        return fail(Code::corrupt, "JSON of " + std::to_string(text.size()) + " bytes, at most " +
                                       std::to_string(limits.bytes));
    }
    Json root;
    StrictHandler handler(root, limits.depth);
    if (!Json::sax_parse(text.begin(), text.end(), &handler)) {
        return fail(Code::corrupt, handler.why().empty() ? "not JSON" : handler.why());
    }
    return root;
}

Result<std::string> serialize(const Json& value)
{
    std::string out;
    TRY_VOID(append(out, value));
    return out;
}

}  // namespace sandbox::canon
