// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "control/codec.hpp"
#include "profile/normal.hpp"

namespace sandbox::control {

using canon::Json;

Json to_json(const supervisor::ProfileText& profile)
{
    return {{"file", profile.file}, {"text", profile.text}};
}

void put_adjustments(Json& body, const supervisor::Adjustments& adjustments)
{
    // What is not said is left out: the daemon has the same defaults.
    if (!adjustments.argv.empty()) body["argv"] = adjustments.argv;
    if (!adjustments.env.empty()) body["env"] = adjustments.env;
    if (adjustments.terminal) body["terminal"] = *adjustments.terminal;
    if (adjustments.overlay) body["overlay"] = to_json(*adjustments.overlay);
}

void put_console(Json& body, const supervisor::Console& console, bool input)
{
    body["stdin"] = input;
    body["console"] = {{"terminal", console.terminal},
                       {"rows", console.rows},
                       {"cols", console.cols},
                       {"term", console.term},
                       {"detach_keys", console.detach_keys}};
}

Json to_json(const supervisor::ExecRequest& request)
{
    Json body{{"argv", request.argv}, {"terminal", request.terminal}};
    if (!request.env.empty()) body["env"] = request.env;
    if (request.user) body["user"] = profile::format_user(*request.user);
    if (!request.cwd.empty()) body["cwd"] = request.cwd;
    // As people write it: whole units, no loss for what a person can ask.
    if (request.timeout) body["timeout"] = format_duration(*request.timeout);
    if (!request.expect_plan.empty()) body["expect_plan"] = request.expect_plan;
    if (request.attach == supervisor::Attach::detached) body["detach"] = true;
    return body;
}

Json to_json(const supervisor::AttachRequest& request)
{
    Json body = Json::object();
    if (!request.session.empty()) body["session"] = request.session;
    if (request.out_offset) body["out_offset"] = *request.out_offset;
    if (request.err_offset) body["err_offset"] = *request.err_offset;
    return body;
}

Json to_json(const supervisor::CopyRequest& request)
{
    const bool into = request.way == supervisor::CopyRequest::Way::into;
    Json body{{"path", request.path}, {"way", into ? "into" : "out_of"}};
    using Landing = supervisor::CopyRequest::Landing;
    if (into) body["landing"] = request.landing == Landing::named ? "named" : "content";
    // 0 stands for the built-in cap, which the daemon knows.
    if (request.most_bytes != 0) body["most_bytes"] = request.most_bytes;
    return body;
}

Result<Json> to_json(const supervisor::ApplyRequest& request)
{
    Json body{{"files", Json::array()}, {"folders", request.folders}};
    for (const auto& file : request.files) body["files"].push_back(to_json(file));
    if (request.plan) {
        // As an object, not as text: its digest is over the canonical form, which the daemon makes
        // anew.
        body["plan"] = TRY_WITH(
            canon::parse(request.plan->text, {.bytes = kMostPlanBytes, .depth = 64}), "plan file");
        body["plan_file"] = request.plan->file;
    }
    if (request.mode == supervisor::ApplyRequest::Mode::look) body["dry_run"] = true;
    return body;
}

}  // namespace sandbox::control
