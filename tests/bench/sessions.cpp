// SPDX-License-Identifier: Apache-2.0
#include "sessions.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "channel/door.hpp"
#include "channel/frame_stream.hpp"
#include "driver/bootstrap.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "sys/process.hpp"

namespace sandbox::bench {

namespace {

using Door = channel::FrameStream<wire::SessionMessage>;

constexpr const char* kName = "sessions";
constexpr const char* kBare = "bare-sessions";
constexpr const char* kPodman = "podman-sessions";
constexpr int kDoorRuns = 200;
constexpr std::size_t kStreamBytes = 1U << 30;
constexpr std::size_t kPiece = 256U << 10;
constexpr int kWide = 1 << 20;  // pipe buffers, as the product makes its own
constexpr Millis kSessionAnswers{60'000};

Status must(const Command& command)
{
    const Timed done = TRY(run_timed(command));
    if (done.status == 0) return {};
    return fail(Code::unavailable, command.argv[0] + " ended with status " +
                                       std::to_string(done.status) + ": " + done.output);
}

Command bare(const Product& product, const Stage& stage, std::vector<std::string> words)
{
    Command command{{std::string(product.host().snapshot.value(facts::name::kOciRuntimePath)),
                     "--root", stage.state},
                    {kPath},
                    stage.mount_namespace.get()};
    command.argv.insert(command.argv.end(), words.begin(), words.end());
    return command;
}

// Connected before the clock starts: what is measured is a session, not a door.
Status open_to_exit(const Product& product, const std::string& door, Series* series)
{
    Door stream(TRY(channel::connect(door, static_cast<std::uint32_t>(wire::Port::session),
                                     sys::Deadline::after(kSessionAnswers))));
    wire::Open open = driver::exec_open(product.plan(), {"/bin/true"});
    open.gate = false;
    open.stdio = wire::SessionStdio::descriptors;
    const auto null = TRY(sys::open_file("/dev/null", O_RDWR));
    const std::array<int, 3> stdio{null.get(), null.get(), null.get()};
    const std::uint64_t start = now_ns();
    TRY_VOID(stream.send(open, stdio));
    while (true) {
        const auto message = TRY(stream.receive(sys::Deadline::after(kSessionAnswers)));
        if (!message) return fail(Code::unavailable, "the session closed without EXIT");
        if (const auto* refusal = std::get_if<wire::ErrorMessage>(&*message))
            return fail(channel::to_error(*refusal));
        if (std::get_if<wire::Exit>(&*message) != nullptr) break;
    }
    if (series != nullptr) series->add(now_ns() - start);
    return {};
}

void write_stream(int to)
{
    const std::string piece(kPiece, 'x');
    for (std::size_t sent = 0; sent < kStreamBytes; sent += piece.size())
        if (!sys::write_all(to, piece)) _exit(1);
    _exit(0);
}

// Copies as a simple relay does.
void relay(int from, int to)
{
    std::string piece(kPiece, '\0');
    for (ssize_t count = 0; (count = read(from, piece.data(), piece.size())) > 0;)
        if (!sys::write_all(to, std::string_view(piece).substr(0, static_cast<std::size_t>(count))))
            _exit(1);
    _exit(0);
}

// GiB/s of what comes out, counted in both directions.
Result<double> time_stream(int from, std::uint64_t start)
{
    std::string piece(kPiece, '\0');
    std::size_t got = 0;
    for (ssize_t count = 0; (count = read(from, piece.data(), piece.size())) > 0;)
        got += static_cast<std::size_t>(count);
    const double seconds = static_cast<double>(now_ns() - start) / 1e9;
    if (got != kStreamBytes)
        return fail(Code::corrupt,
                    std::to_string(got) + " bytes came back of " + std::to_string(kStreamBytes));
    return 2.0 * static_cast<double>(got) / seconds / static_cast<double>(1U << 30);
}

// Children see only what they are given: another end left open would keep the stream from ending.
template <class Work>
Status in_child(std::vector<int> keep, Work work)
{
    const auto child = TRY(sys::clone_process({}));
    if (child.pid != 0) return {};
    for (int fd = 3; fd < 256; ++fd)
        if (std::find(keep.begin(), keep.end(), fd) == keep.end()) sys::close_number(fd);
    work();
    _exit(127);
}

Result<double> stream_through(const Command& command)
{
    sys::Pipe in = TRY(sys::make_pipe());
    sys::Pipe out = TRY(sys::make_pipe());
    for (const int fd : {in.write.get(), out.read.get()}) fcntl(fd, F_SETPIPE_SZ, kWide);
    const std::uint64_t start = now_ns();
    TRY_VOID(in_child({in.read.get(), out.write.get()}, [&] {
        dup2(in.read.get(), STDIN_FILENO);
        dup2(out.write.get(), STDOUT_FILENO);
        std::vector<std::string> words = command.argv;
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        execv(argv[0], argv.data());
    }));
    TRY_VOID(in_child({in.write.get()}, [&] { write_stream(in.write.get()); }));
    in = {};
    out.write.reset();
    return time_stream(out.read.get(), start);
}

Result<double> stream_plainly()
{
    sys::SocketPair in = TRY(sys::socket_pair(sys::SocketType::stream));
    sys::SocketPair out = TRY(sys::socket_pair(sys::SocketType::stream));
    const std::uint64_t start = now_ns();
    TRY_VOID(in_child({in.second.get(), out.first.get()},
                      [&] { relay(in.second.get(), out.first.get()); }));
    TRY_VOID(in_child({in.first.get()}, [&] { write_stream(in.first.get()); }));
    in = {};
    out.first.reset();
    return time_stream(out.second.get(), start);
}

// Null when its container does not run: who cannot run here is left out, as find_peers() says.
const Podman* start_podman(const Peers& peers, const Stage& stage)
{
    if (!peers.podman) return nullptr;
    Command command = peers.podman->command({"run", "--detach", "--name", kPodman});
    for (const std::string& word : peers.podman->container(stage, {"/bin/sleep", "100000"}))
        command.argv.push_back(word);
    const auto timed = run_timed(command);
    return timed && timed->status == 0 ? &*peers.podman : nullptr;
}

Result<SessionTimes> measure(const Product& product, const Stage& stage, const Podman* podman,
                             const Options& options)
{
    SessionTimes times;
    const Command ours = product.command({"exec", kName, "/bin/true"});
    const std::string user = std::to_string(product.plan()->process.uid) + ":" +
                             std::to_string(product.plan()->process.gid);
    const Command theirs = bare(product, stage, {"exec", "--user", user, kBare, "/bin/true"});
    std::vector<std::pair<const Command*, Series*>> each{{&ours, &times.exec},
                                                         {&theirs, &times.crun}};
    Command third;
    if (podman != nullptr) {
        third = podman->command({"exec", kPodman, "/bin/true"});
        each.emplace_back(&third, &times.podman);
    }
    for (int i = -options.warm_up; i < options.runs; ++i) {
        for (const auto& [command, series] : each) {
            pause_between(options);
            reap_ended();
            const Timed timed = TRY(run_timed(*command));
            if (timed.status != 0)
                return fail(Code::unavailable, command->argv[0] + " exec: " + timed.output);
            if (i >= 0) series->add(timed.end_ns - timed.start_ns);
        }
    }
    auto ledger = TRY(product.ledger());
    const auto sandbox = TRY(ledger.find_name(SandboxName(kName)));
    if (!sandbox) return fail(Code::not_found, "the sandbox is gone");
    const std::string door = product.paths().run_of(sandbox->id) + "/" + channel::kDoorName;
    for (int i = -options.warm_up; i < kDoorRuns; ++i)
        TRY_VOID(open_to_exit(product, door, i < 0 ? nullptr : &times.open_door));
    times.stream = TRY(stream_through(product.command({"exec", "-i", kName, "cat"})));
    times.plain = TRY(stream_plainly());
    return times;
}

}  // namespace

Result<SessionTimes> measure_sessions(const Product& product, const Stage& stage,
                                      const Peers& peers, const Options& options)
{
    TRY_VOID(must(product.run({"-d", "--name", kName}, {"/bin/sleep", "100000"})));
    const Status started = must(
        bare(product, stage, {"run", "--detach", "--bundle", stage.crun_session_bundle, kBare}));
    const Podman* podman = start_podman(peers, stage);
    auto times = started ? measure(product, stage, podman, options)
                         : Result<SessionTimes>(fail(started.error()));
    const Status gone = must(bare(product, stage, {"delete", "--force", kBare}));
    if (podman != nullptr)
        TRY_VOID(must(podman->command({"rm", "--force", "--time", "0", kPodman})));
    TRY_VOID(must(product.command({"rm", "-f", kName})));
    TRY_VOID(reap_all());
    if (times && !gone) return fail(gone.error());
    return times;
}

}  // namespace sandbox::bench
