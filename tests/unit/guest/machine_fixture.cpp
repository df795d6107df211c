// SPDX-License-Identifier: Apache-2.0
#include "machine_fixture.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::guest::test {
namespace {

constexpr Millis kBoot{90'000};  // docs/protocol.md, under emulation
constexpr Millis kMachinePatience{20'000};
constexpr std::uint32_t kGuestLandlock = 6;  // of Linux 6.12
constexpr const char* kVmm = "/usr/bin/qemu-system-x86_64";
constexpr const char* kShareServer = "/usr/lib/qemu/virtiofsd";

std::string tsc_khz()
{
    const std::string text = sys::read_file("/proc/cpuinfo", 1U << 20).value_or("");
    const auto at = text.find("cpu MHz");
    if (at == std::string::npos) return "2000000";
    const double mhz = std::strtod(text.c_str() + text.find(':', at) + 1, nullptr);
    return std::to_string(static_cast<long>(mhz * 1000));
}

[[noreturn]] void become(std::vector<std::string> arguments, std::vector<int> keep)
{
    for (const int fd : keep) ::fcntl(fd, F_SETFD, 0);
    std::vector<char*> list;
    for (std::string& argument : arguments) list.push_back(argument.data());
    list.push_back(nullptr);
    ::execv(list[0], list.data());
    ::_exit(125);
}

bool is_there(const std::string& path)
{
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0;
}

std::uint64_t host_time_ns()
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

void MachineTest::SetUp()
{
    const char* named = std::getenv("SANDBOX_GUEST");
    folder_ = named != nullptr ? named : SANDBOX_GUEST_DIR;
    for (const std::string& wanted :
         {folder_ + "/vmlinux", folder_ + "/initrd", std::string(kVmm), std::string(kShareServer)})
        if (!is_there(wanted)) GTEST_SKIP() << "no " << wanted << " (dev/guest, dev/deps)";
    InitTest::SetUp();
}

void MachineTest::TearDown()
{
    control_.reset();
    channel_.reset();
    if (relay_) relay_end();
    if (vmm_) {
        // Without its port the guest powers off by itself.
        EXPECT_TRUE(machine_gone()) << console_;
    }
    for (sys::Pidfd& server : servers_) {
        [[maybe_unused]] const auto sent = server.send_signal(SIGKILL);
        ::waitpid(server.pid(), nullptr, 0);
    }
}

int MachineTest::start_share(const std::string& folder, std::vector<std::string>& arguments,
                             const std::string& tag)
{
    auto pair = sys::socket_pair(sys::SocketType::stream);
    if (!pair) std::abort();
    // virtiofsd wants to accept; a listening socket of no name serves the one connection.
    const std::string name = "/tmp/sandbox-machine-" + std::to_string(::getpid()) + "-" + tag;
    auto listener = sys::unix_listen(name, sys::SocketType::stream, 0600);
    auto client = sys::unix_connect(name, sys::SocketType::stream);
    ::unlink(name.c_str());
    if (!listener || !client) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0)
        become({kShareServer, "-f", "--fd=" + std::to_string(listener->get()), "-o",
                "source=" + folder, "-o", "sandbox=chroot", "-o", "log_level=err"},
               {listener->get()});
    servers_.push_back(*sys::Pidfd::open(pid));
    const std::string fd = std::to_string(client->get());
    for (const std::string& word :
         {std::string("-chardev"), "socket,id=" + tag + ",fd=" + fd, std::string("-device"),
          "vhost-user-fs-device,chardev=" + tag + ",tag=" + tag + ",queue-size=1024"})
        arguments.push_back(word);
    return client->release();
}

void MachineTest::start_vmm(sys::UniqueFd port, const Shares& shares)
{
    auto console = sys::make_pipe();
    ASSERT_TRUE(console);
    std::vector<int> keep{port.get(), console->write.get()};
    std::vector<std::string> arguments{
        kVmm,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-global",
        "virtio-mmio.force-legacy=false",
        "-M",
        "microvm,acpi=on,memory-backend=m",
        "-object",
        "memory-backend-memfd,id=m,size=256M,share=on",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2,+fsgsbase,+popcnt,+smep",
        "-m",
        "256M",
        "-smp",
        "1",
        "-chardev",
        "file,id=con,path=/dev/fd/" + std::to_string(console->write.get()),
        "-serial",
        "chardev:con",
        "-device",
        "virtio-serial-device",
        "-chardev",
        "socket,id=chan,fd=" + std::to_string(port.get()),
        "-device",
        "virtserialport,chardev=chan,name=org.sandbox.0,nr=1",
        "-kernel",
        folder_ + "/vmlinux",
        "-initrd",
        folder_ + "/initrd",
        "-append",
        "console=ttyS0 quiet tsc_early_khz=" + tsc_khz() +
            " reboot=t panic=-1 cryptomgr.notests noreplace-smp"};
    for (const auto& [folder, tag] : {std::pair(shares.ro, "ro"), std::pair(shares.rw, "rw")})
        if (!folder.empty()) keep.push_back(start_share(folder, arguments, tag));
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) become(std::move(arguments), keep);
    vmm_.emplace(*sys::Pidfd::open(pid));
    for (std::size_t i = 2; i < keep.size(); ++i) sys::close_number(keep[i]);
    console_pipe_ = std::move(console->read);
    ASSERT_TRUE(sys::set_nonblocking(console_pipe_.get()));
}

void MachineTest::boot(const wire::Machine& machine, const Shares& shares)
{
    auto port = sys::socket_pair(sys::SocketType::stream);
    ASSERT_TRUE(port);
    start_vmm(std::move(port->second), shares);
    wire::Bootstrap record = machine_record();
    // The host's may be newer; what is handled and granted exists in both.
    record.landlock_abi = std::min<std::uint32_t>(record.landlock_abi, kGuestLandlock);
    fork_relay(std::move(port->first), record, machine);
    const auto deadline = sys::Deadline::after(kBoot);
    for (;;) {
        const auto ready = sys::poll_one(channel_.get(), POLLIN, deadline);
        read_console();
        ASSERT_TRUE(ready && *ready != 0) << "no INIT_UP in time\n" << console_;
        const auto message = next_packet();
        ASSERT_TRUE(message) << "the channel ended\n" << reported_ << console_;
        if (const auto* report = std::get_if<wire::GuestReport>(&*message))
            for (const auto& [name, observed] : report->items)
                reported_ += name + "=" + observed + "\n";
        if (const auto* log = std::get_if<wire::InitLog>(&*message)) reported_ += log->text + "\n";
        if (std::holds_alternative<wire::InitUp>(*message)) return;
    }
}

void MachineTest::boot_ready(const wire::Machine& machine, const Shares& shares)
{
    boot(machine, shares);
    if (HasFatalFailure()) return;
    control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
    control_->send(wire::Hello{});
    const auto welcome = control_->control<wire::Welcome>();
    ASSERT_TRUE(welcome);
    wire::Provision provision;
    provision.event_nonce.fill(1);
    provision.time_ns = host_time_ns();
    control_->send(provision);
    ASSERT_TRUE(control_->control<wire::Provisioned>());
    control_->send(wire::Ready{1});
    ASSERT_TRUE(control_->control<wire::ReadyAck>());
}

wire::Machine MachineTest::usual_machine()
{
    using enum wire::MachineStepKind;
    const auto step = [](wire::MachineStepKind kind, std::string source, std::string target) {
        wire::MachineStep made;
        made.kind = kind;
        made.source = std::move(source);
        made.target = std::move(target);
        made.mode = 0755;
        return made;
    };
    wire::Machine machine;
    machine.shares = {{"ro", true}};
    machine.steps.push_back(step(root_tmpfs, "", ""));
    machine.steps.back().size = 16U << 20;
    for (const char* folder : {"dev", "proc", "etc", "usr", "tmp"})
        machine.steps.push_back(step(directory, "", folder));
    for (const auto& [link, target] :
         {std::pair("bin", "usr/bin"), std::pair("lib", "usr/lib"), std::pair("lib64", "usr/lib64"),
          std::pair("sbin", "usr/sbin")})
        machine.steps.push_back(step(symlink, target, link));
    machine.steps.push_back(step(bind, "/shares/ro/usr", "usr"));
    machine.steps.push_back(step(file, "", "etc/hostname"));
    machine.steps.back().mode = 0644;
    machine.steps.back().content = "guest\n";
    machine.steps.push_back(step(tmpfs, "", "tmp"));
    machine.steps.back().mode = 01777;
    machine.steps.back().size = 32U << 20;
    machine.steps.back().access = wire::MachineAccess::read_write;
    machine.steps.push_back(step(seal_root, "", ""));
    machine.masked = {"/proc/keys", "/proc/no-such-thing"};
    machine.read_only = {"/proc/sys"};
    machine.workload = {{"memory.max", "50331648"}, {"pids.max", "64"}};
    machine.control = {{"pids.max", "100"}};
    return machine;
}

std::string MachineTest::last_words()
{
    const auto log = told<wire::InitLog>();
    return log ? log->text : "";
}

void MachineTest::read_console()
{
    std::array<char, 4096> chunk;
    ssize_t count = 0;
    while ((count = ::read(console_pipe_.get(), chunk.data(), chunk.size())) > 0)
        console_.append(chunk.data(), static_cast<std::size_t>(count));
}

bool MachineTest::machine_gone()
{
    const auto status = vmm_->wait_exit(sys::Deadline::after(kMachinePatience));
    read_console();
    const bool gone = status && status->has_value();
    if (!gone) {
        [[maybe_unused]] const auto sent = vmm_->send_signal(SIGKILL);
        ::waitpid(vmm_->pid(), nullptr, 0);
    }
    vmm_.reset();
    return gone;
}

}  // namespace sandbox::guest::test
