// SPDX-License-Identifier: Apache-2.0
#include "driver/oci/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include "base/diagnostic.hpp"
#include "base/failpoint.hpp"
#include "driver/coming_up.hpp"
#include "driver/evidence.hpp"
#include "driver/oci/runtime.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "wire/wire.hpp"

namespace sandbox::driver::oci {
namespace {

constexpr std::chrono::milliseconds kCleanDeadline{10'000};

// The parent's side of one launch, until PID 1 has spoken.
class Launch {
public:
    Launch(const plan::ExecutionPlan& plan, const Binding& binding, const OciArtifact& artifact,
           const SealedPrograms& programs, const LaunchOptions& options)
        : plan_(plan), binding_(binding), artifact_(artifact), programs_(programs),
          options_(options)
    {
    }

    Result<Launched> run(sys::Deadline deadline)
    {
        // One way out of every failure: first the runtime's words, then nothing is left running.
        auto launched = attempt(deadline);
        if (launched) return launched;
        Error error = std::move(launched).error();
        if (diagnostics_.valid())
            if (const std::string words = drain_words(diagnostics_.get()); !words.empty())
                error.with("the runtime said: " + words);
        clean_up();
        return fail(std::move(error).with("launch sandbox " + binding_.id.str()));
    }

private:
    Result<Launched> attempt(sys::Deadline deadline)
    {
        std::optional<Groups> opened;
        if (options_.groups == nullptr) opened.emplace(TRY(open_groups(plan_, binding_)));
        const Groups& groups = options_.groups != nullptr ? *options_.groups : *opened;
        PreparedSources sources = TRY(prepare_sources(artifact_.steps, binding_));
        std::vector<SourceIdentity> identities = sources.identities;
        failpoint("effect.sources");
        TRY_VOID(start(groups, std::move(sources)));
        failpoint("effect.launcher");
        if (plan_->resources.version == plan::CgroupVersion::v2)
            TRY_VOID(finish_v2(groups, deadline));
        if (options_.launcher_started) options_.launcher_started(runtime_->pid());
        if (options_.meanwhile) TRY_VOID(options_.meanwhile());
        TRY_VOID(await_init(deadline));
        failpoint("effect.init-up");
        Launched launched;
        launched.channel = std::move(channel_);
        launched.init_pid = init_->pid();
        launched.init = std::move(*init_);
        if (!reaped_) launched.helpers.push_back({"crun", std::move(*runtime_), Vital::no});
        launched.diagnostics = std::move(diagnostics_);
        launched.sources = std::move(identities);
        return launched;
    }

    Status start(const Groups& groups, PreparedSources sources)
    {
        sys::SocketPair channel = TRY(sys::socket_pair(sys::SocketType::seqpacket));
        // The kernel then says who PID 1 is here: its own number means nothing outside.
        TRY_VOID(sys::enable_credentials(channel.first.get()));
        sys::Pipe diagnostics = TRY(sys::make_pipe());
        TRY_VOID(sys::set_nonblocking(diagnostics.read.get()));
        sys::Pipe input = TRY(sys::make_pipe());
        left_ = TRY(sys::make_pipe());
        const sys::UniqueFd bootstrap = TRY(
            sys::sealed_memfd("sandbox-bootstrap", artifact_.bootstrap));

        RuntimeStart order{artifact_, binding_, std::move(sources), groups.host};
        order.input = input.read.get();
        order.output = diagnostics.write.get();
        order.channel = channel.second.get();
        order.init = TRY(program_of(programs_, kInitProgram));
        order.bootstrap = bootstrap.get();
        order.runtime = TRY(program_of(programs_, kRuntimeProgram));
        const auto top = TRY(groups.top->join_handles());
        const auto control = TRY(groups.control->join_handles());
        order.top_tasks = top.task_numbers();
        order.control_tasks = control.task_numbers();
        order.control_dir = control.dir.valid() ? control.dir.get() : -1;
        order.left = left_.write.get();
        order.shim = ::getpid();

        sys::CloneOptions options;
        if (top.dir.valid()) options.cgroup_dir = top.dir.get();
        auto child = TRY_WITH(sys::clone_process(options), "start the launching child");
        if (child.pid == 0) run_runtime(std::move(order));
        runtime_.emplace(std::move(child.pidfd), child.pid);
        channel_ = std::move(channel.first);
        diagnostics_ = std::move(diagnostics.read);
        left_.write.reset();
        return {};
    }

    // v2: the child that was born in <id> names its successor in the leaf and ends; only then may
    // controllers be passed on. Nothing of the workload exists yet.
    Status finish_v2(const Groups& groups, sys::Deadline deadline)
    {
        if (TRY(sys::poll_one(left_.read.get(), POLLIN, deadline)) == 0)
            return fail(Code::deadline_exceeded, "the launching child did not leave its cgroup");
        pid_t successor = -1;
        const ssize_t got = ::read(left_.read.get(), &successor, sizeof successor);
        if (!TRY(runtime_->wait_exit(deadline)))
            return fail(Code::deadline_exceeded, "the launching child did not end");
        reaped_ = true;
        if (got != sizeof successor)
            return fail(Code::unavailable, "the launching child failed in its first cgroup");
        // Our child too (CLONE_PARENT), and not reaped: the number is its own.
        runtime_.emplace(TRY(sys::Pidfd::open(successor)));
        reaped_ = false;
        TRY_VOID(groups.top->chown_procs(binding_.id_base, binding_.id_base));
        return apply_limits(plan_, groups);
    }

    // PID 1 speaks, or crun fails, or time is up.
    Status await_init(sys::Deadline deadline)
    {
        pollfd set[2] = {{channel_.get(), POLLIN, 0}, {runtime_->fd(), POLLIN, 0}};
        for (;;) {
            const int ready = ::poll(set, 2, deadline.poll_timeout());
            if (ready < 0 && errno != EINTR) return fail_errno("poll");
            if (ready == 0) return fail(Code::deadline_exceeded, "PID 1 did not speak in time");
            if (ready < 0) continue;
            if (set[0].revents != 0) {
                init_.emplace(TRY(take_init_up(channel_.get())));
                return {};
            }
            // crun goes once PID 1 runs; a success ends the watching, not the waiting.
            const auto status = TRY(runtime_->wait_exit(sys::Deadline::after(Millis(0))));
            if (!status) continue;
            reaped_ = true;
            if (status->code != 0 || status->signal != 0)
                return fail(Code::unavailable, "the runtime failed with status " +
                                                   std::to_string(status->code) +
                                                   (status->signal != 0 ? " (signal)" : ""));
            set[1].fd = -1;
        }
    }

    void clean_up()
    {
        channel_.reset();
        end_sandbox(plan_, binding_);
        if (!runtime_ || reaped_) return;
        // It may have failed before it joined any cgroup; or it was reaped as one of those in them.
        [[maybe_unused]] const auto sent = runtime_->send_signal(SIGKILL);
        [[maybe_unused]] const auto gone = runtime_->wait_exit(
            sys::Deadline::after(kCleanDeadline));
    }

    const plan::ExecutionPlan& plan_;
    const Binding& binding_;
    const OciArtifact& artifact_;
    const SealedPrograms& programs_;
    const LaunchOptions& options_;
    sys::UniqueFd channel_;
    sys::UniqueFd diagnostics_;
    std::optional<sys::Pidfd> init_;
    std::optional<sys::Pidfd> runtime_;
    sys::Pipe left_;
    bool reaped_ = false;
};

}  // namespace

Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                        const OciArtifact& artifact, const SealedPrograms& programs,
                        const LaunchOptions& options)
{
    if (plan->resources.version == plan::CgroupVersion::none || plan->resources.controllers.empty())
        return fail(Code::invalid_argument,
                    "no cgroup to hold the sandbox: the runtime would ignore every limit");
    return Launch(plan, binding, artifact, programs, options)
        .run(sys::Deadline::after(options.deadline));
}

namespace {

class OciBackend final : public Backend {
public:
    profile::Driver driver() const noexcept override { return profile::Driver::oci; }
    Whereabouts whereabouts() const noexcept override { return Whereabouts::host; }
    const char* step() const noexcept override { return "crun"; }

    std::span<const std::string_view> programs() const noexcept override
    {
        static constexpr std::array kNames{kRuntimeProgram, kInitProgram};
        return kNames;
    }

    std::span<const ledger::EntryKind> processes() const noexcept override
    {
        static constexpr std::array kKinds{ledger::EntryKind::launcher_process,
                                           ledger::EntryKind::pid1_process};
        return kKinds;
    }

    Result<ArtifactPtr> compile(const plan::ExecutionPlan& plan,
                                const Binding& binding) const override
    {
        return std::make_shared<const OciArtifact>(TRY(oci::compile(plan, binding)));
    }

    Result<std::string> render(const Artifact& artifact) const override
    {
        return oci::render(dynamic_cast<const OciArtifact&>(artifact));
    }

    Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                            const Artifact& artifact, const SealedPrograms& programs,
                            const LaunchOptions& options) const override
    {
        return oci::launch(plan, binding, dynamic_cast<const OciArtifact&>(artifact), programs,
                           options);
    }

    Result<std::vector<Evidence>> observe_sandbox(const plan::ExecutionPlan& plan,
                                                  const Binding& binding, const Launched& launched,
                                                  const Groups* groups) const override
    {
        return driver::observe_sandbox(plan, binding, launched, groups);
    }
};

}  // namespace

const Backend& backend() noexcept
{
    static const OciBackend kBackend;
    return kBackend;
}

}  // namespace sandbox::driver::oci
