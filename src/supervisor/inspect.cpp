// SPDX-License-Identifier: Apache-2.0
#include "supervisor/inspect.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "shim/audit_log.hpp"
#include "shim/keeper.hpp"
#include "supervisor/context.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::supervisor {

namespace {

// Ceilings for files that the shim and the audit wrote: far above the largest of each.
constexpr std::size_t kMostEvidenceBytes = 4U << 20;
constexpr std::size_t kLongestAuditLine = 4U << 20;  // canon::Limits

canon::Json exit_json(const std::optional<ledger::Exit>& exit)
{
    if (!exit) return nullptr;
    return {{"code", exit->code},
            {"signal", exit->signal},
            {"reason", std::string(ledger::to_string(exit->reason))},
            {"oom_kills", exit->oom_kills}};
}

// Calls `use` for each whole line; false from it ends the reading.
Status for_each_line(const std::string& path, const std::function<bool(std::string_view)>& use)
{
    auto file = sys::open_file(path, O_RDONLY);
    if (!file) {
        if (file.error().code() == Code::not_found) return {};
        return fail(file.error());
    }
    std::string held;
    std::string chunk(1U << 16, '\0');
    while (true) {
        const ssize_t count = read(file->get(), chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("read", path);
        // An end without newline: a line whose writer was cut off, which the caller's decoder
        // judges.
        if (count == 0) break;
        held.append(chunk, 0, static_cast<std::size_t>(count));
        std::size_t begin = 0;
        for (std::size_t end = held.find('\n'); end != std::string::npos;
             end = held.find('\n', begin)) {
            if (!use(std::string_view(held).substr(begin, end - begin))) return {};
            begin = end + 1;
        }
        held.erase(0, begin);
        if (held.size() > kLongestAuditLine) {
            return fail(Code::corrupt, path + ": a line longer than any record");
        }
    }
    if (!held.empty()) use(held);
    return {};
}

// A removal that somebody unwinds for longer than this is stuck, and others may take it over.
constexpr std::uint64_t kRemovalNs = 60ULL * 1'000'000'000ULL;

// Durable before anything is taken away: a removal that is cut short is finished by reconcile.
// False: it is removed already.
Result<bool> intend_removal(ledger::Ledger& ledger, const SandboxId& id,
                            const std::string& operation, const sys::ProcessIdentity& self)
{
    // The place where rm is killed by the crash sweep; see base/failpoint.hpp.
    failpoint("rm.before-intent");
    const auto now = TRY(ledger::now());
    auto transaction = TRY(ledger.begin());
    const auto sandbox = TRY(transaction.get(id));
    if (sandbox.state == ledger::State::deleted) return false;
    // The claim and the wish in one commit: whoever finds the claim dead also finds why.
    TRY(transaction.claim({operation, id, "rm", "", self, "unwind", now.boottime_ns + kRemovalNs},
                          now, is_alive));
    TRY_VOID(transaction.set_desired(id, ledger::Desired::deleted));
    TRY_VOID(transaction.commit());
    failpoint("rm.after-intent");
    return true;
}

}  // namespace

std::string shown_state(const Listed& listed)
{
    // In this order: a restart rests in the ledger, and so does a sandbox that is only created.
    if (listed.restart_due_ns) return "restarting";
    if (ledger::rests(listed.sandbox)) {
        return std::string(ledger::to_string(listed.sandbox.state));
    }
    if (ledger::is_active(listed.sandbox.state) && !listed.shim_alive) return "dead";
    return std::string(ledger::to_string(listed.sandbox.state));
}

std::string state_text(const Listed& listed, std::int64_t boottime_ns)
{
    const std::string state = shown_state(listed);
    if (!listed.restart_due_ns) return state;
    constexpr std::int64_t kNsInS = 1'000'000'000;
    const auto due = static_cast<std::int64_t>(*listed.restart_due_ns);
    if (due <= boottime_ns) return state;
    // Rounded up: "in 0 s" would look like now.
    return state + " in " + std::to_string((due - boottime_ns + kNsInS - 1) / kNsInS) + " s";
}

canon::Json summarize(const Listed& listed)
{
    const ledger::Sandbox& s = listed.sandbox;
    return {{"id", s.id.str()},
            {"name", s.name.str()},
            {"profile", s.profile},
            {"driver", s.driver},
            {"isolation_class", s.isolation_class},
            {"state", shown_state(listed)},
            {"generation", s.generation},
            {"created", s.created.utc},
            {"exit", exit_json(s.exit)}};
}

// A small file that the shim leaves for us; null where there is none, or none of this generation.
canon::Json note_of(const std::string& path)
{
    constexpr std::size_t kMostNote = 64U << 10;
    // Null on any failure: the file is a help for people, nothing decides by it.
    const auto text = sys::read_file(path, kMostNote);
    if (!text) return nullptr;
    auto json = canon::parse(*text);
    return json ? std::move(*json) : canon::Json(nullptr);
}

// What ended the last run, as far as it was not the workload itself.
canon::Json ended_by(const Paths& paths, const ledger::Sandbox& sandbox)
{
    if (!sandbox.exit) return nullptr;
    const canon::Json note = note_of(paths.state_of(sandbox.id) + "/" + shim::kEndName);
    // A note of an earlier generation says nothing of this one.
    if (!note.is_object() || note.value("generation", 0U) != sandbox.generation) return "workload";
    return note.value("ended_by", std::string("workload"));
}

canon::Json restart_json(const Listed& listed)
{
    if (!listed.restart_due_ns) return nullptr;
    constexpr std::int64_t kNsInMs = 1'000'000;
    const std::int64_t left = static_cast<std::int64_t>(*listed.restart_due_ns) -
                              sys::boottime_ns();
    return {{"due_in_ms", std::max<std::int64_t>(left, 0) / kNsInMs}};
}

Result<canon::Json> describe_sandbox(const Paths& paths, const Listed& listed)
{
    const ledger::Sandbox& s = listed.sandbox;
    canon::Json json = summarize(listed);
    json["plan_digest"] = s.plan_digest;
    json["labels"] = TRY(canon::parse(s.labels));
    json["log_path"] = s.log_path;
    const bool runs = listed.shim_alive && ledger::is_active(s.state);
    // Health is only true while somebody measures it.
    json["health"] = runs ? note_of(paths.run_of(s.id) + "/" + shim::kHealthName) : nullptr;
    json["restart"] = restart_json(listed);
    json["ended_by"] = ended_by(paths, s);
    json["controls"] = canon::Json::array();
    // Written by the shim at the launch; none for a sandbox that never ran.
    const auto text = sys::read_file(paths.state_of(s.id) + "/evidence.json", kMostEvidenceBytes);
    if (text) json["controls"] = TRY(canon::parse(*text));
    return json;
}

Status remove_resting(const Host& host, ledger::Ledger& ledger, const SandboxId& id)
{
    const OpenContext open = TRY(open_context(host.paths, host.cgroup_parent()));
    const auto self = TRY(sys::identity_of(getpid()));
    // A fresh operation id: a second rm is a new request, not a repetition.
    const std::string operation = "rm-" + TRY(ledger::new_sandbox_id()).str();
    if (!TRY(intend_removal(ledger, id, operation, self))) return {};
    const auto sandbox = TRY(ledger.find(id));
    // Read under the claim: nothing of it can change hands any more.
    auto entries = TRY(ledger.entries(id));
    // Logs outlive the sandbox: `logs NAME` reads them until the row is pruned.
    std::erase_if(entries, [](const ledger::Entry& entry) {
        return entry.state == ledger::EntryState::undone ||
               entry.kind == ledger::EntryKind::log_files;
    });
    const driver::Unwound unwound = driver::unwind(entries, open.context);
    failpoint("rm.after-unwind");
    const auto now = TRY(ledger::now());
    auto transaction = TRY(ledger.begin());
    TRY_VOID(transaction.finish(operation, self, "{}"));
    audit::Cleaned receipt;
    // "Foreign" counts as undone: our object is gone, and what has its name now is not ours to
    // remove.
    for (const auto* list : {&unwound.gone, &unwound.foreign}) {
        for (const ledger::Entry& entry : *list) {
            TRY_VOID(transaction.undone(entry.seq));
            receipt.items.push_back(
                {std::string(ledger::to_string(entry.kind)), entry.name, true, true, true});
        }
    }
    // The claim ends and what is gone is recorded; the row stays, so that the next rm or reconcile
    // finds the rest.
    if (!unwound.left.empty()) {
        TRY_VOID(transaction.commit());
        return fail(Code::conflict, "not removed: " + unwound.left.front().entry.name + ": " +
                                        unwound.left.front().why);
    }
    TRY_VOID(transaction.set_state(id, ledger::State::deleted));
    TRY_VOID(shim::queue_audit(ledger, transaction,
                               {id, sandbox->name, sandbox->generation, "rm", now.utc},
                               {audit::Acted{"rm", "asked for"}, std::move(receipt)}));
    const auto forgotten = TRY(transaction.prune());
    failpoint("rm.before-commit");
    TRY_VOID(transaction.commit());
    failpoint("rm.after-commit");
    // After the commit: while a row exists, its logs may still be asked for.
    for (const ledger::Sandbox& old : forgotten) {
        TRY_VOID(sys::remove_tree_at(open.state.get(), "sandboxes/" + old.id.str()));
    }
    TRY_VOID(shim::flush_audit(ledger, host.paths.state));
    return ledger.compact(ledger::CompactWhen::large);
}

Status record_reconcile(const Host& host, ledger::Ledger& ledger, const Report& report)
{
    // A pass that found nothing leaves no line: it runs on a timer.
    if (!report.found.empty()) {
        audit::Reconciled event;
        event.sandboxes = report.sandboxes;
        for (const ReportLine& line : report.removed)
            event.actions.push_back({line.what, "removed", "gone"});
        for (const ReportLine& line : report.left)
            event.actions.push_back({line.what, "left alone", line.why});
        for (const ReportLine& line : report.now_resting) {
            event.actions.push_back({line.id.str(), "rests", line.what});
        }
        const auto now = TRY(ledger::now());
        auto transaction = TRY(ledger.begin());
        TRY_VOID(
            shim::queue_audit(ledger, transaction, {{}, {}, 0, {}, now.utc}, {std::move(event)}));
        TRY_VOID(transaction.commit());
    }
    return shim::flush_audit(ledger, host.paths.state);
}

Result<std::optional<audit::Broken>> check_audit_file(const std::string& path,
                                                      const audit::Head& expected,
                                                      audit::Head& found)
{
    audit::Verifier verifier;
    TRY_VOID(for_each_line(path, [&](std::string_view line) { return verifier.feed(line); }));
    found = verifier.head();
    return verifier.finish(expected);
}

Result<std::vector<audit::AuditRecord>> audit_of(const std::string& path, const SandboxId& id)
{
    std::vector<audit::AuditRecord> records;
    std::optional<Error> broken;
    TRY_VOID(for_each_line(path, [&](std::string_view line) {
        // Cheap first: most lines are of other sandboxes, and parsing them all is what takes time.
        if (line.find(id.str()) == std::string_view::npos) return true;
        const auto json = canon::parse(line);
        auto record = json ? audit::record_from_json(*json) : fail(json.error());
        if (!record) {
            broken = record.error();
            return false;
        }
        // The id may stand elsewhere in a line, as in a reconcile's list.
        if (record->subject.id == id) records.push_back(std::move(*record));
        return true;
    }));
    if (broken) return fail(std::move(*broken));
    return records;
}

}  // namespace sandbox::supervisor
