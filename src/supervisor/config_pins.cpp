// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "canon/json.hpp"
#include "probe/certified.hpp"
#include "probe/identity.hpp"
#include "supervisor/config_files.hpp"
#include "supervisor/guest_files.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

// `--version` takes milliseconds; a program that hangs must not hang the check.
constexpr std::chrono::milliseconds kVersionLimit{5000};

// What can be pinned, and how to find out what it is.
struct Known {
    const char* name;
    probe::Tool tool;
    probe::ArtifactSetting probe::ProbeSettings::* setting;
    bool needed;  // by the drivers of this release
};
constexpr std::array<Known, 7> kKnown{{
    {"crun", probe::Tool::crun, &probe::ProbeSettings::runtime, true},
    {"sandbox-init", probe::Tool::own, &probe::ProbeSettings::init, true},
    {"sandbox-shim", probe::Tool::own, &probe::ProbeSettings::shim, true},
    {"qemu", probe::Tool::qemu, &probe::ProbeSettings::vmm, false},
    {"virtiofsd", probe::Tool::virtiofsd, &probe::ProbeSettings::virtiofsd, false},
    {"kernel", probe::Tool::data, &probe::ProbeSettings::guest_kernel, false},
    {"initrd", probe::Tool::data, &probe::ProbeSettings::guest_initrd, false},
}};

// One line: what, since when mended, and how a sandbox would meet it.
std::string describe(const probe::Advisory& advisory)
{
    const std::string fix = advisory.fixed_in.empty()
                                ? fmt::format("no fix up to {}", advisory.last_bad)
                                : fmt::format("fixed in {}", advisory.fixed_in);
    return fmt::format("{} ({}): {}; {}", advisory.id, fix, advisory.summary, advisory.exposure);
}

void compare_pin(ArtifactCheck& check, const probe::Pin& pin)
{
    check.state = PinState::match;
    // The digest decides; the version is for people, and differs only if a pin was edited by hand.
    if (pin.sha256 != check.sha256) {
        check.state = PinState::mismatch;
        check.problem = fmt::format("{} is {}, pinned {}; if you changed it, run sandboxctl config "
                                    "init --force",
                                    check.path, check.sha256, pin.sha256);
    } else if (!check.version.empty() && pin.version != check.version) {
        check.state = PinState::mismatch;
        check.problem = fmt::format("{} says version {}, pinned {}", check.path, check.version,
                                    pin.version);
    }
}

ArtifactCheck check_artifact(const Known& known, const probe::ArtifactSetting& setting)
{
    ArtifactCheck check;
    check.name = known.name;
    check.path = setting.path;
    // Runs the program with --version, in a child.
    const auto identity = probe::identify(known.tool, setting.path, kVersionLimit);
    if (!identity) {
        check.state = PinState::missing;
        // What no driver of this release needs may be missing, unless somebody pinned it.
        if (known.needed || setting.pin) check.problem = identity.error().message();
        return check;
    }
    check.version = identity->version;
    check.sha256 = identity->sha256;
    if (setting.pin) compare_pin(check, *setting.pin);
    if (known.tool == probe::Tool::crun) {
        check.certified = probe::is_certified("crun", check.version);
        // A pin that does not match is the graver fault, and is said first.
        if (!*check.certified && check.problem.empty()) {
            check.problem = fmt::format("crun {} is not certified: the oci driver refuses it",
                                        check.version);
        }
    }
    // Known flaws do not refuse: the operator decides, and `doctor` tells.
    for (const probe::Advisory& advisory : probe::advisories(known.name, check.version)) {
        check.advisories.push_back(describe(advisory));
    }
    return check;
}

std::vector<ArtifactCheck> check_all(const probe::ProbeSettings& settings)
{
    std::vector<ArtifactCheck> checks;
    for (const Known& known : kKnown) {
        // No path: not configured and not found.
        const probe::ArtifactSetting& setting = settings.*known.setting;
        if (!setting.path.empty()) checks.push_back(check_artifact(known, setting));
    }
    return checks;
}

// The schema wants a version of every pin; what names none of its own is pinned by digest alone.
constexpr std::string_view kNoVersion = "unversioned";

// What the manifest of a guest image says of its two files; nothing where there is no image.
void adopt_guest(probe::ProbeSettings& settings, const std::optional<GuestFiles>& guest)
{
    if (!guest) return;
    settings.guest_kernel.path = guest->kernel.path;
    settings.guest_initrd.path = guest->initrd.path;
}

// Versions come from the manifest: neither file says its own. One that is not what was built is
// named and not pinned.
void compare_guest(std::vector<ArtifactCheck>& checks, const std::optional<GuestFiles>& guest)
{
    if (!guest) return;
    for (ArtifactCheck& check : checks) {
        if (check.name != "kernel" && check.name != "initrd") continue;
        const GuestFile& file = check.name == "kernel" ? guest->kernel : guest->initrd;
        if (check.state == PinState::missing) {
            check.problem = "the guest's manifest names it: make the guest anew with "
                            "sandbox-mkguest";
            continue;
        }
        check.version = guest->release;
        if (check.sha256 == file.sha256) continue;
        check.problem = fmt::format("{} is {}, its manifest says {}: make the guest anew with "
                                    "sandbox-mkguest",
                                    check.path, check.sha256, file.sha256);
    }
}

bool is_pinned(const profile::OperatorConfig& config, const char* name)
{
    return config.artifacts.contains(name);
}

// What was found and nothing else; the rest of the config is its defaults.
profile::OperatorConfig pinned_config(std::vector<ArtifactCheck>& checks)
{
    profile::OperatorConfig config;
    for (ArtifactCheck& check : checks) {
        // Not pinned: a pin of a file that is not there would be a failure at each start.
        if (check.state == PinState::missing) continue;
        const bool guest = check.name == "kernel" || check.name == "initrd";
        if (guest && !check.problem.empty()) continue;
        profile::ArtifactPin pin;
        pin.path = HostPath(check.path);
        pin.version = check.version.empty() ? std::string(kNoVersion) : check.version;
        pin.sha256 = check.sha256;
        config.artifacts.emplace(check.name, std::move(pin));
        check.state = PinState::match;
    }
    // A driver exists where its files do; whether this host can run guests is what the probe finds.
    if (is_pinned(config, "qemu") && is_pinned(config, "virtiofsd") &&
        is_pinned(config, "kernel") && is_pinned(config, "initrd")) {
        config.drivers.push_back(profile::Driver::microvm);
        std::ranges::sort(config.drivers);
    }
    return config;
}

// "." for a bare name: a config may lie beside us in a test.
std::string config_folder(const std::string& path)
{
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string_view to_string(PinState state) noexcept
{
    switch (state) {
    case PinState::match: return "match";
    case PinState::mismatch: return "mismatch";
    case PinState::missing: return "missing";
    case PinState::unpinned: return "unpinned";
    }
    return "unpinned";
}

Result<ConfigReport> config_init(const std::string& path, const std::string& program_dir,
                                 Overwrite overwrite, const std::string& guest_dir)
{
    if (overwrite == Overwrite::no && access(path.c_str(), F_OK) == 0) {
        return fail(Code::already_exists, path + " is already there; --force writes it anew");
    }
    ConfigReport report;
    report.path = path;
    report.present = true;
    // Built-in defaults, not the present file: --force finds the programs anew instead of
    // confirming old pins.
    probe::ProbeSettings settings = probe_settings(profile::OperatorConfig{}, program_dir);
    std::optional<GuestFiles> guest;
    if (auto found = find_guest(guest_dir)) {
        guest = *std::move(found);
    } else if (found.error().code() != Code::not_found) {
        report.problems.push_back(found.error().message());
    }
    adopt_guest(settings, guest);
    report.artifacts = check_all(settings);
    compare_guest(report.artifacts, guest);
    profile::OperatorConfig config = pinned_config(report.artifacts);
    if (geteuid() != 0) config.default_driver = kUsersDriver;
    const std::string folder = config_folder(path);
    // 0755: everybody may read the config; only the owner may write it.
    TRY_VOID(sys::make_dirs(folder, 0755));
    const auto dir = TRY(sys::open_dir(folder));
    const std::string entry = path.substr(path.rfind('/') + 1);
    const std::string text = profile::render_config(config);
    if (overwrite == Overwrite::yes) {
        TRY_VOID(sys::replace_file_at(dir.get(), entry, text, 0644));
    } else {
        // O_EXCL: a file that appeared since the look above is not written over.
        TRY_VOID(sys::write_file_at(dir.get(), entry, text, 0644));
    }
    report.written = true;
    return report;
}

ConfigReport config_check(const std::string& path, const std::string& program_dir)
{
    ConfigReport report;
    report.path = path;
    const LoadedConfig loaded = load_config(path);
    report.present = loaded.present;
    for (const Diagnostic& problem : loaded.diagnostics) report.problems.push_back(format(problem));
    // Without a config there are no pins; the artifacts would only repeat the defaults.
    if (loaded.config) report.artifacts = check_all(probe_settings(*loaded.config, program_dir));
    return report;
}

// 0 or 1, as the verb exits.
int exit_status(const ConfigReport& report)
{
    if (!report.problems.empty()) return 1;
    return std::ranges::any_of(report.artifacts,
                               [](const ArtifactCheck& check) { return !check.problem.empty(); })
               ? 1
               : 0;
}

std::string render(const ConfigReport& report)
{
    // Missing is fine: defaults hold, and are named.
    std::string text = report.written ? fmt::format("wrote {}\n", report.path)
                       : report.present
                           ? fmt::format("{}\n", report.path)
                           : fmt::format("{} is not there: built-in defaults hold\n", report.path);
    for (const std::string& problem : report.problems) text += "  problem: " + problem + '\n';
    // Fixed columns, so that two checks can be compared with diff(1).
    for (const ArtifactCheck& check : report.artifacts) {
        text += fmt::format("{:<13} {:<9} {:<10} {}\n", check.name, to_string(check.state),
                            check.version.empty() ? "-" : check.version, escaped(check.path));
        if (!check.sha256.empty()) text += fmt::format("  {}\n", check.sha256);
        if (check.certified) {
            text += *check.certified ? "  certified: tested with this release\n"
                                     : "  not certified\n";
        }
        for (const std::string& advisory : check.advisories) {
            text += fmt::format("  advisory: {}\n", advisory);
        }
        if (!check.problem.empty()) text += fmt::format("  problem: {}\n", escaped(check.problem));
    }
    return text;
}

// Everything of the text, and nothing escaped: programs read it.
canon::Json to_json(const ConfigReport& report)
{
    canon::Json json = {{"path", report.path},
                        {"present", report.present},
                        {"written", report.written},
                        {"problems", report.problems},
                        {"artifacts", canon::Json::array()}};
    for (const ArtifactCheck& check : report.artifacts) {
        canon::Json entry = {{"name", check.name},
                             {"path", check.path},
                             {"version", check.version},
                             {"sha256", check.sha256},
                             {"state", std::string(to_string(check.state))},
                             {"advisories", check.advisories},
                             {"problem", check.problem}};
        if (check.certified) entry["certified"] = *check.certified;
        json["artifacts"].push_back(std::move(entry));
    }
    return json;
}

}  // namespace sandbox::supervisor
