// SPDX-License-Identifier: Apache-2.0
#include "driver/native/compile.hpp"

#include <set>

#include "driver/artifact_json.hpp"
#include "driver/rootless.hpp"
#include "sys/caps.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/digest.hpp"

namespace sandbox::driver::native {
namespace {

using canon::Json;

// As the oci driver gives: 64 MiB of /dev/shm, counted against the session's memory limit.
constexpr std::uint64_t kShmSize = 64ULL << 20;

// Law 1: the namespaces named in the plan are those that are made, each of them.
Result<confine::Namespaces> namespaces_of(const plan::PlanContent& plan)
{
    confine::Namespaces own;
    std::set<std::string> wanted{"cgroup", "ipc", "mount", "pid", "user", "uts"};
    if (plan.network.mode == profile::NetworkMode::none)
        wanted.insert("net");
    else if (plan.network.mode == profile::NetworkMode::host)
        own.net = false;
    else
        return fail(Code::invalid_argument,
                    "the native driver does not express network egress yet");
    const std::set<std::string> given(plan.security.namespaces.begin(),
                                      plan.security.namespaces.end());
    if (given != wanted)
        return fail(
            Code::invalid_argument,
            "the plan's namespaces are not those of the native driver for this network mode");
    return own;
}

Json names(const confine::Namespaces& own)
{
    Json list = Json::array();
    const auto add = [&](bool has, const char* name) {
        if (has) list.push_back(name);
    };
    add(own.cgroup, "cgroup");
    add(own.ipc, "ipc");
    add(own.mount, "mount");
    add(own.net, "net");
    add(own.pid, "pid");
    add(own.user, "user");
    add(own.uts, "uts");
    return list;
}

Json maps(const std::vector<sys::IdMapping>& list)
{
    Json json = Json::array();
    for (const sys::IdMapping& map : list)
        json.push_back({{"inside", map.inside}, {"outside", map.outside}, {"count", map.count}});
    return json;
}

Json box_json(const confine::BoxSpec& box)
{
    Json json{{"namespaces", names(box.own)},
              {"uids", maps(box.uids)},
              {"gids", maps(box.gids)},
              {"owner", box.owner},
              {"hostname", box.hostname},
              {"shm_size", box.shm_size},
              {"masked", box.masked},
              {"read_only", box.read_only},
              {"capabilities", sys::cap_names(box.capabilities)},
              {"filter", sys::seccomp::program_digest(box.filter)}};
    if (box.devices == confine::Devices::bound) json["devices"] = "bound";
    return json;
}

Json document(const NativeArtifact& artifact)
{
    return {{"driver", "native"},
            {"box", box_json(artifact.box)},
            {"tree", tree_json(artifact.steps)},
            {"bootstrap", hex_json(artifact.bootstrap)},
            {"cgroup", cgroup_json(artifact.service)},
            {"service", service_json(artifact.service)}};
}

Result<confine::BoxSpec> compile_box(const plan::PlanContent& plan, const Binding& binding)
{
    confine::BoxSpec box;
    box.own = TRY(namespaces_of(plan));
    if (binding.id_base == 0)
        return fail(Code::invalid_argument, "the host's root is never mapped into a sandbox");
    box.uids = {{0, binding.id_base, plan.security.id_count}};
    box.gids = box.uids;
    box.owner = binding.id_base;
    box.hostname = plan.network.hostname;
    box.shm_size = kShmSize;
    if (is_rootless(plan)) box.devices = confine::Devices::bound;
    for (const GuestPath& path : plan.security.masked) box.masked.push_back(path.str());
    for (const GuestPath& path : plan.security.read_only) box.read_only.push_back(path.str());
    const auto capabilities = init_capabilities(plan);
    box.capabilities = TRY(sys::cap_set(capabilities));
    box.filter = sys::seccomp::compile(sys::seccomp::Profile::outer, TRY(architecture(plan)));
    return box;
}

}  // namespace

Result<NativeArtifact> compile(const plan::ExecutionPlan& plan, const Binding& binding)
{
    if (plan->driver != profile::Driver::native)
        return fail(Code::invalid_argument, "the plan is for another driver than native");
    NativeArtifact artifact;
    artifact.box = TRY_WITH(compile_box(plan.content(), binding), "compile the namespaces");
    artifact.steps = TRY_WITH(compile_tree(plan, binding), "compile the file tree");
    artifact.bootstrap = TRY_WITH(compile_bootstrap(plan, binding), "compile the bootstrap record");
    artifact.filters = TRY(filter_digests(plan.content()));
    artifact.service = service_of(plan.content());
    artifact.digest = canon::digest(TRY(canon::serialize(document(artifact))));
    return artifact;
}

Result<std::string> render(const NativeArtifact& artifact)
{
    Json json = document(artifact);
    json["digest"] = artifact.digest;
    return canon::serialize(json);
}

}  // namespace sandbox::driver::native
