// SPDX-License-Identifier: Apache-2.0
#include "probe/cache.hpp"

#include <fmt/format.h>

#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "canon/json.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::probe {

namespace {

constexpr const char* kFile = "probe.json";
// A snapshot has some fifty facts of a few hundred bytes; anything larger is not ours.
constexpr std::size_t kMostBytes = 256U << 10;
// Part of the key: a release that reads facts differently must not believe an older one's.
constexpr std::string_view kVersion = "1";

std::string setting_text(const ArtifactSetting& setting)
{
    std::string text = setting.path;
    // Control characters as separators: no path or digest of ours holds them.
    if (setting.pin) text += fmt::format("\x1f{}\x1f{}", setting.pin->version, setting.pin->sha256);
    return text;
}

// Which file it is now; content changes show in the times, which user space cannot set back
// (ctime).
std::string file_text(const std::string& path)
{
    struct stat status{};
    if (path.empty() || stat(path.c_str(), &status) != 0) return "absent";
    return fmt::format("{}:{}:{}:{}.{}:{}.{}:{:o}:{}", status.st_dev, status.st_ino, status.st_size,
                       status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                       status.st_ctim.tv_nsec, status.st_mode, status.st_uid);
}

// Everything that the snapshot depends on and that can be looked up for less than it costs.
std::string make_key(const ProbeSettings& settings, const std::string& boot_id)
{
    std::string key = fmt::format("{}\x1e{}\x1e{}\x1e", kVersion, boot_id, geteuid());
    for (const ArtifactSetting* setting :
         // Each by path, pin and file: an upgrade of any of them makes the cache a stranger.
         {&settings.runtime, &settings.init, &settings.shim, &settings.vmm, &settings.virtiofsd,
          &settings.guest_kernel, &settings.guest_initrd}) {
        key += fmt::format("{}\x1f{}\x1e", setting_text(*setting), file_text(setting->path));
    }
    for (const std::string& driver : settings.drivers) key += driver + '\x1f';
    key += fmt::format("\x1e{}\x1e{}\x1e{}\x1e{}\x1e{}\x1e{}\x1e{}", settings.default_driver,
                       settings.cgroup_parent.value_or("\x1f"), settings.id_base,
                       settings.id_ranges, settings.accelerator, settings.accept_emulated,
                       settings.kvm_device);
    key += fmt::format("\x1e{}\x1f{}", settings.guest_cpus.value_or(0),
                       settings.guest_memory.value_or(0));
    for (const auto* list : {&settings.guest_stores, &settings.guest_shares}) {
        key += '\x1e';
        for (const std::string& path : *list) key += path + '\x1f';
    }
    return canon::digest(key);
}

// Owned by us, private, regular: anything else was put there by somebody.
bool is_ours(int file)
{
    struct stat status{};
    return fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

std::int64_t boot_seconds() { return sys::boottime_ns() / 1'000'000'000; }

}  // namespace

std::optional<facts::CapabilitySnapshot> load_cache(const std::string& run_dir,
                                                    const ProbeSettings& settings,
                                                    std::chrono::seconds max_age)
{
    // O_NOFOLLOW: RUN is ours, but what lies in it is still judged.
    const auto file = sys::open_file(run_dir + "/" + kFile,
                                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (!file || !is_ours(file->get())) return std::nullopt;
    const auto text = sys::read_all(file->get(), kMostBytes);
    const auto boot = sys::boot_id();
    if (!text || !boot) return std::nullopt;
    const auto json = canon::parse(*text);
    if (!json || !json->is_object()) return std::nullopt;
    const auto key = json->find("key");
    const auto time = json->find("boottime");
    const auto snapshot = json->find("snapshot");
    if (key == json->end() || time == json->end() || snapshot == json->end()) return std::nullopt;
    if (!key->is_string() || !time->is_number_integer()) return std::nullopt;
    // Boot time, not wall clock: a clock that is set back must not keep a cache alive.
    const std::int64_t age = boot_seconds() - time->get<std::int64_t>();
    if (age < 0 || age > max_age.count()) return std::nullopt;
    if (key->get_ref<const std::string&>() != make_key(settings, *boot)) return std::nullopt;
    // A snapshot that does not decode is no cache.
    auto decoded = facts::snapshot_from_json(*snapshot);
    if (!decoded) return std::nullopt;
    return *std::move(decoded);
}

Status store_cache(const std::string& run_dir, const ProbeSettings& settings,
                   const facts::CapabilitySnapshot& snapshot)
{
    canon::Json json = canon::Json::object();
    json["key"] = make_key(settings, TRY(sys::boot_id()));
    json["boottime"] = boot_seconds();
    json["snapshot"] = facts::to_json(snapshot);
    const std::string text = TRY(canon::serialize(json));
    const auto dir = TRY(sys::open_dir(run_dir));
    // A cache needs no fsync: rename makes it whole or absent for every reader of this boot.
    // The pid, so that two processes do not write one file.
    const std::string temporary = fmt::format("{}.{}", kFile, getpid());
    static_cast<void>(sys::unlink_at(dir.get(), temporary));
    TRY_VOID(sys::write_file_at(dir.get(), temporary, text, 0600));
    return sys::rename_at(dir.get(), temporary, dir.get(), kFile);
}

facts::CapabilitySnapshot cached_probe(const std::string& run_dir, const ProbeSettings& settings)
{
    if (auto cached = load_cache(run_dir, settings)) {
        // A cached snapshot is judged once more where a launch would hurt itself on a stale one.
        if (recheck_critical(*cached)) return *std::move(cached);
    }
    facts::CapabilitySnapshot fresh = probe(settings);
    static_cast<void>(store_cache(run_dir, settings, fresh));
    return fresh;
}

}  // namespace sandbox::probe
