// SPDX-License-Identifier: Apache-2.0
#include "supervisor/events.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

#include "canon/json.hpp"
#include "shim/audit_log.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

using canon::Json;

// As canon::Limits allows a line to be, so a broken file cannot fill memory.
constexpr std::size_t kLongestEventLine = 4U << 20;  // canon::Limits
// The folder tells of the bytes of a commit, and the commit counts a sync later, which a busy disk
// may hold up for many seconds: after the last of them we look again, less and less often, in
// milliseconds.
constexpr std::array<int, 10> kSettling{1, 4, 20, 100, 500, 1'000, 2'000, 5'000, 15'000, 60'000};

template <class Number>
Json or_null(const std::optional<Number>& value)
{
    return value ? Json(*value) : Json(nullptr);
}

// The name of an event and what it has beside the common members.
struct Kind {
    std::string name;
    Json members;
};

// Overloads, not a table: a new body in the audit does not compile until it has an event here.
Kind kind_of(const audit::Resolved& body)
{
    return {"resolved", {{"profile", body.profile}, {"plan_digest", body.plan_digest}}};
}
Kind kind_of(const audit::Denied& body)
{
    Json reasons = Json::array();
    // Reasons only: the rest has texts for a terminal, and `audit show` has all of it.
    for (const audit::Refusal& refusal : body.denials) reasons.push_back(refusal.reason);
    return {"denied", {{"profile", body.profile}, {"reasons", std::move(reasons)}}};
}
Kind kind_of(const audit::Launched& body)
{
    return {"launched", {{"plan_digest", body.plan_digest}}};
}
Kind kind_of(const audit::LaunchFailed& body)
{
    return {"launch-failed", {{"step", body.step}, {"why", body.why}}};
}
Kind kind_of(const audit::SessionOpened& body)
{
    return {"session-opened", {{"session", body.session}, {"uid", body.uid}, {"gid", body.gid}}};
}
// Names of the kernel's and the driver's: an OOM is what people look for by that word.
Kind kind_of(const audit::Violation& body)
{
    if (body.control == "limit.memory") return {"oom", {{"count", body.count}}};
    return {"violation",
            {{"control", body.control}, {"detail", body.detail}, {"count", body.count}}};
}
Kind kind_of(const audit::Acted& body)
{
    // What has come of the verb; the others are their own name.
    static const std::map<std::string_view, std::string_view> kNames{
        {"create", "created"}, {"pause", "paused"}, {"resume", "resumed"}, {"rm", "removed"}};
    const auto found = kNames.find(body.verb);
    return {found == kNames.end() ? body.verb : std::string(found->second), {{"why", body.why}}};
}
Kind kind_of(const audit::Exited& body)
{
    // Nothing where there is none: a signal leaves no code.
    return {"exited",
            {{"session", body.session},
             {"code", or_null(body.code)},
             {"signal", or_null(body.signal)},
             {"reason", body.reason},
             {"oom_kills", body.oom_kills}}};
}
Kind kind_of(const audit::Cleaned& body)
{
    // How many, not which: the audit has them.
    return {"cleaned", {{"items", body.items.size()}, {"complete", body.complete()}}};
}
Kind kind_of(const audit::Reconciled& body)
{
    return {"reconciled", {{"sandboxes", body.sandboxes}, {"actions", body.actions.size()}}};
}
Kind kind_of(const audit::Restarting& body)
{
    return {"restarting",
            {{"attempt", body.attempt},
             {"most", or_null(body.most)},
             {"delay_ms", body.delay_ms},
             {"why", body.why}}};
}
Kind kind_of(const audit::HealthChanged& body)
{
    return {"health",
            {{"health", body.health}, {"failures", body.failures}, {"detail", body.detail}}};
}

Kind kind_of(const audit::Updated& body)
{
    return {"updated",
            {{"plan_digest", body.plan_digest}, {"previous_digest", body.previous_digest}}};
}
Kind kind_of(const audit::Applied& body)
{
    return {"applied",
            {{"action", body.action},
             {"source", body.source},
             {"plan_digest", body.plan_digest},
             {"keys", body.keys},
             {"why", body.why},
             {"failure", body.failure}}};
}

// The audit log read on from where the last look ended.
// Keeps its place in the file: following costs what is new, not what is there.
class Tail {
public:
    explicit Tail(std::string path) : path_(std::move(path)) {}

    // Calls `use` for each whole line; false from it ends the reading.
    Result<bool> read_on(const std::function<Result<bool>(std::string_view)>& use)
    {
        // Opened once and kept: the log is only ever appended to.
        if (!file_.valid()) {
            auto opened = sys::open_file(path_, O_RDONLY);
            // Nothing has been written yet: no event either.
            if (!opened && opened.error().code() == Code::not_found) return true;
            file_ = TRY(std::move(opened));
        }
        std::string chunk(1U << 16, '\0');
        while (true) {
            const ssize_t count = read(file_.get(), chunk.data(), chunk.size());
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) return fail_errno("read", path_);
            if (count == 0) return true;
            // A flush may be half-way: the rest of the line comes with a later look.
            held_.append(chunk, 0, static_cast<std::size_t>(count));
            std::size_t begin = 0;
            for (std::size_t end = held_.find('\n'); end != std::string::npos;
                 end = held_.find('\n', begin)) {
                if (!TRY(use(std::string_view(held_).substr(begin, end - begin)))) return false;
                begin = end + 1;
            }
            held_.erase(0, begin);
            if (held_.size() > kLongestEventLine) {
                return fail(Code::corrupt, path_ + ": a line longer than any record");
            }
        }
    }

private:
    std::string path_;
    sys::UniqueFd file_;
    std::string held_;  // of a line whose end is not there yet
};

// Of file and queue one sequence, by number, without gaps or repetition.
class Reader {
public:
    Reader(const std::string& state_dir, ledger::Ledger& ledger, const EventQuery& query,
           const EventSink& sink)
        : ledger_(ledger), query_(query), sink_(sink), tail_(state_dir + "/" + shim::kAuditName)
    {
    }

    // False: the sink has had enough. The queue is read before the file: a line leaves it only
    // after it is in the file, so that none can slip between the two looks.
    Result<bool> deliver()
    {
        const auto queued = TRY(ledger_.queued_audit());
        if (!TRY(tail_.read_on([this](std::string_view line) { return pass_on(line); })))
            return false;
        for (const ledger::QueuedLine& one : queued) {
            if (one.seq > seen_ && !TRY(pass_on(one.line))) return false;
        }
        return true;
    }

private:
    Result<bool> pass_on(std::string_view line)
    {
        const Json json = TRY_WITH(canon::parse(line), "audit log");
        const auto number = json.is_object() ? json.find("seq") : json.end();
        // Not skipped: behind a broken line nothing can be trusted to be complete.
        if (!json.is_object() || number == json.end() || !number->is_number_unsigned()) {
            return fail(Code::corrupt, "the audit log has a line without a number: see "
                                       "'sandboxctl audit verify'");
        }
        const auto seq = number->get<std::uint64_t>();
        // The queue may repeat what the file just gave.
        if (seq <= seen_) return true;
        seen_ = seq;
        if (seq <= query_.after) return true;
        // Decoded only if it is asked for by number: most of a long log is behind us.
        const auto record = TRY_WITH(audit::record_from_json(json), "audit log");
        return !is_asked_for(query_, seq, record.subject) || sink_(to_event(seq, record));
    }

    ledger::Ledger& ledger_;
    const EventQuery& query_;
    const EventSink& sink_;
    Tail tail_;
    std::uint64_t seen_ = 0;
};

// Every commit writes the ledger's WAL, every flush the audit log: both lie in this folder.
Result<sys::UniqueFd> watch_folder(const std::string& path)
{
    // inotify needs no help from the writers, who are other processes of any release.
    sys::UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!watch.valid()) return fail_errno("inotify_init1");
    if (inotify_add_watch(watch.get(), path.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0) {
        return fail_errno("inotify_add_watch", path);
    }
    return watch;
}

// What changed does not matter: everything new is read.
void drain(int fd)
{
    std::array<char, 4096> buffer{};
    while (read(fd, buffer.data(), buffer.size()) > 0) {}
}

}  // namespace

Json to_event(std::uint64_t seq, const audit::AuditRecord& record)
{
    // Members of the kind first: the common ones win over them.
    Kind kind = std::visit([](const auto& body) { return kind_of(body); }, record.body);
    Json event = std::move(kind.members);
    event["seq"] = seq;
    event["time"] = record.subject.time;
    event["event"] = kind.name;
    event["id"] = record.subject.id.str();
    event["name"] = record.subject.name.str();
    event["generation"] = record.subject.generation;
    return event;
}

bool is_asked_for(const EventQuery& query, std::uint64_t seq, const audit::Subject& subject)
{
    // The shortest prefix that `ps` shows; a shorter word is a name.
    constexpr std::size_t kShortestId = 4;
    // Times are text of one form, and sort as such.
    if (seq <= query.after || subject.time < query.since) return false;
    if (query.reference.empty() || subject.name.str() == query.reference) return true;
    return query.reference.size() >= kShortestId && subject.id.str().starts_with(query.reference);
}

Status read_events(const std::string& state_dir, ledger::Ledger& ledger, const EventQuery& query,
                   const EventSink& sink, int stop_fd)
{
    Reader reader(state_dir, ledger, query, sink);
    if (!query.follow) {
        TRY(reader.deliver());
        return {};
    }
    // Before the first look: what comes during it wakes us afterwards.
    const auto watch = TRY(watch_folder(state_dir));
    std::size_t looks = kSettling.size();
    while (TRY(reader.deliver())) {
        std::array<pollfd, 2> wait{{{watch.get(), POLLIN, 0}, {stop_fd, POLLIN, 0}}};
        // After each wake-up a few looks of our own; then only the folder can wake us.
        const int timeout = looks < kSettling.size() ? kSettling.at(looks++) : -1;
        if (poll(wait.data(), wait.size(), timeout) < 0 && errno != EINTR)
            return fail_errno("poll");
        // The caller has had enough, or its client has.
        if (wait[1].revents != 0) return {};
        if (wait[0].revents == 0) continue;
        drain(watch.get());
        looks = 0;
    }
    return {};
}

}  // namespace sandbox::supervisor
