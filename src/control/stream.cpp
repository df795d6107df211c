// SPDX-License-Identifier: Apache-2.0
#include "control/stream.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "control/http.hpp"

namespace sandbox::control {

namespace {

constexpr std::size_t kReadBytes = kMostFrameBytes;
constexpr std::size_t kMostSteering = 4U << 10;  // to a worker that reads none; then it is dropped
// A log worker hands the last output on after the exit was told; a reader that takes nothing of it
// for so long is not waited for.
constexpr Millis kLastOutput{2'000};

// An error ends a stream as an end of file does: who wants to know why has the other side.
enum class Got { some, nothing, end };

Got read_some(int fd, std::string& chunk, std::size_t most = kReadBytes)
{
    chunk.resize(std::min(most, kReadBytes));
    while (true) {
        const ssize_t count = read(fd, chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR) continue;
        chunk.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
        if (count > 0) return Got::some;
        if (count < 0 && errno == EAGAIN) return Got::nothing;
        return Got::end;
    }
}

}  // namespace

// Handlers hold it weakly: none runs after its end, whoever called for it.
struct Stream::State : std::enable_shared_from_this<State> {
    using Watch = std::unique_ptr<Loop::Watch>;

    State(sys::Pidfd worker, End handler) : process(std::move(worker)), end(std::move(handler)) {}

    sys::Pidfd process;
    End end;
    Watch client;
    Watch channel;
    Watch in;
    Watch out;
    Watch err;
    FrameCutter from_client{kMostFrameBytes};
    FrameCutter from_worker{kMostFrameBytes};
    std::string to_client;
    std::string to_worker;  // standard input
    std::string to_channel;  // steering
    std::unique_ptr<Loop::Timer> timer;
    std::size_t allowance = kOutputCredit;
    bool input_ended = false;
    bool ended = false;  // the worker has: what is left is output on its way
    bool closing = false;  // the result is in to_client
    std::string result;
    int status = 500;
    bool over = false;

    // Calls `f` on this state if it still lives when the loop comes to it.
    Loop::Handler later(void (State::*f)())
    {
        return [weak = weak_from_this(), f] {
            if (const auto alive = weak.lock(); alive && !alive->over) ((*alive).*f)();
        };
    }

    void arm()
    {
        client->when_readable(later(&State::read_client));
        channel->when_readable(later(&State::read_channel));
        read_output_when_there_is_room();
    }

    void read_output_when_there_is_room()
    {
        // Without an allowance nothing is read, so the workload waits at its full pipe.
        if (closing || allowance == 0) return;
        if (out && !out->waits_readable()) out->when_readable(later(&State::read_out));
        if (err && !err->waits_readable()) err->when_readable(later(&State::read_err));
    }

    void finish(int code, const std::string& body)
    {
        over = true;
        // Once, whatever comes first; it may destroy the stream.
        if (const End handler = std::exchange(end, nullptr)) handler(code, body);
    }

    void read_client()
    {
        std::string chunk;
        const Got got = read_some(client->fd(), chunk);
        // The client is gone, and its stream is its presence: the worker ends with it.
        if (got == Got::end) return finish(0, {});
        from_client.feed(chunk);
        client->when_readable(later(&State::read_client));
        take_frames();
    }

    void take_frames()
    {
        while (true) {
            auto frame = from_client.next();
            // A frame that breaks the protocol ends the stream: nothing after it can be trusted.
            if (!frame || (*frame && !take(std::move(**frame)))) return finish(0, {});
            if (!*frame) break;
        }
        push_input();
    }

    bool take(Frame frame)
    {
        switch (frame.type) {
        case FrameType::in:
            if (input_ended) return false;
            to_worker += frame.payload;
            // More than its credit: a client that does not count could fill our memory.
            return to_worker.size() <= kInputCredit;
        case FrameType::in_end: input_ended = true; return true;
        case FrameType::taken: return take_allowance(frame);
        case FrameType::gone: return take_gone(frame);
        case FrameType::resize:
        case FrameType::signal:
        case FrameType::detach: return steer(frame);
        default: return false;
        }
    }

    bool take_allowance(const Frame& frame)
    {
        const auto more = decode_credit(frame);
        // Never above the whole: it would have taken what it was not sent.
        if (!more || *more > kOutputCredit - allowance) return false;
        allowance += *more;
        await_last_output();
        read_output_when_there_is_room();
        return true;
    }

    // The workload is told by EPIPE, as it would be without us.
    bool take_gone(const Frame& frame)
    {
        if (frame.payload != "\1" && frame.payload != "\2") return false;
        (frame.payload == "\1" ? out : err).reset();
        await_last_output();
        return true;
    }

    bool steer(const Frame& frame)
    {
        const auto steer = decode_steer(frame);
        if (!steer) return false;
        // Dropped beyond the bound: a worker that does not read loses steering, not the stream.
        if (channel && to_channel.size() < kMostSteering) to_channel += encode_steer(*steer);
        push_channel();
        return true;
    }

    void push_channel()
    {
        while (channel && !to_channel.empty()) {
            const ssize_t put = send(channel->fd(), to_channel.data(), to_channel.size(),
                                     MSG_NOSIGNAL | MSG_DONTWAIT);
            if (put < 0 && errno == EINTR) continue;
            if (put < 0 && errno == EAGAIN) {
                return channel->when_writable(later(&State::push_channel));
            }
            if (put < 0) return to_channel.clear();
            to_channel.erase(0, static_cast<std::size_t>(put));
        }
    }

    void push_input()
    {
        std::size_t passed = 0;
        while (!to_worker.empty() && in) {
            const ssize_t put = write(in->fd(), to_worker.data(), to_worker.size());
            if (put < 0 && errno == EINTR) continue;
            if (put < 0 && errno == EAGAIN) {
                in->when_writable(later(&State::push_input));
                break;
            }
            if (put < 0) {
                in.reset();
                break;
            }
            passed += static_cast<std::size_t>(put);
            to_worker.erase(0, static_cast<std::size_t>(put));
        }
        if (!in) {  // nobody reads it: the client may as well send the rest
            passed += to_worker.size();
            to_worker.clear();
        }
        // The workload reads its end of file only when ours is closed.
        if (input_ended && to_worker.empty()) in.reset();
        if (passed > 0 && !closing) {
            to_client += encode_credit(FrameType::credit, static_cast<std::uint32_t>(passed));
            push_client();
        }
    }

    void read_out() { read_output(out, FrameType::out); }
    void read_err() { read_output(err, FrameType::err); }

    void read_output(Watch& pipe, FrameType type)
    {
        if (!pipe || closing) return;
        std::string chunk;
        if (allowance == 0) return;
        // At most the allowance: what is read is sent.
        const Got got = read_some(pipe->fd(), chunk, allowance);
        if (got == Got::end) {
            pipe.reset();
            return await_last_output();
        }
        if (got == Got::some) {
            allowance -= chunk.size();
            to_client += encode_frame(type, chunk);
            await_last_output();
        }
        push_client();
        if (!over) read_output_when_there_is_room();
    }

    void read_channel()
    {
        std::string chunk;
        const Got got = read_some(channel->fd(), chunk);
        if (got == Got::end) return on_worker_done();
        from_worker.feed(chunk);
        while (true) {
            auto frame = from_worker.next();
            if (!frame || !*frame) break;
            if ((*frame)->type == FrameType::body) result += (*frame)->payload;
            // A worker of ours: the last head counts, and what is unknown is passed over.
            if ((*frame)->type != FrameType::head) continue;
            if (const auto head = decode_head((*frame)->payload)) status = head->status;
        }
        if (result.size() > kMostResultBytes) return on_worker_done();
        channel->when_readable(later(&State::read_channel));
    }

    void on_worker_done()
    {
        ended = true;
        channel.reset();
        in.reset();
        if (result.empty()) {
            result = "{\"error\":{\"code\":\"internal\",\"message\":\"the process of this call "
                     "died\"}}\n";
        }
        await_last_output();
    }

    // All output that came before the result goes before it.
    void await_last_output()
    {
        if (!ended || closing) return;
        // Both at their end: nothing can come behind the result any more.
        if (!out && !err) return send_result();
        timer->after(kLastOutput, later(&State::send_result));
    }

    void send_result()
    {
        timer->cancel();
        closing = true;
        out.reset();
        err.reset();
        to_client += encode_frame(FrameType::result, result);
        push_client();
    }

    void push_client()
    {
        while (!to_client.empty()) {
            const ssize_t put = send(client->fd(), to_client.data(), to_client.size(),
                                     MSG_NOSIGNAL | MSG_DONTWAIT);
            if (put < 0 && errno == EINTR) continue;
            if (put < 0 && errno == EAGAIN) {
                return client->when_writable(later(&State::push_client));
            }
            if (put < 0) return finish(0, {});
            to_client.erase(0, static_cast<std::size_t>(put));
        }
        if (closing) finish(status, result);
    }
};

Stream::Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}

Stream::~Stream() { state_->over = true; }

Result<std::unique_ptr<Stream>> Stream::start(Loop& loop, std::unique_ptr<Loop::Watch> client,
                                              std::string received, Worker worker, End end)
{
    auto state = std::make_shared<State>(std::move(worker.process), std::move(end));
    std::unique_ptr<Stream> stream(new Stream(state));
    // What fails from here on closes the worker's ends, and so ends it.
    state->timer = loop.timer();
    state->channel = TRY(loop.watch(std::move(worker.channel)));
    state->in = TRY(loop.watch(std::move(worker.in)));
    state->out = TRY(loop.watch(std::move(worker.out)));
    state->err = TRY(loop.watch(std::move(worker.err)));
    state->client = std::move(client);
    state->from_client.feed(received);
    state->to_client = render_switching();
    state->arm();
    // On turns of their own: `end` must not be called before this has returned.
    loop.soon(state->later(&State::push_client));
    loop.soon(state->later(&State::take_frames));
    return stream;
}

sys::Pidfd Stream::take_process() { return std::move(state_->process); }

}  // namespace sandbox::control
