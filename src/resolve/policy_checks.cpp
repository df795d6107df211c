// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include "profile/normal.hpp"

namespace sandbox::resolve {

namespace name = facts::name;
using profile::RuleAction;

namespace {

void refuse(Draft& draft, const SourceLocation& source, std::string reason, std::string key,
            std::string requirement, std::string fact, std::string mend)
{
    draft.deny({.denial_class = DenialClass::policy_denied,
                .reason = std::move(reason),
                .key = std::move(key),
                .requirement = std::move(requirement),
                .fact = std::move(fact),
                .mend = std::move(mend),
                .source = source});
}

// "drivers" -> the permitted set as text, for a person to choose from. From the policy's own
// explanation, so that both say the same.
std::string permitted(const policy::EffectivePolicy& policy, std::string_view key)
{
    for (const policy::Decision& decision : policy.decisions()) {
        if (decision.key == key) return decision.value;
    }
    return "(nothing)";
}

void check_member(Draft& draft, std::string_view policy_key, const std::string& value,
                  std::string_view reason, std::string key)
{
    const policy::EffectivePolicy& policy = draft.policy();
    if (policy.permits(policy_key, value)) return;
    // The line that refuses is the source: it is the one that would have to change.
    const SourceLocation source = policy.refuser(policy_key, value);
    const std::string choice = permitted(policy, policy_key);
    refuse(draft, source, std::string(reason), std::move(key), value,
           "bundle " + source.file + " line " + std::to_string(source.line) + ": " +
               std::string(policy_key) + " permits " + choice,
           "choose what " + std::string(policy_key) +
               " permits, or have the bundle's owner permit it");
}

void check_sets(Draft& draft)
{
    // Each set is asked, though the first refusal would do: all denials are told at once.
    const profile::Profile& profile = draft.profile();
    check_member(draft, "isolation", std::string(to_string(profile.isolation)),
                 "isolation-not-permitted", "isolation");
    // The driver that was chosen, also when the profile named none.
    check_member(draft, "drivers", std::string(to_string(draft.plan.driver)),
                 "driver-not-permitted", profile.driver ? "driver" : "isolation");
    check_member(draft, "isolation_classes",
                 std::string(plan::to_string(draft.plan.isolation_class)),
                 "isolation-class-not-permitted", "isolation");
    check_member(draft, "network_modes", std::string(to_string(profile.network.mode)),
                 "network-mode-not-permitted", "network.mode");
    check_member(draft, "seccomp", std::string(to_string(profile.security.seccomp)),
                 "seccomp-not-permitted", "security.seccomp");
    check_member(draft, "users", profile::format_user(profile.process.user), "user-not-permitted",
                 "process.user");
    for (const std::string& capability : profile.security.capabilities) {
        check_member(draft, "capabilities", capability, "capability-not-permitted",
                     "security.capabilities");
    }
    for (const profile::NetworkRule& rule : profile.network.rules) {
        // A rule that denies permits nothing, so no bundle has to permit it.
        if (rule.action != RuleAction::allow) continue;
        check_member(draft, "egress_hosts", rule.host, "egress-host-not-permitted",
                     "network.allow");
    }
}

void check_sources(Draft& draft)
{
    const profile::Profile& profile = draft.profile();
    for (std::size_t i = 0; i < profile.mounts.size(); ++i) {
        // A tmpfs has no source, and a volume is refused elsewhere.
        if (profile.mounts[i].type != profile::MountType::bind) continue;
        check_member(draft, "mount_sources", profile.mounts[i].source, "mount-source-not-permitted",
                     "mount[" + std::to_string(i) + "].source");
    }
    // A folder as root shows the host's files just as a bind does.
    if (const auto* dir = std::get_if<profile::DirRootfs>(&profile.rootfs.source)) {
        check_member(draft, "mount_sources", dir->path.str(), "mount-source-not-permitted",
                     "rootfs.source");
    }
}

// `asked` is nothing where the profile sets no limit: that is wider than any maximum.
void check_maximum(Draft& draft, std::string_view policy_key, std::string key,
                   const std::optional<std::uint64_t>& asked, std::uint64_t most,
                   const std::string& asked_text, const std::string& most_text)
{
    if (asked && *asked <= most) return;
    const SourceLocation source = draft.policy().source_of(policy_key);
    // "memory" of "resources.memory": reason codes are stable and name the last word.
    std::string name = key.substr(key.rfind('.') + 1);
    refuse(draft, source, name + (asked ? "-above-maximum" : "-unlimited"), key,
           asked ? name + " = " + asked_text : "no limit is set",
           "bundle " + source.file + " line " + std::to_string(source.line) + ": at most " +
               most_text,
           "set " + key + " to at most " + most_text);
}

void check_memory(Draft& draft, Bytes most)
{
    const profile::Resources& resources = draft.profile().resources;
    std::optional<std::uint64_t> asked;
    std::string text;
    std::string key = "resources.memory";
    if (draft.plan.microvm) {
        // What the host gives is the whole machine, whatever a workload may fill of it.
        asked = draft.plan.microvm->memory.count;
        text = format(draft.plan.microvm->memory);
        key = "microvm.memory";
    } else if (resources.memory) {
        // No swap said means none, see resources.cpp.
        const std::uint64_t swap = resources.swap.value_or(Bytes{0}).count;
        asked = resources.memory->count;
        text = format(*resources.memory);
        // Swap is memory that lies elsewhere: together they are what the sandbox may fill.
        if (swap > 0) {
            asked = *asked > UINT64_MAX - swap ? UINT64_MAX : *asked + swap;
            text += " with swap = " + format(Bytes{swap});
        }
    }
    check_maximum(draft, "max.memory", std::move(key), asked, most.count, text, format(most));
}

void check_ttl(Draft& draft, Millis most)
{
    const profile::Profile& profile = draft.profile();
    // A main process that is ended in time ends its sandbox, which nothing restarts.
    const bool ends = !profile.process.idle &&
                      profile.lifecycle.restart == profile::RestartPolicy::no &&
                      profile.process.timeout && *profile.process.timeout <= most;
    // A main process with a time-out is a ttl by another name.
    if (!profile.lifecycle.ttl && ends) return;
    std::optional<std::uint64_t> asked;
    std::string text;
    if (profile.lifecycle.ttl) {
        asked = static_cast<std::uint64_t>(profile.lifecycle.ttl->count());
        text = format_duration(*profile.lifecycle.ttl);
    }
    check_maximum(draft, "max.ttl", profile.lifecycle.ttl ? "lifecycle.ttl" : "process.timeout",
                  asked, static_cast<std::uint64_t>(most.count()), text, format_duration(most));
}

void check_maxima(Draft& draft)
{
    const policy::Maxima& max = draft.policy().limits().max;
    const profile::Resources& resources = draft.profile().resources;
    if (max.memory) check_memory(draft, *max.memory);
    if (max.cpus) {
        std::optional<std::uint64_t> asked;
        if (resources.cpus) {
            asked = resources.cpus->count;
        } else if (draft.plan.microvm) {
            // A machine uses no more processors than it has.
            asked = std::uint64_t{draft.plan.microvm->cpus} * 1000;
        }
        const std::string text = asked ? format(MilliCpus{static_cast<std::uint32_t>(*asked)}) : "";
        const bool sized = draft.plan.microvm && !resources.cpus;
        check_maximum(draft, "max.cpus", sized ? "microvm.cpus" : "resources.cpus", asked,
                      max.cpus->count, text, format(*max.cpus));
    }
    if (max.pids) {
        check_maximum(draft, "max.pids", "resources.pids", resources.pids, *max.pids,
                      std::to_string(resources.pids), std::to_string(*max.pids));
    }
    if (max.ttl) check_ttl(draft, *max.ttl);
    // max.sandboxes counts what runs: a control of the supervisor's (controls.cpp).
}

void check_demands(Draft& draft)
{
    const policy::Demands& require = draft.policy().limits().require;
    const auto source = [&](std::string_view key) { return draft.policy().source_of(key); };
    // What a bundle demands and cannot be had is a denial, whatever else would hold.
    if (require.read_only_rootfs && !draft.profile().rootfs.read_only) {
        refuse(draft, source("require.read_only_rootfs"), "rootfs-not-read-only",
               "rootfs.read_only", "read_only = false", "the bundle requires a read-only root",
               "set rootfs.read_only = true and use tmpfs mounts for what is written");
    }
    if (require.cgroup_v2 && draft.value_of(name::kCgroupHierarchy) != "v2") {
        refuse(draft, source("require.cgroup_v2"), "cgroup-v2-required", "resources",
               "limits are held by cgroup v2", draft.describe(name::kCgroupHierarchy),
               "boot the host with systemd.unified_cgroup_hierarchy=1");
    }
    // "default": a certified version whose digest is recorded, but no operator vouched for it.
    const auto pinned = draft.plan.microvm                             ? name::kVmmPinned
                        : draft.plan.driver == profile::Driver::native ? name::kDriverNative
                                                                       : name::kOciRuntimePinned;
    if (require.pinned_digests && (!draft.rely_on(pinned) || draft.value_of(pinned) == "default")) {
        refuse(draft, source("require.pinned_digests"), "digests-not-pinned", "driver",
               "artifacts are pinned by the operator", draft.describe(pinned),
               "run sandboxctl config init and keep what it writes");
    }
    // Not built: a demand that nothing enforces is refused, never ignored.
    if (require.log_retention) {
        refuse(draft, source("require.log_retention"), "log-retention-not-enforceable", "",
               "logs are kept for " + format_duration(*require.log_retention),
               "logs are bounded by size and rotated, not kept by age",
               "remove require.log_retention and ship the logs to a store that keeps them");
    }
}

}  // namespace

void check_policy(Draft& draft)
{
    // Recorded even if every launch is denied: the audit names the policy that did it.
    draft.plan.policy_digest = draft.policy().digest();
    for (const policy::BrokenBundle& broken : draft.policy().broken()) {
        refuse(draft, {broken.file, 0, 0}, "bundle-broken", "",
               "every organisation bundle can be read and is valid", broken.why,
               "mend " + broken.file + "; until then every launch is denied");
    }
    // A broken bundle permits nothing: every check below would only repeat that.
    if (!draft.policy().broken().empty()) return;
    check_sets(draft);
    check_sources(draft);
    check_maxima(draft);
    check_demands(draft);
}

}  // namespace sandbox::resolve
