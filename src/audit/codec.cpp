// SPDX-License-Identifier: Apache-2.0
#include "audit/audit.hpp"

#include <array>

#include "base/utf8.hpp"
#include "canon/json.hpp"
#include "plan/fields.hpp"

namespace sandbox::audit {

using canon::Json;
using plan::Fields;

namespace {

constexpr std::array<std::string_view, std::variant_size_v<Body>> kEvents{
    "resolved", "denied",  "launched",   "launch-failed", "session-opened", "violation", "acted",
    "exited",   "cleaned", "reconciled", "restarting",    "health",         "updated",   "applied"};

// A workload chooses some of this text: it must neither break the JSON nor a reader's terminal.
std::string safe(const std::string& text) { return escaped(text); }

Json map_json(const std::map<std::string, std::string>& map)
{
    Json out = Json::object();
    for (const auto& [key, value] : map) out[safe(key)] = safe(value);
    return out;
}

Json evidence_json(const std::vector<ControlEvidence>& controls)
{
    Json list = Json::array();
    for (const ControlEvidence& control : controls) {
        list.push_back({{"name", safe(control.name)},
                        {"mechanism", safe(control.mechanism)},
                        {"planned", safe(control.planned)},
                        {"observed", safe(control.observed)},
                        {"held", control.held}});
    }
    return list;
}

template <class Number>
Json or_null(const std::optional<Number>& value)
{
    return value ? Json(*value) : Json(nullptr);
}

Json body_json(const Resolved& body)
{
    Json controls = Json::array();
    for (const plan::Control& control : body.controls) {
        controls.push_back({{"name", safe(control.name)},
                            {"mechanism", safe(control.mechanism)},
                            {"planned", safe(control.planned)}});
    }
    Json unenforced = Json::array();
    for (const plan::Unenforced& item : body.unenforced) {
        unenforced.push_back({{"name", safe(item.name)}, {"reason", safe(item.reason)}});
    }
    Json warnings = Json::array();
    for (const std::string& warning : body.warnings) warnings.push_back(safe(warning));
    return {{"plan_digest", body.plan_digest},
            {"policy_digest", body.policy_digest},
            {"profile", safe(body.profile)},
            {"driver", body.driver},
            {"isolation", body.isolation},
            {"isolation_class", body.isolation_class},
            {"shared_kernel_acknowledged", body.shared_kernel_acknowledged},
            {"controls", std::move(controls)},
            {"unenforced", std::move(unenforced)},
            {"artifacts", map_json(body.artifacts)},
            {"warnings", std::move(warnings)}};
}

Json body_json(const Denied& body)
{
    Json denials = Json::array();
    for (const Refusal& refusal : body.denials) {
        denials.push_back({{"class", refusal.denial_class},
                           {"reason", refusal.reason},
                           {"key", safe(refusal.key)},
                           {"requirement", safe(refusal.requirement)},
                           {"fact", safe(refusal.fact)},
                           {"mend", safe(refusal.mend)},
                           {"source",
                            {{"file", safe(refusal.source.file)},
                             {"line", refusal.source.line},
                             {"column", refusal.source.column}}}});
    }
    return {{"profile", safe(body.profile)},
            {"policy_digest", body.policy_digest},
            {"denials", std::move(denials)}};
}

Json body_json(const Launched& body)
{
    return {{"plan_digest", body.plan_digest},
            {"driver", body.driver},
            {"isolation_class", body.isolation_class},
            {"shared_kernel_acknowledged", body.shared_kernel_acknowledged},
            {"artifact_digest", body.artifact_digest},
            {"bpf", map_json(body.bpf)},
            {"artifacts", map_json(body.artifacts)},
            {"controls", evidence_json(body.controls)}};
}

Json body_json(const LaunchFailed& body)
{
    return {{"plan_digest", body.plan_digest},
            {"step", safe(body.step)},
            {"why", safe(body.why)},
            {"controls", evidence_json(body.controls)}};
}

Json body_json(const SessionOpened& body)
{
    return {{"session", safe(body.session)},
            {"argv_digest", body.argv_digest},
            {"uid", body.uid},
            {"gid", body.gid}};
}

Json body_json(const Violation& body)
{
    return {{"control", safe(body.control)}, {"detail", safe(body.detail)}, {"count", body.count}};
}

Json body_json(const Acted& body) { return {{"verb", safe(body.verb)}, {"why", safe(body.why)}}; }

Json body_json(const Exited& body)
{
    return {{"session", safe(body.session)},
            {"code", or_null(body.code)},
            {"signal", or_null(body.signal)},
            {"reason", body.reason},
            {"oom_kills", body.oom_kills}};
}

Json body_json(const Cleaned& body)
{
    Json items = Json::array();
    for (const ReceiptItem& item : body.items) {
        items.push_back({{"kind", safe(item.kind)},
                         {"subject", safe(item.subject)},
                         {"made", item.made},
                         {"destroyed", item.destroyed},
                         {"gone", item.gone}});
    }
    return {{"items", std::move(items)}};
}

Json body_json(const Reconciled& body)
{
    Json actions = Json::array();
    for (const ReconcileAction& action : body.actions) {
        actions.push_back({{"subject", safe(action.subject)},
                           {"action", safe(action.action)},
                           {"outcome", safe(action.outcome)}});
    }
    return {{"sandboxes", body.sandboxes}, {"actions", std::move(actions)}};
}

Json body_json(const Restarting& body)
{
    return {{"attempt", body.attempt},
            {"most", or_null(body.most)},
            {"delay_ms", body.delay_ms},
            {"why", safe(body.why)}};
}

Json body_json(const HealthChanged& body)
{
    return {{"health", body.health}, {"failures", body.failures}, {"detail", safe(body.detail)}};
}

Json body_json(const Updated& body)
{
    return {{"previous_digest", body.previous_digest},
            {"plan_digest", body.plan_digest},
            {"controls", evidence_json(body.controls)}};
}

Json body_json(const Applied& body)
{
    Json keys = Json::array();
    for (const std::string& key : body.keys) keys.push_back(safe(key));
    return {{"action", body.action},           {"source", safe(body.source)},
            {"plan_digest", body.plan_digest}, {"previous_digest", body.previous_digest},
            {"keys", std::move(keys)},         {"why", safe(body.why)},
            {"failure", safe(body.failure)}};
}

std::vector<ControlEvidence> evidence(Fields& fields)
{
    std::vector<ControlEvidence> out;
    for (Fields& item : fields.objects("controls")) {
        out.push_back({item.text("name"), item.text("mechanism"), item.text("planned"),
                       item.text("observed"), item.flag("held")});
        item.close();
    }
    return out;
}

Resolved read_resolved(Fields& fields)
{
    Resolved out;
    out.plan_digest = fields.text("plan_digest");
    out.policy_digest = fields.text("policy_digest");
    out.profile = fields.text("profile");
    out.driver = fields.text("driver");
    out.isolation = fields.text("isolation");
    out.isolation_class = fields.text("isolation_class");
    out.shared_kernel_acknowledged = fields.flag("shared_kernel_acknowledged");
    for (Fields& item : fields.objects("controls")) {
        out.controls.push_back({item.text("name"), item.text("mechanism"), item.text("planned")});
        item.close();
    }
    for (Fields& item : fields.objects("unenforced")) {
        out.unenforced.push_back({item.text("name"), item.text("reason")});
        item.close();
    }
    out.artifacts = fields.text_map("artifacts");
    out.warnings = fields.texts("warnings");
    return out;
}

Denied read_denied(Fields& fields)
{
    Denied out{fields.text("profile"), fields.text("policy_digest"), {}};
    for (Fields& item : fields.objects("denials")) {
        Refusal refusal{item.text("class"),
                        item.text("reason"),
                        item.text("key"),
                        item.text("requirement"),
                        item.text("fact"),
                        item.text("mend"),
                        {}};
        Fields source = item.object("source");
        refusal.source = {source.text("file"), source.number<std::uint32_t>("line"),
                          source.number<std::uint32_t>("column")};
        source.close();
        item.close();
        out.denials.push_back(std::move(refusal));
    }
    return out;
}

Launched read_launched(Fields& fields)
{
    Launched out;
    out.plan_digest = fields.text("plan_digest");
    out.driver = fields.text("driver");
    out.isolation_class = fields.text("isolation_class");
    out.shared_kernel_acknowledged = fields.flag("shared_kernel_acknowledged");
    out.artifact_digest = fields.text("artifact_digest");
    out.bpf = fields.text_map("bpf");
    out.artifacts = fields.text_map("artifacts");
    out.controls = evidence(fields);
    return out;
}

std::optional<std::int32_t> small_number(Fields& fields, const char* key)
{
    // Exit codes and signals are small and never negative.
    const auto value = fields.maybe_number<std::uint16_t>(key);
    if (!value) return std::nullopt;
    return std::int32_t{*value};
}

Cleaned read_cleaned(Fields& fields)
{
    Cleaned out;
    for (Fields& item : fields.objects("items")) {
        out.items.push_back({item.text("kind"), item.text("subject"), item.flag("made"),
                             item.flag("destroyed"), item.flag("gone")});
        item.close();
    }
    return out;
}

Reconciled read_reconciled(Fields& fields)
{
    Reconciled out{fields.number<std::uint64_t>("sandboxes"), {}};
    for (Fields& item : fields.objects("actions")) {
        out.actions.push_back({item.text("subject"), item.text("action"), item.text("outcome")});
        item.close();
    }
    return out;
}

// Requires: event is one of kEvents.
Body read_body(std::string_view event, Fields& fields)
{
    if (event == "resolved") return read_resolved(fields);
    if (event == "denied") return read_denied(fields);
    if (event == "launched") return read_launched(fields);
    if (event == "launch-failed") {
        return LaunchFailed{fields.text("plan_digest"), fields.text("step"), fields.text("why"),
                            evidence(fields)};
    }
    if (event == "session-opened") {
        return SessionOpened{fields.text("session"), fields.text("argv_digest"),
                             fields.number<std::uint32_t>("uid"),
                             fields.number<std::uint32_t>("gid")};
    }
    if (event == "violation") {
        return Violation{fields.text("control"), fields.text("detail"),
                         fields.number<std::uint64_t>("count")};
    }
    if (event == "acted") return Acted{fields.text("verb"), fields.text("why")};
    if (event == "exited") {
        return Exited{fields.text("session"), small_number(fields, "code"),
                      small_number(fields, "signal"), fields.text("reason"),
                      fields.number<std::uint64_t>("oom_kills")};
    }
    if (event == "cleaned") return read_cleaned(fields);
    if (event == "restarting") {
        return Restarting{fields.number<std::uint32_t>("attempt"),
                          fields.maybe_number<std::uint32_t>("most"),
                          fields.number<std::uint64_t>("delay_ms"), fields.text("why")};
    }
    if (event == "health") {
        return HealthChanged{fields.text("health"), fields.number<std::uint32_t>("failures"),
                             fields.text("detail")};
    }
    if (event == "updated") {
        return Updated{fields.text("previous_digest"), fields.text("plan_digest"),
                       evidence(fields)};
    }
    if (event == "applied") {
        return Applied{fields.text("action"),      fields.text("source"),
                       fields.text("plan_digest"), fields.text("previous_digest"),
                       fields.texts("keys"),       fields.text("why"),
                       fields.text("failure")};
    }
    return read_reconciled(fields);
}

}  // namespace

std::string_view event_name(const Body& body) noexcept { return kEvents[body.index()]; }

Json to_json(const AuditRecord& record)
{
    return {{"version", kAuditVersion},
            {"time", record.subject.time},
            {"event", event_name(record.body)},
            {"sandbox", record.subject.id.str()},
            {"name", safe(record.subject.name.str())},
            {"generation", record.subject.generation},
            {"operation", safe(record.subject.operation)},
            {"body", std::visit([](const auto& body) { return body_json(body); }, record.body)}};
}

Result<AuditRecord> record_from_json(const Json& json)
{
    plan::Failure failure;
    Fields fields(json, "", failure);
    AuditRecord record;
    if (fields.number<std::uint16_t>("version") != kAuditVersion) {
        fields.refuse("version", std::to_string(kAuditVersion) + " is wanted");
    }
    record.subject.time = fields.text("time");
    record.subject.id = SandboxId(fields.text("sandbox"));
    record.subject.name = SandboxName(fields.text("name"));
    record.subject.generation = fields.number<std::uint32_t>("generation");
    record.subject.operation = fields.text("operation");
    const auto event = fields.choice<std::size_t>("event", kEvents);
    if (json.is_object() && json.contains("seq")) static_cast<void>(fields.raw("seq"));
    if (json.is_object() && json.contains("prev")) static_cast<void>(fields.raw("prev"));
    Fields body = fields.object("body");
    TRY_VOID(failure.status());
    record.body = read_body(kEvents[event], body);
    body.close();
    fields.close();
    TRY_VOID(failure.status());
    return record;
}

Resolved resolved(const plan::ExecutionPlan& plan)
{
    const plan::PlanContent& content = plan.content();
    Resolved out;
    out.plan_digest = plan.digest().str();
    out.policy_digest = content.policy_digest;
    out.profile = content.request.name;
    out.driver = profile::to_string(content.driver);
    out.isolation = profile::to_string(content.request.isolation);
    out.isolation_class = plan::to_string(content.isolation_class);
    out.shared_kernel_acknowledged = content.request.isolation == profile::Isolation::sandbox;
    out.controls = content.controls;
    out.unenforced = content.unenforced;
    out.artifacts = content.artifacts;
    out.warnings = content.warnings;
    return out;
}

bool Cleaned::complete() const noexcept
{
    for (const ReceiptItem& item : items) {
        if (item.made && !item.gone) return false;
    }
    return true;
}

}  // namespace sandbox::audit
