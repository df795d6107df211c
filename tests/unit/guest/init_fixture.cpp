// SPDX-License-Identifier: Apache-2.0
#include "init_fixture.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "sys/file.hpp"
#include "sys/landlock.hpp"
#include "sys/net/unix.hpp"
#include "sys/procfs.hpp"
#include "sys/seccomp/compile.hpp"

namespace sandbox::guest::test {
namespace {

constexpr std::uint32_t kNobody = 65534;
constexpr int kChannelFd = 3;
constexpr int kBootstrapFd = 5;

std::string_view text_of(const wire::ByteVector& bytes)
{
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void become_init(int channel, int record)
{
    const int high_channel = ::fcntl(channel, F_DUPFD, 64);
    const int high_record = ::fcntl(record, F_DUPFD, 64);
    ::dup2(high_channel, kChannelFd);
    ::dup2(high_record, kBootstrapFd);
    ::close_range(kBootstrapFd + 1, ~0U, 0);
    ::execl(SANDBOX_INIT_PATH, SANDBOX_INIT_PATH, nullptr);
    ::_exit(125);
}

}  // namespace

void InitTest::SetUp()
{
    ASSERT_EQ(::geteuid(), 0U) << "sandbox-init changes identity: these tests need root";
}

void InitTest::TearDown()
{
    control_.reset();
    channel_.reset();
    if (!init_ || reaped_) return;
    EXPECT_TRUE(wait_gone()) << "sandbox-init outlived its channel";
}

bool InitTest::wait_gone()
{
    const auto status = init_->wait_exit(sys::Deadline::after(Millis(20'000)));
    reaped_ = status && status->has_value();
    if (reaped_) return true;
    [[maybe_unused]] const auto sent = init_->send_signal(SIGKILL);
    ::waitpid(init_->pid(), nullptr, 0);
    return false;
}

wire::Bootstrap InitTest::record()
{
    wire::Bootstrap boot;
    boot.channel_fd = kChannelFd;
    boot.sandbox_id = "0123456789abcdef0123456789abcdef";
    boot.permitted_ids = {{kNobody, kNobody}};
    boot.env = {{"HOME", "/"}, {"PATH", "/usr/bin:/bin"}};
    const auto program = sys::seccomp::compile(sys::seccomp::Profile::standard,
                                               *sys::seccomp::native_arch());
    const auto bytes = std::as_bytes(std::span(program));
    boot.bpf.assign(bytes.begin(), bytes.end());
    const int abi = sys::landlock_abi();
    boot.landlock_abi = static_cast<std::uint32_t>(abi);
    if (abi > 0) {
        boot.landlock_handled_fs = sys::landlock::all_fs(abi);
        boot.landlock = {{"/", sys::landlock::kReadExecute},
                         {"/dev/null", sys::landlock::kReadFile | sys::landlock::kWriteFile},
                         {"/tmp", sys::landlock::all_fs(abi)}};
    }
    return boot;
}

void InitTest::start(const wire::Bootstrap& boot)
{
    auto pair = sys::socket_pair(sys::SocketType::seqpacket);
    ASSERT_TRUE(pair);
    const auto bytes = wire::encode(boot);
    ASSERT_TRUE(bytes) << bytes.error().message();
    const auto memfd = sys::sealed_memfd("record", text_of(*bytes));
    ASSERT_TRUE(memfd);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) become_init(pair->second.get(), memfd->get());
    init_.emplace(*sys::Pidfd::open(pid));
    channel_ = std::move(pair->first);
    const auto packet = sys::recv_fds(channel_.get(), wire::kMaxInitPacket, 0);
    ASSERT_TRUE(packet) << packet.error().message();
    const auto message = wire::decode_packet(wire::Direction::to_host,
                                             std::as_bytes(std::span(packet->bytes)));
    ASSERT_TRUE(message);
    const auto* up = std::get_if<wire::InitUp>(&*message);
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->pid, static_cast<std::uint32_t>(pid));
}

void InitTest::start_ready()
{
    start(record());
    control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
    ASSERT_EQ(bring_up(*control_), "");
}

Peer InitTest::stream(wire::Port port, const std::string& session)
{
    return {pass_stream(channel_.get(), port, session), port};
}

wire::Open InitTest::shell(const std::string& script) const
{
    wire::Open open;
    open.uid = kNobody;
    open.gid = kNobody;
    open.argv = {"/bin/sh", "-c", script};
    open.cwd = "/";
    return open;
}

Ran InitTest::run(const wire::Open& open)
{
    Peer peer = stream(wire::Port::session);
    peer.send(open);
    const auto first = peer.message<wire::SessionMessage>();
    Ran ran;
    if (!first) {
        ran.trouble = "no answer to OPEN";
        return ran;
    }
    if (const auto* error = std::get_if<wire::ErrorMessage>(&*first)) {
        ran.error = *error;
        return ran;
    }
    if (const auto* end = std::get_if<wire::Exit>(&*first)) {
        ran.exit = *end;
        return ran;
    }
    if (!std::holds_alternative<wire::Confined>(*first)) {
        ran.trouble = "another frame than CONFINED";
        return ran;
    }
    return collect(peer);
}

void InitTest::expect_serving()
{
    const Ran ran = run_shell("exit 0");
    EXPECT_EQ(ran.trouble, "");
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 0}));
}

std::uint64_t InitTest::cpu_ticks() const
{
    // Fields 14 and 15 of /proc/PID/stat, after the name in parentheses (proc(5)).
    const auto process = sys::ProcDir::open(init_->pid());
    const std::string text = process->text("stat").value_or("");
    const char* at = text.c_str() + text.rfind(')') + 2;
    std::uint64_t ticks = 0;
    for (int field = 3; field <= 15; ++field) {
        if (field >= 14) ticks += std::strtoull(at, nullptr, 10);
        at = std::strchr(at, ' ') + 1;
    }
    return ticks;
}

std::vector<pid_t> InitTest::children() const
{
    const std::string path = "task/" + std::to_string(init_->pid()) + "/children";
    const auto process = sys::ProcDir::open(init_->pid());
    const std::string text = process->text(path).value_or("");
    std::vector<pid_t> list;
    const char* at = text.c_str();
    for (char* end = nullptr;; at = end) {
        const long pid = std::strtol(at, &end, 10);
        if (end == at) return list;
        list.push_back(static_cast<pid_t>(pid));
    }
}

}  // namespace sandbox::guest::test
