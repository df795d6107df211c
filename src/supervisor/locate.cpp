// SPDX-License-Identifier: Apache-2.0
#include "supervisor/config_files.hpp"
#include "supervisor/paths.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

constexpr std::size_t kMostConfigBytes = 1U << 20;  // what load_config reads at most

// Parsing TOML takes longer than all else that `ps` does: only of a file that may name folders. A
// key may also be spelled with escapes.
bool may_name_folders(const std::string& config)
{
    const auto text = sys::read_file(config, kMostConfigBytes);
    if (!text) return text.error().code() != Code::not_found;
    return text->find("directories") != std::string::npos || text->find('\\') != std::string::npos;
}

}  // namespace

Result<Paths> locate(const std::string& root)
{
    Paths paths = find_paths(root);
    if (!may_name_folders(paths.config)) return paths;
    const LoadedConfig loaded = load_config(paths.config);
    if (!loaded.config) {
        std::string text = "the operator config is not usable, and may say where state is kept:";
        for (const Diagnostic& diagnostic : loaded.diagnostics) text += "\n  " + format(diagnostic);
        return fail(Code::invalid_argument, text);
    }
    const auto& folders = loaded.config->directories;
    if (const auto named = folders.find("state"); named != folders.end())
        paths.state = paths.root + named->second;
    if (const auto named = folders.find("run"); named != folders.end())
        paths.run = paths.root + named->second;
    return paths;
}

}  // namespace sandbox::supervisor
