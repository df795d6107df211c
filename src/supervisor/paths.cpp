// SPDX-License-Identifier: Apache-2.0
#include "supervisor/paths.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "canon/canon.hpp"

namespace sandbox::supervisor {

namespace {

std::string absolute(const std::string& path)
{
    // Kept relative where the working folder has no name any more: the caller's open then fails.
    if (path.empty() || path.front() == '/') return path;
    std::array<char, 4096> cwd{};  // PATH_MAX
    if (getcwd(cwd.data(), cwd.size()) == nullptr) return path;
    return std::string(cwd.data()) + "/" + path;
}

std::string without_trailing_slash(std::string path)
{
    while (!path.empty() && path.back() == '/') path.pop_back();
    return path;
}

std::string own_folder()
{
    std::array<char, 4096> link{};  // PATH_MAX
    // The kernel's own answer: argv[0] is the caller's to choose.
    const ssize_t length = readlink("/proc/self/exe", link.data(), link.size());
    if (length <= 0) return "/usr/bin";
    const std::string_view path(link.data(), static_cast<std::size_t>(length));
    return std::string(path.substr(0, path.rfind('/')));
}

std::string xdg(const char* variable, const std::string& fallback)
{
    const char* value = std::getenv(variable);
    // An XDG variable that is not absolute is to be ignored (XDG Base Directory Specification).
    if (value != nullptr && value[0] == '/') return value;
    return fallback;
}

// Profiles that came with these programs: PREFIX/share beside PREFIX/bin, so that an installation
// works wherever it was put. In a build tree there are none, and the system's hold.
std::string vendor_folder(const Paths& paths)
{
    constexpr std::string_view kPlace = "/share/sandbox/profiles.d";
    const std::string prefix = paths.program_dir.substr(0, paths.program_dir.rfind('/'));
    const std::string ours = prefix + std::string(kPlace);
    if (paths.root.empty() && access(ours.c_str(), F_OK) == 0) return ours;
    return paths.root + "/usr" + std::string(kPlace);
}

}  // namespace

Paths find_paths(const std::string& root)
{
    Paths paths;
    paths.root = without_trailing_slash(absolute(root));
    paths.program_dir = own_folder();
    // Root never asks the environment: HOME of whoever called sudo is not where a host's state
    // belongs.
    if (geteuid() == 0) {
        paths.config = paths.root + "/etc/sandbox/config.toml";
        paths.profiles = paths.root + "/etc/sandbox/profiles.d";
        paths.bundles = paths.root + "/etc/sandbox/org.d";
        paths.state = paths.root + "/var/lib/sandbox";
        paths.run = paths.root + "/run/sandbox";
    } else {
        const char* home = std::getenv("HOME");
        // A folder that cannot exist: nothing is put into the working folder by mistake.
        const std::string base = home != nullptr ? home : "/nonexistent";
        const std::string uid = std::to_string(geteuid());
        paths.config = paths.root + xdg("XDG_CONFIG_HOME", base + "/.config") +
                       "/sandbox/config.toml";
        paths.profiles = paths.root + xdg("XDG_CONFIG_HOME", base + "/.config") +
                         "/sandbox/profiles.d";
        // Organisation bundles bind everyone: always the system's.
        paths.bundles = paths.root + "/etc/sandbox/org.d";
        paths.state = paths.root + xdg("XDG_STATE_HOME", base + "/.local/state") + "/sandbox";
        paths.run = paths.root + xdg("XDG_RUNTIME_DIR", "/run/user/" + uid) + "/sandbox";
    }
    paths.vendor_profiles = vendor_folder(paths);
    return paths;
}

std::string default_cgroup_parent(const Paths& paths)
{
    if (paths.root.empty()) return "/sandbox";
    constexpr std::size_t kPrefix = std::string_view("sha256:").size();
    // 32 bits of the digest: two roots on one host do not meet by chance, and the name stays short.
    return "/sandbox-" + canon::digest(paths.root).substr(kPrefix, 8);
}

std::string folder_of(const std::string& file)
{
    const std::size_t slash = file.rfind('/');
    return slash == std::string::npos ? std::string() : file.substr(0, slash);
}

}  // namespace sandbox::supervisor
