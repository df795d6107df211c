// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/machine.hpp"

#include <utility>
#include <variant>

#include "wire/wire.hpp"

namespace sandbox::driver::microvm {
namespace {

using wire::MachineStep;
using Kind = wire::MachineStepKind;

MachineStep step_of(Kind kind, std::string target)
{
    MachineStep step;
    step.kind = kind;
    step.target = std::move(target);
    return step;
}

wire::MachineAccess access_of(Access access)
{
    return access == Access::read_only ? wire::MachineAccess::read_only
                                       : wire::MachineAccess::read_write;
}

wire::MachineGround ground_of(Ground ground)
{
    return ground == Ground::ours ? wire::MachineGround::ours : wire::MachineGround::operators;
}

class Translator {
public:
    Result<std::vector<MachineStep>> run(const std::vector<TreeStep>& steps)
    {
        for (const TreeStep& step : steps)
            TRY_VOID(std::visit([this](const auto& one) { return add(one); }, step));
        return std::move(steps_);
    }

private:
    Status add(const RootTmpfs& from)
    {
        MachineStep step = step_of(Kind::root_tmpfs, "");
        step.size = from.size;
        step.uid = from.owner;
        return push(std::move(step));
    }
    Status add(const Overlay& from)
    {
        if (from.lower_map != MountIdMap{}) return mapped(from.lower);
        MachineStep step = step_of(Kind::overlay, from.target);
        step.source = from.lower.str();
        step.size = from.size;
        return push(std::move(step));
    }
    Status add(const MakeDirectory& from)
    {
        MachineStep step = step_of(Kind::directory, from.path);
        step.mode = from.mode;
        step.uid = from.owner;
        return push(std::move(step));
    }
    Status add(const MakeSymlink& from)
    {
        MachineStep step = step_of(Kind::symlink, from.path);
        step.source = from.target;
        return push(std::move(step));
    }
    Status add(const MakeFile& from)
    {
        MachineStep step = step_of(Kind::file, from.path);
        step.content = from.content;
        step.mode = from.mode;
        step.uid = from.owner;
        return push(std::move(step));
    }
    Status add(const BindMount& from)
    {
        if (from.map != MountIdMap{}) return mapped(from.source);
        MachineStep step = step_of(Kind::bind, from.target);
        step.source = from.source.str();
        step.access = access_of(from.access);
        step.ground = ground_of(from.ground);
        return push(std::move(step));
    }
    // A guest has no swap: Swap::never holds by itself.
    Status add(const TmpfsMount& from)
    {
        MachineStep step = step_of(Kind::tmpfs, from.target);
        step.size = from.size;
        step.mode = from.mode;
        step.uid = from.owner_uid;
        step.gid = from.owner_gid;
        step.access = access_of(from.access);
        step.ground = ground_of(from.ground);
        return push(std::move(step));
    }
    Status add(const MaskPath& from)
    {
        for (const std::string& ancestor : from.pinned)
            TRY_VOID(push(step_of(Kind::pin, ancestor)));
        MachineStep step = step_of(Kind::mask, from.path);
        step.ground = ground_of(from.ground);
        return push(std::move(step));
    }
    Status add(const SealRoot&) { return push(step_of(Kind::seal_root, "")); }

    Status push(MachineStep step)
    {
        steps_.push_back(std::move(step));
        return {};
    }
    static Status mapped(const HostPath& source)
    {
        return fail(Code::invalid_argument,
                    "a guest maps no ids: its share already does, of " + source.str());
    }

    std::vector<MachineStep> steps_;
};

std::vector<wire::MachineLimit> limits_of(const std::vector<plan::CgroupSetting>& settings)
{
    std::vector<wire::MachineLimit> limits;
    for (const plan::CgroupSetting& setting : settings)
        limits.push_back({setting.file, setting.value});
    return limits;
}

std::vector<std::string> texts(const std::vector<GuestPath>& paths)
{
    std::vector<std::string> list;
    for (const GuestPath& path : paths) list.push_back(path.str());
    return list;
}

}  // namespace

Result<wire::Machine> machine_of(const plan::ExecutionPlan& plan, const MicrovmArtifact& artifact)
{
    const plan::ResourcePlan& resources = plan->resources;
    const bool limited = !resources.workload.empty() || !resources.control.empty();
    if (limited && resources.version != plan::CgroupVersion::v2)
        return fail(Code::invalid_argument, "a guest's limits are those of cgroup v2");
    wire::Machine machine;
    for (const ShareServer& share : artifact.shares)
        machine.shares.push_back({share.tag, share.access == Access::read_only});
    machine.steps = TRY(Translator().run(artifact.steps));
    machine.masked = texts(plan->security.masked);
    machine.read_only = texts(plan->security.read_only);
    machine.loopback = true;
    machine.workload = limits_of(resources.workload);
    machine.control = limits_of(resources.control);
    // What its receiver would refuse is refused here.
    TRY(wire::encode(machine));
    return machine;
}

}  // namespace sandbox::driver::microvm
