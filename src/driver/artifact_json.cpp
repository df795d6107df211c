// SPDX-License-Identifier: Apache-2.0
#include "driver/artifact_json.hpp"

namespace sandbox::driver {
namespace {

using canon::Json;

Json ranges(const std::vector<IdRange>& list)
{
    Json json = Json::array();
    for (const IdRange& range : list)
        json.push_back({{"inside", range.inside}, {"host", range.host}, {"count", range.count}});
    return json;
}

Json id_map(const MountIdMap& map)
{
    return {{"uids", ranges(map.uids)}, {"gids", ranges(map.gids)}};
}

const char* text(Access access) { return access == Access::read_only ? "read-only" : "read-write"; }

const char* text(Ground ground) { return ground == Ground::ours ? "ours" : "operators"; }

// One overload a step: a new kind of step does not compile until it is rendered.
Json to_json(const RootTmpfs& step)
{
    return {{"step", "root-tmpfs"}, {"owner", step.owner}, {"size", step.size}};
}
Json to_json(const Overlay& step)
{
    return {{"step", "overlay"},
            {"target", step.target},
            {"lower", step.lower.str()},
            {"map", id_map(step.lower_map)},
            {"size", step.size}};
}
Json to_json(const MakeDirectory& step)
{
    return {{"step", "directory"}, {"path", step.path}, {"mode", step.mode}, {"owner", step.owner}};
}
Json to_json(const MakeSymlink& step)
{
    return {{"step", "symlink"}, {"path", step.path}, {"target", step.target}};
}
Json to_json(const MakeFile& step)
{
    return {{"step", "file"},
            {"path", step.path},
            {"content", step.content},
            {"mode", step.mode},
            {"owner", step.owner}};
}
Json to_json(const BindMount& step)
{
    return {{"step", "bind"},          {"source", step.source.str()},
            {"target", step.target},   {"access", text(step.access)},
            {"map", id_map(step.map)}, {"ground", text(step.ground)}};
}
Json to_json(const TmpfsMount& step)
{
    Json json{{"step", "tmpfs"},
              {"target", step.target},
              {"size", step.size},
              {"mode", step.mode},
              {"uid", step.owner_uid},
              {"gid", step.owner_gid},
              {"access", text(step.access)},
              {"ground", text(step.ground)}};
    if (step.swap == Swap::never) json["swap"] = "never";
    return json;
}
Json to_json(const MaskPath& step)
{
    return {{"step", "mask"},
            {"path", step.path},
            {"pinned", step.pinned},
            {"ground", text(step.ground)},
            {"host", step.host.str()}};
}
Json to_json(const SealRoot&) { return {{"step", "seal-root"}}; }

Json settings(const std::vector<plan::CgroupSetting>& list)
{
    Json json = Json::array();
    for (const plan::CgroupSetting& setting : list)
        json.push_back(
            {{"controller", setting.controller}, {"file", setting.file}, {"value", setting.value}});
    return json;
}

}  // namespace

canon::Json tree_json(std::span<const TreeStep> steps)
{
    Json list = Json::array();
    for (const TreeStep& step : steps)
        list.push_back(std::visit([](const auto& one) { return to_json(one); }, step));
    return list;
}

canon::Json cgroup_json(const Service& service)
{
    return {{"version", plan::to_string(service.cgroup_version)},
            {"controllers", service.controllers},
            {"workload", settings(service.workload)},
            {"control", settings(service.control)}};
}

canon::Json service_json(const Service& service)
{
    return {{"argv", service.argv},
            {"cwd", service.cwd.str()},
            {"umask", service.umask},
            {"terminal", service.terminal},
            {"timeout_ms", service.timeout ? service.timeout->count() : 0}};
}

canon::Json hex_json(std::string_view bytes)
{
    return canon::hex({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace sandbox::driver
