// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "plan/codec.hpp"
#include "plan/fields.hpp"
#include "plan/names.hpp"
#include "profile/names.hpp"
#include "profile/normal.hpp"
#include "profile/profile.hpp"

namespace sandbox::plan {

using canon::Json;

namespace {

// Milliseconds, as in every format; null is "no limit of time".
std::optional<Millis> millis(Fields& fields, const char* key)
{
    const auto count = fields.maybe_number<std::uint64_t>(key);
    // A plan cannot hold more than 63 bits of milliseconds: what does not fit shows when the plan
    // is encoded again and compared, decode_file().
    if (!count) return std::nullopt;
    return Millis(static_cast<std::int64_t>(*count));
}

std::uint32_t mode(Fields& fields, const char* key)
{
    // 07777: the file mode bits of stat(2) without the type.
    const auto bits = profile::parse_mode(fields.text(key), 07777);
    if (!bits) fields.refuse(key, "four octal digits are wanted");
    return bits.value_or(0);
}

std::vector<GuestPath> paths(Fields& fields, const char* key)
{
    std::vector<GuestPath> out;
    for (std::string& text : fields.texts(key)) out.emplace_back(std::move(text));
    return out;
}

ProcessPlan process(Fields fields)
{
    ProcessPlan out;
    out.argv = fields.texts("argv");
    out.idle = fields.flag("idle");
    out.env = fields.text_map("env");
    out.cwd = GuestPath(fields.text("cwd"));
    out.uid = fields.number<std::uint32_t>("uid");
    out.gid = fields.number<std::uint32_t>("gid");
    out.umask = mode(fields, "umask");
    out.terminal = fields.flag("terminal");
    out.timeout = millis(fields, "timeout");
    out.rlimits = fields.number_map("rlimits");
    fields.close();
    return out;
}

RootfsPlan rootfs(Fields fields)
{
    RootfsPlan out;
    out.kind = fields.text("kind");
    out.source = HostPath(fields.text("source"));
    out.read_only = fields.flag("read_only");
    out.strategy = fields.choice<RootfsStrategy>("strategy", kRootfsStrategies);
    out.ownership = fields.choice<Ownership>("ownership", kOwnerships);
    out.etc = fields.text_map("etc");
    fields.close();
    return out;
}

// By reference, unlike the others: the caller iterates over a list that owns it.
MountPlan mount(Fields& fields)
{
    MountPlan out;
    out.type = fields.choice<profile::MountType>("type", profile::names_of(profile::MountType{}));
    out.source = HostPath(fields.text("source"));
    out.target = GuestPath(fields.text("target"));
    out.read_only = fields.flag("read_only");
    out.ownership = fields.choice<Ownership>("ownership", kOwnerships);
    if (const auto size = fields.maybe_number<std::uint64_t>("size")) out.size = Bytes{*size};
    out.mode = mode(fields, "mode");
    fields.close();
    return out;
}

NetworkPlan network(Fields fields)
{
    NetworkPlan out;
    out.mode = fields.choice<profile::NetworkMode>("mode",
                                                   profile::names_of(profile::NetworkMode{}));
    out.hostname = fields.text("hostname");
    fields.close();
    return out;
}

std::vector<CgroupSetting> settings(Fields& fields, const char* key)
{
    std::vector<CgroupSetting> out;
    for (Fields& item : fields.objects(key)) {
        out.push_back({item.text("controller"), item.text("file"), item.text("value")});
        item.close();
    }
    return out;
}

ResourcePlan resources(Fields fields)
{
    ResourcePlan out;
    out.version = fields.choice<CgroupVersion>("version", kCgroupVersions);
    out.controllers = fields.texts("controllers");
    out.workload = settings(fields, "workload");
    out.control = settings(fields, "control");
    fields.close();
    return out;
}

// A second home for version and controllers: `resources` is then what the guest's own kernel holds.
MicrovmPlan microvm(Fields fields)
{
    MicrovmPlan out;
    out.accelerator = fields.choice<Accelerator>("accelerator", kAccelerators);
    out.guest_arch = fields.text("guest_arch");
    out.guest_release = fields.text("guest_release");
    out.cpus = fields.number<std::uint32_t>("cpus");
    out.memory = Bytes{fields.number<std::uint64_t>("memory")};
    out.overhead = Bytes{fields.number<std::uint64_t>("overhead")};
    for (Fields& item : fields.objects("shares")) {
        out.shares.push_back({HostPath(item.text("source")), item.flag("read_only"),
                              item.choice<Ownership>("ownership", kOwnerships)});
        item.close();
    }
    out.host = resources(fields.object("host"));
    fields.close();
    return out;
}

SecurityPlan security(Fields fields)
{
    SecurityPlan out;
    out.namespaces = fields.texts("namespaces");
    out.capabilities = fields.texts("capabilities");
    out.seccomp = fields.choice<profile::SeccompProfile>(
        "seccomp", profile::names_of(profile::SeccompProfile{}));
    out.seccomp_digest = fields.text("seccomp_digest");
    out.landlock_abi = fields.number<std::uint32_t>("landlock_abi");
    out.id_count = fields.number<std::uint32_t>("id_count");
    out.masked = paths(fields, "masked");
    out.read_only = paths(fields, "read_only");
    fields.close();
    return out;
}

void findings(Fields& fields, PlanContent& out)
{
    for (Fields& item : fields.objects("controls")) {
        out.controls.push_back({item.text("name"), item.text("mechanism"), item.text("planned")});
        item.close();
    }
    for (Fields& item : fields.objects("unenforced")) {
        out.unenforced.push_back({item.text("name"), item.text("reason")});
        item.close();
    }
    for (auto& [name, item] : fields.object_map("facts")) {
        out.facts.emplace(name, FactRef{item.text("status"), item.text("value")});
        item.close();
    }
}

}  // namespace

Result<PlanContent> content_from_json(const Json& json)
{
    // One failure for the whole tree; the readers below are straight lists without a way out each.
    Failure failure;
    Fields fields(json, "plan", failure);
    PlanContent out;
    // Kept raw: the profile has a reader of its own, with defaults, which would hide a missing key
    // if it were asked first.
    const Json& request = fields.raw("request");
    out.driver = fields.choice<profile::Driver>("driver", profile::names_of(profile::Driver{}));
    out.isolation_class = fields.choice<IsolationClass>("isolation_class", kIsolationClasses);
    out.process = process(fields.object("process"));
    out.rootfs = rootfs(fields.object("rootfs"));
    for (Fields& item : fields.objects("mounts")) out.mounts.push_back(mount(item));
    out.masks = paths(fields, "masks");
    out.network = network(fields.object("network"));
    out.resources = resources(fields.object("resources"));
    out.security = security(fields.object("security"));
    // A machine is part of the plan exactly where the driver makes one.
    if (out.driver == profile::Driver::microvm) out.microvm = microvm(fields.object("microvm"));
    findings(fields, out);
    out.policy_digest = fields.text("policy_digest");
    out.artifacts = fields.text_map("artifacts");
    out.warnings = fields.texts("warnings");
    fields.close();
    // Before the request: its errors would cover those of the plan.
    TRY_VOID(failure.status());
    out.request = TRY_WITH(profile::from_json(request), "plan.request");
    return out;
}

}  // namespace sandbox::plan
