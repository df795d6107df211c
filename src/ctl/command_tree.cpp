// SPDX-License-Identifier: Apache-2.0
#include "ctl/command_tree.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>

#include "canon/json.hpp"

namespace sandbox::ctl {

namespace {

struct Group {
    std::string_view title;
    std::string_view verbs;  // first words of paths, between spaces
};

// The overview's order. What is not named here still shows, under the last heading.
constexpr std::array<Group, 5> kGroups{{
    {"Describe and plan", " validate plan policy apply "},
    {"Run and end",
     " run create start restart exec attach cp pause resume touch stop kill wait rm "},
    {"Look", " ps inspect logs sessions stats events "},
    {"This host", " doctor probe config reconcile prune audit "},
    {"Other", " completion version "},
}};

std::string first_word(const std::string& path) { return path.substr(0, path.find(' ')); }

// Group and place within it.
std::pair<std::size_t, std::size_t> place_of(const std::string& path)
{
    // Between spaces, so that "rm" is not found in "arm".
    const std::string verb = " " + first_word(path) + " ";
    for (std::size_t i = 0; i < kGroups.size(); ++i) {
        const std::size_t at = kGroups[i].verbs.find(verb);
        if (at != std::string_view::npos) return {i, at};
    }
    // Shown all the same: a verb that was forgotten in the list must not be hidden.
    return {kGroups.size() - 1, std::string::npos};
}

struct Named {
    std::string_view name;  // of the option or argument, as the parser knows it
    std::string_view value;
    WordKind words;
};

// What stands for a value, and what completes it. An option not named here shows its own name in
// capitals and completes nothing.
constexpr auto kNamed = std::to_array<Named>({
    {"--after", "SEQ", WordKind::none},
    {"--detach-keys", "KEYS", WordKind::none},
    {"--diff", "NAME", WordKind::sandbox},
    {"--env", "NAME=VALUE", WordKind::none},
    {"--expect-plan", "DIGEST", WordKind::none},
    {"--filter", "KEY=VALUE", WordKind::none},
    {"--from", "OFFSET", WordKind::none},
    {"--from-stderr", "OFFSET", WordKind::none},
    {"--interval", "DURATION", WordKind::none},
    {"--max-size", "SIZE", WordKind::none},
    {"--output", "FORMAT", WordKind::none},
    {"--overlay", "FILE", WordKind::file},
    {"--plan", "FILE", WordKind::file},
    {"--root", "DIR", WordKind::folder},
    {"--signal", "SIGNAL", WordKind::signal},
    {"--session", "SESSION", WordKind::session},
    {"--since", "TIME", WordKind::none},
    {"--snapshot", "FILE", WordKind::file},
    {"--tail", "LINES", WordKind::none},
    {"--time", "DURATION", WordKind::none},
    {"--timeout", "DURATION", WordKind::none},
    {"--user", "UID:GID", WordKind::none},
    {"--workdir", "DIR", WordKind::none},
    {"argv", "ARGV", WordKind::file},
    {"destination", "DESTINATION", WordKind::place},
    {"file", "FILE", WordKind::file},
    {"files", "FILE", WordKind::file},
    {"name", "NAME", WordKind::sandbox},
    {"names", "NAME", WordKind::sandbox},
    {"profile", "PROFILE", WordKind::profile},
    {"sandbox", "NAME", WordKind::sandbox},
    {"source", "SOURCE", WordKind::place},
});

std::string in_capitals(std::string text)
{
    // The dashes in front.
    text.erase(0, text.find_first_not_of('-'));
    for (char& c : text) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return text;
}

// The parser describes a closed set within the type only: "TEXT:{table,json,yaml}" (CLI11's
// IsMember).
std::vector<std::string> choices_of(const CLI::Option& option)
{
    const std::string type = option.get_type_name();
    const std::size_t open = type.find('{');
    const std::size_t close = type.rfind('}');
    std::vector<std::string> choices;
    if (open == std::string::npos || close == std::string::npos || close < open) return choices;
    for (std::size_t at = open + 1; at < close;) {
        const std::size_t comma = std::min(type.find(',', at), close);
        choices.push_back(type.substr(at, comma - at));
        at = comma + 1;
    }
    return choices;
}

OptionDoc describe_option(const CLI::Option& option)
{
    OptionDoc doc;
    for (const std::string& name : option.get_snames()) doc.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) doc.names.push_back("--" + name);
    doc.help = option.get_description();
    doc.required = option.get_required();
    // CLI11 gives a vector a huge maximum.
    doc.repeatable = option.get_items_expected_max() > 1;
    if (option.get_items_expected_max() == 0) return doc;  // a flag
    doc.fallback = option.get_default_str();
    // Empty where anything may stand.
    doc.choices = choices_of(option);
    // The long name, if there is one: that is what kNamed lists.
    const std::string name = doc.names.empty() ? option.get_name(true) : doc.names.back();
    const auto named = std::ranges::find(kNamed, name, &Named::name);
    doc.value = named == kNamed.end() ? in_capitals(name) : std::string(named->value);
    if (named != kNamed.end()) doc.words = named->words;
    // A closed set says more than a kind.
    if (!doc.choices.empty()) doc.words = WordKind::choice;
    return doc;
}

CommandDoc describe_command(const CLI::App& app, const std::string& path)
{
    // Recursion as deep as verbs are nested: two.
    CommandDoc doc;
    doc.path = path;
    doc.help = app.get_description();
    for (const CLI::Option* option : app.get_options()) {
        OptionDoc one = describe_option(*option);
        (one.names.empty() ? doc.arguments : doc.options).push_back(std::move(one));
    }
    // {}: CLI11's filter for "all"; without it only parsed ones are given.
    for (const CLI::App* child : app.get_subcommands({})) {
        const std::string separator = path.empty() ? "" : " ";
        doc.children.push_back(describe_command(*child, path + separator + child->get_name()));
    }
    if (doc.is_leaf()) doc.group = kGroups[place_of(path).first].title;
    return doc;
}

void collect(const CommandDoc& command, std::vector<const CommandDoc*>& out)
{
    // A group ("audit") is no command by itself.
    if (command.is_leaf()) out.push_back(&command);
    for (const CommandDoc& child : command.children) collect(child, out);
}

canon::Json option_json(const OptionDoc& option)
{
    return {{"names", option.names},       {"value", option.value},
            {"help", option.help},         {"default", option.fallback},
            {"choices", option.choices},   {"words", std::string(to_string(option.words))},
            {"required", option.required}, {"repeatable", option.repeatable}};
}

}  // namespace

std::string_view to_string(WordKind kind) noexcept
{
    switch (kind) {
    case WordKind::none: return "none";
    case WordKind::choice: return "choice";
    case WordKind::sandbox: return "sandbox";
    case WordKind::profile: return "profile";
    case WordKind::file: return "file";
    case WordKind::folder: return "folder";
    case WordKind::signal: return "signal";
    case WordKind::place: return "place";
    case WordKind::session: return "session";
    }
    return "none";
}

CommandDoc describe(const CLI::App& app) { return describe_command(app, {}); }

std::vector<const CommandDoc*> leaves(const CommandDoc& tree)
{
    std::vector<const CommandDoc*> list;
    collect(tree, list);
    // Stable: verbs of one place keep the order in which the parser has them.
    std::ranges::stable_sort(list, {},
                             [](const CommandDoc* command) { return place_of(command->path); });
    return list;
}

const CommandDoc* find_command(const CommandDoc& tree, const std::string& path)
{
    if (tree.path == path) return &tree;
    for (const CommandDoc& child : tree.children) {
        if (const CommandDoc* found = find_command(child, path)) return found;
    }
    return nullptr;
}

canon::Json to_json(const CommandDoc& tree)
{
    canon::Json verbs = canon::Json::array();
    for (const CommandDoc* command : leaves(tree)) {
        canon::Json options = canon::Json::array();
        for (const OptionDoc& option : command->options) options.push_back(option_json(option));
        canon::Json arguments = canon::Json::array();
        for (const OptionDoc& argument : command->arguments) {
            arguments.push_back(option_json(argument));
        }
        verbs.push_back({{"path", command->path},
                         {"help", command->help},
                         {"group", command->group},
                         {"options", std::move(options)},
                         {"arguments", std::move(arguments)}});
    }
    return {{"help", tree.help}, {"verbs", std::move(verbs)}};
}

}  // namespace sandbox::ctl
