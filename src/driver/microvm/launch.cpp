// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/diagnostic.hpp"
#include "base/failpoint.hpp"
#include "channel/mux_relay.hpp"
#include "driver/coming_up.hpp"
#include "driver/microvm/compile.hpp"
#include "driver/microvm/evidence.hpp"
#include "driver/microvm/jail.hpp"
#include "driver/microvm/machine.hpp"
#include "driver/microvm/qmp.hpp"
#include "driver/tree_build.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::driver::microvm {
namespace {

constexpr std::string_view kVmmArtifact = "vmm";
constexpr std::string_view kServerArtifact = "virtiofsd";
// What Debian's packages put beside the VMM: the firmware that starts a PVH kernel, and the two
// images that it hands over by fw_cfg. No other is in the jail.
constexpr std::array<std::string_view, 3> kFirmware{"/usr/share/qemu/bios-microvm.bin",
                                                    "/usr/share/qemu/pvh.bin",
                                                    "/usr/share/qemu/linuxboot_dma.bin"};
// QEMU finds its data and modules relative to the folder it was installed in, which must be there.
constexpr const char* kProgram = "/usr/bin/program";
// Emulation is a module of QEMU's in Debian; where it is built in, there is no such file. QEMU looks
// for it by name, whatever is beside it.
constexpr const char* kEmulator = "/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so";
// To exec, not to boot: loading QEMU's fifty libraries takes 50 ms, more on a loaded host.
constexpr Millis kStartDeadline{20'000};
constexpr Millis kQmpDeadline{10'000};  // docs/protocol.md: reply deadline
constexpr std::uint64_t kServerFiles = 65536;  // open at a time; a guest's own ceiling is below
constexpr std::uint64_t kVmmFiles = 256;
// The last of the console that enters an error.
constexpr std::size_t kConsoleTail = 2048;

// Of virtiofsd in its own user namespace: to confine itself further and to act as a guest's users.
constexpr sys::CapSet kServerCapabilities = 1ULL << 0 | 1ULL << 1 | 1ULL << 3 | 1ULL << 4 |
                                            1ULL << 6 | 1ULL << 7 | 1ULL << 8 | 1ULL << 18 |
                                            1ULL << 21 | 1ULL << 27 |
                                            1ULL << 31;  // CHOWN DAC_OVERRIDE FOWNER FSETID SETGID
// SETUID SETPCAP SYS_CHROOT SYS_ADMIN MKNOD SETFCAP

std::vector<sys::Rlimit> limits(std::uint64_t files)
{
    // Ours may be lower, and not everybody may raise it.
    if (const auto own = sys::get_rlimit(RLIMIT_NOFILE)) files = std::min(files, own->hard);
    return {{RLIMIT_CORE, 0, 0}, {RLIMIT_NOFILE, files, files}};
}

// A listening socket and a connection to it that no name ever led to: the folder is mounted nowhere.
Result<sys::SocketPair> private_listener()
{
    constexpr std::uint64_t kSize = 65536;
    const sys::UniqueFd folder = TRY(sys::make_tmpfs(kSize, 0700, {}));
    sys::SocketPair ends;
    ends.first = TRY(sys::unix_listen(folder.get(), "s", sys::SocketType::stream, 0600, 1));
    ends.second = TRY(sys::unix_connect(folder.get(), "s", sys::SocketType::stream));
    return ends;
}

class Launch {
public:
    Launch(const plan::ExecutionPlan& plan, const Binding& binding, const MicrovmArtifact& artifact,
           const SealedPrograms& programs, const LaunchOptions& options)
        : plan_(plan), binding_(binding), artifact_(artifact), programs_(programs),
          options_(options)
    {
    }

    Result<Launched> run()
    {
        auto launched = attempt();
        if (launched) return launched;
        Error error = std::move(launched).error();
        if (words_.read.valid())
            if (const std::string words = drain_words(words_.read.get()); !words.empty())
                error.with("the VMM and its helpers said: " + words);
        listen_to_console();
        if (!console_tail_.empty())
            error.with("the guest's console ends: " + escaped(console_tail_));
        launched_ = Launched{};
        for (Jailed* jail : {&relay_, &vmm_})
            static_cast<void>(end_jail(*jail, sys::Deadline::after(kStartDeadline)));
        for (auto& [tag, server] : servers_)
            static_cast<void>(end_jail(server, sys::Deadline::after(kStartDeadline)));
        end_sandbox(plan_, binding_);
        return fail(std::move(error).with("launch sandbox " + binding_.id.str()));
    }

private:
    Result<Launched> attempt()
    {
        std::optional<Groups> opened;
        if (options_.groups == nullptr) opened.emplace(TRY(open_groups(plan_, binding_)));
        groups_ = options_.groups != nullptr ? options_.groups : &*opened;
        // Nobody lives in <id> itself, so controllers can be passed on before anything starts.
        if (plan_->microvm->host.version == plan::CgroupVersion::v2)
            TRY_VOID(apply_limits(plan_, *groups_));
        machine_group_.emplace(TRY(groups_->workload->make_child("machine")));
        null_ = TRY(sys::open_file("/dev/null", O_RDWR));
        words_ = TRY(sys::make_pipe());
        TRY_VOID(sys::set_nonblocking(words_.read.get()));
        for (const ShareServer& server : artifact_.shares) TRY_VOID(start_server(server));
        failpoint("effect.virtiofsd");
        TRY_VOID(start_vmm());
        if (options_.launcher_started) options_.launcher_started(vmm_.keeper.pid());
        failpoint("effect.vmm");
        TRY_VOID(start_relay());
        failpoint("effect.relay");
        words_.write.reset();
        if (options_.meanwhile) TRY_VOID(options_.meanwhile());
        TRY_VOID(greet_vmm());
        TRY_VOID(await_guest(sys::Deadline::after(artifact_.boot_deadline)));
        failpoint("effect.init-up");
        return collect();
    }

    JailSpec base(std::string name, std::string label)
    {
        JailSpec spec;
        spec.name = std::move(name);
        spec.label = std::move(label) + ":" + binding_.id.str();
        spec.keeper_uid = kKeeperUid;
        spec.keeper_group = &*groups_->control;
        spec.program_group = &*machine_group_;
        return spec;
    }

    Status add_program(JailSpec& spec, std::string_view artifact)
    {
        const int program = TRY(program_of(programs_, artifact));
        spec.binds = TRY_WITH(libraries_of(program), "the libraries of " + spec.name);
        spec.program = kProgram;
        spec.binds.push_back({TRY(sys::duplicate(program)), spec.program, JailUse::execute});
        return {};
    }

    Result<std::vector<int>> numbers(const std::vector<Descriptor>& descriptors)
    {
        std::vector<int> list;
        for (const Descriptor& one : descriptors) {
            if (one.number != static_cast<int>(list.size()))
                return fail(Code::internal, "descriptors of a jail are not in a row");
            switch (one.role) {
            case Role::null: list.push_back(null_.get()); break;
            case Role::messages: list.push_back(words_.write.get()); break;
            case Role::qmp: list.push_back(qmp_.second.get()); break;
            case Role::channel: list.push_back(port_.second.get()); break;
            case Role::console: list.push_back(console_.write.get()); break;
            case Role::share: list.push_back(shares_.at(one.tag).second.get()); break;
            case Role::serve: list.push_back(shares_.at(one.tag).first.get()); break;
            }
        }
        return list;
    }

    Status start_server(const ShareServer& server)
    {
        shares_[server.tag] = TRY(private_listener());
        JailSpec spec = base("virtiofsd (" + server.tag + ")", "launcher");
        TRY_VOID(add_program(spec, kServerArtifact));
        spec.argv = server.argv;
        spec.descriptors = TRY(numbers(server.descriptors));
        // Complete: what a bind shows in a container is what a share shows in a guest.
        spec.ids = {{0, binding_.id_base, plan_->security.id_count}};
        spec.power = Power::namespace_root;
        spec.capabilities = kServerCapabilities;
        spec.with_proc = true;
        spec.rlimits = limits(kServerFiles);
        PreparedSources sources = TRY(prepare_sources(server.steps, binding_));
        launched_.sources.insert(launched_.sources.end(), sources.identities.begin(),
                                 sources.identities.end());
        const std::string place(kServedRoot.substr(1));
        spec.furnish = [&](int root, const std::string& path) -> Status {
            TRY_VOID(sys::mkdir_at(root, place, 0755));
            return build_tree(server.steps, std::move(sources), root, path, place);
        };
        servers_[server.tag] = TRY(
            start_jail(std::move(spec), sys::Deadline::after(kStartDeadline)));
        // The listening end is the server's alone: its end is known by it.
        shares_[server.tag].first.reset();
        return {};
    }

    Status start_vmm()
    {
        qmp_ = TRY(sys::socket_pair(sys::SocketType::stream));
        port_ = TRY(sys::socket_pair(sys::SocketType::stream));
        console_ = TRY(sys::make_pipe());
        TRY_VOID(sys::set_nonblocking(console_.read.get()));
        JailSpec spec = base("the VMM", "launcher");
        TRY_VOID(add_program(spec, kVmmArtifact));
        for (const std::string_view path : kFirmware)
            spec.binds.push_back(
                {TRY(sys::open_file(std::string(path), O_PATH)), std::string(path), JailUse::read});
        if (artifact_.accelerator == plan::Accelerator::tcg)
            if (auto module = sys::open_file(kEmulator, O_PATH))
                spec.binds.push_back({std::move(*module), kEmulator, JailUse::read});
        for (const JailFile& file : artifact_.files) {
            if (file.artifact.empty())
                spec.binds.push_back(
                    {TRY(sys::open_file(file.path, O_PATH)), file.path, JailUse::device});
            else
                spec.binds.push_back(
                    {TRY(sys::duplicate(TRY(program_of(programs_, file.artifact)))), file.path,
                     JailUse::read});
        }
        spec.argv = TRY(vmm_arguments(artifact_, {tsc_khz()}));
        spec.descriptors = TRY(numbers(artifact_.descriptors));
        spec.ids = {{kKeeperUid, binding_.id_base + kKeeperUid, 2}};
        spec.uid = kVmmUid;
        spec.rlimits = limits(kVmmFiles);
        vmm_ = TRY(start_jail(std::move(spec), sys::Deadline::after(kStartDeadline)));
        qmp_.second.reset();
        port_.second.reset();
        console_.write.reset();
        for (auto& [tag, ends] : shares_) ends.second.reset();
        return {};
    }

    Status start_relay()
    {
        sys::SocketPair channel = TRY(sys::socket_pair(sys::SocketType::seqpacket));
        TRY_VOID(sys::enable_credentials(channel.first.get()));
        const auto* record = reinterpret_cast<const std::byte*>(artifact_.bootstrap.data());
        const auto bootstrap = wire::decode_bootstrap({record, artifact_.bootstrap.size()});
        if (!bootstrap) return fail(bootstrap.error());
        const wire::Machine machine = TRY(machine_of(plan_, artifact_));
        JailSpec spec = base("the relay", "launcher");
        spec.program_group = &*groups_->control;
        spec.descriptors = {null_.get(), null_.get(), words_.write.get(), channel.second.get(),
                            port_.first.get()};
        spec.ids = {{kKeeperUid, binding_.id_base + kKeeperUid, 1}};
        spec.uid = kKeeperUid;
        spec.rlimits = {{RLIMIT_CORE, 0, 0}};
        spec.function = [&bootstrap, &machine] {
            constexpr int kChannel = 3;
            constexpr int kPort = 4;
            return static_cast<int>(channel::run_mux_relay(
                {sys::UniqueFd(kChannel), sys::UniqueFd(kPort)}, *bootstrap, machine));
        };
        relay_ = TRY(start_jail(std::move(spec), sys::Deadline::after(kStartDeadline)));
        channel_ = std::move(channel.first);
        port_.first.reset();
        return {};
    }

    Status greet_vmm()
    {
        Qmp qmp(TRY(sys::duplicate(qmp_.first.get())));
        TRY_WITH(qmp.greet(sys::Deadline::after(kQmpDeadline)), "speak with the VMM");
        return {};
    }

    void listen_to_console()
    {
        char chunk[4096];
        while (console_.read.valid()) {
            const ssize_t got = ::read(console_.read.get(), chunk, sizeof chunk);
            if (got <= 0) return;
            console_tail_.append(chunk, static_cast<std::size_t>(got));
            if (console_tail_.size() > kConsoleTail)
                console_tail_.erase(0, console_tail_.size() - kConsoleTail);
        }
    }

    // Until the guest's PID 1 speaks, through the relay, or one of ours has ended.
    Status await_guest(sys::Deadline deadline)
    {
        std::vector<pollfd> set{{channel_.get(), POLLIN, 0},
                                {console_.read.get(), POLLIN, 0},
                                {relay_.keeper.fd(), POLLIN, 0},
                                {vmm_.keeper.fd(), POLLIN, 0}};
        for (const auto& [tag, server] : servers_) set.push_back({server.keeper.fd(), POLLIN, 0});
        for (;;) {
            const int ready = ::poll(set.data(), set.size(), deadline.poll_timeout());
            if (ready < 0 && errno == EINTR) continue;
            if (ready < 0) return fail_errno("poll");
            if (ready == 0)
                return fail(Code::deadline_exceeded, "the guest did not come up within " +
                                                         format_duration(artifact_.boot_deadline));
            if (set[1].revents != 0) {
                listen_to_console();
                if ((set[1].revents & POLLHUP) != 0) set[1].fd = -1;
            }
            if (set[0].revents != 0) {
                if (TRY(take_packet())) return {};
                continue;
            }
            for (std::size_t i = 2; i < set.size(); ++i)
                if (set[i].revents != 0)
                    return fail(Code::unavailable, std::string(i == 2   ? "the relay"
                                                               : i == 3 ? "the VMM"
                                                                        : "a virtiofsd") +
                                                       " ended while the guest booted");
        }
    }

    // True: INIT_UP.
    Result<bool> take_packet()
    {
        const auto packet = TRY(sys::recv_fds(channel_.get(), wire::kMaxInitPacket, 0));
        if (packet.bytes.empty())
            return fail(Code::unavailable, "the guest went before its PID 1 was up");
        const auto message = TRY(
            wire::decode_packet(wire::Direction::to_host, std::as_bytes(std::span(packet.bytes))));
        if (const auto* report = std::get_if<wire::GuestReport>(&message)) {
            for (const auto& [name, observed] : report->items)
                launched_.guest_report.emplace_back(name, observed);
            return false;
        }
        if (const auto* log = std::get_if<wire::InitLog>(&message))
            return fail(Code::unavailable, "the guest's PID 1: " + escaped(log->text));
        if (const auto* faulty = std::get_if<wire::GuestFaulty>(&message))
            return fail(Code::corrupt, "the guest broke the protocol: " + escaped(faulty->detail));
        const auto* up = std::get_if<wire::InitUp>(&message);
        if (up == nullptr || up->version != wire::kProtocolVersion || up->pid != 1)
            return fail(Code::corrupt, "the guest's PID 1 said something else than INIT_UP");
        return true;
    }

    Result<Launched> collect()
    {
        launched_.channel = std::move(channel_);
        launched_.init_pid = vmm_.keeper.pid();
        launched_.init = std::move(vmm_.keeper);
        launched_.machine = std::move(vmm_.program);
        launched_.held.push_back(std::move(vmm_.lifeline));
        launched_.helpers.push_back({std::string(kRelay), std::move(relay_.keeper), Vital::yes});
        launched_.held.push_back(std::move(relay_.lifeline));
        for (auto& [tag, server] : servers_) {
            launched_.machine_helpers.push_back(std::move(server.program));
            launched_.helpers.push_back(
                {"virtiofsd (" + tag + ")", std::move(server.keeper), Vital::yes});
            launched_.held.push_back(std::move(server.lifeline));
        }
        launched_.monitor = std::move(qmp_.first);
        launched_.console = std::move(console_.read);
        launched_.diagnostics = std::move(words_.read);
        return std::move(launched_);
    }

    const plan::ExecutionPlan& plan_;
    const Binding& binding_;
    const MicrovmArtifact& artifact_;
    const SealedPrograms& programs_;
    const LaunchOptions& options_;
    const Groups* groups_ = nullptr;
    std::optional<sys::cgroup::CgroupTree> machine_group_;
    sys::UniqueFd null_;
    sys::Pipe words_;
    std::map<std::string, sys::SocketPair> shares_;  // listening, connected
    std::map<std::string, Jailed> servers_;
    sys::SocketPair qmp_;
    sys::SocketPair port_;
    sys::Pipe console_;
    Jailed vmm_;
    Jailed relay_;
    sys::UniqueFd channel_;
    std::string console_tail_;
    Launched launched_;
};

const MicrovmArtifact& of(const Artifact& artifact)
{
    return dynamic_cast<const MicrovmArtifact&>(artifact);
}

class MicrovmBackend final : public Backend {
public:
    profile::Driver driver() const noexcept override { return profile::Driver::microvm; }
    Whereabouts whereabouts() const noexcept override { return Whereabouts::guest; }

    std::span<const std::string_view> programs() const noexcept override
    {
        static constexpr std::array<std::string_view, 4> kNames{kVmmArtifact, kServerArtifact,
                                                                "guest.kernel", "guest.initrd"};
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
        return std::make_shared<const MicrovmArtifact>(TRY(microvm::compile(plan, binding)));
    }

    Result<std::string> render(const Artifact& artifact) const override
    {
        return microvm::render(of(artifact));
    }

    Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                            const Artifact& artifact, const SealedPrograms& programs,
                            const LaunchOptions& options) const override
    {
        return Launch(plan, binding, of(artifact), programs, options).run();
    }

    Result<std::vector<Evidence>> observe_sandbox(const plan::ExecutionPlan& plan,
                                                  const Binding& binding, const Launched& launched,
                                                  const Groups* groups) const override
    {
        return observe_machine(plan, binding, launched, groups);
    }
};

}  // namespace

const Backend& backend()
{
    static const MicrovmBackend kBackend;
    return kBackend;
}

std::uint32_t tsc_khz()
{
    // The kernel's own measure, in MHz with three places.
    const auto text = sys::read_file("/proc/cpuinfo", sys::kProcFileLimit);
    const auto at = text ? text->find("cpu MHz") : std::string::npos;
    if (at == std::string::npos) return 0;
    const auto colon = text->find(':', at);
    if (colon == std::string::npos) return 0;
    constexpr double kKhz = 1000;
    return static_cast<std::uint32_t>(std::strtod(text->c_str() + colon + 1, nullptr) * kKhz);
}

}  // namespace sandbox::driver::microvm
