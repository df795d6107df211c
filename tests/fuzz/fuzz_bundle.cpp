// SPDX-License-Identifier: Apache-2.0
#include "diagnostics.hpp"
#include "policy/pattern.hpp"
#include "policy/policy.hpp"

// An organisation's bundle: located diagnostics, or a meet that never widens: with it beside
// another, exactly what both permit is permitted, in any order and however often it is named.
namespace sandbox::fuzz {

namespace {

using policy::EffectivePolicy;
using policy::LocatedBundle;

constexpr std::string_view kOther = R"(version = 1
name = "other"
drivers = ["oci", "microvm"]
isolation = ["sandbox"]
network_modes = ["none", "egress"]
egress_hosts = ["*.example.com", "api.example.net", "10.0.0.1"]
mount_sources = ["/srv", "/home/user/work"]
capabilities = ["CAP_CHOWN"]
users = ["1000:*", "1001:1001"]
[max]
memory = "1GiB"
cpus = 2
pids = 256
ttl = "1h"
[require]
read_only_rootfs = true
)";

// Values around the members of a set: each itself, and things just inside and outside.
std::vector<std::string> samples_of(const policy::PermittedSet& a, const policy::PermittedSet& b)
{
    std::vector<std::string> values{"oci",           "sandbox",   "none",      "/",       "/srv/x",
                                    "a.example.com", "1000:1000", "CAP_CHOWN", "default", ""};
    for (const policy::PermittedSet* set : {&a, &b}) {
        if (!*set) continue;
        for (const std::string& member : **set) {
            values.push_back(member);
            values.push_back(member + "/below");
            values.push_back("sub." + member);
            if (member.starts_with("*.")) values.push_back("x" + member.substr(1));
            if (member.ends_with(":*")) values.push_back(member.substr(0, member.size() - 1) + "7");
        }
    }
    return values;
}

template <class T>
bool is_lower(const std::optional<T>& met, const std::optional<T>& a, const std::optional<T>& b)
{
    if (!a || !b) return met == (a ? a : b);
    return met == std::min(*a, *b);
}

void check_meet(const LocatedBundle& one, const LocatedBundle& other)
{
    const auto alone = EffectivePolicy::meet({one});
    const auto without = EffectivePolicy::meet({other});
    const auto both = EffectivePolicy::meet({one, other});
    HOLDS(both.digest() == EffectivePolicy::meet({other, one}).digest());
    HOLDS(both.digest() == EffectivePolicy::meet({one, other, one}).digest());
    for (const policy::SetKey& set : policy::kSetKeys) {
        for (const std::string& value :
             samples_of(one.bundle.*set.member, other.bundle.*set.member)) {
            const bool allowed = both.permits(set.key, value);
            HOLDS(allowed == (alone.permits(set.key, value) && without.permits(set.key, value)));
            HOLDS(allowed == both.refuser(set.key, value).file.empty());
        }
    }
    const policy::Maxima& a = one.bundle.max;
    const policy::Maxima& b = other.bundle.max;
    const policy::Maxima& met = both.limits().max;
    HOLDS(is_lower(met.memory, a.memory, b.memory) && is_lower(met.cpus, a.cpus, b.cpus));
    HOLDS(is_lower(met.pids, a.pids, b.pids) && is_lower(met.ttl, a.ttl, b.ttl));
    HOLDS(is_lower(met.sandboxes, a.sandboxes, b.sandboxes));
    HOLDS(both.limits().require.read_only_rootfs);
    HOLDS(!one.bundle.require.pinned_digests || both.limits().require.pinned_digests);
    HOLDS(!one.bundle.require.cgroup_v2 || both.limits().require.cgroup_v2);
    HOLDS(is_safe_text(policy::render_explain(both), "\n"));
}

}  // namespace

FUZZ_TARGET(bundle)
{
    static const policy::ParsedBundle other = policy::parse_bundle(kOther, "other.toml");
    HOLDS(other.bundle.has_value());
    const policy::ParsedBundle parsed = policy::parse_bundle(input, kFileName);
    check_diagnostics(parsed.diagnostics, input);
    HOLDS(parsed.bundle.has_value() == parsed.diagnostics.empty());
    if (parsed.bundle) {
        for (const auto& [key, at] : parsed.bundle->where) HOLDS(lies_in(at, input));
        check_meet(*parsed.bundle, *other.bundle);
        return;
    }
    // A file that cannot be used denies everything.
    const auto broken = EffectivePolicy::meet({*other.bundle}, {{kFileName, "unreadable"}});
    HOLDS(!broken.permits("drivers", "oci") && !broken.permits("network_modes", "none"));
}

}  // namespace sandbox::fuzz
