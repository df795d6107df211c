// SPDX-License-Identifier: Apache-2.0
#include "shim/update_limits.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/failpoint.hpp"
#include "driver/groups.hpp"
#include "shim/update.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

using plan::CgroupSetting;
using plan::CgroupVersion;
using sys::cgroup::CgroupTree;
using sys::cgroup::Setting;

// Files by version, admin-guide/cgroup-v1/{memory,cpusets}.rst and cgroup-v2.rst.
constexpr std::string_view kMemoryV1 = "memory.limit_in_bytes";
constexpr std::string_view kSwapV1 = "memory.memsw.limit_in_bytes";
constexpr std::string_view kMemoryV2 = "memory.max";
constexpr std::string_view kCpuset = "cpuset.cpus";
// PAGE_COUNTER_MAX in bytes (include/linux/page_counter.h): what an unlimited v1 file reads.
constexpr const char* kUnlimitedV1 = "9223372036854771712";

// What each file reads where nobody limits anything (Documentation/admin-guide/cgroup-v*).
std::string unlimited(const CgroupSetting& setting, const std::string& inherited_cpuset)
{
    if (setting.file == kMemoryV1 || setting.file == kSwapV1) return kUnlimitedV1;
    if (setting.file == kMemoryV2 || setting.file == "memory.swap.max") return "max";
    if (setting.file == "memory.oom.group") return "0";
    if (setting.file == "pids.max") return "max";
    if (setting.file == "cpu.max") return "max 100000";
    if (setting.file == "cpu.cfs_quota_us") return "-1";
    if (setting.file == "cpu.shares") return "1024";
    if (setting.file == "cpu.weight") return "100";
    if (setting.file == "io.weight") return "default 100";
    if (setting.file == kCpuset) return inherited_cpuset;
    return setting.value;  // cpu.cfs_period_us: says nothing without a quota
}

const CgroupSetting* find_file(const std::vector<CgroupSetting>& settings, std::string_view file)
{
    const auto found = std::ranges::find(settings, file, &CgroupSetting::file);
    return found == settings.end() ? nullptr : &*found;
}

// Nothing in force counts as more than anything.
bool rises(const CgroupSetting* before, const CgroupSetting& after)
{
    // "max" and "-1" are no numbers: what from_chars does not take leaves the bounds as they are.
    std::uint64_t from = UINT64_MAX;
    std::uint64_t to = 0;
    if (before != nullptr) {
        std::from_chars(before->value.data(), before->value.data() + before->value.size(), from);
    }
    std::from_chars(after.value.data(), after.value.data() + after.value.size(), to);
    return to > from;
}

Setting to_sys(const CgroupSetting& setting)
{
    return {setting.controller, setting.file, setting.value};
}

}  // namespace

std::vector<CgroupSetting> order_writes(CgroupVersion version,
                                        const std::vector<CgroupSetting>& in_force,
                                        const std::vector<CgroupSetting>& wanted,
                                        const std::string& inherited_cpuset)
{
    std::vector<CgroupSetting> writes;
    for (const CgroupSetting& setting : wanted) {
        const CgroupSetting* before = find_file(in_force, setting.file);
        // What is right already is not written: each write is a chance to be refused.
        if (before == nullptr || before->value != setting.value) writes.push_back(setting);
    }
    for (const CgroupSetting& setting : in_force) {
        if (find_file(wanted, setting.file) != nullptr) continue;
        const std::string value = unlimited(setting, inherited_cpuset);
        if (value != setting.value) writes.push_back({setting.controller, setting.file, value});
    }
    if (version != CgroupVersion::v1) return writes;
    // v1 refuses a memory limit above that of memory and swap together at every moment.
    const auto memory = std::ranges::find(writes, kMemoryV1, &CgroupSetting::file);
    const auto both = std::ranges::find(writes, kSwapV1, &CgroupSetting::file);
    if (memory == writes.end() || both == writes.end()) return writes;
    // Up: memory and swap first; down: memory first.
    const bool up = rises(find_file(in_force, kSwapV1), *both);
    if (up != (both < memory)) std::iter_swap(memory, both);
    return writes;
}

Result<LimitChange> LimitChange::open(const plan::ExecutionPlan& runs,
                                      const plan::ExecutionPlan& next,
                                      const driver::Binding& binding)
{
    // Opened before the first write: what can fail without an effect fails here.
    LimitChange change(runs, next);
    TRY_VOID(change.open_trees(binding));
    return change;
}

Status LimitChange::open_trees(const driver::Binding& binding)
{
    if ((*next_)->microvm) return {};  // its limits are not of this kernel
    const auto host = TRY(driver::host_cgroups());
    const std::string path = binding.cgroup + "/workload";
    const bool v2 = (*next_)->resources.version == CgroupVersion::v2;
    if (v2 && (*next_)->resources.controllers != (*runs_)->resources.controllers) {
        // Nobody lives in <id> or <id>/workload themselves: controllers can be passed on any time.
        auto groups = TRY(driver::open_groups(*next_, binding));
        TRY_VOID(groups.top->enable_for_children((*next_)->resources.controllers));
        TRY_VOID(groups.workload->enable_for_children((*next_)->resources.controllers));
    }
    trees_.push_back(TRY(CgroupTree::find(host, path)));
    if (trees_.front().empty()) return fail(Code::not_found, "cgroup " + path + " is gone");
    const auto& controllers = (*runs_)->resources.controllers;
    const std::string cpuset = "cpuset";
    // Without a cpuset limit before or after, v1 has nothing of the children to change.
    if (std::ranges::find(controllers, cpuset) == controllers.end() && !v2) return {};
    const auto top = TRY(CgroupTree::find(host, binding.cgroup));
    // What a lifted limit goes back to: the CPUs of the sandbox's own top.
    const auto inherited = top.read(cpuset, v2 ? "cpuset.cpus.effective" : std::string(kCpuset));
    if (inherited) inherited_cpuset_ = *inherited;
    if (v2) return {};
    const sys::cgroup::Hierarchy* hierarchy = host.with(cpuset);
    if (hierarchy == nullptr) return {};
    const auto folder = TRY(sys::open_dir(hierarchy->mount + path));
    for (const std::string& name : TRY(sys::list_dir(folder.get()))) {
        // Files of the cgroup carry a dot or no folder behind their name.
        if (!sys::open_at2(folder.get(), name, O_PATH | O_DIRECTORY, 0, sys::kBeneath)) continue;
        trees_.push_back(TRY(CgroupTree::find(host, path + "/" + name)));
    }
    return {};
}

Status LimitChange::write_one(const CgroupTree& tree, const Setting& setting)
{
    const std::string before = TRY(tree.read(setting.controller, setting.file));
    // Noted before the write: a write that fails half-way is put back, too.
    if (before == setting.value) return {};
    written_.push_back({&tree, {setting.controller, setting.file, before}});
    return tree.set(std::span(&setting, 1));
}

// v1 wants every child's CPUs to be among its parent's at every moment.
Status LimitChange::write_cpuset_v1(const Setting& setting)
{
    Setting wide = setting;
    // First as wide as it may be, then the children, then the parent to what is wanted.
    wide.value = inherited_cpuset_;
    TRY_VOID(write_one(trees_.front(), wide));
    for (std::size_t i = 1; i < trees_.size(); ++i) TRY_VOID(write_one(trees_[i], setting));
    return write_one(trees_.front(), setting);
}

// v2 kills to make a lower memory.max true; v1 refuses it. Here it is refused on both: what does
// not fit after the kernel gave back what it could is not ours to kill.
Status LimitChange::make_room(const Setting& setting)
{
    std::uint64_t wanted = UINT64_MAX;
    std::from_chars(setting.value.data(), setting.value.data() + setting.value.size(), wanted);
    const CgroupTree& workload = trees_.front();
    if (TRY(workload.usage()).memory_bytes <= wanted) return {};
    // memory.high makes the kernel reclaim without killing (cgroup-v2.rst); it is lifted again at
    // once, because it would slow the workload down for ever.
    const Setting high{"memory", "memory.high", setting.value};
    const Setting none{"memory", "memory.high", "max"};
    TRY_VOID(workload.set(std::span(&high, 1)));
    const auto usage = workload.usage();
    TRY_VOID(workload.set(std::span(&none, 1)));
    if (TRY(std::move(usage)).memory_bytes <= wanted) return {};
    return fail(Error::from_errno(EBUSY, "set", "memory.max to " + setting.value));
}

Error LimitChange::explain(const Error& error, const Setting& setting) const
{
    const bool memory = setting.controller == "memory";
    // EBUSY is the kernel's word for "in use": the one refusal a person can do something about.
    if (!memory || error.errnum() != EBUSY) return error;
    const auto usage = trees_.front().usage();
    const std::string used = usage ? std::to_string(usage->memory_bytes) + " bytes" : "more";
    return {Code::conflict, setting.file + " cannot become " + setting.value +
                                ": the workload uses " + used +
                                "; nothing was changed. Ask for more, or stop it first"};
}

Status LimitChange::write()
{
    if ((*next_)->microvm) return {};
    const bool v1 = (*next_)->resources.version == CgroupVersion::v1;
    for (const CgroupSetting& wanted :
         order_writes((*next_)->resources.version, (*runs_)->resources.workload,
                      (*next_)->resources.workload, inherited_cpuset_)) {
        const Setting setting = to_sys(wanted);
        Status done;
        if (setting.file == kMemoryV2) done = make_room(setting);
        if (done) {
            done = v1 && setting.file == kCpuset ? write_cpuset_v1(setting)
                                                 : write_one(trees_.front(), setting);
        }
        failpoint("update.one-written");
        if (done) continue;
        const Error why = explain(done.error(), setting);
        // All or nothing: a plan that is half in force is in no ledger.
        if (auto back = put_back(); !back) {
            return fail(why.code(), why.message() + "; " + back.error().message());
        }
        return fail(why);
    }
    return {};
}

Result<std::vector<driver::Evidence>> LimitChange::observe() const
{
    if ((*next_)->microvm) return std::vector<driver::Evidence>{};
    std::vector<driver::Evidence> evidence;
    const std::string prefix = "cgroup " + std::string(to_string((*next_)->resources.version)) +
                               " ";
    for (const CgroupSetting& setting : (*next_)->resources.workload) {
        const std::string observed = TRY(trees_.front().read(setting.controller, setting.file));
        // The plan's own name for it, so that planned and observed stand side by side; a file
        // without a control of its own is shown by its name.
        std::string name = "limit." + setting.file;
        for (const plan::Control& control : (*next_)->controls) {
            if (control.mechanism == prefix + setting.file &&
                !control.name.starts_with("limit.control.")) {
                name = control.name;
            }
        }
        evidence.push_back(
            {name, prefix + setting.file, setting.value, observed, observed == setting.value});
    }
    return evidence;
}

Status LimitChange::put_back()
{
    if ((*next_)->microvm) return {};
    std::string stuck;
    for (; !written_.empty(); written_.pop_back()) {
        const Written& last = written_.back();
        // Read first: what the kernel never took need not be put back, and may be refused.
        const auto now = last.tree->read(last.before.controller, last.before.file);
        if (now && *now == last.before.value) continue;
        if (auto back = last.tree->set(std::span(&last.before, 1)); !back) {
            stuck += (stuck.empty() ? "" : ", ") + back.error().message();
        }
    }
    if (stuck.empty()) return {};
    return fail(Code::conflict, "putting back failed: " + stuck);
}

}  // namespace sandbox::shim
