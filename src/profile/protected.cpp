// SPDX-License-Identifier: Apache-2.0
#include "profile/protected.hpp"

#include <array>

namespace sandbox::profile {

namespace {

// Sorted out by hand; whoever adds a runtime's folder adds it here. Links are not followed: the
// launch opens a source by descriptor and asks again with what it is.
constexpr std::array<std::string_view, 20> kProtected{
    "/proc",
    "/sys",
    "/dev",
    "/etc/sandbox",
    "/var/lib/sandbox",
    "/run/sandbox",
    // Who speaks to a runtime's socket starts containers as root.
    "/run/docker.sock",
    "/run/docker",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/crun",
    "/run/runc",
    "/run/buildkit",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    // The system bus and systemd's private socket start units as root.
    "/run/dbus",
    "/run/systemd",
    // User buses, rootless runtime sockets.
    "/run/user",
};

// /var/run is a link to /run on every current distribution (FHS 3.0, section 5.13); the other name
// must not be a way around.
std::string without_var_run(std::string_view path)
{
    constexpr std::string_view kVarRun = "/var/run";
    if (!is_path_prefix(kVarRun, path)) return std::string(path);
    return "/run" + std::string(path.substr(kVarRun.size()));
}

// In both directions: a folder above a protected one contains it.
bool touches(std::string_view source, std::string_view guarded)
{
    return is_path_prefix(guarded, source) || is_path_prefix(source, guarded);
}

}  // namespace

std::span<const std::string_view> protected_sources() noexcept { return kProtected; }

bool is_path_prefix(std::string_view prefix, std::string_view path) noexcept
{
    // Every absolute path is below the root; the rule with the next byte would need "//".
    if (prefix == "/") return path.starts_with('/');
    if (!path.starts_with(prefix)) return false;
    return path.size() == prefix.size() || path[prefix.size()] == '/';
}

std::optional<std::string> protected_by(std::string_view source,
                                        std::span<const std::string> configured)
{
    // Only this link is known by heart; others are found at the launch.
    const std::string real = without_var_run(source);
    for (const std::string_view guarded : kProtected) {
        if (touches(real, guarded)) return std::string(guarded);
    }
    for (const std::string& guarded : configured) {
        if (touches(real, without_var_run(guarded))) return guarded;
    }
    return std::nullopt;
}

}  // namespace sandbox::profile
