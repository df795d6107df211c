// SPDX-License-Identifier: Apache-2.0
#include "plan/codec.hpp"

#include "canon/json.hpp"
#include "profile/normal.hpp"
#include "profile/profile.hpp"

namespace sandbox::plan {

using canon::Json;

namespace {

// Each helper writes the keys that its reader in decode.cpp wants, and in no particular order:
// canon::serialize() sorts them (RFC 8785).
Json paths_json(const std::vector<GuestPath>& paths)
{
    Json list = Json::array();
    for (const GuestPath& path : paths) list.push_back(path.str());
    return list;
}

Json process_json(const ProcessPlan& process)
{
    // Null and not left out: the formats have every key present, so that a missing one is an error.
    Json timeout = nullptr;
    if (process.timeout) timeout = process.timeout->count();
    return {{"argv", process.argv},
            {"idle", process.idle},
            {"env", Json(process.env)},
            {"cwd", process.cwd.str()},
            {"uid", process.uid},
            {"gid", process.gid},
            {"umask", profile::format_mode(process.umask)},
            {"terminal", process.terminal},
            {"timeout", std::move(timeout)},
            {"rlimits", Json(process.rlimits)}};
}

Json rootfs_json(const RootfsPlan& rootfs)
{
    return {{"kind", rootfs.kind},
            {"source", rootfs.source.str()},
            {"read_only", rootfs.read_only},
            {"strategy", to_string(rootfs.strategy)},
            {"ownership", to_string(rootfs.ownership)},
            {"etc", Json(rootfs.etc)}};
}

Json mounts_json(const std::vector<MountPlan>& mounts)
{
    Json list = Json::array();
    for (const MountPlan& mount : mounts) {
        Json size = nullptr;
        if (mount.size) size = mount.size->count;
        list.push_back({{"type", profile::to_string(mount.type)},
                        {"source", mount.source.str()},
                        {"target", mount.target.str()},
                        {"read_only", mount.read_only},
                        {"ownership", to_string(mount.ownership)},
                        {"size", std::move(size)},
                        {"mode", profile::format_mode(mount.mode)}});
    }
    return list;
}

Json settings_json(const std::vector<CgroupSetting>& settings)
{
    Json list = Json::array();
    for (const CgroupSetting& setting : settings) {
        list.push_back(
            {{"controller", setting.controller}, {"file", setting.file}, {"value", setting.value}});
    }
    return list;
}

Json resources_json(const ResourcePlan& resources)
{
    return {{"version", to_string(resources.version)},
            {"controllers", resources.controllers},
            {"workload", settings_json(resources.workload)},
            {"control", settings_json(resources.control)}};
}

Json shares_json(const std::vector<SharePlan>& shares)
{
    Json list = Json::array();
    for (const SharePlan& share : shares) {
        list.push_back({{"source", share.source.str()},
                        {"read_only", share.read_only},
                        {"ownership", to_string(share.ownership)}});
    }
    return list;
}

Json microvm_json(const MicrovmPlan& microvm)
{
    return {{"accelerator", to_string(microvm.accelerator)},
            {"guest_arch", microvm.guest_arch},
            {"guest_release", microvm.guest_release},
            {"cpus", microvm.cpus},
            {"memory", microvm.memory.count},
            {"overhead", microvm.overhead.count},
            {"shares", shares_json(microvm.shares)},
            {"host", resources_json(microvm.host)}};
}

Json security_json(const SecurityPlan& security)
{
    return {{"namespaces", security.namespaces},
            {"capabilities", security.capabilities},
            {"seccomp", profile::to_string(security.seccomp)},
            {"seccomp_digest", security.seccomp_digest},
            {"landlock_abi", security.landlock_abi},
            {"id_count", security.id_count},
            {"masked", paths_json(security.masked)},
            {"read_only", paths_json(security.read_only)}};
}

Json controls_json(const std::vector<Control>& controls)
{
    Json list = Json::array();
    for (const Control& control : controls) {
        list.push_back({{"name", control.name},
                        {"mechanism", control.mechanism},
                        {"planned", control.planned}});
    }
    return list;
}

Json unenforced_json(const std::vector<Unenforced>& unenforced)
{
    Json list = Json::array();
    for (const Unenforced& item : unenforced) {
        list.push_back({{"name", item.name}, {"reason", item.reason}});
    }
    return list;
}

Json facts_json(const std::map<std::string, FactRef>& facts)
{
    // An object even when empty: Json's default would be null, another type.
    Json object = Json::object();
    for (const auto& [name, fact] : facts) {
        object[name] = {{"status", fact.status}, {"value", fact.value}};
    }
    return object;
}

}  // namespace

Json content_json(const PlanContent& content)
{
    Json json{{"request", profile::to_json(content.request)},
              {"driver", profile::to_string(content.driver)},
              {"isolation_class", to_string(content.isolation_class)},
              {"process", process_json(content.process)},
              {"rootfs", rootfs_json(content.rootfs)},
              {"mounts", mounts_json(content.mounts)},
              {"masks", paths_json(content.masks)},
              {"network",
               {{"mode", profile::to_string(content.network.mode)},
                {"hostname", content.network.hostname}}},
              {"resources", resources_json(content.resources)},
              {"security", security_json(content.security)},
              {"controls", controls_json(content.controls)},
              {"unenforced", unenforced_json(content.unenforced)},
              {"policy_digest", content.policy_digest},
              {"artifacts", Json(content.artifacts)},
              {"facts", facts_json(content.facts)},
              {"warnings", content.warnings}};
    // Left out and not null: an OCI plan's bytes do not speak of machines at all.
    if (content.microvm) json["microvm"] = microvm_json(*content.microvm);
    return json;
}

}  // namespace sandbox::plan
