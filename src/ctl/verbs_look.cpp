// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "ctl/filters.hpp"
#include "ctl/logs.hpp"
#include "ctl/output.hpp"
#include "ctl/service.hpp"
#include "ctl/verbs.hpp"
#include "supervisor/inspect.hpp"
#include "sys/deadline.hpp"

namespace sandbox::ctl {

namespace {

// "-": it has not ended.
std::string exit_text(const std::optional<ledger::Exit>& exit)
{
    if (!exit) return "-";
    std::string text = std::to_string(exit->code);
    // "exited" goes without saying.
    if (exit->reason != ledger::ExitReason::exited) {
        text += " (" + std::string(ledger::to_string(exit->reason)) + ")";
    }
    return text;
}

// The short view; everything is in the JSON.
std::string inspect_text(const canon::Json& json)
{
    const auto text = [&](const char* key) {
        const auto it = json.find(key);
        // Not known is shown as such; a missing key is no error of the reader.
        if (it == json.end() || it->is_null()) return std::string("-");
        return it->is_string() ? it->get<std::string>() : it->dump();
    };
    std::vector<std::vector<std::string>> head;
    for (const char* key : {"id", "name", "profile", "driver", "isolation_class", "state",
                            "generation", "created", "exit", "plan_digest"}) {
        head.push_back({key, text(key)});
    }
    std::vector<std::vector<std::string>> rows{{"", "CONTROL", "MECHANISM", "PLANNED", "OBSERVED"}};
    // An evidence of `inspect`: planned beside observed (law 8).
    for (const canon::Json& control : json.at("controls")) {
        const auto member = [&](const char* key) { return control.value(key, std::string()); };
        // Anything that is not clearly held is not held.
        rows.push_back({control.value("held", false) ? "ok" : "NOT HELD", member("name"),
                        member("mechanism"), member("planned"), member("observed")});
    }
    return table(head) + "\n" + table(rows);
}

}  // namespace

int execute(const Context& context, const Ps& verb)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    // After the service, before the list: wrong usage costs no reading.
    const auto filters = parse_filters(verb.filters);
    if (!filters) return complain(filters.error()), kUsage;
    auto listed = (*service)->list(verb.all);
    if (!listed) return complain(listed.error()), kFailed;
    // Here and not in the service: a filter is a matter of showing.
    std::erase_if(*listed, [&](const auto& one) { return !matches(*filters, one); });
    const Format format = context.format.value_or(Format::table);
    if (format != Format::table) {
        canon::Json list = canon::Json::array();
        for (const auto& one : *listed) list.push_back(supervisor::summarize(one));
        print(list, format);
        return 0;
    }
    std::vector<std::vector<std::string>> rows;
    if (!verb.quiet)
        rows.push_back({"ID", "NAME", "PROFILE", "DRIVER", "CLASS", "STATE", "EXIT", "CREATED"});
    for (const auto& one : *listed) {
        // A row for scripts is the id alone, without a heading.
        const ledger::Sandbox& s = one.sandbox;
        if (verb.quiet) {
            rows.push_back({s.id.str()});
            continue;
        }
        rows.push_back({s.id.str().substr(0, 12), s.name.str(), s.profile, s.driver,
                        s.isolation_class, supervisor::state_text(one, sys::boottime_ns()),
                        exit_text(s.exit), s.created.utc});
    }
    print(table(rows));
    return 0;
}

int execute(const Context& context, const Inspect& verb)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    // JSON by default, as with docker and podman: it is what scripts ask for.
    const Format format = context.format.value_or(Format::json);
    int status = 0;
    for (const std::string& name : verb.names) {
        const auto json = (*service)->inspect(name);
        if (!json) {
            complain(json.error());
            status = kFailed;
        } else if (format == Format::table) {
            print(inspect_text(*json));
        } else {
            print(*json, format);
        }
    }
    return status;
}

int execute(const Context& context, const Logs& verb)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    // Errors after output has been shown are possible: the log may be cut while it is read.
    const auto status = show_logs(**service, verb);
    if (!status) return complain(status.error()), kFailed;
    return 0;
}

}  // namespace sandbox::ctl
