// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "canon/json.hpp"
#include "ctl/output.hpp"
#include "ctl/request.hpp"
#include "ctl/verbs.hpp"
#include "driver/backend.hpp"
#include "plan/changes_json.hpp"
#include "profile/profile.hpp"
#include "supervisor/embedded.hpp"
#include "supervisor/planning.hpp"
#include "sys/file.hpp"

namespace sandbox::ctl {

namespace {

// Snapshots and plans are far smaller; a bound for a wrong file.
constexpr std::size_t kMostFileBytes = 16U << 20;

// What `plan --artifact` binds: recognisable, and never anybody's.
driver::Binding sample_binding(const supervisor::Host& host, const plan::ExecutionPlan& plan)
{
    driver::Binding binding;
    // 32 hex digits, as an id has; random ids are never all zero.
    binding.id = SandboxId(std::string(32, '0'));
    binding.name = SandboxName(plan->request.name + "-sample");
    binding.id_base = host.config.id_base;
    binding.run_dir = HostPath(host.paths.run_of(binding.id));
    binding.state_dir = HostPath(host.paths.state_of(binding.id));
    binding.cgroup = host.cgroup_parent() + "/" + binding.id.str();
    return binding;
}

Result<facts::CapabilitySnapshot> read_snapshot(const std::string& path)
{
    const std::string text = TRY_WITH(sys::read_file(path, kMostFileBytes), "snapshot");
    return facts::snapshot_from_json(TRY_WITH(canon::parse(text), "snapshot " + path));
}

// Of the sandbox's plan as sealed at its launch, not of what it would get today.
int show_diff(supervisor::EmbeddedService& service, const std::string& name,
              const plan::ExecutionPlan& plan, Format format)
{
    const auto running = service.plan_of(name);
    if (!running) return complain(running.error()), kFailed;
    const auto changes = plan::diff(*running, plan);
    if (format != Format::table) {
        print({{"changes", plan::to_json(changes)}}, format);
        return 0;
    }
    // Talk: an empty table on stdout would be no data.
    if (changes.empty()) return say("no changes: " + name + " runs this plan"), 0;
    std::vector<std::vector<std::string>> rows{{"KEY", "RUNS", "PLANNED", "NEEDS"}};
    for (const plan::Change& c : changes) {
        rows.push_back({c.key, c.from, c.to, std::string(profile::to_string(c.change_class))});
    }
    print(table(rows));
    return 0;
}

int show_plan(supervisor::EmbeddedService& service, const Plan& verb,
              const plan::ExecutionPlan& plan, Format format)
{
    if (!verb.diff.empty()) return show_diff(service, verb.diff, plan, format);
    if (verb.artifact) {
        // Nothing is made: compile() is pure, and the binding is a sample.
        const auto artifact = driver::compile(plan, sample_binding(service.host(), plan));
        if (!artifact) return complain(artifact.error()), kFailed;
        const auto text = (*driver::backend_of(plan))->render(**artifact);
        if (!text) return complain(text.error()), kFailed;
        // Read once more to print it in the wanted form; it is our own text.
        const auto json = canon::parse(*text, {.bytes = kMostFileBytes, .depth = 64});
        if (!json) return complain(json.error()), kFailed;
        print(*json, format == Format::yaml ? Format::yaml : Format::json);
        return 0;
    }
    if (format == Format::table) return print(plan::render_table(plan)), 0;
    const auto file = plan::encode_file(plan);
    if (!file) return complain(file.error()), kFailed;
    // The file form itself: what `run --plan` and other tools read.
    if (format == Format::json) return print(*file), 0;
    const auto json = canon::parse(*file, {.bytes = kMostFileBytes, .depth = 64});
    if (!json) return complain(json.error()), kFailed;
    print(*json, format);
    return 0;
}

}  // namespace

int execute(const Context& context, const Validate& verb)
{
    const auto paths = supervisor::find_paths(context.root);
    int status = 0;
    canon::Json list = canon::Json::array();
    for (const std::string& reference : verb.profiles) {
        const auto text = supervisor::read_profile(paths, reference);
        if (!text) {
            complain(text.error());
            status = kFailed;
            continue;
        }
        auto parsed = profile::parse_profile(text->text, text->file);
        // Read anew for each profile: simple, and few give several.
        if (parsed.profile && !verb.overlay.empty()) {
            const auto extra = adjustments(paths, {}, {}, verb.overlay);
            if (!extra) return complain(extra.error()), kFailed;
            parsed = profile::apply_overlay(*parsed.profile, extra->overlay->text,
                                            extra->overlay->file);
        }
        if (!parsed.profile) status = kFailed;
        for (const Diagnostic& d : parsed.diagnostics) {
            list.push_back({{"file", d.at.file},
                            {"line", d.at.line},
                            {"column", d.at.column},
                            {"key", d.key},
                            {"code", d.code},
                            {"message", d.message},
                            {"hint", d.hint}});
        }
        // Machine-readable: one document at the end.
        if (context.format) continue;
        complain(parsed.diagnostics);
        if (parsed.profile) say(escaped(text->file) + ": valid");
    }
    if (context.format)
        print({{"diagnostics", list}},
              *context.format == Format::yaml ? Format::yaml : Format::json);
    return status;
}

int execute(const Context& context, const Plan& verb)
{
    const auto located = supervisor::locate(context.root);
    if (!located) return complain(located.error()), kFailed;
    const supervisor::Paths& paths = *located;
    const Format format = context.format.value_or(Format::table);
    const auto text = supervisor::read_profile(paths, verb.profile);
    if (!text) return complain(text.error()), kFailed;
    const auto extra = adjustments(paths, verb.argv, verb.env, verb.overlay);
    if (!extra) return complain(extra.error()), kFailed;
    // Embedded: a plan may be made for another host's snapshot, which no daemon takes.
    auto service = supervisor::EmbeddedService::open(paths, supervisor::Need::plan);
    if (!service) return complain(service.error()), kFailed;
    std::optional<facts::CapabilitySnapshot> elsewhere;
    if (!verb.snapshot.empty()) {
        auto snapshot = read_snapshot(verb.snapshot);
        if (!snapshot) return complain(snapshot.error()), kFailed;
        // Unverified by its nature: the plan then holds for a host that is like that.
        elsewhere = std::move(*snapshot);
    }
    const auto outcome = (*service)->plan(*text, *extra, elsewhere ? &*elsewhere : nullptr);
    if (!outcome) return complain(outcome.error()), kFailed;
    const auto* plan = std::get_if<plan::ExecutionPlan>(&*outcome);
    if (plan == nullptr) return say_refused(*outcome, format == Format::json, kFailed);
    return show_plan(**service, verb, *plan, format);
}

}  // namespace sandbox::ctl
