// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "ctl/command_tree.hpp"
#include "supervisor/paths.hpp"

// Shell completion: a script for each shell made from the command tree, and the words it asks for
// while somebody types.
namespace sandbox::ctl {

enum class Shell { bash, zsh, fish };

// Deterministic: packages may ship the text.
std::string completion_script(const CommandDoc& tree, Shell shell);

// What may complete `prefix`, sorted. `kind` is a name of WordKind; an unknown one, like a state
// folder that is not there or not ours to read, gives nothing: completion must never be in the way.
// Reads the ledger without a lock, and never writes.
std::vector<std::string> complete_words(const supervisor::Paths& paths, std::string_view kind,
                                        std::string_view prefix);

}  // namespace sandbox::ctl
