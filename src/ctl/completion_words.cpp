// SPDX-License-Identifier: Apache-2.0
#include "ctl/completion.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "ledger/ledger.hpp"
#include "sys/file.hpp"

namespace sandbox::ctl {

namespace {

constexpr std::size_t kMostProfiles = 4096;
constexpr std::size_t kMostSessions = 65536;  // with a log, of one sandbox
// Fewer digits would offer ids to somebody who types a name.
constexpr std::size_t kLeastIdPrefix = 1;
constexpr std::string_view kHex = "0123456789abcdef";

std::vector<std::string> sandbox_words(const supervisor::Paths& paths, std::string_view prefix)
{
    std::vector<std::string> words;
    // Read-only: asking for words makes no ledger, no folder, no lock.
    auto ledger = ledger::Ledger::open(HostPath(paths.state), ledger::OpenMode::read_only);
    if (!ledger) return words;
    const auto sandboxes = ledger->list(ledger::ListScope::live);
    if (!sandboxes) return words;
    // Ids are offered only to somebody who is typing one.
    const bool maybe_id = prefix.size() >= kLeastIdPrefix &&
                          prefix.find_first_not_of(kHex) == std::string_view::npos;
    for (const ledger::Sandbox& sandbox : *sandboxes) {
        words.push_back(sandbox.name.str());
        if (maybe_id) words.push_back(sandbox.id.str());
    }
    return words;
}

// Of each sandbox the sessions that have a log: those one can come back to.
std::vector<std::string> session_words(const supervisor::Paths& paths)
{
    std::vector<std::string> words;
    auto ledger = ledger::Ledger::open(HostPath(paths.state), ledger::OpenMode::read_only);
    if (!ledger) return words;
    const auto sandboxes = ledger->list(ledger::ListScope::live);
    if (!sandboxes) return words;
    for (const ledger::Sandbox& sandbox : *sandboxes) {
        const auto folder = sys::open_dir(paths.logs_of(sandbox.id) + "/sessions");
        const auto names = folder ? sys::list_dir(folder->get(), kMostSessions)
                                  : Result<std::vector<std::string>>{};
        if (!names) continue;
        // GENERATION-SESSION: those of an earlier run are not known to the shim of this one.
        const std::string current = std::to_string(sandbox.generation) + "-";
        for (const std::string& name : *names) {
            if (name.starts_with(current)) words.push_back(name.substr(current.size()));
        }
    }
    return words;
}

// A name that some shell could read as more than a word is not offered.
bool is_plain(std::string_view name)
{
    return !name.empty() && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
    });
}

std::vector<std::string> profile_words(const supervisor::Paths& paths)
{
    constexpr std::string_view kEnding = ".toml";
    std::vector<std::string> words;
    // As read_profile() looks: the operator's own first; unique() below drops what both have.
    for (const std::string& path : {paths.profiles, paths.vendor_profiles}) {
        const auto folder = sys::open_dir(path);
        if (!folder) continue;
        const auto entries = sys::list_dir(folder->get(), kMostProfiles);
        if (!entries) continue;
        for (const std::string& entry : *entries) {
            // The lock and temporary files of editors begin with a dot.
            if (!entry.ends_with(kEnding) || entry.starts_with('.') || !is_plain(entry)) continue;
            words.push_back(entry.substr(0, entry.size() - kEnding.size()));
        }
    }
    return words;
}

std::vector<std::string> signal_words()
{
    std::vector<std::string> words;
    for (int signal = 1; signal < NSIG; ++signal) {
        // Without "SIG", as kill(1) lists them; nothing for numbers without a name (glibc 2.32).
        if (const char* name = sigabbrev_np(signal)) words.emplace_back(name);
    }
    return words;
}

}  // namespace

std::vector<std::string> complete_words(const supervisor::Paths& paths, std::string_view kind,
                                        std::string_view prefix)
{
    std::vector<std::string> words;
    if (kind == to_string(WordKind::sandbox)) words = sandbox_words(paths, prefix);
    if (kind == to_string(WordKind::session)) words = session_words(paths);
    if (kind == to_string(WordKind::place)) {
        words = sandbox_words(paths, "");
        for (std::string& word : words) word += ':';
    }
    if (kind == to_string(WordKind::profile)) words = profile_words(paths);
    if (kind == to_string(WordKind::signal)) words = signal_words();
    // The shells compare again, each in its own way; this saves them the reading.
    std::erase_if(words, [&](const std::string& word) { return !word.starts_with(prefix); });
    std::ranges::sort(words);
    words.erase(std::unique(words.begin(), words.end()), words.end());
    return words;
}

}  // namespace sandbox::ctl
