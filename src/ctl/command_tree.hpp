// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "canon/canon.hpp"

namespace CLI {
class App;
}

// What the parser takes, as data. Help, shell completion and the test of the manual pages are made
// from it, so that none of them can promise what the parser refuses.
namespace sandbox::ctl {

// What may stand in a place, for completion: words of a fixed list, or of one that is asked for.
// place: a file here, or NAME: of a sandbox with a path in it.
enum class WordKind { none, choice, sandbox, profile, file, folder, signal, place, session };

struct OptionDoc {
    std::vector<std::string> names;  // "-o", "--output", short before long; an argument has none
    std::string value;               // "FILE"; empty for a flag
    std::string help;
    std::string fallback;  // the value without the option, where the parser knows one
    std::vector<std::string> choices;
    WordKind words = WordKind::none;
    bool required = false;
    bool repeatable = false;
};

// One program, group or verb. A tree of values: copied at will, and the parser is not needed.
struct CommandDoc {
    std::string path;  // "", "run", "audit show"
    std::string help;
    std::string group;  // heading in the overview; only for leaves
    std::vector<OptionDoc> options;
    std::vector<OptionDoc> arguments;  // in order
    std::vector<CommandDoc> children;

    bool is_leaf() const { return children.empty(); }
};

// Strings are copied, not viewed: the parser may be gone afterwards.
CommandDoc describe(const CLI::App& app);

// All leaves below `tree`, in the order of the overview: by group, then as listed there. Pointers
// into `tree`, which must outlive them.
std::vector<const CommandDoc*> leaves(const CommandDoc& tree);
// The command of this path ("audit show"), or nothing. Points into `tree`.
const CommandDoc* find_command(const CommandDoc& tree, const std::string& path);

// `--help` of the program or of one command, 80 columns wide. Requires: `command` is of `tree`.
std::string render_help(const CommandDoc& tree, const CommandDoc& command);

// For tests of the documents, not for people.
canon::Json to_json(const CommandDoc& tree);
std::string_view to_string(WordKind kind) noexcept;

}  // namespace sandbox::ctl
