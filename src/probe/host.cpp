// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "probe/tasks.hpp"
#include "sys/caps.hpp"
#include "sys/file.hpp"
#include "sys/rlimit.hpp"
#include "sys/seccomp/digest.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;
using Facts = std::map<std::string, facts::Fact>;

constexpr std::size_t kSmallFile = 64U << 10;

void put(Facts& facts, std::string_view fact, Finding finding)
{
    facts.insert_or_assign(std::string(fact), facts::Fact{finding.status, std::move(finding.value),
                                                          std::move(finding.evidence)});
}

// The text of a small kernel file without its newline; nothing when it cannot be read.
std::optional<std::string> kernel_text(const std::string& path, std::string& problem)
{
    auto text = sys::read_file(path, kSmallFile);
    if (!text) {
        problem = text.error().message();
        return std::nullopt;
    }
    while (!text->empty() && text->back() == '\n') text->pop_back();
    return *std::move(text);
}

// A note of what a kernel file says; `absent` when there is no such file.
Finding note_of(const std::string& path, std::string_view absent)
{
    std::string problem;
    const auto text = kernel_text(path, problem);
    // A file that is missing is a fact too, not a failure of the probe.
    if (!text) return noted(std::string(absent), problem);
    return noted(*text, fmt::format("{} says {}", path, *text));
}

Finding note_switch(const std::string& path, std::string_view absent)
{
    Finding note = note_of(path, absent);
    if (note.value == "1") note.value = "on";
    if (note.value == "0") note.value = "off";
    return note;
}

Finding privilege()
{
    const auto caps = sys::get_caps();
    const bool admin = caps && (caps->effective & (sys::CapSet{1} << CAP_SYS_ADMIN)) != 0;
    // Uid 0 alone is not enough: a container's root may lack CAP_SYS_ADMIN.
    if (geteuid() == 0 && admin) return found("root", "effective uid 0 with CAP_SYS_ADMIN");
    return found("user", fmt::format("effective uid {}, CAP_SYS_ADMIN {}", geteuid(),
                                     admin ? "held" : "not held"));
}

// Setuid root or file capabilities: newuidmap without either writes no map.
bool is_privileged_helper(const std::string& path, const struct stat& status)
{
    const bool setuid_root = (status.st_mode & S_ISUID) != 0 && status.st_uid == 0;
    return setuid_root || getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

enum class Helper { plain, privileged };

Finding find_helper(std::string_view program, Helper kind)
{
    // Not PATH: what an operator's shell finds is not what the shim would run.
    constexpr std::array<std::string_view, 4> kFolders{"/usr/bin", "/usr/sbin", "/bin", "/sbin"};
    for (const std::string_view folder : kFolders) {
        const std::string path = fmt::format("{}/{}", folder, program);
        struct stat status{};
        if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
        // The owner's bit is enough: we are root, or the file is root's.
        if ((status.st_mode & S_IXUSR) == 0) continue;
        if (kind == Helper::privileged && !is_privileged_helper(path, status)) {
            return missing(path + " is neither setuid root nor holds file capabilities");
        }
        return found(path, path + " is there and executable");
    }
    return missing(fmt::format("no {} in {}", program, fmt::join(kFolders, ", ")));
}

Finding mitigations()
{
    const std::string folder = "/sys/devices/system/cpu/vulnerabilities";
    const auto dir = sys::open_dir(folder);
    const auto names = dir ? sys::list_dir(dir->get()) : Result<std::vector<std::string>>{};
    if (!dir) return noted("unknown", dir.error().message());
    if (!names) return noted("unknown", names.error().message());
    std::vector<std::string> open;
    std::string problem;
    // The kernel's own words: "Vulnerable", "Mitigation: …", "Not affected".
    for (const std::string& entry : *names) {
        const auto text = kernel_text(folder + "/" + entry, problem);
        if (text && text->starts_with("Vulnerable")) open.push_back(entry);
    }
    const std::string evidence = fmt::format("{} entries read in {}", names->size(), folder);
    return open.empty() ? noted("mitigated", evidence)
                        : noted(fmt::format("vulnerable: {}", fmt::join(open, ", ")), evidence);
}

Finding swap()
{
    std::string problem;
    const auto text = kernel_text("/proc/swaps", problem);
    if (!text) return noted("unknown", problem);
    // The first line is the heading.
    return noted(text->find('\n') == std::string::npos ? "off" : "on", "/proc/swaps");
}

// Debian's /usr/bin/awk, vi and others are links through this folder of links.
Finding alternatives()
{
    const std::string folder = "/etc/alternatives";
    struct stat status{};
    if (lstat(folder.c_str(), &status) != 0) return noted("absent", errno_text("lstat"));
    // As config files are judged: whoever may write it decides what /usr/bin/awk is.
    const bool ours = S_ISDIR(status.st_mode) && status.st_uid == 0 && (status.st_mode & 022) == 0;
    return ours ? found(folder, "a folder of root's that nobody else may write")
                : noted("absent", folder + " is no folder, or others may write it");
}

Finding core_pattern()
{
    Finding note = note_of("/proc/sys/kernel/core_pattern", "absent");
    // A pipe starts a host program with the crashing process's data, core(5).
    if (note.value != "absent") note.value = note.value.starts_with('|') ? "pipe" : "file";
    return note;
}

void put_machine(Facts& facts)
{
    utsname kernel{};
    uname(&kernel);
    put(facts, name::kKernelRelease,
        noted(kernel.release, fmt::format("uname: {}", kernel.version)));
    put(facts, name::kKernelArch, noted(kernel.machine, "uname"));
    put(facts, name::kPrivilege, privilege());
    put(facts, name::kCpuCount, noted(std::to_string(sysconf(_SC_NPROCESSORS_ONLN)), "sysconf"));
    struct sysinfo memory{};
    sysinfo(&memory);
    put(facts, name::kMemoryTotal,
        noted(std::to_string(std::uint64_t{memory.totalram} * memory.mem_unit), "sysinfo"));
    put(facts, name::kOnlineCpus, note_of("/sys/devices/system/cpu/online", ""));
    // The launcher's hard limit is the most that a sandbox can be given.
    const auto files = sys::get_rlimit(RLIMIT_NOFILE);
    put(facts, name::kRlimitNofile,
        files ? noted(std::to_string(files->hard), "getrlimit")
              : noted("", files.error().message()));
}

}  // namespace

std::map<std::string, facts::Fact> host_facts()
{
    Facts facts;
    put_machine(facts);
    using sys::seccomp::Profile;
    // Facts, so that the resolver can put the digest into the plan without asking anybody.
    put(facts, name::kSeccompRulesDefault,
        found(sys::seccomp::rules_digest(Profile::standard), "digest of the built-in rules"));
    put(facts, name::kSeccompRulesStrict,
        found(sys::seccomp::rules_digest(Profile::strict), "digest of the built-in rules"));
    put(facts, name::kNewuidmap, find_helper("newuidmap", Helper::privileged));
    put(facts, name::kNft, find_helper("nft", Helper::plain));
    put(facts, name::kLegacyTiocsti, note_of("/proc/sys/dev/tty/legacy_tiocsti", "absent"));
    put(facts, name::kVsockNsMode, note_of("/proc/sys/net/vsock/ns_mode", "absent"));
    put(facts, name::kHostSmt, note_switch("/sys/devices/system/cpu/smt/active", "unknown"));
    put(facts, name::kHostKsm, note_switch("/sys/kernel/mm/ksm/run", "absent"));
    put(facts, name::kHostAlternatives, alternatives());
    put(facts, name::kHostSwap, swap());
    put(facts, name::kHostMitigations, mitigations());
    put(facts, name::kHostCorePattern, core_pattern());
    return facts;
}

}  // namespace sandbox::probe
