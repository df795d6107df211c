// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/openat2.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/diagnostic.hpp"
#include "driver/collector.hpp"
#include "driver/tree.hpp"
#include "sys/fd.hpp"

namespace sandbox::driver {
namespace {

// What every sandbox on this host has beside the steps of its tree: the kernel's own mounts, and
// the nodes that are bound into the fresh /dev (crun 1.8.1, create_missing_devs; native the same).
constexpr std::array<std::string_view, 5> kBaseMounts{"/proc", "/dev", "/dev/pts", "/dev/shm",
                                                      "/dev/mqueue"};
constexpr std::array<std::string_view, 6> kDeviceNodes{"/dev/full", "/dev/null",    "/dev/random",
                                                       "/dev/tty",  "/dev/urandom", "/dev/zero"};

bool below(std::string_view path, std::string_view folder)
{
    if (folder == "/" || path == folder) return true;
    return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

std::string flags_text(const sys::MountInfo& mount)
{
    std::string text = mount.has("ro") ? "ro" : "rw";
    if (mount.has("nosuid")) text += ",nosuid";
    if (mount.has("nodev")) text += ",nodev";
    return text;
}

class MountWitness {
public:
    MountWitness(std::vector<sys::MountInfo> mounts, Collector& collector)
        : mounts_(std::move(mounts)), collector_(collector)
    {
    }

    // The topmost mount at a place: the one that is seen.
    const sys::MountInfo* at(std::string_view target) const
    {
        const auto found = std::find_if(mounts_.rbegin(), mounts_.rend(),
                                        [&](const auto& one) { return one.target == target; });
        return found == mounts_.rend() ? nullptr : &*found;
    }

    void expect(const std::string& name, const std::string& target, Access access,
                std::string_view recursive)
    {
        known_.insert(target);
        const sys::MountInfo* mount = at(target);
        const std::string planned = std::string(access == Access::read_only ? "ro" : "rw") +
                                    ",nosuid,nodev";
        if (mount == nullptr) {
            collector_.add(name, planned, "no mount at " + escaped(target), Held::no);
            return;
        }
        std::string observed = flags_text(*mount);
        bool held = observed == planned;
        // What a recursive bind brought along is as restricted as its top.
        if (!recursive.empty())
            for (const sys::MountInfo& inner : mounts_) {
                if (inner.target == target || !below(inner.target, target) ||
                    known_.contains(inner.target) || later_.contains(inner.target))
                    continue;
                brought_.insert(inner.target);
                if (inner.has("nosuid") && inner.has("nodev") &&
                    (access == Access::read_write || inner.has("ro")))
                    continue;
                held = false;
                observed += "; " + escaped(inner.target) + " " + flags_text(inner);
            }
        collector_.add(name, planned, observed, held_if(held));
    }

    void expect_mask(const std::string& target)
    {
        known_.insert(target);
        const sys::MountInfo* mount = at(target);
        const bool ours = mount != nullptr && mount->fstype == "tmpfs" && mount->has("ro") &&
                          (mount->root == "/file" || mount->root == "/folder");
        collector_.add("mask:" + target, "covered", ours ? "covered" : "not covered",
                       held_if(ours));
    }

    void plan_later(std::string target) { later_.insert(std::move(target)); }
    void know(std::string target) { known_.insert(std::move(target)); }

    void expect_nothing_else()
    {
        std::string odd;
        for (const sys::MountInfo& mount : mounts_)
            if (!known_.contains(mount.target) && !brought_.contains(mount.target))
                odd += (odd.empty() ? "" : ",") + escaped(mount.target);
        collector_.add("mounts.unplanned", "none", odd.empty() ? "none" : odd,
                       held_if(odd.empty()));
    }

private:
    std::vector<sys::MountInfo> mounts_;
    Collector& collector_;
    std::set<std::string> known_;
    std::set<std::string> later_;
    std::set<std::string> brought_;
};

bool planned_mount(const plan::PlanContent& plan, const std::string& target)
{
    return std::ranges::any_of(
        plan.mounts, [&](const plan::MountPlan& mount) { return mount.target.str() == target; });
}

// Kernel paths: covered (or made read-only), or not there at all on this kernel.
Status observe_kernel_paths(const plan::PlanContent& plan, const sys::ProcDir& init,
                            MountWitness& witness, Collector& collector)
{
    const sys::UniqueFd root = TRY(sys::open_at(init.fd(), "root", O_PATH | O_DIRECTORY));
    const auto check = [&](const std::vector<GuestPath>& paths, const char* name,
                           const char* good) {
        std::string bad;
        for (const GuestPath& path : paths) {
            witness.know(path.str());
            const sys::MountInfo* mount = witness.at(path.str());
            if (mount != nullptr && mount->has("ro")) continue;
            const auto there = sys::open_at2(root.get(), path.str(), O_PATH | O_NOFOLLOW, 0,
                                             RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
            if (there || there.error().code() != Code::not_found)
                bad += (bad.empty() ? "" : ",") + path.str();
        }
        collector.add(name, good, bad.empty() ? good : "open: " + bad, held_if(bad.empty()));
    };
    check(plan.security.masked, "proc.masked", "hidden");
    check(plan.security.read_only, "proc.read_only", "read-only");
    return {};
}

struct Expected {
    std::string target;
    Access access = Access::read_only;
    std::string recursive;  // the source's path; empty for what has no submounts
};

// Every mount the steps make, in order.
std::vector<Expected> expected_of(const std::vector<TreeStep>& steps, Access root_access)
{
    std::vector<Expected> list;
    for (const TreeStep& step : steps) {
        if (std::holds_alternative<RootTmpfs>(step))
            list.push_back({"/", root_access, {}});
        else if (const auto* overlay = std::get_if<Overlay>(&step))
            list.push_back({"/" + overlay->target,
                            overlay->target.empty() ? root_access : Access::read_write,
                            {}});
        else if (const auto* bind = std::get_if<BindMount>(&step))
            list.push_back({"/" + bind->target, bind->access, bind->source.str()});
        else if (const auto* tmpfs = std::get_if<TmpfsMount>(&step))
            list.push_back({"/" + tmpfs->target, tmpfs->access, {}});
    }
    return list;
}

}  // namespace

Status observe_mounts(const plan::ExecutionPlan& plan, const Binding& binding,
                      const sys::ProcDir& init, Collector& collector)
{
    const auto steps = TRY(compile_tree(plan, binding));
    MountWitness witness(TRY(init.mountinfo()), collector);
    const Access root = plan->rootfs.read_only ? Access::read_only : Access::read_write;
    const auto expected = expected_of(steps, root);
    for (const Expected& one : expected) witness.plan_later(one.target);
    for (const TreeStep& step : steps)
        if (const auto* mask = std::get_if<MaskPath>(&step)) {
            witness.plan_later("/" + mask->path);
            for (const std::string& pinned : mask->pinned) {
                witness.plan_later("/" + pinned);
                witness.know("/" + pinned);
            }
        }
    for (const Expected& one : expected) {
        std::string name = "base:" + one.target;
        if (one.target == "/")
            name = "rootfs";
        else if (planned_mount(plan.content(), one.target))
            name = "mount:" + one.target;
        witness.expect(name, one.target, one.access, one.recursive);
    }
    for (const GuestPath& mask : plan->masks) witness.expect_mask(mask.str());
    for (const std::string_view base : kBaseMounts) witness.know(std::string(base));
    for (const std::string_view node : kDeviceNodes) witness.know(std::string(node));
    TRY_VOID(observe_kernel_paths(plan.content(), init, witness, collector));
    witness.expect_nothing_else();
    return {};
}

}  // namespace sandbox::driver
