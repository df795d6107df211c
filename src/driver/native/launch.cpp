// SPDX-License-Identifier: Apache-2.0
#include "driver/native/launch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "base/failpoint.hpp"
#include "confine/box.hpp"
#include "driver/coming_up.hpp"
#include "driver/evidence.hpp"
#include "driver/tree_build.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::driver::native {
namespace {

constexpr std::string_view kInitProgram = "sandbox-init";
// Layers, masks and mount points: a few KiB. It lies over /tmp, which every host has, in a mount
// namespace that nobody else is in.
constexpr std::uint64_t kStageSize = 16ULL << 20;
constexpr const char* kStage = "/tmp";
constexpr const char* kTree = "tree";

// In the child. The scratch goes with the old root when the tree is entered.
Status build(const NativeArtifact& artifact, PreparedSources sources)
{
    sys::MountAttributes flags;
    flags.no_suid = true;
    flags.no_dev = true;
    const sys::UniqueFd mount = TRY(sys::make_tmpfs(kStageSize, 0755, flags));
    TRY_VOID(sys::attach_tree(mount.get(), AT_FDCWD, kStage));
    const sys::UniqueFd scratch = TRY(sys::open_dir(kStage));
    TRY_VOID(sys::mkdir_at(scratch.get(), kTree, 0755));
    return build_tree(artifact.steps, std::move(sources), scratch.get(), kStage, kTree);
}

// The parent's side of one launch, until PID 1 has spoken.
class Launch {
public:
    Launch(const plan::ExecutionPlan& plan, const Binding& binding, const NativeArtifact& artifact,
           const SealedPrograms& programs, const LaunchOptions& options)
        : plan_(plan), binding_(binding), artifact_(artifact), programs_(programs),
          options_(options)
    {
    }

    Result<Launched> run(sys::Deadline deadline)
    {
        auto launched = attempt(deadline);
        if (launched) return launched;
        Error error = std::move(launched).error();
        if (diagnostics_.valid())
            if (const std::string words = drain_words(diagnostics_.get()); !words.empty())
                error.with("the sandbox's first process said: " + words);
        channel_.reset();
        box_.reset();
        end_sandbox(plan_, binding_);
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
        TRY_VOID(start(groups, sources, deadline));
        failpoint("effect.launcher");
        if (plan_->resources.version == plan::CgroupVersion::v2) {
            // <id> is empty again: controllers may be passed on. Nothing of the workload exists.
            TRY_VOID(groups.top->chown_procs(binding_.id_base, binding_.id_base));
            TRY_VOID(apply_limits(plan_, groups));
        }
        if (options_.meanwhile) TRY_VOID(options_.meanwhile());
        sys::Pidfd process = TRY(std::move(*box_).finish(deadline));
        if (options_.launcher_started) options_.launcher_started(process.pid());
        failpoint("effect.mapped");
        Launched launched;
        launched.init = TRY(await_init(channel_.get(), process, deadline));
        launched.init_pid = launched.init.pid();
        failpoint("effect.init-up");
        launched.channel = std::move(channel_);
        launched.diagnostics = std::move(diagnostics_);
        launched.sources = std::move(identities);
        return launched;
    }

    Status start(const Groups& groups, PreparedSources& sources, sys::Deadline deadline)
    {
        sys::SocketPair channel = TRY(sys::socket_pair(sys::SocketType::seqpacket));
        // The kernel then says who PID 1 is here: its own number means nothing outside.
        TRY_VOID(sys::enable_credentials(channel.first.get()));
        sys::Pipe words = TRY(sys::make_pipe());
        TRY_VOID(sys::set_nonblocking(words.read.get()));
        const sys::UniqueFd null = TRY(sys::open_file("/dev/null", O_RDONLY));
        const sys::UniqueFd bootstrap = TRY(
            sys::sealed_memfd("sandbox-bootstrap", artifact_.bootstrap));
        const auto top = TRY(groups.top->join_handles());
        const auto control = TRY(groups.control->join_handles());

        confine::BoxOrder order;
        order.program = TRY(program_of(programs_, kInitProgram));
        // As sandbox-init finds them: 3 the channel, 4 itself, 5 its record.
        order.descriptors = {null.get(),           words.write.get(), words.write.get(),
                             channel.second.get(), order.program,     bootstrap.get()};
        order.diagnostics = words.write.get();
        order.build = [this, &sources] { return build(artifact_, std::move(sources)); };
        order.root = std::string(kStage) + "/" + kTree;
        order.top_tasks = top.task_numbers();
        order.control_tasks = control.task_numbers();
        if (top.dir.valid()) order.top_dir = top.dir.get();
        if (control.dir.valid()) order.control_dir = control.dir.get();
        diagnostics_ = std::move(words.read);
        box_.emplace(TRY(confine::Box::start(artifact_.box, order, deadline)));
        channel_ = std::move(channel.first);
        return {};
    }

    const plan::ExecutionPlan& plan_;
    const Binding& binding_;
    const NativeArtifact& artifact_;
    const SealedPrograms& programs_;
    const LaunchOptions& options_;
    sys::UniqueFd channel_;
    sys::UniqueFd diagnostics_;
    std::optional<confine::Box> box_;
};

class NativeBackend final : public Backend {
public:
    profile::Driver driver() const noexcept override { return profile::Driver::native; }
    Whereabouts whereabouts() const noexcept override { return Whereabouts::host; }
    const char* step() const noexcept override { return "box"; }

    std::span<const std::string_view> programs() const noexcept override
    {
        static constexpr std::array kNames{kInitProgram};
        return kNames;
    }

    std::span<const ledger::EntryKind> processes() const noexcept override
    {
        static constexpr std::array kKinds{ledger::EntryKind::pid1_process};
        return kKinds;
    }

    Result<ArtifactPtr> compile(const plan::ExecutionPlan& plan,
                                const Binding& binding) const override
    {
        return std::make_shared<const NativeArtifact>(TRY(native::compile(plan, binding)));
    }

    Result<std::string> render(const Artifact& artifact) const override
    {
        return native::render(dynamic_cast<const NativeArtifact&>(artifact));
    }

    Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                            const Artifact& artifact, const SealedPrograms& programs,
                            const LaunchOptions& options) const override
    {
        return native::launch(plan, binding, dynamic_cast<const NativeArtifact&>(artifact),
                              programs, options);
    }

    Result<std::vector<Evidence>> observe_sandbox(const plan::ExecutionPlan& plan,
                                                  const Binding& binding, const Launched& launched,
                                                  const Groups* groups) const override
    {
        return driver::observe_sandbox(plan, binding, launched, groups);
    }
};

}  // namespace

Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                        const NativeArtifact& artifact, const SealedPrograms& programs,
                        const LaunchOptions& options)
{
    if (plan->resources.version == plan::CgroupVersion::none || plan->resources.controllers.empty())
        return fail(Code::invalid_argument,
                    "no cgroup to hold the sandbox: nothing would limit or end it as a whole");
    return Launch(plan, binding, artifact, programs, options)
        .run(sys::Deadline::after(options.deadline));
}

const Backend& backend() noexcept
{
    static const NativeBackend kBackend;
    return kBackend;
}

}  // namespace sandbox::driver::native
