// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "probe/artifacts.hpp"
#include "probe/tasks.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;

// What the fact's value is; the other of the two is its evidence.
enum class Value { path, digest };

Finding check_file(const ArtifactSetting& setting, Tool tool, Value value)
{
    const auto artifact = open_artifact(tool, setting.path);
    if (!artifact) return missing(artifact.error().message());
    // A pin that does not match is a gap even if nothing uses the file: the operator said which one
    // it is.
    const Finding pin = pin_problem(setting, artifact->digest);
    if (pin.status != facts::FactStatus::ok) return pin;
    return value == Value::path ? found(setting.path, artifact->digest)
                                : found(artifact->digest, setting.path);
}

// Three facts from one look at the file.
void check_vmm(const Reporter& out, const ArtifactSetting& setting)
{
    const auto artifact = open_artifact(Tool::qemu, setting.path);
    if (!artifact) {
        // All three: a fact that is not reported would be "not probed".
        const Finding gap = missing(artifact.error().message());
        for (const auto fact : {name::kVmmPath, name::kVmmDigest, name::kVmmVersion}) {
            out.report(fact, gap);
        }
        return;
    }
    out.report(name::kVmmPath, found(setting.path, "regular file, owner and mode checked"));
    // Executed only when it is the pinned one.
    const Finding pin = pin_problem(setting, artifact->digest);
    if (pin.status != facts::FactStatus::ok) {
        out.report(name::kVmmDigest, pin);
        out.report(name::kVmmVersion, missing("not executed: " + pin.evidence));
        return;
    }
    out.report(name::kVmmDigest, found(artifact->digest, setting.path));
    const auto version = ask_version(Tool::qemu, artifact->executable.get());
    out.report(name::kVmmVersion, version ? found(*version, setting.path + " --version")
                                          : missing(version.error().message()));
}

}  // namespace

Task program_task(const ProbeSettings& settings)
{
    Task task;
    task.label = "programs";
    task.names = {name::kInitDigest,      name::kShimDigest,  name::kVirtiofsd,
                  name::kVirtiofsdDigest, name::kGuestKernel, name::kGuestInitrd};
    // Each file by itself: one that is missing does not hide the others.
    task.body = [settings](const Reporter& out) {
        out.report(name::kInitDigest, check_file(settings.init, Tool::own, Value::digest));
        out.report(name::kShimDigest, check_file(settings.shim, Tool::own, Value::digest));
        const Finding server = check_file(settings.virtiofsd, Tool::virtiofsd, Value::path);
        out.report(name::kVirtiofsd, server);
        // The digest is the evidence of the path: one reading gives both.
        out.report(name::kVirtiofsdDigest, server.status == facts::FactStatus::ok
                                               ? found(server.evidence, server.value)
                                               : server);
        out.report(name::kGuestKernel,
                   check_file(settings.guest_kernel, Tool::data, Value::digest));
        out.report(name::kGuestInitrd,
                   check_file(settings.guest_initrd, Tool::data, Value::digest));
    };
    return task;
}

// Apart from the other programs: it is the one that is executed.
Task vmm_task(const ProbeSettings& settings)
{
    Task task;
    task.label = "vmm";
    task.names = {name::kVmmPath, name::kVmmDigest, name::kVmmVersion};
    task.body = [setting = settings.vmm](const Reporter& out) { check_vmm(out, setting); };
    return task;
}

}  // namespace sandbox::probe
