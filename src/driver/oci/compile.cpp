// SPDX-License-Identifier: Apache-2.0
#include "driver/oci/compile.hpp"

#include <type_traits>

#include "canon/json.hpp"
#include "driver/oci/parts.hpp"

namespace sandbox::driver::oci {
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

Result<OciArtifact> compile(const plan::ExecutionPlan& plan, const Binding& binding)
{
    OciArtifact artifact;
    artifact.config_json = TRY_WITH(compile_config(plan, binding), "compile config.json");
    artifact.config_digest = canon::digest(artifact.config_json);
    artifact.steps = TRY_WITH(compile_tree(plan, binding), "compile the file tree");
    artifact.bootstrap = TRY_WITH(compile_bootstrap(plan, binding), "compile the bootstrap record");
    artifact.workload = plan->resources.workload;
    artifact.control = plan->resources.control;
    artifact.controllers = plan->resources.controllers;
    artifact.cgroup_version = plan->resources.version;
    artifact.timeout = plan->process.timeout;
    if (!plan->process.idle) artifact.argv = plan->process.argv;
    artifact.cwd = plan->process.cwd;
    artifact.umask = plan->process.umask;
    artifact.terminal = plan->process.terminal;
    return artifact;
}

Result<std::string> render(const OciArtifact& artifact)
{
    Json steps = Json::array();
    for (const TreeStep& step : artifact.steps)
        steps.push_back(std::visit([](const auto& one) { return to_json(one); }, step));
    const auto* first = reinterpret_cast<const std::uint8_t*>(artifact.bootstrap.data());
    const Json json{{"driver", "oci"},
                    {"config", TRY(canon::parse(artifact.config_json))},
                    {"config_digest", artifact.config_digest},
                    {"tree", std::move(steps)},
                    {"bootstrap", canon::hex({first, artifact.bootstrap.size()})},
                    {"cgroup",
                     {{"version", plan::to_string(artifact.cgroup_version)},
                      {"controllers", artifact.controllers},
                      {"workload", settings(artifact.workload)},
                      {"control", settings(artifact.control)}}},
                    {"service",
                     {{"argv", artifact.argv},
                      {"cwd", artifact.cwd.str()},
                      {"umask", artifact.umask},
                      {"terminal", artifact.terminal},
                      {"timeout_ms", artifact.timeout ? artifact.timeout->count() : 0}}}};
    return canon::serialize(json);
}

}  // namespace sandbox::driver::oci
