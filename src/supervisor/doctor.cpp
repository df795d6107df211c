// SPDX-License-Identifier: Apache-2.0
#include "supervisor/doctor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "probe/certified.hpp"

namespace sandbox::supervisor {

namespace {

namespace name = facts::name;
using facts::FactStatus;

// Host duties: what no sandbox can do for itself. Shown apart from the facts.
constexpr std::array<std::string_view, 6> kDuties{name::kHostSmt,         name::kHostKsm,
                                                  name::kHostSwap,        name::kHostMitigations,
                                                  name::kHostCorePattern, name::kLegacyTiocsti};

bool is_duty(std::string_view fact) { return std::ranges::find(kDuties, fact) != kDuties.end(); }

// The value of a duty that leaves something to do.
bool is_neglected(std::string_view duty, std::string_view value)
{
    if (duty == name::kHostMitigations) return value.starts_with("vulnerable");
    if (duty == name::kHostCorePattern) return value == "pipe";
    if (duty == name::kLegacyTiocsti) return value == "1";
    return value == "on";
}

// A gap in these stops the driver that `isolation = "sandbox"` means; others only narrow what a
// profile may ask.
constexpr std::array<std::string_view, 14> kBaseline{
    name::kUserNamespace, name::kMountNamespace, name::kPidNamespace, name::kIpcNamespace,
    name::kUtsNamespace,  name::kNetNamespace,   name::kSeccomp,      name::kNoNewPrivileges,
    name::kCgroupParent,  name::kCgroupPids,     name::kCgroupKill,   name::kPidfd,
    name::kMemfdSeal,     name::kSubordinateIds};

bool is_baseline(std::string_view fact)
{
    return std::ranges::find(kBaseline, fact) != kBaseline.end();
}

// The fact of the driver that `isolation = "sandbox"` means on this host.
std::string default_driver_fact(const facts::CapabilitySnapshot& snapshot)
{
    return "driver." + std::string(snapshot.value(name::kDefaultDriver));
}

Severity severity_of(const DoctorInput& input, std::string_view fact, FactStatus status)
{
    if (status == FactStatus::ok) return Severity::ok;
    if (status == FactStatus::note) return Severity::note;
    // Serious is what stops every launch; what stops only some profiles is a warning.
    if (is_baseline(fact) || fact == name::kDefaultDriver) return Severity::serious;
    if (fact == default_driver_fact(input.snapshot)) return Severity::serious;
    return Severity::warning;
}

// kvm_pvm opens, makes machines and vCPUs, halts and prints; people would not believe the gap.
std::string explain(std::string_view fact, const facts::Fact& found)
{
    if (fact == name::kKvm && found.status == FactStatus::gap &&
        found.evidence.find("kvm_pvm") != std::string::npos) {
        return "this host's /dev/kvm is kvm_pvm, KVM without hardware virtualisation. It emulates "
               "single instructions, so /dev/kvm opens and simple guests halt, but it delivers no "
               "interrupt to a stock kernel: QEMU with -accel kvm hangs";
    }
    return {};
}

// What the prober found, not geteuid() of today: the snapshot may be another host's.
bool is_ordinary_user(const facts::CapabilitySnapshot& snapshot)
{
    return snapshot.value(name::kPrivilege) == "user";
}

// What the prober was not permitted to try says nothing about the kernel. The texts are strerror's.
bool is_refusal(std::string_view evidence)
{
    return evidence.find("Operation not permitted") != std::string_view::npos ||
           evidence.find("Permission denied") != std::string_view::npos;
}

// A driver that is configured and still unusable needs another mend than one that is not.
std::string mend_for(const facts::CapabilitySnapshot& snapshot, std::string_view fact,
                     const facts::Fact& found, const FactHelp& help)
{
    // Before the other mends: to mend what was only refused would be work for nothing.
    if (is_ordinary_user(snapshot) && is_refusal(found.evidence)) {
        return "this user may not try it: run doctor as root to judge the host";
    }
    const bool configured = found.evidence.find("config.toml") == std::string::npos;
    if (fact == name::kDriverOci && configured && !found.evidence.empty()) {
        return "mend the facts that `seen` names";
    }
    return std::string(help.mend);
}

Finding judge(const DoctorInput& input, const std::string& fact, const facts::Fact& found)
{
    const FactHelp help = help_for(fact);
    Finding finding;
    finding.name = fact;
    finding.severity = severity_of(input, fact, found.status);
    finding.value = found.value;
    finding.evidence = found.evidence;
    finding.why = help.why;
    if (found.status == FactStatus::gap) {
        finding.mend = mend_for(input.snapshot, fact, found, help);
    }
    const std::string words = explain(fact, found);
    if (!words.empty()) finding.why += (finding.why.empty() ? "" : "; ") + words;
    return finding;
}

Finding judge_duty(const std::string& duty, const facts::Fact& found)
{
    const FactHelp help = help_for(duty);
    const bool neglected = is_neglected(duty, found.value);
    return {duty,
            neglected ? Severity::warning : Severity::ok,
            found.value,
            found.evidence,
            std::string(help.why),
            neglected ? std::string(help.mend) : std::string()};
}

void add_advisories(const facts::CapabilitySnapshot& snapshot, DoctorReport& report)
{
    // The two tools whose version a pin can hold back from a fix; our own programs come with the
    // release.
    constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kTools{
        {{"crun", name::kOciRuntimeVersion}, {"qemu", name::kVmmVersion}}};
    for (const auto& [tool, fact] : kTools) {
        const std::string version(snapshot.value(fact));
        if (version.empty()) continue;
        for (const probe::Advisory& advisory : probe::advisories(tool, version)) {
            const std::string fix =
                advisory.fixed_in.empty()
                    ? fmt::format("no fix is known up to {}", advisory.last_bad)
                    : fmt::format("fixed in {}: use a certified version from there on when one is "
                                  "offered",
                                  advisory.fixed_in);
            report.advisories.push_back(
                {std::string(advisory.id), Severity::warning, fmt::format("{} {}", tool, version),
                 std::string(advisory.summary), std::string(advisory.exposure), fix});
        }
    }
}

void add_policy(const DoctorInput& input, DoctorReport& report)
{
    for (const policy::BrokenBundle& broken : input.broken) {
        report.policy.push_back({"policy:" + broken.file, Severity::serious, "broken", broken.why,
                                 "a bundle that cannot be used denies every launch",
                                 "repair the file, make it root's and 0644, or remove it"});
    }
    for (const policy::LocatedBundle& located : input.bundles) {
        const policy::Bundle& bundle = located.bundle;
        // In the past it still binds (docs: a policy does not fall open by getting old); hence a
        // warning.
        const bool past = !bundle.valid_until.empty() && is_past(bundle.valid_until, input.now);
        report.policy.push_back(
            {"policy." + bundle.name, past ? Severity::warning : Severity::ok,
             bundle.valid_until.empty() ? "no end" : "valid until " + bundle.valid_until,
             past ? "it is now " + input.now : "",
             past ? "it keeps binding, and somebody ought to have renewed it" : "",
             past ? "renew the bundle or remove it" : ""});
    }
}

void add_profile(const DoctorInput& input, DoctorReport& report)
{
    report.profile_name = input.profile;
    // A denial is serious by nature: doctor was asked about this profile.
    for (const resolve::Denial& denial : input.denials) {
        report.profile.push_back({denial.key.empty() ? denial.reason : denial.key,
                                  Severity::serious,
                                  std::string(resolve::to_string(denial.denial_class)), denial.fact,
                                  denial.requirement, denial.mend});
    }
}

// One need of a launch without root, from the fact that would meet it.
Finding user_need(const facts::CapabilitySnapshot& snapshot, std::string_view fact,
                  std::string name, std::string why, std::string mend)
{
    const facts::Fact* found = snapshot.find(fact);
    const bool met = found != nullptr && found->status == FactStatus::ok;
    Finding finding{std::move(name),
                    met ? Severity::ok : Severity::warning,
                    met ? found->value : std::string(),
                    found == nullptr ? std::string() : found->evidence,
                    std::move(why),
                    {}};
    if (!met) finding.mend = std::move(mend);
    return finding;
}

// What an ordinary user needs, each by itself: one that is missing stops every launch.
void add_user(const facts::CapabilitySnapshot& snapshot, DoctorReport& report)
{
    if (!is_ordinary_user(snapshot)) return;
    report.user.push_back(user_need(
        snapshot, name::kDriverNative, "driver", "of the drivers only native launches without root",
        "mend what `seen` names; or run as root, or have root run sandboxd and join the group "
        "sandbox, which is root-equivalent"));
    if (report.user.back().severity != Severity::ok)
        report.user.back().severity = Severity::serious;
    report.user.push_back(user_need(snapshot, name::kUserNamespace, "user namespace",
                                    "an ordinary user is root of nothing else",
                                    "set user.max_user_namespaces above 0 (sysctl)"));
    report.user.push_back(user_need(snapshot, name::kNewuidmap, "newuidmap",
                                    "only it may map more than the user's own id",
                                    "install uidmap"));
    report.user.push_back(
        user_need(snapshot, name::kSubordinateIds, "subordinate ids",
                  "a sandbox has 65536 ids, none of them the user's; so many sandboxes run at once "
                  "as the range holds",
                  "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER, "
                  "with ids nobody else has"));
    report.user.push_back(user_need(
        snapshot, name::kCgroupParent, "delegated cgroup",
        "limits always hold: there is no launch without a cgroup of one's own",
        "on cgroup v2 under systemd: systemd-run --user --scope -p Delegate=yes sandboxctl …, or a "
        "user unit with Delegate=yes; else have root make a cgroup that is yours (in each hierarchy) "
        "and name one below it as cgroup_parent in config.toml"));
}

// "2026-01-31" or "2026-01-31T10:00:00Z" at least as long as wanted, digits where digits belong.
bool has_shape(std::string_view text, std::string_view shape)
{
    if (text.size() != shape.size()) return false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const bool digit = text[i] >= '0' && text[i] <= '9';
        if (shape[i] == '9' ? !digit : text[i] != shape[i]) return false;
    }
    return true;
}

constexpr std::string_view kDateShape = "9999-99-99";
constexpr std::string_view kTimeShape = "9999-99-99T99:99:99";

// Days since 1970-01-01 of the proleptic Gregorian calendar (H. Hinnant, chrono-compatible date
// algorithms).
std::int64_t days(std::int64_t year, std::int64_t month, std::int64_t day)
{
    year -= month <= 2 ? 1 : 0;
    // No year before 1 is met here: the division need not floor.
    const std::int64_t era = year / 400;
    const std::int64_t of_era = year - era * 400;
    const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

std::int64_t digits(std::string_view text, std::size_t at, std::size_t count)
{
    std::int64_t value = 0;
    for (std::size_t i = at; i < at + count; ++i) value = value * 10 + (text[i] - '0');
    return value;
}

// The offset of RFC 3339 in seconds: "Z", "+02:00", "-05:30".
std::optional<std::int64_t> offset_of(std::string_view text)
{
    if (text == "Z" || text == "z") return 0;
    if (!has_shape(text, "+99:99") && !has_shape(text, "-99:99")) return std::nullopt;
    const std::int64_t seconds = digits(text, 1, 2) * 3600 + digits(text, 4, 2) * 60;
    return text.front() == '-' ? -seconds : seconds;
}

// Seconds since 1970, UTC. A date alone is the last second of it.
std::optional<std::int64_t> seconds_of(std::string_view text)
{
    constexpr std::int64_t kDay = 86400;
    if (text.size() < kDateShape.size() ||
        !has_shape(text.substr(0, kDateShape.size()), kDateShape)) {
        return std::nullopt;
    }
    const std::int64_t date = days(digits(text, 0, 4), digits(text, 5, 2), digits(text, 8, 2));
    if (text.size() == kDateShape.size()) return date * kDay + kDay - 1;
    // RFC 3339, 5.6: "T" may be small, or a space for readability.
    std::string time(text.substr(0, std::min(text.size(), kTimeShape.size())));
    if (time.size() > 10 && (time[10] == 't' || time[10] == ' ')) time[10] = 'T';
    if (!has_shape(time, kTimeShape)) return std::nullopt;
    std::string_view rest = text.substr(kTimeShape.size());
    // A fraction of a second decides nothing here.
    if (rest.starts_with('.')) {
        const std::size_t end = rest.find_first_not_of("0123456789", 1);
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end);
    }
    const auto offset = offset_of(rest);
    if (!offset) return std::nullopt;
    return date * kDay + digits(time, 11, 2) * 3600 + digits(time, 14, 2) * 60 +
           digits(time, 17, 2) - *offset;
}

}  // namespace

std::string_view to_string(Severity severity) noexcept
{
    switch (severity) {
    case Severity::ok: return "ok";
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::serious: return "serious";
    }
    return "serious";
}

bool is_past(std::string_view valid_until, std::string_view now)
{
    // A text of another shape counts as past: an unreadable end is no reason to be at ease.
    const auto end = seconds_of(valid_until);
    const auto moment = seconds_of(now);
    return !end || !moment || *moment > *end;
}

DoctorReport examine(const DoctorInput& input)
{
    DoctorReport report;
    for (const auto& [fact, found] : input.snapshot.facts()) {
        if (is_duty(fact))
            report.duties.push_back(judge_duty(fact, found));
        else
            report.facts.push_back(judge(input, fact, found));
    }
    // A snapshot of an older release knows fewer facts; each one missing is shown as a gap.
    for (const std::string_view fact : facts::all_names()) {
        if (input.snapshot.find(fact) != nullptr) continue;
        const facts::Fact unknown{FactStatus::gap, {}, "the snapshot does not know it"};
        report.facts.push_back(judge(input, std::string(fact), unknown));
    }
    // By name: a person looks for one, and two runs can be compared.
    std::ranges::sort(report.facts, {}, &Finding::name);
    add_advisories(input.snapshot, report);
    add_policy(input, report);
    add_user(input.snapshot, report);
    add_profile(input, report);
    return report;
}

int exit_status(const DoctorReport& report)
{
    const auto has_serious = [](const std::vector<Finding>& findings) {
        return std::ranges::any_of(
            findings, [](const Finding& finding) { return finding.severity == Severity::serious; });
    };
    // A profile's own resolution decides for it: a gap that it does not need is no failure.
    // First: a broken bundle denies every launch, whatever else is fine.
    if (has_serious(report.policy)) return 1;
    if (report.profile_name) return has_serious(report.profile) ? 1 : 0;
    return has_serious(report.facts) || has_serious(report.user) ? 1 : 0;
}

}  // namespace sandbox::supervisor
