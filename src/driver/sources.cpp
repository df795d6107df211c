// SPDX-License-Identifier: Apache-2.0
#include "driver/sources.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

#include <array>
#include <optional>

#include "base/diagnostic.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::driver {
namespace {

// Whoever holds one of these holds the host: kernel interfaces, container runtimes and the buses
// that start things as root (design 6). What lies above them is refused as well.
constexpr std::array<std::string_view, 20> kProtected{
    "/proc",
    "/sys",
    "/dev",
    "/boot",
    "/etc/sandbox",
    "/var/lib/sandbox",
    "/run/sandbox",
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd",
    "/run/podman",
    "/run/crio",
    "/run/crun",
    "/run/dbus",
    "/run/systemd",
    "/run/user",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/run/libvirt",
};

bool below(std::string_view path, std::string_view folder)
{
    if (folder == "/" || path == folder) return true;
    return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

std::string parent_of(const std::string& path)
{
    const auto slash = path.rfind('/');
    return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

std::vector<sys::IdMapping> to_sys(const std::vector<IdRange>& ranges)
{
    std::vector<sys::IdMapping> maps;
    for (const IdRange& range : ranges) maps.push_back({range.inside, range.host, range.count});
    return maps;
}

// The idmap of most launches is one and the same: its user namespace is made once.
class UserNamespaces {
public:
    Result<int> get(const MountIdMap& map)
    {
        if (map.uids.empty() && map.gids.empty()) return -1;
        for (const auto& [known, fd] : made_)
            if (known == map) return fd.get();
        made_.emplace_back(map, TRY(sys::make_user_namespace(to_sys(map.uids), to_sys(map.gids))));
        return made_.back().second.get();
    }

private:
    std::vector<std::pair<MountIdMap, sys::UniqueFd>> made_;
};

class Preparer {
public:
    explicit Preparer(const Binding& binding) : binding_(binding) {}

    Status add(const HostPath& source, const MountIdMap& map, Access access)
    {
        // Links in a path that the operator wrote are followed, magic links never; what the
        // descriptor turned out to be is then judged and logged.
        const sys::UniqueFd fd = TRY_WITH(
            sys::open_at2(AT_FDCWD, source.str(), O_PATH, 0, RESOLVE_NO_MAGICLINKS),
            "open mount source " + escaped(source.str()));
        SourceIdentity identity{source, TRY(sys::readlink_at(AT_FDCWD, sys::fd_path(fd.get()))),
                                TRY(sys::identity_of_fd(fd.get()))};
        if (const std::string why = protected_reason(identity.resolved, binding_); !why.empty())
            return fail(Code::permission_denied, "mount source " + escaped(source.str()) + ": " +
                                                     why + "; choose a folder of its own");
        struct stat status{};
        if (::fstat(fd.get(), &status) != 0) return fail_errno("fstat", source.str());
        if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
            return fail(Code::permission_denied,
                        "mount source " + escaped(source.str()) +
                            " is neither a folder nor a regular file (sockets and devices are "
                            "doors to the host)");
        // From here on the path is not looked at again: what was judged is what is mounted.
        PreparedMount prepared;
        prepared.directory = S_ISDIR(status.st_mode);
        prepared.mount = TRY(sys::clone_tree(fd.get(), "", sys::Depth::recursive));
        TRY_VOID(restrict(prepared, map, access));
        if (::fstat(prepared.mount.get(), &status) != 0) return fail_errno("fstat", source.str());
        prepared.mode = status.st_mode & 07777U;
        prepared.uid = status.st_uid;
        prepared.gid = status.st_gid;
        result_.mounts.push_back(std::move(prepared));
        result_.identities.push_back(std::move(identity));
        return {};
    }

    PreparedSources take() { return std::move(result_); }

private:
    Status restrict(const PreparedMount& prepared, const MountIdMap& map, Access access)
    {
        sys::MountAttributes attributes;
        attributes.no_suid = true;
        attributes.no_dev = true;
        attributes.read_only = access == Access::read_only;
        // Flags first and recursively; the idmap then, also recursively: a submount of a type that
        // cannot be idmapped refuses the launch instead of showing foreign owners.
        TRY_VOID(
            sys::set_mount_attributes(prepared.mount.get(), attributes, sys::Depth::recursive));
        attributes.userns_fd = TRY_WITH(namespaces_.get(map), "make the id map of a mount");
        if (attributes.userns_fd < 0) return {};
        return sys::set_mount_attributes(prepared.mount.get(), attributes, sys::Depth::recursive);
    }

    const Binding& binding_;
    UserNamespaces namespaces_;
    PreparedSources result_;
};

}  // namespace

std::string protected_reason(std::string_view path, const Binding& binding)
{
    if (path.empty() || path.front() != '/') return "it has no path any more (deleted?)";
    // RUN/ID and STATE/sandboxes/ID: all of RUN and STATE, whichever --root is in force.
    const std::string run = parent_of(binding.run_dir.str());
    const std::string state = parent_of(parent_of(binding.state_dir.str()));
    std::vector<std::string_view> folders(kProtected.begin(), kProtected.end());
    if (run != "/") folders.push_back(run);
    if (state != "/") folders.push_back(state);
    for (const HostPath& folder : binding.guarded) folders.push_back(folder.str());
    // --root puts the configuration beside the state, as it does without it.
    constexpr std::string_view kStateTail = "/var/lib/sandbox";
    std::string config;
    if (state.ends_with(kStateTail)) {
        config = state.substr(0, state.size() - kStateTail.size()) + "/etc/sandbox";
        folders.push_back(config);
    }
    for (const std::string_view folder : folders) {
        if (below(path, folder)) return "it lies in " + std::string(folder) + ", never granted";
        if (below(folder, path))
            return "it holds " + std::string(folder) + ", which is never granted";
    }
    return {};
}

Result<PreparedSources> prepare_sources(std::span<const TreeStep> steps, const Binding& binding)
{
    Preparer preparer(binding);
    for (const TreeStep& step : steps) {
        if (const auto* bind = std::get_if<BindMount>(&step))
            TRY_VOID(preparer.add(bind->source, bind->map, bind->access));
        else if (const auto* overlay = std::get_if<Overlay>(&step))
            TRY_VOID(preparer.add(overlay->lower, overlay->lower_map, Access::read_only));
    }
    return preparer.take();
}

}  // namespace sandbox::driver
