// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <random>

#include "init_fixture.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "sys/procfs.hpp"

namespace sandbox::guest::test {
namespace {

using wire::ExitOutcome;

std::string random_bytes(std::size_t count)
{
    std::minstd_rand source(7);
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(source());
    return bytes;
}

wire::ByteVector bytes_of(std::string_view text)
{
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    return {first, first + text.size()};
}

// What the process holds of its own, as proc(5) counts it.
std::uint64_t memory_kib(pid_t pid)
{
    const auto process = sys::ProcDir::open(pid);
    const std::string status = process ? process->text("status").value_or("") : "";
    const auto at = status.find("RssAnon:");
    EXPECT_NE(at, std::string::npos);
    return std::strtoull(status.c_str() + at + 8, nullptr, 10);
}

constexpr std::string_view kDigestOfArgv =
    "cf6b78f621bb64c4ccdc1edcc2728c2fb0fc816d3178e4f292f86250b3ed0323";

class GuestSession : public InitTest {
protected:
    void SetUp() override
    {
        InitTest::SetUp();
        start_ready();
    }
};

}  // namespace

TEST_F(GuestSession, KeepsOutputAndErrorsApartAndTellsTheCode)
{
    const Ran ran = run_shell("echo out; echo err >&2; exit 7");
    EXPECT_EQ(ran.out, "out\n");
    EXPECT_EQ(ran.err, "err\n");
    EXPECT_TRUE(ran.started);
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::exited, 7}));
}

TEST_F(GuestSession, CarriesAnyBytesBothWaysUpToTheEndOfInput)
{
    const std::string bytes = random_bytes(3U << 20);
    Peer peer = stream(wire::Port::session);
    peer.send(shell("cat"));
    ASSERT_TRUE(peer.session<wire::Confined>());
    std::string back;
    // Two directions at once: neither side may wait for the other to drain first.
    const pid_t writer = ::fork();
    if (writer == 0) {
        for (std::size_t at = 0; at < bytes.size(); at += 100'000)
            peer.send(wire::Stdin{bytes_of(std::string_view(bytes).substr(at, 100'000))});
        peer.send(wire::StdinEof{});
        ::_exit(0);
    }
    const Ran ran = collect(peer);
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::exited, 0}));
    EXPECT_TRUE(ran.out == bytes) << ran.out.size() << " of " << bytes.size();
    int status = 0;
    sys::Pidfd::open(writer)->wait_exit(sys::Deadline::never()).value();
    (void)status;
}

TEST_F(GuestSession, TellsWhyAProgramDidNotStart)
{
    wire::Open open = shell("");
    open.argv = {"/no/such/program"};
    EXPECT_EQ(run(open).exit, (wire::Exit{ExitOutcome::failed_to_start, ENOENT}));
    open.argv = {"no-such-program-in-path"};
    EXPECT_EQ(run(open).exit, (wire::Exit{ExitOutcome::failed_to_start, ENOENT}));
    open.argv = {"/etc/passwd"};
    const Ran ran = run(open);
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::failed_to_start, EACCES}));
    EXPECT_FALSE(ran.started);
    open = shell("true");
    open.cwd = "/no/such/folder";
    EXPECT_EQ(run(open).exit, (wire::Exit{ExitOutcome::failed_to_start, ENOENT}));
    expect_serving();
}

TEST_F(GuestSession, SearchesThePathOfTheSessionsOwnEnvironment)
{
    wire::Open open = shell("");
    open.argv = {"sh", "-c", "echo $FROM_OPEN $HOME"};
    open.env = {{"FROM_OPEN", "yes"}, {"HOME", "/tmp"}};
    EXPECT_EQ(run(open).out, "yes /tmp\n");
    open.env = {{"PATH", "/nowhere::"}};  // the empty entries are not the working directory
    EXPECT_EQ(run(open).exit, (wire::Exit{ExitOutcome::failed_to_start, ENOENT}));
}

TEST_F(GuestSession, RunsNothingBeforeGo)
{
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("echo ran");
    open.gate = true;
    peer.send(open);
    const auto confined = peer.session<wire::Confined>();
    ASSERT_TRUE(confined);
    // Input and signals are taken while it waits; output there is none.
    pollfd set{peer.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&set, 1, 50), 0) << "something came before GO";
    peer.send(wire::Go{});
    const Ran ran = collect(peer);
    EXPECT_EQ(ran.out, "ran\n");
}

TEST_F(GuestSession, RefusesGoWithoutAGate)
{
    Peer peer = stream(wire::Port::session);
    peer.send(shell("sleep 1000"));
    ASSERT_TRUE(peer.session<wire::Confined>());
    ASSERT_TRUE(peer.session<wire::Started>());
    peer.send(wire::Go{});
    const auto error = peer.session<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, static_cast<std::uint16_t>(wire::WireError::type_not_allowed));
    EXPECT_TRUE(peer.at_end());
    expect_serving();
}

TEST_F(GuestSession, ReportsWhatIsReallyInForce)
{
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("cat /proc/self/status");
    open.umask = 0027;
    open.rlimits = {{RLIMIT_NOFILE, 128}};
    peer.send(open);
    const auto confined = peer.session<wire::Confined>();
    ASSERT_TRUE(confined);
    EXPECT_EQ(confined->uid, 65534U);
    EXPECT_EQ(confined->caps, wire::CapabilitySets{});
    EXPECT_TRUE(confined->no_new_privs);
    EXPECT_EQ(confined->seccomp_mode, 2);
    EXPECT_EQ(confined->open_fds, (std::vector<std::uint32_t>{0, 1, 2, 3}));
    const Ran ran = collect(peer);
    EXPECT_NE(ran.out.find("CapBnd:\t0000000000000000"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("NoNewPrivs:\t1"), std::string::npos);
    EXPECT_NE(ran.out.find("Seccomp:\t2"), std::string::npos);
    EXPECT_NE(ran.out.find("Umask:\t0027"), std::string::npos);
    EXPECT_NE(ran.out.find("SigIgn:\t0000000000000000"), std::string::npos);
    EXPECT_NE(ran.out.find("SigBlk:\t0000000000000000"), std::string::npos);
}

TEST_F(GuestSession, GivesAProgramStdioAndNothingElse)
{
    EXPECT_EQ(run_shell("for f in /proc/self/fd/*; do echo ${f##*/}; done | sort -n | head -3").out,
              "0\n1\n2\n");
    const Ran ran = run_shell("ls /proc/self/fd | wc -l");
    EXPECT_EQ(ran.out, "4\n") << "0, 1, 2 and the folder that ls itself reads";
    EXPECT_EQ(run_shell("ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo own").out, "own\n");
}

TEST_F(GuestSession, PassesSignalsToTheWholeGroup)
{
    Peer peer = stream(wire::Port::session);
    peer.send(shell("trap 'echo caught; exit 9' TERM; sleep 1000 & echo up; wait"));
    ASSERT_TRUE(peer.session<wire::Confined>());
    ASSERT_TRUE(peer.session<wire::Started>());
    ASSERT_TRUE(peer.session<wire::Stdout>());
    peer.send(wire::Signal{SIGTERM});
    const Ran ran = collect(peer);
    EXPECT_EQ(ran.out, "caught\n");
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::exited, 9}));
    EXPECT_EQ(run_shell("kill -9 $$").exit, (wire::Exit{ExitOutcome::signaled, SIGKILL}));
}

TEST_F(GuestSession, EndsAtItsTimeout)
{
    wire::Open open = shell("sleep 1000 & sleep 1000");
    open.timeout_ms = 100;
    const Ran ran = run(open);
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::timed_out, SIGKILL}));
    expect_serving();
}

TEST_F(GuestSession, RefusesWhatThePlanDoesNotPermit)
{
    const auto refused = [this](const wire::Open& open) {
        const Ran ran = run(open);
        return ran.error && ran.error->code == static_cast<std::uint16_t>(wire::WireError::refused);
    };
    wire::Open open = shell("id");
    open.uid = 0;
    EXPECT_TRUE(refused(open));
    open = shell("id");
    open.gid = 0;
    EXPECT_TRUE(refused(open));
    open = shell("id");
    open.groups = {0};
    EXPECT_TRUE(refused(open));
    open = shell("id");
    open.kind = wire::SessionKind::pty;
    EXPECT_TRUE(refused(open));
    open = shell("id");
    open.stdio = wire::SessionStdio::descriptors;  // and none came
    EXPECT_TRUE(refused(open));
    expect_serving();
}

namespace {

// Both sides of a fresh terminal of this host.
sys::Pipe make_terminal()
{
    sys::Pipe pair;
    pair.read.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    EXPECT_EQ(::unlockpt(pair.read.get()), 0);
    pair.write.reset(::ioctl(pair.read.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY));
    EXPECT_TRUE(pair.write);
    EXPECT_EQ(::fchown(pair.write.get(), 65534, 65534), 0);
    return pair;
}

std::string read_to_end(int master)
{
    std::string seen;
    char chunk[4096];
    for (ssize_t count = 0; (count = ::read(master, chunk, sizeof chunk)) > 0;)
        seen.append(chunk, static_cast<std::size_t>(count));
    return seen;
}

}  // namespace

TEST_F(GuestSession, MakesATerminalThatCameWithOpenItsControllingOne)
{
    sys::Pipe terminal = make_terminal();
    wire::Open open = shell(
        "tty -s && ps -o tty=,pgid=,tpgid= -p $$ && echo $TERM; exec <&-; exit 3");
    open.kind = wire::SessionKind::pty;
    open.stdio = wire::SessionStdio::descriptors;
    open.term = "vt220";
    Peer peer = stream(wire::Port::session);
    const int slave = terminal.write.get();
    peer.send_open(open, std::array{slave, slave, slave});
    ASSERT_TRUE(peer.session<wire::Confined>());
    const Ran ran = collect(peer);
    terminal.write.reset();
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::exited, 3}));
    const std::string seen = read_to_end(terminal.read.get());
    EXPECT_NE(seen.find("pts/"), std::string::npos) << seen;
    EXPECT_NE(seen.find("vt220"), std::string::npos) << seen;
}

TEST_F(GuestSession, RefusesATerminalThatTheKindDoesNotSayAndTheOtherWayRound)
{
    sys::Pipe terminal = make_terminal();
    sys::Pipe pipe = *sys::make_pipe();
    for (const auto& [kind, fd] : {std::pair(wire::SessionKind::exec, terminal.write.get()),
                                   std::pair(wire::SessionKind::pty, pipe.write.get())}) {
        wire::Open open = shell("echo ran");
        open.kind = kind;
        open.stdio = wire::SessionStdio::descriptors;
        Peer peer = stream(wire::Port::session);
        peer.send_open(open, std::array{fd, fd, fd});
        const auto error = peer.session<wire::ErrorMessage>();
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code, static_cast<std::uint16_t>(wire::WireError::refused));
    }
    expect_serving();
}

TEST_F(GuestSession, TellsTheShimOfEachSessionOnceThatItBeganAndThatItEnded)
{
    wire::Open open = shell("");
    open.argv = {"/bin/sh", "-c", "exit 9", ""};
    Peer peer = stream(wire::Port::session, "s7");
    peer.send(open);
    ASSERT_TRUE(peer.session<wire::Confined>());
    EXPECT_EQ(collect(peer).exit, (wire::Exit{ExitOutcome::exited, 9}));
    Peer silent = stream(wire::Port::session, "s8");
    silent.close();
    std::vector<wire::InitMessage> told;
    while (told.size() < 3) {
        ASSERT_NE(
            sys::poll_one(channel_.get(), POLLIN, sys::Deadline::after(Millis(10'000))).value_or(0),
            0)
            << told.size();
        const auto packet = sys::recv_fds(channel_.get(), wire::kMaxInitPacket, 0);
        ASSERT_TRUE(packet);
        const auto message = wire::decode_packet(wire::Direction::to_host,
                                                 std::as_bytes(std::span(packet->bytes)));
        ASSERT_TRUE(message);
        told.push_back(*message);
    }
    const auto* opened = std::get_if<wire::SessionOpened>(&told[0]);
    ASSERT_NE(opened, nullptr);
    EXPECT_EQ(opened->session, "s7");
    EXPECT_EQ(opened->uid, open.uid);
    // printf '/bin/sh\0-c\0exit 9\0\0' | sha256sum
    const std::string_view wanted = kDigestOfArgv;
    std::string digest;
    for (const std::uint8_t byte : opened->argv_digest) {
        constexpr std::string_view kHex = "0123456789abcdef";
        digest += kHex[byte >> 4];
        digest += kHex[byte & 15U];
    }
    EXPECT_EQ(digest, wanted);
    EXPECT_EQ(told[1], wire::InitMessage(wire::SessionEnded{"s7", ExitOutcome::exited, 9}));
    // One that never said what it wants ends too: its leaf is to be removed.
    const auto* unopened = std::get_if<wire::SessionEnded>(&told[2]);
    ASSERT_NE(unopened, nullptr);
    EXPECT_EQ(unopened->session, "s8");
}

TEST_F(GuestSession, UsesDescriptorsThatCameWithOpen)
{
    auto in = sys::make_pipe();
    auto out = sys::make_pipe();
    auto err = sys::make_pipe();
    ASSERT_TRUE(in && out && err);
    wire::Open open = shell("cat; echo err >&2; exit 4");
    open.kind = wire::SessionKind::service;
    open.stdio = wire::SessionStdio::descriptors;
    Peer peer = stream(wire::Port::session);
    const int fds[] = {in->read.get(), out->write.get(), err->write.get()};
    peer.send_open(open, fds);
    ASSERT_TRUE(peer.session<wire::Confined>());
    in->read.reset();
    out->write.reset();
    err->write.reset();
    ASSERT_TRUE(sys::write_all(in->write.get(), "through"));
    in->write.reset();
    const Ran ran = collect(peer);
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::exited, 4}));
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(sys::read_all(out->read.get(), 100).value_or("?"), "through");
    EXPECT_EQ(sys::read_all(err->read.get(), 100).value_or("?"), "err\n");
    // The service runs once.
    Peer again = stream(wire::Port::session);
    auto more = sys::make_pipe();
    const int same[] = {more->read.get(), more->write.get(), more->write.get()};
    again.send_open(open, same);
    const auto error = again.session<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, static_cast<std::uint16_t>(wire::WireError::refused));
}

TEST_F(GuestSession, DoesNotWaitForWhatTheLeaderLeftBehind)
{
    const Ran ran = run_shell("sleep 1000 & echo done");
    EXPECT_EQ(ran.out, "done\n");
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::exited, 0}));
    for (const pid_t pid : children()) ::kill(pid, SIGKILL);
}

TEST_F(GuestSession, ReapsOrphans)
{
    const Ran ran = run_shell("(sh -c 'true' & ) ; (exit 3) & exit 0");
    EXPECT_EQ(ran.trouble, "");
    // Orphans end when they end; each turn of a fresh session gives init the chance to reap.
    for (int turn = 0; turn < 200 && !children().empty(); ++turn) expect_serving();
    EXPECT_TRUE(children().empty());
}

TEST_F(GuestSession, KillsAProgramWhosePeerIsGone)
{
    Peer peer = stream(wire::Port::session);
    peer.send(shell("sleep 1000"));
    ASSERT_TRUE(peer.session<wire::Confined>());
    const auto started = peer.session<wire::Started>();
    ASSERT_TRUE(started);
    const auto pidfd = sys::Pidfd::open(static_cast<pid_t>(started->pid));
    ASSERT_TRUE(pidfd);
    peer.close();
    const auto gone = pidfd->wait_ended(sys::Deadline::after(Millis(20'000)));
    ASSERT_TRUE(gone);
    EXPECT_TRUE(*gone);
}

TEST_F(GuestSession, StaysIdleWhileNothingHappens)
{
    Peer half = stream(wire::Port::session);
    half.send(shell("exec 0<&-; sleep 0.4"));  // closes its input; the peer shuts its side too
    ASSERT_TRUE(half.session<wire::Confined>());
    half.send(wire::Stdin{bytes_of("nobody reads this")});
    half.shut_sending();
    const auto before = cpu_ticks();
    const Ran ran = collect(half);
    EXPECT_EQ(ran.exit, (wire::Exit{ExitOutcome::exited, 0}));
    // 0.4 s are 40 ticks (USER_HZ is 100): a spin would take most of them.
    EXPECT_LT(cpu_ticks() - before, 12U);
}

TEST_F(GuestSession, HoldsBackAProgramThatNobodyListensTo)
{
    const std::uint64_t before = memory_kib(init_->pid());
    Peer peer = stream(wire::Port::session);
    peer.send(shell("head -c 4000000 /dev/zero; echo over >&2"));
    ASSERT_TRUE(peer.session<wire::Confined>());
    // Others are served while it waits for us.
    for (int i = 0; i < 3; ++i) expect_serving();
    EXPECT_LT(memory_kib(init_->pid()), before + 2000U);
    const Ran ran = collect(peer);
    EXPECT_EQ(ran.out.size(), 4'000'000U);
    EXPECT_EQ(ran.err, "over\n");
}

}  // namespace sandbox::guest::test
