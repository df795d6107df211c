// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <future>
#include <string>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "driver/backend.hpp"
#include "driver/resources.hpp"
#include "driver/rootless.hpp"
#include "profile/names.hpp"
#include "shim/control_protocol.hpp"
#include "shim/generation.hpp"
#include "shim/keep.hpp"
#include "shim/restart_series.hpp"
#include "shim/rootless.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

// sandbox-shim shim:ID STATE DRIVER (NAME PATH DIGEST)..., with the launcher's socket as descriptor 3:
// the driver that the plan probably has, and a triple for each program that some driver runs.
// Started before the plan exists: it seals the programs meanwhile, reads the request while its
// intents become durable, and touches nothing until it is told that they are.
namespace sandbox::shim {

namespace {

constexpr int kLauncherFd = 3;
constexpr int kDriverAt = 3;
constexpr int kProgramsAt = 4;  // the first NAME
constexpr int kProgramWords = 3;  // NAME PATH DIGEST
constexpr std::size_t kMostRequestBytes = 16U << 20;
constexpr std::size_t kMostRequestFds = 5;  // request memfd, stdin, stdout, stderr, attachment

struct Start {
    LaunchRequest request;
    plan::ExecutionPlan plan;
    ClientEnds client;
    // Nothing when it could not be compiled: the launch tries again and says why.
    driver::ArtifactPtr compiled;
};

// Nothing; or the request with its descriptors: the packet names which of the three came.
Result<std::optional<Start>> await_request(int socket)
{
    auto packet = TRY(sys::recv_fds(socket, 16, kMostRequestFds));
    if (packet.bytes.empty() || packet.fds.empty()) return std::optional<Start>();
    const std::string text = TRY(
        sys::read_file(sys::fd_path(packet.fds[0].get()), kMostRequestBytes));
    LaunchRequest request = TRY(decode_request(text));
    auto plan = TRY(plan::decode_file(request.plan_file));
    ClientEnds client;
    std::size_t next = 1;
    const auto take = [&](bool wanted) {
        return wanted && next < packet.fds.size() ? std::move(packet.fds[next++]) : sys::UniqueFd();
    };
    client.in = take(request.stdin_open);
    client.out = take(request.out != Output::log_only);
    client.err = take(request.err != Output::log_only);
    client.attached = take(request.attached);
    driver::ArtifactPtr compiled;
    if (auto artifact = driver::compile(plan, request.binding)) compiled = std::move(*artifact);
    return std::optional<Start>(
        Start{std::move(request), std::move(plan), std::move(client), std::move(compiled)});
}

// False: the launcher ended, or its commit failed, and no intent of ours stands in the ledger.
Result<bool> await_go(int socket)
{
    const auto packet = TRY(sys::recv_fds(socket, kGo.size(), 0));
    if (packet.bytes.empty()) return false;
    if (packet.bytes == kGo) return true;
    return fail(Code::corrupt, "the launcher said something else than go");
}

void tell(int socket, const Reply& reply)
{
    if (auto packet = encode(reply)) static_cast<void>(sys::send_fds(socket, *packet, {}));
}

// In a session and working directory of our own: the caller's terminal, job control and mounts have
// no hold on us.
Status detach()
{
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    umask(0077);
    if (setsid() < 0 && errno != EPERM) return fail_errno("setsid");
    if (chdir("/") != 0) return fail_errno("chdir", "/");
    TRY_VOID(sys::become_subreaper());
    // Executed again through /proc/self/exe (rootless.hpp), it would be called "exe".
    if (prctl(PR_SET_NAME, "sandbox-shim", 0, 0, 0) != 0) return fail_errno("prctl", "PR_SET_NAME");
    // What a crash dump of this process would hold: nonces.
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl", "PR_SET_DUMPABLE");
    return {};
}

Status join(const sys::cgroup::Host& host, const std::string& path,
            const std::vector<std::string>& controllers)
{
    const auto tree = TRY(sys::cgroup::CgroupTree::create(host, path, controllers));
    const auto handles = TRY(tree.join_handles());
    // v2: an RCU grace period (5 to 13 ms) that only hosts of that kind pay.
    if (handles.dir.valid()) return sys::write_control_at(handles.dir.get(), "cgroup.procs", "0");
    const auto numbers = handles.task_numbers();
    if (const int error = sys::cgroup::join_self(numbers); error != 0) {
        return fail(Error::from_errno(error, "join", path));
    }
    return {};
}

Status leave_callers_cgroup(const std::string& parent, const std::vector<std::string>& controllers)
{
    const auto host = TRY(sys::cgroup::detect());
    // The last shim removes the cgroup, maybe between our making it and our joining it.
    constexpr int kAttempts = 20;
    for (int attempt = 1;; ++attempt) {
        auto joined = join(host, driver::shims_cgroup(parent), controllers);
        const bool removed = !joined && (joined.error().errnum() == ENOENT ||
                                         joined.error().errnum() == ENODEV);
        if (!removed || attempt == kAttempts) return joined;
    }
}

// Where a shim goes when it leaves its own cgroup at the end; a cgroup path, empty for the roots.
std::string way_out(const plan::ExecutionPlan& plan, const std::string& parent)
{
    if (!driver::is_rootless(plan.content())) return {};
    // An ordinary user may not write the roots. v1: to what was given away, which the parent is in.
    if (plan->resources.version == plan::CgroupVersion::v1)
        return parent.substr(0, parent.rfind('/'));
    // v2: that one passes controllers on and takes no process; back to where we came from.
    const auto self = sys::ProcDir::self();
    const auto lines = self ? self->cgroup() : Result<std::vector<sys::CgroupLine>>{};
    if (!lines || lines->empty()) return {};
    return lines->back().path;  // the only line, or 0:: at the end (cgroups(7))
}

// A parent left empty is removed. What fails here is found empty by the next reconcile.
void leave_own_cgroup(const std::string& parent, const std::string& out)
{
    const auto host = sys::cgroup::detect();
    if (!host) return;
    if (!sys::cgroup::leave_to(*host, driver::shims_cgroup(parent), out)) return;
    static_cast<void>(sys::cgroup::remove_if_empty(*host, parent));
}

// What went wrong on our side, to whoever launched and into the audit; then everything goes.
int give_up(const LaunchRequest& request, Journal& journal, int launcher, LaunchFailure failure,
            const std::string& out)
{
    const auto recorded = journal.failed(to_audit(request, failure));
    const auto cleaned = unwind(journal, request, ledger::State::failed);
    std::string why = failure.error.message();
    if (!recorded) why += "; recording it failed: " + recorded.error().message();
    if (!cleaned) why += "; cleaning up failed: " + cleaned.error().message();
    leave_own_cgroup(request.cgroup_parent, out);
    tell(launcher, Failed{failure.step, why});
    static_cast<void>(journal.settle());
    return 1;
}

// Gone with the state folder of a sandbox that is not kept; else for whoever asks.
void save_timing(Timing timing, const LaunchRequest& request)
{
    timing.mark("cleaned");
    if (request.on_exit == OnExit::remove) return;
    if (const auto folder = sys::open_dir(request.binding.state_dir.str())) {
        static_cast<void>(timing.save(folder->get()));
    }
}

// A client that was just told wakes on this very CPU, where it would wait until our clean-up sleeps.
// Its socket closes as it goes.
constexpr Millis kFarewell{5};

void let_go(int launcher)
{
    static_cast<void>(sys::poll_one(launcher, 0, sys::Deadline::after(kFarewell)));
}

int launch_and_keep(Start start, Journal& journal, const driver::SealedPrograms& programs,
                    sys::UniqueFd launcher, Timing timing, char* marker)
{
    LaunchRequest request = start.request;
    const std::string out = way_out(start.plan, request.cgroup_parent);
    const auto& asked_ttl = start.plan->request.lifecycle.ttl;
    const auto ttl = asked_ttl ? sys::Deadline::after(*asked_ttl) : sys::Deadline::never();
    // For the bad news: the keeper drops its clients once they have their answer.
    const auto spare = sys::duplicate(launcher.get());
    const int to_launcher = spare ? spare->get() : -1;
    PrepareOptions options;
    options.compiled = std::move(start.compiled);
    options.meanwhile = [&request, &journal,
                         controllers = start.plan->resources.controllers]() -> Status {
        TRY_VOID(leave_callers_cgroup(request.cgroup_parent, controllers));
        failpoint("effect.shim-cgroup");
        journal.rehearse();
        return {};
    };
    auto generation = prepare(std::move(start.request), std::move(start.plan), programs,
                              std::move(start.client), journal, std::move(timing), marker,
                              std::move(options));
    if (!generation)
        return give_up(request, journal, to_launcher, std::move(generation.error()), out);
    auto kept = keep(**generation, journal, std::move(launcher), {}, ttl);
    if (!kept) {
        LaunchFailure failure{"keep", std::move(kept.error()), std::move((*generation)->evidence)};
        generation->reset();
        return give_up(request, journal, to_launcher, std::move(failure), out);
    }
    timing = std::move((*generation)->timing);
    failpoint("ended.told");
    let_go(to_launcher);
    timing.mark("client-gone");
    // As they are now: an update may have changed both.
    plan::ExecutionPlan plan = *(*generation)->plan;
    request.plan_file = (*generation)->request.plan_file;
    generation->reset();
    const ledger::State rest = restart_series({journal, programs, marker}, request, plan,
                                              std::move(*kept));
    const auto cleaned = unwind(journal, request, rest);
    failpoint("cleaned.returned");
    save_timing(std::move(timing), request);
    leave_own_cgroup(request.cgroup_parent, out);
    failpoint("undo.shim-cgroup");
    static_cast<void>(journal.settle());
    failpoint("settled");
    return cleaned ? 0 : 1;
}

using Sources = std::map<std::string, driver::ProgramSource>;

// What `driver` runs, of what this host has. A driver that is not built needs nothing.
Result<driver::SealedPrograms> seal_for(profile::Driver driver, const Sources& known,
                                        driver::SealedPrograms sealed = {})
{
    const driver::Backend* backend = driver::find_backend(driver);
    if (backend == nullptr) return sealed;
    Sources wanted;
    for (const std::string_view name : backend->programs()) {
        const auto source = known.find(std::string(name));
        if (source != known.end() && !sealed.contains(name)) wanted.insert(*source);
    }
    for (auto& [name, fd] : TRY(driver::seal(wanted))) sealed[name] = std::move(fd);
    return sealed;
}

// The programs were found before the plan was known: those its driver runs must be the plan's.
std::string unplanned(const Start& start, const Sources& known)
{
    const driver::Backend* backend = driver::find_backend(start.plan->driver);
    if (backend == nullptr) return {};  // the launch says so
    for (const std::string_view name : backend->programs()) {
        const auto planned = start.plan->artifacts.find(std::string(name));
        const auto found = known.find(std::string(name));
        if (planned == start.plan->artifacts.end() || found == known.end() ||
            planned->second != found->second.digest)
            return std::string(name);
    }
    return {};
}

int run(char** argv)
{
    Timing timing;
    timing.mark("main");
    sys::UniqueFd launcher(kLauncherFd);
    if (is_ordinary_user()) {
        // Comes back as root of a namespace of its own, or not at all.
        const Status entered = enter_user_namespace(argv);
        tell(launcher.get(), Failed{"user-namespace", entered.error().message()});
        return 1;
    }
    if (auto detached = detach(); !detached) {
        tell(launcher.get(), Failed{"detach", detached.error().message()});
        return 1;
    }
    Sources expected;
    for (char** word = argv + kProgramsAt; *word != nullptr; word += kProgramWords)
        expected[word[0]] = {HostPath(word[1]), word[2]};
    failpoint("shim.detached");
    const auto guess = profile::from_name<profile::Driver>(argv[kDriverAt]);
    // The only other thread there ever is, over before anything is made: hashing takes as long as the
    // rest of this together. One arena will do for both: another costs memory for good.
    mallopt(M_ARENA_MAX, 1);
    auto sealing = std::async(std::launch::async | std::launch::deferred, [&] {
        return seal_for(guess.value_or(profile::Driver::oci), expected);
    });
    auto journal = Journal::open(argv[2]);
    timing.mark("ledger-open");
    auto start = await_request(launcher.get());
    timing.mark("request");
    auto programs = sealing.get();
    timing.mark("programs-sealed");
    if (start && !*start) return 0;  // the launcher gave up: nothing was made
    if (!start) {
        tell(launcher.get(), Failed{"request", start.error().message()});
        return 1;
    }
    const auto go = await_go(launcher.get());
    if (go && !*go) return 0;
    if (!go) {
        tell(launcher.get(), Failed{"go", go.error().message()});
        return 1;
    }
    timing.mark("go");
    // The plan's driver may be another than the host's default.
    if (programs) programs = seal_for((*start)->plan->driver, expected, std::move(*programs));
    // The ledger may not have existed when we started.
    if (!journal) journal = Journal::open(argv[2]);
    if (!programs || !journal) {
        const Error& error = !programs ? programs.error() : journal.error();
        tell(launcher.get(), Failed{!programs ? "artifact" : "ledger", error.message()});
        return 1;
    }
    if (const std::string odd = unplanned(**start, expected); !odd.empty()) {
        tell(launcher.get(), Failed{"artifact", odd + " on disk is not the plan's"});
        return 1;
    }
    journal->bind((*start)->request);
    failpoint("shim.bound");
    return launch_and_keep(std::move(**start), *journal, *programs, std::move(launcher),
                           std::move(timing), argv[1]);
}

}  // namespace

}  // namespace sandbox::shim

int main(int argc, char** argv)
{
    if (argc <= sandbox::shim::kProgramsAt ||
        (argc - sandbox::shim::kProgramsAt) % sandbox::shim::kProgramWords != 0 ||
        !std::string_view(argv[1]).starts_with("shim:")) {
        const std::string_view text =
            "sandbox-shim is started by sandboxctl or sandboxd, not by hand\n";
        static_cast<void>(sandbox::sys::write_all(STDERR_FILENO, text));
        return 2;
    }
    return sandbox::shim::run(argv);
}
