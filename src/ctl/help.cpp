// SPDX-License-Identifier: Apache-2.0
#include "ctl/command_tree.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace sandbox::ctl {

namespace {

// Two spaces and more read as columns.
constexpr std::size_t kLeastGap = 2;
constexpr std::size_t kWidestLabel = 28;  // a longer one has its text on the next line
constexpr std::size_t kWidth = 80;        // what every terminal shows

// One line of a list: what is typed, and what it means.
struct Row {
    std::string label;
    std::string text;
};

// Bytes for columns: help is ASCII.
std::string wrapped(const std::string& text, std::size_t indent)
{
    std::string out;
    std::size_t column = indent;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        // A word that is longer than a line stands alone and sticks out.
        if (column > indent && column + 1 + (end - at) > kWidth) {
            out += "\n" + std::string(indent, ' ');
            column = indent;
        } else if (column > indent) {
            out += ' ';
            ++column;
        }
        out.append(text, at, end - at);
        column += end - at;
        at = end + 1;
    }
    return out;
}

std::string columns(const std::vector<Row>& rows)
{
    std::size_t widest = 0;
    for (const Row& row : rows) {
        // Longer ones do not widen the column for all.
        if (row.label.size() <= kWidestLabel) widest = std::max(widest, row.label.size());
    }
    const std::size_t indent = 2 + widest + kLeastGap;
    std::string out;
    for (const Row& row : rows) {
        out += "  " + row.label;
        if (row.label.size() > widest)
            out += "\n" + std::string(indent, ' ');
        else
            out += std::string(widest - row.label.size() + kLeastGap, ' ');
        out += wrapped(row.text, indent) + "\n";
    }
    return out;
}

std::string option_label(const OptionDoc& option)
{
    // Long names line up under long names.
    std::string label = option.names.front().starts_with("--") ? "    " : "";
    for (const std::string& name : option.names) {
        label += (&name == &option.names.front() ? "" : ", ") + name;
    }
    return option.value.empty() ? label : label + " " + option.value;
}

// Defaults that the parser knows; those of the profile and the config are not its own.
std::string option_text(const OptionDoc& option)
{
    if (option.fallback.empty()) return option.help;
    return fmt::format("{} (default: {})", option.help, option.fallback);
}

// "PROFILE", "[NAME]", "NAME...", "[-- ARGV...]".
std::string argument_label(const OptionDoc& argument)
{
    std::string label = argument.value + (argument.repeatable ? "..." : "");
    // Everything behind "--" goes to the workload untouched.
    if (argument.value == "ARGV") label = "-- " + label;
    return argument.required ? label : "[" + label + "]";
}

std::string overview(const CommandDoc& tree)
{
    std::string out = fmt::format(
        "Usage: sandboxctl [--root DIR] VERB [OPTION...] [ARGUMENT...]\n\n{}\n", tree.help);
    std::string group;
    std::vector<Row> rows;
    // A group's heading is written with its rows, so an empty one leaves nothing.
    const auto flush = [&] {
        if (!rows.empty()) out += fmt::format("\n{}\n{}", group, columns(rows));
        rows.clear();
    };
    // One column for all groups: every label is padded to the widest of all.
    const auto list = leaves(tree);
    std::size_t widest = 0;
    for (const CommandDoc* command : list) widest = std::max(widest, command->path.size());
    for (const CommandDoc* command : list) {
        // Groups come in a row: leaves() has sorted them.
        if (command->group != group) flush();
        group = command->group;
        rows.push_back({fmt::format("{:<{}}", command->path, widest), command->help});
    }
    flush();
    rows.clear();
    for (const OptionDoc& option : tree.options) {
        rows.push_back({option_label(option), option_text(option)});
    }
    out += "\nOptions\n" + columns(rows);
    // The manual page has the rest: this has to fit a screen.
    return out +
           "\nExit status: of run, exec, attach, create and start that of the workload, or 124\n"
           "time-out, 125 denied or failed, 126 not executable, 127 not found, 128+n signal;\n"
           "of other verbs 0, 1 (failed, denied) or 2 (wrong usage).\n"
           "'sandboxctl VERB --help' says more; sandboxctl(1) says all.\n";
}

}  // namespace

std::string render_help(const CommandDoc& tree, const CommandDoc& command)
{
    if (command.path.empty()) return overview(tree);
    std::string out = "Usage: sandboxctl " + command.path;
    if (!command.is_leaf()) {
        // A group of verbs has no options of its own worth a heading.
        out += fmt::format(" VERB\n\n{}\n\n", command.help);
        std::vector<Row> rows;
        for (const CommandDoc& child : command.children) rows.push_back({child.path, child.help});
        return out + columns(rows);
    }
    out += " [OPTION...]";
    std::vector<Row> rows;
    for (const OptionDoc& argument : command.arguments) {
        out += " " + argument_label(argument);
        rows.push_back({argument.value, argument.help});
    }
    out += fmt::format("\n\n{}\n", command.help);
    if (!rows.empty()) out += "\n" + columns(rows);
    rows.clear();
    for (const OptionDoc& option : command.options) {
        rows.push_back({option_label(option), option_text(option)});
    }
    return out + "\n" + columns(rows);
}

}  // namespace sandbox::ctl
