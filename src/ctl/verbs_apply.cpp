// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>

#include "canon/json.hpp"
#include "ctl/filters.hpp"
#include "ctl/output.hpp"
#include "ctl/request.hpp"
#include "ctl/service.hpp"
#include "ctl/verbs.hpp"
#include "plan/changes_json.hpp"
#include "profile/profile.hpp"
#include "supervisor/drop_ins.hpp"
#include "supervisor/host.hpp"
#include "sys/file.hpp"

namespace sandbox::ctl {

namespace {

using supervisor::Applied;
using supervisor::ApplyRequest;

constexpr int kApplyChanges = 2;  // with --detailed-exitcode, as terraform plan
// As canon::Limits is not asked here: the plan's own decoder has the same order of magnitude.
constexpr std::size_t kMostPlanFile = 16U << 20;

// One spelling for each place, so that the same file is known again at the next apply; links below
// it are kept.
std::string real_folder(const std::string& path)
{
    char* real = realpath(path.c_str(), nullptr);
    std::string found = real != nullptr ? std::string(real) : path;
    std::free(real);  // realpath(3) allocates with malloc
    return found;
}

// As the service spells it where it is a folder of profiles.d: names in the ledger must be equal
// byte for byte.
std::string spelled(const supervisor::Paths& paths, const std::string& folder)
{
    const std::string real = real_folder(folder);
    for (const std::string& own : supervisor::profile_folders(paths)) {
        if (real_folder(own) == real) return own;
    }
    return real;
}

std::string spelled_file(const supervisor::Paths& paths, const std::string& file)
{
    const std::size_t slash = file.rfind('/');
    // "<stdin>" is no place.
    if (slash == std::string::npos)
        return file.starts_with('<') ? file : spelled(paths, ".") + "/" + file;
    return spelled(paths, slash == 0 ? "/" : file.substr(0, slash)) + file.substr(slash);
}

bool is_folder(const std::string& path)
{
    // stat and not lstat: a link to a folder is a folder here.
    struct stat status{};
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// False: something could not be read; that was said, and nothing of its folder is removed then.
Result<bool> add_folder(const supervisor::Paths& paths, const std::string& word,
                        ApplyRequest& request)
{
    const std::string folder = spelled(paths, word);
    const auto own = supervisor::profile_folders(paths);
    // Either of the two: they are one set, in which the operator's file hides the vendor's.
    const bool of_profiles = folder == own.front() || folder == own.back();
    const std::vector<std::string> folders = of_profiles ? own : std::vector<std::string>{folder};
    // Somebody else's file in profiles.d would be root's order; a folder of the caller's is the
    // caller's business.
    const auto trust = of_profiles ? supervisor::Trust::owner_only : supervisor::Trust::anyone;
    bool whole = true;
    for (const supervisor::DropIn& file : TRY(supervisor::read_drop_ins(folders, trust))) {
        if (file.text) {
            request.files.push_back({file.file, *file.text});
            continue;
        }
        say("sandboxctl: " + escaped(file.file + ": " + file.problem));
        whole = false;
    }
    // A folder that is listed is complete: its sandboxes without a file are removed.
    if (whole) request.folders.insert(request.folders.end(), folders.begin(), folders.end());
    return whole;
}

Result<bool> read_words(const supervisor::Paths& paths, const Apply& verb, ApplyRequest& request)
{
    if (!verb.plan.empty()) {
        // Not decoded here: plan_again() checks it against this host.
        request.plan = {spelled_file(paths, verb.plan),
                        TRY_WITH(sys::read_file(verb.plan, kMostPlanFile), "plan file")};
        return true;
    }
    bool whole = true;
    for (const std::string& word : verb.files) {
        if (is_folder(word)) {
            whole &= TRY(add_folder(paths, word, request));
            continue;
        }
        auto text = TRY(supervisor::read_profile(paths, word));
        request.files.push_back({spelled_file(paths, text.file), std::move(text.text)});
    }
    // After all words: then nothing of any folder is removed.
    if (verb.keep) request.folders.clear();
    return whole;
}

canon::Json item_json(const Applied& item)
{
    canon::Json diagnostics = canon::Json::array();
    for (const Diagnostic& d : item.errors.diagnostics) diagnostics.push_back(format(d));
    canon::Json json{{"action", std::string(supervisor::to_string(item.action))},
                     {"name", item.name},
                     {"source", item.source},
                     {"plan_digest", item.plan_digest},
                     {"changes", plan::to_json(item.changes)},
                     {"pending", plan::to_json(item.pending)},
                     {"why", item.why},
                     {"failure", item.failure},
                     {"diagnostics", std::move(diagnostics)}};
    // "denials", as every verb has it.
    json.update(resolve::to_json(item.denials));
    return json;
}

std::string_view did(Applied::Action action)
{
    using enum Applied::Action;
    switch (action) {
    case nothing: return "unchanged";
    case create: return "created";
    case start: return "started";
    case update: return "updated";
    case replace: return "replaced";
    case remove: return "removed";
    case keep: return "kept";
    case refuse: return "refused";
    }
    return "";
}

std::string headline(const Applied& item, bool look)
{
    // A source without a name: the file could not be read that far.
    std::string text = item.name.empty() ? item.source : item.name;
    text += ": ";
    if (!item.failure.empty()) {
        text += "cannot " + std::string(supervisor::to_string(item.action)) + ": " + item.failure;
    } else if (look && item.changed()) {
        // Nothing happened: the words must not say that it did.
        text += "would " + std::string(supervisor::to_string(item.action)) + ": " + item.why;
    } else {
        text += std::string(did(item.action)) + ": " + item.why;
    }
    return text;
}

void show_item(const Applied& item, bool look)
{
    // Talk, so that a script sees only what it brought about.
    if (item.bad()) {
        say("sandboxctl: " + escaped(headline(item, look)));
        complain(item.errors.diagnostics);
        if (!item.denials.empty()) say(resolve::render(item.denials));
    } else {
        print(escaped(headline(item, look)) + "\n");
    }
    std::vector<std::vector<std::string>> rows;
    // pending: waits for the next start.
    for (const auto* changes : {&item.changes, &item.pending}) {
        for (const plan::Change& c : *changes) {
            rows.push_back({" ", c.key, c.from + " -> " + c.to,
                            std::string(profile::to_string(c.change_class))});
        }
    }
    print(table(rows));
}

int status_of(const supervisor::ApplyResult& result, const Apply& verb, bool whole)
{
    // Failure wins over "changed": the caller must not go on.
    bool changed = false;
    for (const Applied& item : result.items) {
        if (item.bad()) whole = false;
        changed |= item.changed();
    }
    if (!whole) return kFailed;
    return verb.detailed && changed ? kApplyChanges : 0;
}

}  // namespace

int execute(const Context& context, const Apply& verb)
{
    ApplyRequest request;
    request.mode = verb.dry_run ? ApplyRequest::Mode::look : ApplyRequest::Mode::act;
    const auto whole = read_words(supervisor::find_paths(context.root), verb, request);
    if (!whole) return complain(whole.error()), kFailed;
    auto service = open_service(context, supervisor::Need::plan);
    if (!service) return complain(service.error()), kFailed;
    const auto result = (*service)->apply(request);
    if (!result) return complain(result.error()), kFailed;
    const Format format = context.format.value_or(Format::table);
    if (format == Format::table) {
        for (const Applied& item : result->items) show_item(item, verb.dry_run);
    } else {
        canon::Json items = canon::Json::array();
        for (const Applied& item : result->items) items.push_back(item_json(item));
        // An object and not a list, so that more can be said in later versions.
        print({{"items", items}}, format);
    }
    return status_of(*result, verb, *whole);
}

int execute(const Context& context, const Prune& verb)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    // After the service: a bad filter is wrong usage wherever it is asked. Before any removal.
    const auto filters = parse_prune(verb.filters, time(nullptr));
    if (!filters) return complain(filters.error()), kUsage;
    const auto listed = (*service)->list(false);
    if (!listed) return complain(listed.error()), kFailed;
    int status = 0;
    for (const supervisor::Listed& one : *listed) {
        // The shim first: a sandbox whose state says "ended" may still be cleaning up. remove()
        // checks again.
        if (one.shim_alive || ledger::is_active(one.sandbox.state)) continue;
        if (!may_prune(*filters, one)) continue;
        // By id: the name may belong to another one meanwhile.
        const auto removed = (*service)->remove(one.sandbox.id.str(),
                                                supervisor::SandboxService::Force::no);
        // Names only, one a line: for scripts.
        if (removed) {
            print(one.sandbox.name.str() + "\n");
        } else {
            complain(removed.error());
            status = kFailed;
        }
    }
    return status;
}

}  // namespace sandbox::ctl
