// SPDX-License-Identifier: Apache-2.0
#include "ctl/output.hpp"

#include <unistd.h>

#include <algorithm>

#include "canon/json.hpp"
#include "sys/file.hpp"

#include <yaml-cpp/yaml.h>

namespace sandbox::ctl {

namespace {

// Recursion as deep as the JSON, which is ours.
void emit(YAML::Emitter& out, const canon::Json& value)
{
    if (value.is_object()) {
        out << YAML::BeginMap;
        for (const auto& [key, member] : value.items()) {
            out << YAML::Key << key << YAML::Value;
            emit(out, member);
        }
        out << YAML::EndMap;
    } else if (value.is_array()) {
        out << YAML::BeginSeq;
        for (const canon::Json& item : value) emit(out, item);
        out << YAML::EndSeq;
    } else if (value.is_string()) {
        // Always quoted: "no", "1.5" and "~" stay strings whatever reads them.
        out << YAML::DoubleQuoted << value.get<std::string>();
    } else if (value.is_boolean()) {
        // YAML 1.2's core schema; the emitter's own words may be "yes" and "no".
        out << (value.get<bool>() ? "true" : "false");
    } else if (value.is_null()) {
        out << YAML::Null;
    } else {
        // Integers: JSON's text is YAML's.
        out << value.dump();
    }
}

// Of the process: there is one standard output, and main() asks once.
bool lost = false;

void write_to(int fd, std::string_view text)
{
    // Lost talk on stderr changes nothing; lost data does.
    if (!sys::write_all(fd, text) && fd == STDOUT_FILENO) lost = true;
}

// Requires: valid UTF-8, as escaped() gives. Every byte but a continuation (10xxxxxx) starts a
// character.
std::size_t characters(std::string_view text)
{
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

}  // namespace

// No escaping here: talk of our own may have colours and lines; who quotes something escapes it.
void say(std::string_view line) { write_to(STDERR_FILENO, std::string(line) + "\n"); }

void complain(const Error& error)
{
    // Some messages list several findings, one a line.
    const std::string message = error.message();
    std::string_view rest = message;
    std::string text = "sandboxctl: ";
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
        // Line by line: escaped() would show the line ends, too.
        text += escaped(rest.substr(0, end)) + "\n";
        rest.remove_prefix(end + 1);
    }
    say(text + escaped(rest));
}

void complain(const std::vector<Diagnostic>& diagnostics)
{
    std::string text;
    for (const Diagnostic& diagnostic : diagnostics) text += format(diagnostic) + "\n";
    write_to(STDERR_FILENO, text);
}

void print(std::string_view text) { write_to(STDOUT_FILENO, text); }

void print(const canon::Json& value, Format format)
{
    if (format == Format::yaml) {
        YAML::Emitter out;
        emit(out, value);
        print(std::string(out.c_str()) + "\n");
        return;
    }
    // Bad UTF-8 cannot occur in our own values; were it there, it must not throw.
    print(value.dump(2, ' ', false, canon::Json::error_handler_t::replace) + "\n");
}

std::string table(const std::vector<std::vector<std::string>>& rows)
{
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], characters(escaped(row[i])));
        }
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            std::string cell = escaped(row[i]);
            // The last column is not padded: no white space at the end of lines.
            if (i + 1 < row.size()) cell.append(widths[i] + 2 - characters(cell), ' ');
            line += cell;
        }
        text += line + "\n";
    }
    return text;
}

bool output_was_lost() noexcept { return lost; }

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace sandbox::ctl
