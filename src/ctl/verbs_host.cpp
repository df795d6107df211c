// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "ctl/output.hpp"
#include "ctl/request.hpp"
#include "ctl/service.hpp"
#include "ctl/verbs.hpp"
#include "driver/backend.hpp"
#include "shim/audit_log.hpp"
#include "shim/control_protocol.hpp"
#include "supervisor/doctor.hpp"
#include "supervisor/embedded.hpp"
#include "supervisor/inspect.hpp"
#include "supervisor/planning.hpp"
#include "wire/protocol.hpp"

namespace sandbox::ctl {

namespace {

constexpr const char* kVersion = SANDBOX_VERSION;

canon::Json to_json(const supervisor::Report& report)
{
    const auto lines = [](const std::vector<supervisor::ReportLine>& list) {
        canon::Json json = canon::Json::array();
        for (const auto& line : list) {
            json.push_back({{"id", line.id.str()}, {"what", line.what}, {"why", line.why}});
        }
        return json;
    };
    return {{"sandboxes", report.sandboxes},
            {"found", lines(report.found)},
            {"removed", lines(report.removed)},
            {"left", lines(report.left)},
            {"now_resting", lines(report.now_resting)}};
}

std::string render(const supervisor::Report& report)
{
    std::vector<std::vector<std::string>> rows;
    const auto add = [&](const char* label, const std::vector<supervisor::ReportLine>& lines) {
        for (const auto& line : lines) {
            // 12 digits of an id: enough for a person, as docker shows them.
            rows.push_back({label, line.id.str().substr(0, 12), line.what, line.why});
        }
    };
    add("found", report.found);
    add("removed", report.removed);
    add("left alone", report.left);
    add("now", report.now_resting);
    return table(rows) + std::to_string(report.sandboxes) + " sandboxes looked at; " +
           (report.clean() ? "nothing to do\n"
                           : std::to_string(report.removed.size()) + " things removed\n");
}

}  // namespace

int execute(const Context& context, const ConfigInit& verb)
{
    // Without a service: the config is what a service needs to begin.
    const auto paths = supervisor::find_paths(context.root);
    const auto report = supervisor::config_init(paths.config, paths.program_dir,
                                                verb.force ? supervisor::Overwrite::yes
                                                           : supervisor::Overwrite::no,
                                                paths.state + "/guest");
    if (!report) return complain(report.error()), kFailed;
    print(supervisor::render(*report));
    return supervisor::exit_status(*report);
}

int execute(const Context& context, const ConfigCheck& /*verb*/)
{
    const auto paths = supervisor::find_paths(context.root);
    const auto report = supervisor::config_check(paths.config, paths.program_dir);
    const Format format = context.format.value_or(Format::table);
    if (format == Format::table)
        print(supervisor::render(report));
    else
        print(supervisor::to_json(report), format);
    return supervisor::exit_status(report);
}

int execute(const Context& context, const Probe& /*verb*/)
{
    const auto paths = supervisor::locate(context.root);
    if (!paths) return complain(paths.error()), kFailed;
    // Freshly probed: who asks wants to know how it is now. May take seconds.
    const auto host = supervisor::load_host(*paths, supervisor::Freshness::probed);
    if (!host) return complain(host.error()), kFailed;
    const Format format = context.format.value_or(Format::table);
    if (format != Format::table) return print(facts::to_json(host->snapshot), format), 0;
    std::vector<std::vector<std::string>> rows{{"FACT", "STATUS", "VALUE", "EVIDENCE"}};
    for (const auto& [name, fact] : host->snapshot.facts()) {
        rows.push_back(
            {name, std::string(facts::to_string(fact.status)), fact.value, fact.evidence});
    }
    print(table(rows));
    return 0;
}

int execute(const Context& context, const Doctor& verb)
{
    const auto paths = supervisor::locate(context.root);
    if (!paths) return complain(paths.error()), kFailed;
    // As fresh as for `probe`.
    const auto host = supervisor::load_host(*paths, supervisor::Freshness::probed);
    if (!host) return complain(host.error()), kFailed;
    // Dates of bundles are compared with it; the core has no clock.
    const auto now = ledger::now();
    if (!now) return complain(now.error()), kFailed;
    supervisor::DoctorInput input;
    input.snapshot = host->snapshot;
    input.bundles = host->bundles.bundles;
    input.broken = host->bundles.broken;
    input.now = now->utc;
    if (!verb.profile.empty()) {
        const auto text = supervisor::read_profile(*paths, verb.profile);
        if (!text) return complain(text.error()), kFailed;
        // Nothing is launched, but the plan is resolved as for a launch.
        const auto outcome = supervisor::make_plan(*host, *text, {}, nullptr);
        // Denials are findings here, errors of the file are not.
        if (std::holds_alternative<supervisor::ProfileErrors>(outcome)) {
            return say_refused(outcome, false, kFailed);
        }
        input.profile = verb.profile;
        if (const auto* denials = std::get_if<std::vector<resolve::Denial>>(&outcome))
            input.denials = *denials;
    }
    const auto report = supervisor::examine(input);
    const Format format = context.format.value_or(Format::table);
    if (format == Format::table)
        print(supervisor::render(report));
    else
        print(supervisor::to_json(report), format);
    return supervisor::exit_status(report);
}

int execute(const Context& context, const PolicyExplain& /*verb*/)
{
    // Files only: it works where the daemon does not, and needs no root.
    const auto bundles = supervisor::load_bundles(supervisor::find_paths(context.root).bundles);
    const auto policy = policy::EffectivePolicy::meet(bundles.bundles, bundles.broken);
    const Format format = context.format.value_or(Format::table);
    if (format == Format::table)
        print(policy::render_explain(policy));
    else
        print(policy::to_json(policy), format);
    // A broken bundle denies every launch: a script should notice.
    return bundles.broken.empty() ? 0 : kFailed;
}

int execute(const Context& context, const AuditVerify& /*verb*/)
{
    // Through the service: it flushes what the ledger has first.
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    audit::Head head;
    const auto broken = (*service)->verify_audit(head);
    if (!broken) return complain(broken.error()), kFailed;
    print(audit::render_verdict(*broken, head));
    // Broken is a finding, and a failure for whoever asked.
    return broken->has_value() ? kFailed : 0;
}

int execute(const Context& context, const AuditShow& verb)
{
    const auto paths = supervisor::locate(context.root);
    if (!paths) return complain(paths.error()), kFailed;
    // The log's file is read here, so this wants the rights for it.
    auto service = supervisor::EmbeddedService::open(*paths, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    const auto listed = (*service)->find(verb.name);
    if (!listed) return complain(listed.error()), kFailed;
    const auto records = supervisor::audit_of((*service)->host().paths.audit(), listed->sandbox.id);
    if (!records) return complain(records.error()), kFailed;
    for (const audit::AuditRecord& record : *records) print(audit::render(record));
    return 0;
}

int execute(const Context& context, const Reconcile& /*verb*/)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    const auto report = (*service)->reconcile();
    if (!report) return complain(report.error()), kFailed;
    const Format format = context.format.value_or(Format::table);
    if (format == Format::table)
        print(render(*report));
    else
        print(to_json(*report), format);
    return 0;
}

namespace {

canon::Json drivers_of_this_build()
{
    canon::Json names = canon::Json::array();
    for (const auto driver :
         {profile::Driver::oci, profile::Driver::native, profile::Driver::microvm}) {
        if (driver::find_backend(driver) != nullptr) names.push_back(profile::to_string(driver));
    }
    return names;
}

}  // namespace

int execute(const Context& context, const Version& /*verb*/)
{
    // Formats, not only the program: what may be exchanged with another version.
    const canon::Json json{{"version", kVersion},
                           {"plan_format", plan::kPlanVersion},
                           {"audit_format", audit::kAuditVersion},
                           {"snapshot_format", facts::kSnapshotVersion},
                           {"ledger_schema", ledger::kSchemaVersion},
                           {"guest_protocol", wire::kProtocolVersion},
                           {"shim_generation", shim::kGeneration},
                           {"drivers", drivers_of_this_build()}};
    const Format format = context.format.value_or(Format::table);
    // Table: for people; scripts ask with -o json.
    if (format != Format::table) return print(json, format), 0;
    print(std::string("sandboxctl ") + kVersion + "\n");
    return 0;
}

}  // namespace sandbox::ctl
