// SPDX-License-Identifier: Apache-2.0
#include "supervisor/host.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>

#include "ledger/ledger.hpp"
#include "probe/cache.hpp"
#include "probe/delegation.hpp"
#include "probe/subordinate.hpp"
#include "profile/profile.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

constexpr unsigned kNullMajor = 1;  // Documentation/admin-guide/devices.txt
constexpr unsigned kNullMinor = 3;

// One byte more than is allowed: the parser then says that the file is too long, with its place.
constexpr std::size_t kReadLimit = profile::kMostProfileBytes + 1;

Result<std::string> read_bounded(int fd)
{
    std::string text;
    std::string chunk(16384, '\0');
    // Read by hand and not by read_all(): one byte too many is no error here, the parser reports
    // it.
    while (text.size() < kReadLimit) {
        const ssize_t count = read(fd, chunk.data(),
                                   std::min(chunk.size(), kReadLimit - text.size()));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("read");
        if (count == 0) break;
        text.append(chunk, 0, static_cast<std::size_t>(count));
    }
    return text;
}

enum class Found { regular, masked };

Result<Found> judge(int fd, const std::string& path)
{
    struct stat status{};
    if (fstat(fd, &status) != 0) return fail_errno("fstat", path);
    if (S_ISREG(status.st_mode)) return Found::regular;
    // A device other than /dev/null is refused like any file that is not regular: reading it might
    // have effects.
    if (S_ISCHR(status.st_mode) && status.st_rdev == makedev(kNullMajor, kNullMinor)) {
        return Found::masked;
    }
    return fail(Code::invalid_argument, path + " is not a regular file");
}

Result<ProfileText> read_path(const std::string& path)
{
    // Non-blocking: a FIFO in place of a profile must not hang us. Links are followed: the path is
    // the caller's own word.
    auto file = TRY(sys::open_file(path, O_RDONLY | O_NONBLOCK));
    if (TRY(judge(file.get(), path)) == Found::masked) {
        return fail(Code::not_found, path + " is masked (it is /dev/null)");
    }
    return ProfileText{path, TRY_WITH(read_bounded(file.get()), path)};
}

bool is_path(const std::string& reference)
{
    // As for podman and systemctl: no look at the disk decides what a word means.
    return reference.find('/') != std::string::npos || reference.ends_with(".toml");
}

std::string program_cache_dir(const Paths& paths) { return paths.run; }

}  // namespace

// From load_host() on the config has one; without it (Need::ledger) the default still holds.
std::string Host::cgroup_parent() const
{
    return config.cgroup_parent.value_or(default_cgroup_parent(paths));
}

std::string Host::secret_store() const
{
    const auto named = config.directories.find("secrets");
    if (named != config.directories.end()) return paths.root + named->second;
    return paths.config.substr(0, paths.config.rfind('/')) + "/secrets.d";
}

void adapt_to_user(Host& host, const LoadedConfig& loaded)
{
    if (geteuid() == 0) return;
    profile::OperatorConfig& config = host.config;
    if (!loaded.names_driver &&
        std::ranges::find(config.drivers, kUsersDriver) != config.drivers.end())
        config.default_driver = kUsersDriver;
    // None: the prober says so, and every launch is refused.
    if (const auto range = probe::own_range(ledger::kIdsPerRange)) {
        config.id_base = static_cast<std::uint32_t>(range->users);
        config.id_ranges = static_cast<std::uint32_t>(range->count / ledger::kIdsPerRange);
    }
    if (config.cgroup_parent) return;
    const probe::Delegation own = probe::find_delegation();
    host.probing.cgroup_reason = "no cgroup is this user's to use: " + own.reason;
    if (own.path.empty()) return;
    // Fails: the prober then finds the cgroup occupied, and says so.
    static_cast<void>(probe::step_aside(own.path));
    config.cgroup_parent = own.path + default_cgroup_parent(host.paths);
    host.probing.cgroup_reason = own.path + ": " + own.reason;
}

Result<Host> load_host(const Paths& paths, Freshness freshness)
{
    Host host;
    host.paths = paths;
    LoadedConfig loaded = load_config(paths.config, paths.run);
    if (!loaded.config) {
        std::string text = "the operator config is not usable:";
        for (const Diagnostic& diagnostic : loaded.diagnostics) text += "\n  " + format(diagnostic);
        return fail(Code::invalid_argument, text);
    }
    host.config = std::move(*loaded.config);
    adapt_to_user(host, loaded);
    // Fixed before the probe, which tries this very cgroup.
    if (!host.config.cgroup_parent) host.config.cgroup_parent = default_cgroup_parent(paths);
    std::string reason = std::move(host.probing.cgroup_reason);
    host.probing = probe_settings(host.config, paths.program_dir);
    host.probing.cgroup_reason = std::move(reason);
    host.bundles = load_bundles(paths.bundles);
    // A broken bundle goes into the meet and denies: leaving it out would permit more.
    host.policy = policy::EffectivePolicy::meet(host.bundles.bundles, host.bundles.broken);
    if (freshness == Freshness::probed) {
        host.snapshot = probe::probe(host.probing);
        // May fail for a user without a runtime folder: then there is no cache.
        static_cast<void>(sys::make_dirs(program_cache_dir(paths)));
        // A cache that cannot be kept costs the next launch a probe, nothing else.
        static_cast<void>(
            probe::store_cache(program_cache_dir(paths), host.probing, host.snapshot));
    } else {
        static_cast<void>(sys::make_dirs(program_cache_dir(paths)));
        host.snapshot = probe::cached_probe(program_cache_dir(paths), host.probing);
    }
    return host;
}

Result<ProfileText> read_profile(const Paths& paths, const std::string& reference)
{
    if (reference == "-") return ProfileText{"<stdin>", TRY(read_bounded(STDIN_FILENO))};
    if (is_path(reference)) return read_path(reference);
    for (const std::string& folder : {paths.profiles, paths.vendor_profiles}) {
        auto text = read_path(folder + "/" + reference + ".toml");
        // The operator's file alone counts, even a broken one: falling through to the vendor's
        // would run something else than what lies there.
        if (text) return text;
        // ENOENT goes on to the vendor's file; a mask or an unreadable file stops here.
        if (text.error().errnum() != ENOENT) return text;
    }
    return fail(Code::not_found, "no profile '" + reference + "' in " + paths.profiles + " or " +
                                     paths.vendor_profiles + "; a path needs a slash or .toml");
}

}  // namespace sandbox::supervisor
