// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include <charconv>
#include <optional>

namespace sandbox::resolve {

namespace name = facts::name;

namespace {

// Debian's own default for root (/etc/login.defs ENV_SUPATH): nothing below a home or /opt.
constexpr std::string_view kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
// The root folder: a workspace as home would let its files configure every tool started there.
constexpr std::string_view kHome = "/";

// Plenty for servers, small enough that a workload cannot pin the host's file table (fs.file-max).
// A choice of ours.
constexpr std::uint64_t kOpenFiles = 16384;

std::optional<std::uint64_t> number(std::string_view text)
{
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || text.empty() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

void resolve_rlimits(Draft& draft)
{
    auto& rlimits = draft.plan.process.rlimits;
    // The plan holds every limit that will be set: none is inherited from whoever launches.
    rlimits = draft.profile().process.rlimits;
    // A core file of a workload is written where the host's core_pattern says: outside.
    // Before the file limit: a profile that names "core" has its own word (try_emplace).
    rlimits.try_emplace("core", 0);

    // A guest's PID 1 has a kernel of its own and may raise what it likes.
    const bool guest = draft.plan.driver == profile::Driver::microvm;
    const auto hard = guest ? std::nullopt : number(draft.value_of(name::kRlimitNofile));
    const auto asked = rlimits.find("nofile");
    if (asked == rlimits.end()) {
        rlimits["nofile"] = hard ? std::min(*hard, kOpenFiles) : kOpenFiles;
        return;
    }
    // Raising a hard limit takes CAP_SYS_RESOURCE, which we may not hold and never give.
    // Denied and not lowered: a plan says what will be in force.
    if (hard && asked->second > *hard) {
        draft.deny({.denial_class = DenialClass::required_control_unavailable,
                    .reason = "rlimit-above-hard-limit",
                    .key = "process.rlimits.nofile",
                    .requirement = "nofile = " + std::to_string(asked->second),
                    .fact = draft.describe(name::kRlimitNofile),
                    .mend = "ask for at most " + std::to_string(*hard) + ", or " +
                            std::string(facts::mend(name::kRlimitNofile)),
                    .source = {}});
    }
}

}  // namespace

void resolve_process(Draft& draft)
{
    const profile::Process& asked = draft.profile().process;
    plan::ProcessPlan& process = draft.plan.process;
    process.argv = asked.argv;
    process.idle = asked.idle;
    process.env = asked.env;
    // Only where the profile says nothing: its own words stand.
    process.env.try_emplace("PATH", kPath);
    process.env.try_emplace("HOME", kHome);
    process.cwd = asked.cwd;
    process.uid = asked.user.uid;
    process.gid = asked.user.gid;
    process.umask = asked.umask;
    process.terminal = asked.terminal;
    process.timeout = asked.timeout;
    resolve_rlimits(draft);
    // Ids outside the map have no meaning inside and would be nobody's.
    // After security.id_count, whose default is set with the plan's type.
    if (process.uid >= draft.plan.security.id_count ||
        process.gid >= draft.plan.security.id_count) {
        draft.deny({.denial_class = DenialClass::unsupported_requirement,
                    .reason = "user-outside-id-map",
                    .key = "process.user",
                    .requirement = std::to_string(process.uid) + ":" + std::to_string(process.gid),
                    .fact = "a sandbox has the ids 0 to " +
                            std::to_string(draft.plan.security.id_count - 1),
                    .mend = "use ids below " + std::to_string(draft.plan.security.id_count),
                    .source = {}});
    }
}

}  // namespace sandbox::resolve
