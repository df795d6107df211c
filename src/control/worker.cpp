// SPDX-License-Identifier: Apache-2.0
#include "control/worker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "canon/json.hpp"
#include "control/fields.hpp"
#include "control/frames.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::control {

namespace {

// A fixed number, so that what runs in a worker needs to know no descriptor.
constexpr int kChannel = 3;  // behind the standard streams

// Answers as frames. A channel that nobody reads any more ends the worker: its client is gone.
class ChannelSink final : public AnswerSink {
public:
    void begin(int status, std::string_view type, Form form) override
    {
        // Only the first: a failure after the first line is told in the body.
        if (begun_) return;
        begun_ = true;
        send(FrameType::head, encode(Head{status, std::string(type), form}));
    }
    bool body(std::string_view bytes) override
    {
        while (!bytes.empty()) {
            // In pieces: the daemon takes no larger frames.
            const std::string_view piece = bytes.substr(0, kMostFrameBytes);
            bytes.remove_prefix(piece.size());
            if (!send(FrameType::body, piece)) return false;
        }
        return true;
    }

private:
    static bool send(FrameType type, std::string_view payload)
    {
        return sys::write_all(kChannel, encode_frame(type, payload)).has_value();
    }
    bool begun_ = false;
};

// What the client does meanwhile, from the channel.
class ChannelSteering final : public supervisor::Steering {
public:
    int fd() const override { return kChannel; }
    std::optional<supervisor::Steer> next() override
    {
        while (true) {
            auto frame = cutter_.next();
            if (!frame) return std::nullopt;
            if (*frame) {
                if (const auto steer = decode_steer(**frame)) return steer;
                continue;
            }
            std::array<char, 4096> bytes{};
            const ssize_t count = recv(kChannel, bytes.data(), bytes.size(), MSG_DONTWAIT);
            // Nobody would hear the answer; verbs that began are the ledger's to bring to an end.
            if (count == 0) _exit(0);  // the daemon is gone
            if (count < 0) return std::nullopt;
            cutter_.feed({bytes.data(), static_cast<std::size_t>(count)});
        }
    }

private:
    FrameCutter cutter_;
};

struct ChildEnds {
    int channel = -1;
    int in = -1;
    int out = -1;
    int err = -1;
};

// Waiting and following are for a client that the daemon had; whatever else began is brought to its
// end, with or without the daemon.
enum class Outlive { no, yes };

// Standard streams and channel in place, everything else of the daemon's closed.
void settle(const ChildEnds& ends, Outlive outlive)
{
    if (outlive == Outlive::no) prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Above what is about to be overwritten.
    // One that is below 4 would be overwritten before it was put in place.
    const int channel = fcntl(ends.channel, F_DUPFD, 10);
    const int null = open("/dev/null", O_RDWR);
    const int high = fcntl(null, F_DUPFD, 10);
    const int in = ends.in < 0 ? high : fcntl(ends.in, F_DUPFD, 10);
    const int out = ends.out < 0 ? high : fcntl(ends.out, F_DUPFD, 10);
    const int err = ends.err < 0 ? -1 : fcntl(ends.err, F_DUPFD, 10);
    if (channel < 0 || in < 0 || out < 0) _exit(127);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    // Without a stream the daemon's own: a failed assertion shows where its log goes.
    if (err >= 0) dup2(err, STDERR_FILENO);
    dup2(channel, kChannel);
    // Listening sockets, other clients and their workers: none of it is this call's.
    sys::close_range(kChannel + 1, ~0U);
    fcntl(kChannel, F_SETFD, FD_CLOEXEC);
    struct sigaction plain{};
    // A fork keeps the daemon's handlers, and those would write to the daemon's descriptors.
    plain.sa_handler = SIG_DFL;
    for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &plain, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
}

void run_call(Call call, const Work& work)
{
    ChannelSteering steering;
    ChannelSink sink;
    if (call.upgraded) {
        // A terminal is always read: its keys come that way.
        call.console.in = call.input || call.console.terminal ? STDIN_FILENO : -1;
        call.console.out = STDOUT_FILENO;
        call.console.err = STDERR_FILENO;
        call.console.steering = &steering;
    }
    work(call, sink);
}

struct Streams {
    sys::Pipe in;
    sys::Pipe out;
    sys::Pipe err;
};

Result<Streams> make_streams()
{
    Streams streams;
    streams.in = TRY(sys::make_pipe());
    streams.out = TRY(sys::make_pipe());
    streams.err = TRY(sys::make_pipe());
    return streams;
}

Result<Worker> fork_worker(Streams streams, Outlive outlive, const std::function<void()>& body)
{
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::stream));
    // No exec: the worker is this very program, with what it has in memory.
    sys::CloneResult child = TRY(sys::clone_process({}));
    if (child.pid == 0) {
        settle({pair.second.get(), streams.in.read.get(), streams.out.write.get(),
                streams.err.write.get()},
               outlive);
        body();
        _exit(0);
    }
    return Worker{sys::Pidfd(std::move(child.pidfd), child.pid), std::move(pair.first),
                  std::move(streams.in.write), std::move(streams.out.read),
                  std::move(streams.err.read)};
}

}  // namespace

Result<Worker> start_worker(const Call& call, const Work& work)
{
    Streams streams;
    if (call.upgraded) streams = TRY(make_streams());
    // A quick verb that began must not be cut by a restart of the daemon.
    const Outlive outlive = call.duration == Duration::quick ? Outlive::yes : Outlive::no;
    return fork_worker(std::move(streams), outlive, [&] { run_call(call, work); });
}

Result<Worker> start_task(const std::function<void(int channel)>& task)
{
    return fork_worker({}, Outlive::yes, [&] { task(kChannel); });
}

std::string encode(const Head& head)
{
    const canon::Json json{{"status", head.status},
                           {"type", head.type},
                           {"lines", head.form == AnswerSink::Form::lines}};
    return json.dump();
}

Result<Head> decode_head(std::string_view payload)
{
    const canon::Json json = TRY(canon::parse(payload));
    Fields fields(json, "head");
    Head head;
    head.status = static_cast<int>(fields.integer("status", 100, 599).value_or(500));
    head.type = fields.text("type").value_or("");
    if (fields.boolean("lines").value_or(false)) head.form = AnswerSink::Form::lines;
    TRY_VOID(fields.finish());
    return head;
}

}  // namespace sandbox::control
