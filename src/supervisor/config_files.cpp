// SPDX-License-Identifier: Apache-2.0
#include "supervisor/config_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/validated.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

// Far above any config; a bound for what is read into memory before it is parsed.
constexpr std::size_t kMostConfigBytes = 1U << 20;
constexpr std::size_t kMostBundles = 1024;

Diagnostic diagnostic(std::string code, const std::string& file, std::string message,
                      std::string hint)
{
    return {std::move(code), {}, {file, 0, 0}, std::move(message), std::move(hint)};
}

// Who may change what we are going to believe: root, or the caller where the caller is not root.
// Empty when nobody else may.
std::string distrust(int file, mode_t kind)
{
    struct stat status{};
    if (fstat(file, &status) != 0) return "cannot be examined";
    if ((status.st_mode & S_IFMT) != kind) {
        return kind == S_IFDIR ? "is not a folder" : "is not a regular file";
    }
    // In a user's own set-up the caller stands where root stands elsewhere.
    if (status.st_uid != 0 && status.st_uid != geteuid()) {
        return fmt::format("belongs to uid {}, wanted root", status.st_uid);
    }
    if ((status.st_mode & 022) != 0) {
        return fmt::format("has mode {:04o}: others than its owner may write it",
                           status.st_mode & 07777);
    }
    return {};
}

std::pair<std::string, std::string> split(const std::string& path)
{
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return {".", path};
    return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// Reads a file of a folder that is already open, without following a link.
Result<std::string> read_trusted(int folder, const std::string& entry)
{
    // O_NONBLOCK: opening a FIFO would wait for a writer. O_NOCTTY: a terminal must not become
    // ours. Both are refused by kind just after.
    const auto file = TRY(
        sys::open_at2(folder, entry, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, sys::kBeneath));
    const std::string problem = distrust(file.get(), S_IFREG);
    if (!problem.empty()) return fail(Code::denied, problem);
    return sys::read_all(file.get(), kMostConfigBytes);
}

probe::ArtifactSetting setting_of(const profile::OperatorConfig& config, const std::string& key)
{
    const auto pinned = config.artifacts.find(key);
    if (pinned == config.artifacts.end()) return {};
    return {pinned->second.path.str(), probe::Pin{pinned->second.version, pinned->second.sha256}};
}

}  // namespace

LoadedConfig load_config(const std::string& path, const std::string& cache_dir)
{
    LoadedConfig loaded;
    const auto [folder_path, entry] = split(path);
    const auto folder = sys::open_dir(folder_path);
    const auto text = folder ? read_trusted(folder->get(), entry)
                             : Result<std::string>(std::unexpected(folder.error()));
    // Absence is asked of the open itself, not of a look before it.
    if (!text && text.error().code() == Code::not_found) {
        loaded.config.emplace();
        return loaded;
    }
    loaded.present = true;
    if (!text) {
        const bool link = text.error().errnum() == ELOOP;
        loaded.diagnostics.push_back(
            diagnostic("untrusted-file", path, link ? "is a link" : text.error().message(),
                       "make it a regular file owned by root with mode 0644"));
        return loaded;
    }
    // The folder counts as much as the file: whoever may write it may put another file there.
    const std::string above = distrust(folder->get(), S_IFDIR);
    if (!above.empty()) {
        loaded.diagnostics.push_back(
            diagnostic("untrusted-folder", folder_path, above, "chown root and chmod 0755"));
        return loaded;
    }
    const Validated validated(cache_dir, "config", *text);
    profile::ParsedConfig parsed = profile::parse_config(*text, path, validated.schema());
    if (parsed.config) validated.remember();
    loaded.diagnostics = std::move(parsed.diagnostics);
    loaded.config = std::move(parsed.config);
    loaded.names_driver = parsed.where.contains("default_driver");
    return loaded;
}

namespace {

void load_bundle(int folder, const std::string& dir, const std::string& entry,
                 LoadedBundles& loaded)
{
    const std::string path = dir + "/" + entry;
    const auto text = read_trusted(folder, entry);
    if (!text) {
        const bool link = text.error().errnum() == ELOOP;
        loaded.broken.push_back({path, link ? "is a link" : text.error().message()});
        return;
    }
    policy::ParsedBundle parsed = policy::parse_bundle(*text, path);
    if (parsed.bundle && parsed.diagnostics.empty()) {
        loaded.bundles.push_back(*std::move(parsed.bundle));
        // The first of them: what is after it often follows from it.
        return;
    }
    std::string why = "is not a valid bundle";
    if (!parsed.diagnostics.empty()) why = format(parsed.diagnostics.front());
    loaded.broken.push_back({path, std::move(why)});
}

}  // namespace

LoadedBundles load_bundles(const std::string& dir)
{
    LoadedBundles loaded;
    const auto folder = sys::open_dir(dir);
    if (!folder) {
        if (folder.error().code() != Code::not_found) {
            loaded.broken.push_back({dir, folder.error().message()});
        }
        return loaded;
    }
    const std::string problem = distrust(folder->get(), S_IFDIR);
    // Still read: all that is wrong is reported at once, and one broken entry denies anyway.
    if (!problem.empty()) loaded.broken.push_back({dir, problem});
    const auto entries = sys::list_dir(folder->get(), kMostBundles);
    if (!entries) {
        loaded.broken.push_back({dir, entries.error().message()});
        return loaded;
    }
    for (const std::string& entry : *entries) {
        // Dot files are what editors and package managers leave while they write.
        if (entry.ends_with(".toml") && !entry.starts_with('.')) {
            load_bundle(folder->get(), dir, entry, loaded);
        }
    }
    return loaded;
}

probe::ProbeSettings probe_settings(const profile::OperatorConfig& config,
                                    const std::string& program_dir)
{
    probe::ProbeSettings settings;
    settings.runtime = setting_of(config, "crun");
    settings.init = setting_of(config, "sandbox-init");
    settings.shim = setting_of(config, "sandbox-shim");
    settings.vmm = setting_of(config, "qemu");
    settings.virtiofsd = setting_of(config, "virtiofsd");
    settings.guest_kernel = setting_of(config, "kernel");
    settings.guest_initrd = setting_of(config, "initrd");
    settings.cgroup_parent = config.cgroup_parent;
    settings.drivers.clear();
    for (const profile::Driver driver : config.drivers) {
        settings.drivers.emplace_back(to_string(driver));
    }
    // Order must not reach the snapshot: its digest is part of the cache key.
    std::ranges::sort(settings.drivers);
    settings.default_driver = to_string(config.default_driver);
    settings.id_base = config.id_base;
    settings.id_ranges = config.id_ranges;
    settings.accelerator = config.accelerator;
    settings.accept_emulated = config.accept_emulated;
    settings.guest_cpus = config.microvm.cpus;
    if (config.microvm.memory) settings.guest_memory = config.microvm.memory->count;
    settings.guest_stores = config.microvm_stores;
    settings.guest_shares = config.microvm_shares;
    // Only where the config pins nothing: a pin is never replaced by what happens to be installed.
    probe::fill_standard_paths(settings, program_dir);
    return settings;
}

}  // namespace sandbox::supervisor
