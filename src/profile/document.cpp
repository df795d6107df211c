// SPDX-License-Identifier: Apache-2.0
#include "profile/document.hpp"

#include <cmath>
#include <utility>

namespace sandbox::profile {
namespace {
struct ParserAssertion {};
[[noreturn]] void parser_assertion_failed() { throw ParserAssertion{}; }
}  // namespace
}  // namespace sandbox::profile

// toml++ 3.3 asserts where a table header does not begin with a key ("[:"), and with NDEBUG assumes
// it instead. A file from outside must not end a process: the assertion throws, in every build.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? void() : ::sandbox::profile::parser_assertion_failed())
// Debian's package would pull in a shared library; everything is compiled here instead.
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <toml++/toml.h>
#pragma GCC diagnostic pop
#pragma pop_macro("NDEBUG")

#include "base/utf8.hpp"
#include "profile/profile.hpp"
#include "canon/json.hpp"

namespace sandbox::profile {

using canon::Json;

namespace {

SourceLocation location(std::string_view file, const toml::source_position& position)
{
    return {std::string(file), static_cast<std::uint32_t>(position.line),
            static_cast<std::uint32_t>(position.column)};
}

std::string two_digits(unsigned value)
{
    return {static_cast<char>('0' + value / 10 % 10), static_cast<char>('0' + value % 10)};
}

std::string text_of(const toml::date& date)
{
    return two_digits(date.year / 100) + two_digits(date.year % 100) + "-" +
           two_digits(date.month) + "-" + two_digits(date.day);
}

std::string text_of(const toml::date_time& moment)
{
    std::string text = text_of(moment.date) + "T" + two_digits(moment.time.hour) + ":" +
                       two_digits(moment.time.minute) + ":" + two_digits(moment.time.second);
    if (!moment.offset) return text;
    const int minutes = moment.offset->minutes;
    if (minutes == 0) return text + "Z";
    const auto distance = static_cast<unsigned>(std::abs(minutes));
    return text + (minutes < 0 ? "-" : "+") + two_digits(distance / 60) + ":" +
           two_digits(distance % 60);
}

class Converter {
public:
    Converter(Document& document, std::string_view file) : document_(document), file_(file) {}

    Json table(const toml::table& table, const std::string& path)
    {
        Json object = Json::object();
        for (const auto& [key, node] : table) {
            const std::string member = member_path(path, key.str());
            document_.where[member] = location(file_, key.source().begin);
            object[std::string(key.str())] = value(node, member);
        }
        return object;
    }

private:
    Json value(const toml::node& node, const std::string& path)
    {
        switch (node.type()) {
        case toml::node_type::table: return table(*node.as_table(), path);
        case toml::node_type::array: return array(*node.as_array(), path);
        case toml::node_type::string: return node.as_string()->get();
        case toml::node_type::integer: return node.as_integer()->get();
        case toml::node_type::boolean: return node.as_boolean()->get();
        case toml::node_type::floating_point: return number(node.as_floating_point()->get(), path);
        case toml::node_type::date: return date(text_of(node.as_date()->get()), path);
        case toml::node_type::date_time: return date(text_of(node.as_date_time()->get()), path);
        case toml::node_type::time: return date("a time", path);
        case toml::node_type::none: break;
        }
        return nullptr;
    }

    Json array(const toml::array& array, const std::string& path)
    {
        Json list = Json::array();
        for (const toml::node& node : array) {
            const std::string item = item_path(path, list.size());
            document_.where[item] = location(file_, node.source().begin);
            list.push_back(value(node, item));
        }
        return list;
    }

    Json number(double value, const std::string& path)
    {
        if (std::isfinite(value)) return value;
        refuse("bad-number", path, "wants a finite number", {});
        return nullptr;
    }

    Json date(std::string text, const std::string& path)
    {
        if (path == "valid_until") return text;
        refuse("bad-type", path, "a date or time has no meaning here",
               "put text between quotation marks");
        return nullptr;
    }

    void refuse(std::string code, const std::string& path, std::string message, std::string hint)
    {
        if (document_.diagnostics.size() >= kMostDiagnostics) return;
        document_.diagnostics.push_back({std::move(code), path, document_.where[path],
                                         std::move(message), std::move(hint)});
    }

    Document& document_;
    std::string_view file_;
};

// Position of the byte at `offset`, columns counted in characters as toml++ does.
SourceLocation position_of(std::string_view text, std::size_t offset, std::string_view file)
{
    SourceLocation at{std::string(file), 1, 1};
    for (std::size_t i = 0; i < offset;) {
        const Utf8Char c = decode_utf8(text.substr(i));
        i += c.length == 0 ? 1 : c.length;
        if (c.value == '\n') {
            ++at.line;
            at.column = 1;
        } else {
            ++at.column;
        }
    }
    return at;
}

// What no TOML parser needs to see.
std::optional<Diagnostic> unreadable(std::string_view toml, std::string_view file)
{
    if (toml.size() > kMostProfileBytes) {
        return Diagnostic{"file-too-large", {}, {std::string(file), 1, 1},
                          "the file has " + std::to_string(toml.size()) + " bytes, at most " +
                              std::to_string(kMostProfileBytes) + " are read",
                          "put large contents into a file that is mounted"};
    }
    for (std::size_t i = 0; i < toml.size();) {
        const Utf8Char c = decode_utf8(toml.substr(i));
        if (c.length == 0) {
            return Diagnostic{"invalid-utf8", {}, position_of(toml, i, file),
                              "the file is not UTF-8 from here on", "save it as UTF-8"};
        }
        if (c.value == 0) {
            return Diagnostic{"control-character", {}, position_of(toml, i, file),
                              "a NUL character has no place in TOML", {}};
        }
        i += c.length;
    }
    return std::nullopt;
}

// toml++ names the key last, between single quotes.
std::string quoted_part(std::string_view text)
{
    const std::size_t begin = text.find('\'');
    const std::size_t end = text.rfind('\'');
    if (begin == std::string_view::npos || end == begin) return {};
    return std::string(text.substr(begin + 1, end - begin - 1));
}

// The table that a line lies in, for the key path of a mistake that ended the parsing: the nearest
// header above. Good enough for people; nothing is decided by it.
std::string enclosing_table(std::string_view toml, std::uint32_t line)
{
    std::string table;
    for (std::uint32_t at = 1; at < line && !toml.empty(); ++at) {
        const std::size_t end = std::min(toml.find('\n'), toml.size());
        std::string_view text = toml.substr(0, end);
        toml.remove_prefix(std::min(end + 1, toml.size()));
        const std::size_t first = text.find_first_not_of(" \t[");
        const std::size_t last = text.find(']');
        const bool header = text.substr(0, 1) == "[" && first != text.npos && last != text.npos;
        if (header && last > first) table = text.substr(first, last - first);
    }
    return table;
}

Diagnostic from_parse_error(const toml::parse_error& error, std::string_view toml,
                            std::string_view file)
{
    const std::string_view text = error.description();
    Diagnostic diagnostic{
        "syntax", {}, location(file, error.source().begin), std::string(text), {}};
    const std::size_t redefined = text.find("cannot redefine existing");
    if (redefined != std::string_view::npos) {
        diagnostic.code = "duplicate-key";
        diagnostic.key = quoted_part(text.substr(redefined));
        const std::string table = enclosing_table(toml, diagnostic.at.line);
        const bool header = text.find("existing table") != text.npos;
        if (!table.empty() && !header) diagnostic.key = table + "." + diagnostic.key;
        diagnostic.message = "the key is written twice";
        diagnostic.hint = "keep one of them";
    } else {
        diagnostic.message = "not TOML: " + diagnostic.message;
    }
    return diagnostic;
}

bool is_bare_key(std::string_view name)
{
    if (name.empty()) return false;
    for (const char c : name) {
        const bool bare = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!bare) return false;
    }
    return true;
}

// Where a table header does not begin with a key: the parser gave up without saying so.
Diagnostic bad_header(std::string_view toml, std::string_view file)
{
    Diagnostic diagnostic{"syntax", {}, {std::string(file), 1, 1},
                          "not TOML: a table header does not begin with a name",
                          "[name] or [[name]]; between quotation marks where the name holds more "
                          "than letters, digits, '-' and '_'"};
    std::uint32_t line = 0;
    while (!toml.empty()) {
        ++line;
        const std::size_t end = std::min(toml.find('\n'), toml.size());
        const std::string_view text = toml.substr(0, end);
        toml.remove_prefix(std::min(end + 1, toml.size()));
        const std::size_t bracket = text.find_first_not_of(" \t");
        if (bracket == text.npos || text[bracket] != '[') continue;
        const std::size_t name = text.find_first_not_of("[ \t", bracket);
        const bool good = name != text.npos && (is_bare_key(text.substr(name, 1)) ||
                                                text.find_first_of("\"']", name) == name);
        if (good) continue;
        diagnostic.at.line = line;
        diagnostic.at.column = static_cast<std::uint32_t>(bracket) + 1;
        break;
    }
    return diagnostic;
}

}  // namespace

std::string member_path(std::string_view parent, std::string_view name)
{
    std::string path(parent);
    if (!path.empty()) path += '.';
    if (is_bare_key(name)) return path += name;
    return (path += '"').append(name) += '"';
}

std::string item_path(std::string_view parent, std::size_t index)
{
    return std::string(parent) + "[" + std::to_string(index) + "]";
}

Document read_toml(std::string_view toml, std::string_view file)
{
    Document document;
    document.where[""] = {std::string(file), 1, 1};
    if (auto flaw = unreadable(toml, file)) {
        document.diagnostics.push_back(*std::move(flaw));
        return document;
    }
    try {
        const toml::table root = toml::parse(toml);
        document.json = Converter(document, file).table(root, "");
        document.parsed = true;
    } catch (const toml::parse_error& error) {
        document.diagnostics.push_back(from_parse_error(error, toml, file));
    } catch (const ParserAssertion&) {
        document.diagnostics.push_back(bad_header(toml, file));
    }
    return document;
}

}  // namespace sandbox::profile
