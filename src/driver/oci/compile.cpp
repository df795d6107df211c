// SPDX-License-Identifier: Apache-2.0
#include "driver/oci/compile.hpp"

#include "driver/artifact_json.hpp"
#include "driver/oci/parts.hpp"

namespace sandbox::driver::oci {

Result<OciArtifact> compile(const plan::ExecutionPlan& plan, const Binding& binding)
{
    OciArtifact artifact;
    artifact.config_json = TRY_WITH(compile_config(plan, binding), "compile config.json");
    artifact.digest = canon::digest(artifact.config_json);
    artifact.steps = TRY_WITH(compile_tree(plan, binding), "compile the file tree");
    artifact.bootstrap = TRY_WITH(compile_bootstrap(plan, binding), "compile the bootstrap record");
    artifact.filters = TRY(filter_digests(plan.content()));
    artifact.service = service_of(plan.content());
    return artifact;
}

Result<std::string> render(const OciArtifact& artifact)
{
    const canon::Json json{{"driver", "oci"},
                           {"config", TRY(canon::parse(artifact.config_json))},
                           {"config_digest", artifact.digest},
                           {"tree", tree_json(artifact.steps)},
                           {"bootstrap", hex_json(artifact.bootstrap)},
                           {"cgroup", cgroup_json(artifact.service)},
                           {"service", service_json(artifact.service)}};
    return canon::serialize(json);
}

}  // namespace sandbox::driver::oci
