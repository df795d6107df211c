// SPDX-License-Identifier: Apache-2.0
#include "audit/audit.hpp"

#include <algorithm>

namespace sandbox::audit {

namespace {

constexpr std::size_t kNameWidth = 26;
constexpr std::size_t kMechanismWidth = 36;

std::string padded(std::string text, std::size_t width)
{
    text.append(text.size() < width ? width - text.size() : 1, ' ');
    return text;
}

std::string line(const std::string& text) { return "  " + escaped(text) + "\n"; }

std::string details(const Resolved& body)
{
    std::string out = line("plan " + body.plan_digest);
    out += line(
        "driver " + body.driver + ", " + body.isolation_class +
        (body.shared_kernel_acknowledged ? ", shared kernel acknowledged by the profile" : ""));
    out += line(std::to_string(body.controls.size()) + " controls planned, " +
                std::to_string(body.unenforced.size()) + " optional ones not to be had");
    for (const std::string& warning : body.warnings) out += line("warning: " + warning);
    return out;
}

std::string details(const Denied& body)
{
    std::string out = line("profile " + body.profile);
    for (const Refusal& refusal : body.denials) {
        out += line(refusal.denial_class + " " + refusal.reason + ": " + refusal.key + ": " +
                    refusal.requirement);
    }
    return out;
}

std::string details(const Launched& body)
{
    const auto held = std::count_if(body.controls.begin(), body.controls.end(),
                                    [](const ControlEvidence& control) { return control.held; });
    std::string out = line("plan " + body.plan_digest);
    out += line(std::to_string(held) + " of " + std::to_string(body.controls.size()) +
                " controls witnessed before the first instruction");
    for (const auto& [name, digest] : body.bpf) out += line("bpf " + name + " " + digest);
    for (const auto& [name, digest] : body.artifacts) out += line(name + " " + digest);
    return out;
}

std::string details(const LaunchFailed& body)
{
    return line("plan " + body.plan_digest) + line("at " + body.step + ": " + body.why) +
           line("nothing of the workload has run") + render_evidence(body.controls);
}

std::string details(const SessionOpened& body)
{
    return line("session " + body.session + " as " + std::to_string(body.uid) + ":" +
                std::to_string(body.gid) + ", argv " + body.argv_digest);
}

std::string details(const Violation& body)
{
    return line(body.control + ": " + body.detail + ", " + std::to_string(body.count) + " times");
}

std::string details(const Acted& body)
{
    return line(body.why.empty() ? body.verb : body.verb + ": " + body.why);
}

std::string details(const Exited& body)
{
    std::string text = body.session.empty() ? "main process" : "session " + body.session;
    text += ": " + body.reason;
    if (body.code) text += ", status " + std::to_string(*body.code);
    if (body.signal) text += ", signal " + std::to_string(*body.signal);
    if (body.oom_kills > 0) text += ", " + std::to_string(body.oom_kills) + " killed for memory";
    return line(text);
}

std::string details(const Cleaned& body)
{
    std::string out;
    const auto made = std::count_if(body.items.begin(), body.items.end(),
                                    [](const ReceiptItem& item) { return item.made; });
    const auto gone = std::count_if(body.items.begin(), body.items.end(),
                                    [](const auto& item) { return item.made && item.gone; });
    out += line(std::to_string(made) + " made, " + std::to_string(gone) + " proven gone");
    for (const ReceiptItem& item : body.items) {
        if (item.made && !item.gone) out += line("LEFT: " + item.kind + " " + item.subject);
    }
    return out;
}

std::string details(const Reconciled& body)
{
    std::string out = line(std::to_string(body.sandboxes) + " sandboxes looked at");
    for (const ReconcileAction& action : body.actions) {
        out += line(action.action + " " + action.subject + ": " + action.outcome);
    }
    return out;
}

std::string details(const Restarting& body)
{
    std::string text = "attempt " + std::to_string(body.attempt);
    if (body.most) text += " of " + std::to_string(*body.most);
    return line(text + " in " + std::to_string(body.delay_ms) + " ms: " + body.why);
}

std::string details(const HealthChanged& body)
{
    std::string text = body.health;
    if (body.failures > 0) text += ", " + std::to_string(body.failures) + " failures in a row";
    return line(body.detail.empty() ? text : text + ": " + body.detail);
}

std::string details(const Updated& body)
{
    return line("plan " + body.plan_digest + " in place of " + body.previous_digest) +
           render_evidence(body.controls);
}

std::string details(const Applied& body)
{
    std::string keys;
    for (const std::string& key : body.keys) keys += (keys.empty() ? " (" : ", ") + key;
    if (!keys.empty()) keys += ")";
    std::string out = line(body.action + keys + " for " + body.source);
    if (!body.why.empty()) out += line(body.why);
    if (!body.failure.empty()) out += line("failed: " + body.failure);
    return out;
}

}  // namespace

std::string render(const AuditRecord& record)
{
    const Subject& subject = record.subject;
    std::string head = subject.time + "  " + std::string(event_name(record.body));
    if (!subject.name.empty()) head += "  " + subject.name.str();
    if (!subject.id.empty()) head += "  " + subject.id.str();
    if (subject.generation > 0) head += "  generation " + std::to_string(subject.generation);
    return escaped(head) + "\n" +
           std::visit([](const auto& body) { return details(body); }, record.body);
}

std::string render_evidence(const std::vector<ControlEvidence>& controls)
{
    std::vector<ControlEvidence> sorted = controls;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return std::tie(a.held, a.name) < std::tie(b.held, b.name);
    });
    std::string out;
    for (const ControlEvidence& control : sorted) {
        std::string text = padded(control.held ? "held" : "NOT HELD", 10) +
                           padded(control.name, kNameWidth) +
                           padded(control.mechanism, kMechanismWidth) + control.observed;
        if (control.observed != control.planned) text += "  (planned: " + control.planned + ")";
        out += line(text);
    }
    return out;
}

std::string render_verdict(const std::optional<Broken>& broken, const Head& head)
{
    if (broken) {
        return "audit log broken at line " + std::to_string(broken->line) + ": " +
               escaped(broken->why) + "\n";
    }
    return "audit log whole: " + std::to_string(head.seq) + " lines, head " + head.digest + "\n";
}

}  // namespace sandbox::audit
