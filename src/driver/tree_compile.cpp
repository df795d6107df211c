// SPDX-License-Identifier: Apache-2.0
#include "driver/tree.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace sandbox::driver {
namespace {

// Skeleton and /etc only; everything bigger is a mount of its own.
constexpr std::uint64_t kSkeletonSize = 4ULL << 20;
// A writable root has no key of its own: what it holds counts against the session's memory limit,
// this only bounds it where no limit stands.
constexpr std::uint64_t kWritableRootSize = 1ULL << 30;
// The same for the /tmp every program expects.
constexpr std::uint64_t kTmpSize = 64ULL << 20;
constexpr std::uint64_t kRunSize = 4ULL << 20;

// Debian's merged /usr: these are links on every host we support.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kMergedLinks{{
    {"bin", "usr/bin"},
    {"lib", "usr/lib"},
    {"lib64", "usr/lib64"},
    {"sbin", "usr/sbin"},
}};

std::string below_root(const std::string& path)
{
    return path.empty() || path.front() != '/' ? path : path.substr(1);
}

bool covers(std::string_view grant, std::string_view path)
{
    if (grant.empty() || grant == path) return true;
    return path.size() > grant.size() && path.starts_with(grant) && path[grant.size()] == '/';
}

MountIdMap map_for(plan::Ownership ownership, const plan::PlanContent& plan, const Binding& binding)
{
    switch (ownership) {
    case plan::Ownership::overflow: return {};
    case plan::Ownership::idmap_user:
        return {{{plan.process.uid, binding.id_base + plan.process.uid, 1}},
                {{plan.process.gid, binding.id_base + plan.process.gid, 1}}};
    case plan::Ownership::idmap_all:
        return {{{0, binding.id_base, plan.security.id_count}},
                {{0, binding.id_base, plan.security.id_count}}};
    }
    return {};
}

// What can be written into, and whose it is, decides how a later target or mask is made.
// A mount already placed, so that later targets know what they lie in.
struct Grant {
    std::string target;
    Access access;
    Ground ground;
    HostPath source;  // operators' ground only
};

class TreeCompiler {
public:
    TreeCompiler(const plan::PlanContent& plan, const Binding& binding)
        : plan_(plan), binding_(binding)
    {
    }

    Result<std::vector<TreeStep>> compile()
    {
        TRY_VOID(add_root());
        add_skeleton();
        for (const auto& [name, content] : plan_.rootfs.etc)
            steps_.emplace_back(MakeFile{"etc/" + name, content, 0644, binding_.id_base});
        add_base_mounts();
        for (const auto& mount : plan_.mounts) TRY_VOID(add_mount(mount));
        for (const auto& mask : plan_.masks) add_mask(below_root(mask.str()));
        if (plan_.rootfs.read_only) steps_.emplace_back(SealRoot{});
        return std::move(steps_);
    }

private:
    Status add_root()
    {
        const bool overlay = plan_.rootfs.strategy == plan::RootfsStrategy::overlay_tmpfs;
        const std::uint64_t size = plan_.rootfs.read_only ? kSkeletonSize : kWritableRootSize;
        const Access access = plan_.rootfs.read_only ? Access::read_only : Access::read_write;
        grants_.push_back({"", access, Ground::ours, {}});
        if (plan_.rootfs.kind == "host") {
            steps_.emplace_back(RootTmpfs{binding_.id_base, size});
            return {};
        }
        if (plan_.rootfs.kind != "dir" || !overlay)
            return fail(Code::invalid_argument,
                        "a file tree expresses rootfs \"host\" and \"dir:\" with an overlay, not "
                        "\"" +
                            plan_.rootfs.kind + "\"");
        steps_.emplace_back(Overlay{"", plan_.rootfs.source,
                                    map_for(plan_.rootfs.ownership, plan_, binding_), size});
        return {};
    }

    void add_skeleton()
    {
        for (const char* path : {"dev", "etc", "proc"}) make_directory(path);
        if (plan_.rootfs.kind != "host") return;
        for (const char* path :
             {"home", "mnt", "opt", "root", "run", "srv", "tmp", "usr", "var", "var/tmp"})
            make_directory(path);
        for (const auto& [path, target] : kMergedLinks)
            steps_.emplace_back(MakeSymlink{std::string(path), std::string(target)});
    }

    void add_base_mounts()
    {
        if (plan_.rootfs.kind == "host") {
            MountIdMap map = map_for(plan_.rootfs.ownership, plan_, binding_);
            // Writes to /usr go to a tmpfs of the sandbox's own; the host's stays as it is.
            if (plan_.rootfs.strategy == plan::RootfsStrategy::overlay_tmpfs &&
                !plan_.rootfs.read_only) {
                steps_.emplace_back(
                    Overlay{"usr", plan_.rootfs.source, std::move(map), kWritableRootSize});
                grants_.push_back({"usr", Access::read_write, Ground::ours, {}});
            } else {
                steps_.emplace_back(BindMount{plan_.rootfs.source, "usr", Access::read_only,
                                              std::move(map), Ground::ours});
                grants_.push_back(
                    {"usr", Access::read_only, Ground::operators, plan_.rootfs.source});
            }
        }
        add_base_tmpfs("tmp", kTmpSize, 01777);
        if (plan_.rootfs.kind == "host") {
            add_base_tmpfs("run", kRunSize, 0755);
            add_base_tmpfs("var/tmp", kTmpSize, 01777);
        }
    }

    // The plan's own mount of the same place wins.
    void add_base_tmpfs(std::string target, std::uint64_t size, std::uint32_t mode)
    {
        const bool planned = std::ranges::any_of(plan_.mounts, [&](const plan::MountPlan& mount) {
            return covers(below_root(mount.target.str()), target);
        });
        if (planned) return;
        make_directory(target);
        steps_.emplace_back(TmpfsMount{target, size, mode, binding_.id_base, binding_.id_base,
                                       Access::read_write, Ground::ours});
        grants_.push_back({std::move(target), Access::read_write, Ground::ours, {}});
    }

    Status add_mount(const plan::MountPlan& mount)
    {
        const std::string target = below_root(mount.target.str());
        const Access access = mount.read_only ? Access::read_only : Access::read_write;
        const Ground ground = covering(target).ground;
        switch (mount.type) {
        case profile::MountType::tmpfs:
            steps_.emplace_back(TmpfsMount{target, mount.size.value_or(Bytes{kTmpSize}).count,
                                           mount.mode, binding_.id_base + plan_.process.uid,
                                           binding_.id_base + plan_.process.gid, access, ground,
                                           holds_secrets(mount) ? Swap::never : Swap::allowed});
            grants_.push_back({target, access, Ground::ours, {}});
            return {};
        case profile::MountType::bind: break;
        case profile::MountType::volume:
            return fail(Code::invalid_argument,
                        "a file tree does not express volumes yet: " + mount.target.str());
        }
        // Container root would write files of host root's making through its own map.
        if (access == Access::read_write && plan_.process.uid == 0)
            return fail(Code::invalid_argument,
                        "a writable bind for user 0 is not to be compiled: " + mount.target.str());
        steps_.emplace_back(BindMount{mount.source, target, access,
                                      map_for(mount.ownership, plan_, binding_), ground});
        grants_.push_back({target, access, Ground::operators, mount.source});
        return {};
    }

    bool holds_secrets(const plan::MountPlan& mount) const
    {
        return std::ranges::any_of(plan_.request.secrets, [&](const profile::Secret& secret) {
            return secret.file && secret.file->str().starts_with(mount.target.str() + "/") &&
                   secret.file->str().rfind('/') == mount.target.str().size();
        });
    }

    // Only ancestors below the grant are pinned: its own top is a mount point and cannot be renamed.
    void add_mask(const std::string& path)
    {
        const Grant& grant = covering(path);
        MaskPath mask{path, {}, grant.ground, {}};
        const std::size_t start = grant.target.empty() ? 0 : grant.target.size() + 1;
        if (grant.ground == Ground::operators && path.size() > start)
            mask.host = HostPath(grant.source.str() + "/" + path.substr(start));
        if (grant.access == Access::read_write)
            for (auto at = path.find('/', start); at != std::string::npos;
                 at = path.find('/', at + 1))
                mask.pinned.push_back(path.substr(0, at));
        steps_.emplace_back(std::move(mask));
    }

    void make_directory(std::string path)
    {
        steps_.emplace_back(MakeDirectory{std::move(path), 0755, binding_.id_base});
    }

    // Later mounts lie over earlier ones: the last that covers it is the one seen.
    const Grant& covering(std::string_view path) const
    {
        for (auto grant = grants_.rbegin(); grant != grants_.rend(); ++grant)
            if (covers(grant->target, path)) return *grant;
        return grants_.front();
    }

    const plan::PlanContent& plan_;
    const Binding& binding_;
    std::vector<TreeStep> steps_;
    std::vector<Grant> grants_;
};

}  // namespace

Result<std::vector<TreeStep>> compile_tree(const plan::ExecutionPlan& plan, const Binding& binding)
{
    return TreeCompiler(plan.content(), binding).compile();
}

}  // namespace sandbox::driver
