// SPDX-License-Identifier: Apache-2.0
#include "shim/generation.hpp"

#include <fcntl.h>

#include <cerrno>

#include "base/failpoint.hpp"
#include "driver/backend.hpp"
#include "driver/evidence.hpp"
#include "driver/groups.hpp"
#include "driver/microvm/evidence.hpp"
#include "driver/placeholder.hpp"
#include "driver/resources.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

using ledger::EntryKind;

// docs/protocol.md: a host sandbox boots within 15 s, a control reply comes within 10 s.
constexpr Millis kBootDeadline{15'000};

// The steps of a launch, in order. Each leaves what it made in the members, so that a later
// failure finds it.
class Launch {
public:
    Launch(Generation& generation, const driver::Backend& backend,
           const driver::SealedPrograms& programs, ClientEnds client, Journal& journal,
           char* log_marker, PrepareOptions options)
        : g_(generation), backend_(backend), programs_(programs), client_(std::move(client)),
          journal_(journal), log_marker_(log_marker), options_(std::move(options))
    {
    }

    Status run()
    {
        TRY_VOID(at("compile", compile()));
        TRY_VOID(at("cgroup", make_cgroups()));
        TRY_VOID(at("mask-placeholder", make_placeholders()));
        TRY_VOID(at(backend_.step(), start_runtime()));
        TRY_VOID(at("evidence-sandbox", witness_sandbox()));
        TRY_VOID(at("handshake", shake_hands()));
        if (!plan()->process.idle) TRY_VOID(at("session", open_session_before_gate()));
        return at("evidence-verdict", judge());
    }

    const std::string& step() const { return step_; }

private:
    const plan::ExecutionPlan& plan() const { return *g_.plan; }
    const driver::Binding& binding() const { return g_.request.binding; }

    // The failpoint before a step is "after intent" (all intents were committed together); the one
    // behind it is "after effect".
    Status at(const char* step, Status outcome)
    {
        if (!outcome) return outcome;
        step_ = step;
        g_.timing.mark(step);
        failpoint("effect", step);
        return outcome;
    }

    Status compile()
    {
        step_ = "compile";
        artifact_ = options_.compiled ? std::move(options_.compiled)
                                      : TRY(driver::compile(plan(), binding()));
        g_.artifact_digest = artifact_->digest;
        g_.bpf = artifact_->filters;
        return {};
    }

    Status make_directories()
    {
        step_ = "state-dir";
        TRY_VOID(sys::make_dirs(binding().state_dir.str()));
        failpoint("effect.state-folder");
        auto state = TRY(sys::open_dir(binding().state_dir.str()));
        TRY_VOID(sys::make_dirs(binding().state_dir.str() + "/logs"));
        TRY_VOID(note_folder(EntryKind::state_dir, binding().state_dir.str()));
        TRY_VOID(note_folder(EntryKind::log_files, binding().state_dir.str() + "/logs"));
        // Not synced: a host that goes down takes the sandbox with it, and the ledger has the digest.
        TRY_VOID(write_plain(state.get(), "plan.json", g_.request.plan_file));
        failpoint("effect.plan-file");
        TRY_VOID(sys::make_dirs(binding().run_dir.str()));
        return note_folder(EntryKind::run_dir, binding().run_dir.str());
    }

    // A later generation finds it there; whoever reads it meanwhile must never see half of it.
    static Status write_plain(int dir, const char* name, const std::string& text)
    {
        const auto file = sys::open_at2(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600,
                                        sys::kBeneath);
        if (file) return sys::write_all(file->get(), text);
        return file.error().errnum() == EEXIST ? Status{} : fail(file.error());
    }

    Status note_folder(EntryKind kind, const std::string& path)
    {
        auto folder = TRY(sys::open_dir(path));
        journal_.observed(kind, ledger::encode(TRY(sys::identity_of_fd(folder.get()))));
        return {};
    }

    Status make_cgroups()
    {
        step_ = "cgroup";
        groups_.emplace(TRY(driver::make_groups(plan(), binding())));
        // By these ours are told from others of the same name, should ours be removed by somebody.
        for (const auto& [kind, tree] : {std::pair(EntryKind::cgroup_root, &groups_->top),
                                         std::pair(EntryKind::cgroup_control, &groups_->control),
                                         std::pair(EntryKind::cgroup_workload, &groups_->workload)})
            if (*tree) journal_.observed(kind, driver::encode_identity(**tree));
        failpoint("effect.cgroups");
        return {};
    }

    // What neither the runtime nor PID 1 needs to come up: done while they do.
    Status meanwhile()
    {
        step_ = "meanwhile";
        if (options_.meanwhile) TRY_VOID(options_.meanwhile());
        TRY_VOID(at("state-dir", make_directories()));
        if (plan()->process.idle) return {};
        step_ = "cgroup-session";
        leaf_ = TRY(driver::create_session_leaf(plan(), binding(), kServiceSession, *groups_));
        TRY_VOID(at("cgroup-session", {}));
        return at("log-worker", start_log());
    }

    Status make_placeholders()
    {
        step_ = "mask-placeholder";
        if (plan()->masks.empty()) return {};
        for (const driver::Placeholder& placeholder :
             TRY(driver::list_placeholders(artifact_->steps))) {
            const auto identity = TRY(driver::make_placeholder(binding().id, placeholder.path.str(),
                                                               driver::PlaceholderType::file));
            failpoint("effect.one-placeholder");
            journal_.observed_name(
                EntryKind::placeholder, placeholder.path.str(),
                ledger::encode(ledger::FileIdentity{identity.device, identity.inode}));
        }
        return {};
    }

    Status start_log()
    {
        step_ = "log-worker";
        sys::Pipe out = TRY(sys::make_pipe());
        sys::Pipe err = TRY(sys::make_pipe());
        g_.log = TRY(start_log_worker(binding().state_dir.str() + "/logs", g_.request.log,
                                      {std::move(out.read), std::move(client_.out), g_.request.out},
                                      {std::move(err.read), std::move(client_.err), g_.request.err},
                                      log_marker_));
        out_ = std::move(out.write);
        err_ = std::move(err.write);
        // All output of a terminal is one stream; the relay writes it to the log.
        if (plan()->process.terminal) {
            err_.reset();
            g_.terminal_log = std::move(out_);
            g_.terminal_client = std::move(client_.attached);
        } else if (client_.in.valid())
            in_ = std::move(client_.in);
        else
            in_ = TRY(sys::open_file("/dev/null", O_RDONLY));
        journal_.observed(EntryKind::log_worker,
                          ledger::encode(TRY(sys::identity_of(g_.log->process.pid()))));
        return {};
    }

    Status start_runtime()
    {
        step_ = backend_.step();
        driver::LaunchOptions options;
        options.groups = &*groups_;
        options.meanwhile = [this]() -> Status {
            TRY_VOID(meanwhile());
            step_ = backend_.step();
            return {};
        };
        // By it the clean-up knows that the launcher is gone, and looks at no other process.
        options.launcher_started = [this](pid_t pid) {
            if (const auto launcher = sys::identity_of(pid))
                journal_.observed(EntryKind::launcher_process, ledger::encode(*launcher));
        };
        g_.launched = TRY(backend_.launch(plan(), binding(), *artifact_, programs_, options));
        g_.pid1 = TRY(sys::identity_of(g_.launched->init_pid));
        journal_.observed(EntryKind::pid1_process, ledger::encode(g_.pid1));
        return {};
    }

    Status witness_sandbox()
    {
        step_ = "evidence-sandbox";
        g_.evidence = TRY(backend_.observe_sandbox(plan(), binding(), *g_.launched, &*groups_));
        return {};
    }

    Status shake_hands()
    {
        step_ = "handshake";
        const auto deadline = sys::Deadline::after(kBootDeadline);
        g_.control = std::make_unique<ControlStream>(
            TRY(open_port(g_.launched->channel.get(), wire::Port::control)));
        auto shaken = TRY(
            handshake(*g_.control, binding(), plan(), g_.request.secret_store, deadline));
        g_.event_nonce = shaken.event_nonce;
        g_.evidence.insert(g_.evidence.end(), std::make_move_iterator(shaken.evidence.begin()),
                           std::make_move_iterator(shaken.evidence.end()));
        return {};
    }

    Result<Terminal> open_terminal() const
    {
        const auto devpts = TRY(Devpts::of(g_.launched->init_pid));
        const plan::ProcessPlan& process = plan()->process;
        return devpts.open(binding().id_base + process.uid, binding().id_base + process.gid,
                           {g_.request.rows, g_.request.cols});
    }

    Status make_terminal()
    {
        g_.terminal = is_guest() ? TRY(make_remote_terminal()) : TRY(open_terminal());
        for (sys::UniqueFd* end : {&in_, &out_, &err_})
            *end = TRY(sys::duplicate(g_.terminal->slave.get()));
        return {};
    }

    Status open_session_before_gate()
    {
        step_ = "session";
        const auto deadline = sys::Deadline::after(kBootDeadline);
        g_.service = std::make_unique<SessionStream>(
            TRY(shim::open_session(g_.launched->channel.get(), plan()->resources.version, leaf_)));
        leaf_.joins.clear();
        if (plan()->process.terminal) TRY_VOID(make_terminal());
        const std::string term = plan()->process.terminal ? g_.request.term : std::string();
        const wire::Confined report = TRY(open_service(
            *g_.service, plan()->process, {in_.get(), out_.get(), err_.get()}, deadline, term));
        // The workload holds its own copies now; ours would keep the pipes open for ever.
        in_.reset();
        out_.reset();
        err_.reset();
        if (is_guest()) {
            // Seen by its PID 1 only: told, and marked so.
            auto told = driver::microvm::report_of(plan(), report);
            g_.evidence.insert(g_.evidence.end(), std::make_move_iterator(told.begin()),
                               std::make_move_iterator(told.end()));
            return {};
        }
        g_.workload_pid = TRY(driver::find_session_pid(plan(), binding(), kServiceSession,
                                                       static_cast<int>(report.pid)));
        auto seen = TRY(driver::observe_session(plan(), binding(), g_.launched->init_pid,
                                                g_.workload_pid, report));
        g_.evidence.insert(g_.evidence.end(), std::make_move_iterator(seen.begin()),
                           std::make_move_iterator(seen.end()));
        return {};
    }

    bool is_guest() const { return backend_.whereabouts() == driver::Whereabouts::guest; }

    Status judge()
    {
        step_ = "evidence-verdict";
        return driver::verify(plan(), g_.evidence);
    }

    Generation& g_;
    const driver::Backend& backend_;
    const driver::SealedPrograms& programs_;
    ClientEnds client_;
    Journal& journal_;
    char* log_marker_;
    PrepareOptions options_;
    std::string step_ = "compile";
    driver::ArtifactPtr artifact_;
    std::optional<driver::Groups> groups_;  // of this launch only: opened once, used by four steps
    driver::SessionLeaf leaf_;
    sys::UniqueFd in_;
    sys::UniqueFd out_;
    sys::UniqueFd err_;
};

}  // namespace

std::expected<std::unique_ptr<Generation>, LaunchFailure> prepare(
    LaunchRequest request, plan::ExecutionPlan plan, const driver::SealedPrograms& programs,
    ClientEnds client, Journal& journal, Timing timing, char* log_marker, PrepareOptions options)
{
    auto generation = std::make_unique<Generation>();
    generation->request = std::move(request);
    generation->plan = std::move(plan);
    generation->timing = std::move(timing);
    generation->log_marker = log_marker;
    const auto backend = driver::backend_of(*generation->plan);
    if (!backend) return std::unexpected(LaunchFailure{"driver", backend.error(), {}});
    Launch launch(*generation, **backend, programs, std::move(client), journal, log_marker,
                  std::move(options));
    if (auto status = launch.run(); !status) {
        return std::unexpected(LaunchFailure{launch.step(), std::move(status.error()),
                                             std::move(generation->evidence)});
    }
    return generation;
}

Status open_gate(Generation& generation)
{
    if (!generation.service) return {};
    return generation.service->send(wire::Go{});
}

}  // namespace sandbox::shim
