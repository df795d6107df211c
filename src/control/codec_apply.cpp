// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "canon/json.hpp"
#include "control/codec.hpp"
#include "control/fields.hpp"
#include "plan/changes_json.hpp"
#include "profile/names.hpp"

namespace sandbox::control {

using canon::Json;
using Applied = supervisor::Applied;

namespace {

// Searched by name; a new action belongs here, too.
constexpr std::array kActions{Applied::Action::nothing, Applied::Action::create,
                              Applied::Action::start,   Applied::Action::update,
                              Applied::Action::replace, Applied::Action::remove,
                              Applied::Action::keep,    Applied::Action::refuse};

Result<std::vector<plan::Change>> changes_from_json(const Json* list)
{
    std::vector<plan::Change> changes;
    if (list == nullptr) return changes;
    for (const Json& item : *list) {
        // The class and the texts; both sides may be of other releases.
        Fields fields(item, "answer: change");
        plan::Change change;
        change.key = fields.text("key").value_or("");
        change.from = fields.text("from").value_or("");
        change.to = fields.text("to").value_or("");
        const auto change_class = profile::from_name<profile::ChangeClass>(
            fields.text("class").value_or(""));
        // What nobody here knows needs the most that a change can need.
        change.change_class = change_class.value_or(profile::ChangeClass::replace);
        fields.ignore_the_rest();
        TRY_VOID(fields.finish());
        changes.push_back(std::move(change));
    }
    return changes;
}

Json applied_json(const Applied& item)
{
    Json json{{"action", std::string(supervisor::to_string(item.action))},
              {"name", item.name},
              {"source", item.source},
              {"plan_digest", item.plan_digest},
              {"changes", plan::to_json(item.changes)},
              {"pending", plan::to_json(item.pending)},
              {"why", item.why},
              {"failure", item.failure}};
    // Both as at the top of other answers: one decoder serves for all.
    json.update(to_json(item.errors.diagnostics));
    json.update(resolve::to_json(item.denials));
    return json;
}

Result<Applied> applied_from_json(const Json& json)
{
    Fields fields(json, "answer: apply");
    Applied item;
    const std::string action = fields.text("action").value_or("");
    bool known = false;
    for (const Applied::Action value : kActions) {
        if (supervisor::to_string(value) != action) continue;
        item.action = value;
        known = true;
    }
    // Not passed over: what was done to a sandbox must be known.
    if (!known) return fail(Code::corrupt, "answer: an unknown action of apply");
    item.name = fields.text("name").value_or("");
    item.source = fields.text("source").value_or("");
    item.plan_digest = fields.text("plan_digest").value_or("");
    item.changes = TRY(changes_from_json(fields.array("changes")));
    item.pending = TRY(changes_from_json(fields.array("pending")));
    item.why = fields.text("why").value_or("");
    item.failure = fields.text("failure").value_or("");
    // From the same object: applied_json() puts them there.
    item.errors.diagnostics = TRY(diagnostics_from_json(json));
    item.denials = TRY(denials_from_json(json));
    fields.ignore_the_rest();
    TRY_VOID(fields.finish());
    return item;
}

}  // namespace

// An object and not a list, so that later releases can say more.
Json to_json(const supervisor::ApplyResult& result)
{
    Json items = Json::array();
    for (const Applied& item : result.items) items.push_back(applied_json(item));
    return {{"items", std::move(items)}};
}

Result<supervisor::ApplyResult> apply_result_from_json(const Json& json)
{
    Fields fields(json, "answer: apply");
    supervisor::ApplyResult result;
    if (const Json* items = fields.array("items")) {
        for (const Json& item : *items) result.items.push_back(TRY(applied_from_json(item)));
    }
    fields.ignore_the_rest();
    TRY_VOID(fields.finish());
    return result;
}

}  // namespace sandbox::control
