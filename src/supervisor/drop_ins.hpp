// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "supervisor/paths.hpp"
#include "supervisor/service.hpp"

// Folders of profiles, read as systemd reads drop-ins.
namespace sandbox::supervisor {

struct DropIn {
    std::string file;                 // absolute
    std::optional<std::string> text;  // nothing: not readable, or not to be trusted …
    std::string problem;              // … and why
};

// What an editor or a package manager leaves beside a file is none: a dot in front, or an end that
// is not ".toml".
bool is_drop_in_name(const std::string& name) noexcept;

// anyone: a person applies the files and takes the responsibility; owner_only: they start by
// themselves, as root.
enum class Trust { anyone, owner_only };  // owner_only: written by root or us, by nobody else

// Files of all folders together, sorted by name: a name in an earlier folder stands for the same
// name in every later one. An empty file and a link to /dev/null mask the name and are left out.
// A folder that is not there has no files. denied: with owner_only, a folder that others may write.
// A file that cannot be read is in the result, with its problem.
[[nodiscard]] Result<std::vector<DropIn>> read_drop_ins(const std::vector<std::string>& folders,
                                                        Trust trust);

// The folders of profiles.d, the operator's before the vendor's.
std::vector<std::string> profile_folders(const Paths& paths);

}  // namespace sandbox::supervisor
