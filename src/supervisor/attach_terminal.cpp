// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "shim/sessions.hpp"
#include "supervisor/attach.hpp"
#include "supervisor/console_keys.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "wire/wire.hpp"

namespace sandbox::supervisor {

namespace {

constexpr Millis kOpened{30'000};  // two replies of docs/protocol.md, and a commit
// Sizes of one read; the frame ceilings of docs/protocol.md are far above.
constexpr std::size_t kTypedChunk = 16U << 10;
constexpr std::size_t kStreamChunk = 64U << 10;
// A session that does not read must not make us hold all its input: it waits where it came from.
constexpr std::size_t kMostQueued = 64U << 10;  // above it nothing more is read from the console
constexpr char kEndOfInput = 4;  // VEOF of a fresh terminal, termios(3)

class TerminalClient {
public:
    TerminalClient(sys::UniqueFd stream, const Console& console, std::uint64_t offset)
        : stream_(std::move(stream)), console_(console), keys_(console.detach_keys),
          offset_(offset), reading_(console.in >= 0)
    {
    }

    Status run()
    {
        TRY_VOID(sys::set_nonblocking(stream_.get()));
        while (!over_) TRY_VOID(turn());
        return {};
    }
    const std::optional<wire::Exit>& exit() const { return exit_; }
    bool was_left() const { return leaving_; }
    std::uint64_t offset() const { return offset_; }

private:
    Status turn()
    {
        const int steering = console_.steering != nullptr ? console_.steering->fd() : -1;
        // While output waits for the console nothing is read from the stream: the shim, and by it
        // the session, feels that the reader is slow.
        const bool reads = reading_ && !leaving_ && queued_.size() < kMostQueued;
        std::array<pollfd, 4> wait{
            {{stream_.get(),
              static_cast<short>((shown_.empty() ? POLLIN : 0) | (queued_.empty() ? 0 : POLLOUT)),
              0},
             {reads ? console_.in : -1, POLLIN, 0},
             {shown_.empty() ? -1 : console_.out, POLLOUT, 0},
             {steering, POLLIN, 0}}};
        // Entries with descriptor -1 are skipped by poll(2).
        if (poll(wait.data(), wait.size(), -1) < 0)
            return errno == EINTR ? Status{} : fail_errno("poll");
        if (wait[3].revents != 0) steer();
        if (wait[1].revents != 0) read_console();
        if (wait[2].revents != 0) write_console();
        if ((wait[0].revents & POLLOUT) != 0) flush();
        // Everything but POLLOUT: a hang-up and an error are also found by reading.
        if ((wait[0].revents & ~POLLOUT) != 0 && shown_.empty()) return read_stream();
        return {};
    }

    void steer()
    {
        while (const auto steer = console_.steering->next()) {
            switch (steer->kind) {
            case Steer::Kind::resize: queue(wire::Resize{steer->rows, steer->cols}); break;
            case Steer::Kind::signal:
                queue(wire::Signal{static_cast<std::uint8_t>(steer->signal)});
                break;
            case Steer::Kind::detach: leave(); break;
            }
        }
        flush();
    }

    template <class M>
    void queue(const M& message)
    {
        if (leaving_) return;
        // Above the ceiling of its class encode() fails; a resize and a signal never are.
        if (const auto frame = wire::encode(message))
            queued_.append(reinterpret_cast<const char*>(frame->data()), frame->size());
    }

    void type(std::string_view bytes)
    {
        if (bytes.empty()) return;
        const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
        queue(wire::Stdin{{first, first + bytes.size()}});
    }

    void read_console()
    {
        std::array<char, kTypedChunk> chunk;
        const ssize_t count = read(console_.in, chunk.data(), chunk.size());
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (count <= 0) {
            reading_ = false;
            // Not from a terminal: what it means at the end of a file it means here. A PTY has no
            // end of its own, only the VEOF character says it.
            if (!console_.terminal)
                type({&kEndOfInput, 1});
            else
                leave();
            return flush();
        }
        type(keys_.feed({chunk.data(), static_cast<std::size_t>(count)}));
        flush();
        if (keys_.found()) leave();
    }

    // What was typed before goes first; what was counted as ours still comes.
    void leave()
    {
        if (leaving_) return;
        flush();
        leaving_ = true;
        // Half-closed: our EOF tells the shim that we leave, and its output can still come.
        if (queued_.empty()) shutdown(stream_.get(), SHUT_WR);
    }

    void flush()
    {
        while (!queued_.empty()) {
            const ssize_t count = send(stream_.get(), queued_.data(), queued_.size(), MSG_NOSIGNAL);
            if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
            // The other side is gone: its last words are still to be read.
            if (count < 0)
                queued_.clear();
            else
                queued_.erase(0, static_cast<std::size_t>(count));
        }
        if (leaving_) shutdown(stream_.get(), SHUT_WR);
    }

    Status read_stream()
    {
        std::array<std::byte, kStreamChunk> chunk;
        const ssize_t count = recv(stream_.get(), chunk.data(), chunk.size(), 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (count <= 0) {
            over_ = true;
            return {};
        }
        std::span<const std::byte> bytes(chunk.data(), static_cast<std::size_t>(count));
        while (auto frame = TRY(decoder_.next(bytes))) {
            // Not decoded as a message: STDOUT's payload is the bytes, and copying them once is
            // enough.
            if (frame->type == wire::Stdout::kType) {
                shown_.append(reinterpret_cast<const char*>(frame->payload.data()),
                              frame->payload.size());
            } else if (frame->type == wire::Exit::kType) {
                const auto message = TRY(wire::decode_as<wire::SessionMessage>(
                    wire::Direction::to_host, frame->type, frame->payload));
                exit_ = std::get<wire::Exit>(message);
            }
        }
        write_console();
        // EXIT is the last frame, but its output may still wait for a slow console.
        if (exit_ && shown_.empty()) over_ = true;
        return {};
    }

    void write_console()
    {
        while (!shown_.empty()) {
            if (console_.out < 0) {
                offset_ += shown_.size();
                shown_.clear();
                break;
            }
            // Asked before each piece: the console may be blocking, and 4096 bytes are what a
            // descriptor that says POLLOUT takes without blocking (PIPE_BUF, pipe(7)).
            pollfd look{console_.out, POLLOUT, 0};
            if (poll(&look, 1, 0) <= 0) return;
            const ssize_t count = write(console_.out, shown_.data(),
                                        std::min<std::size_t>(shown_.size(), 4096));
            if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (count < 0) {
                // Nobody can read it any more: the session goes on without us.
                shown_.clear();
                leave();
                over_ = true;
                return;
            }
            offset_ += static_cast<std::uint64_t>(count);
            shown_.erase(0, static_cast<std::size_t>(count));
        }
        if (exit_) over_ = true;
    }

    sys::UniqueFd stream_;
    const Console& console_;
    DetachKeys keys_;
    std::uint64_t offset_;
    bool reading_;
    bool leaving_ = false;
    bool over_ = false;
    std::string queued_;  // frames on their way to the shim
    std::string shown_;  // output on its way to the console
    wire::FrameDecoder decoder_{wire::Port::session, wire::Direction::to_host, wire::Stage::later};
    std::optional<wire::Exit> exit_;
};

}  // namespace

Result<SessionAnswer> await_session(ShimConnection& shim)
{
    if (TRY(sys::poll_one(shim.fd(), POLLIN, sys::Deadline::after(kOpened))) == 0)
        return fail(Code::deadline_exceeded, "the shim did not answer in time");
    // One packet with one descriptor at most; a second one is refused as corrupt.
    auto packet = TRY(sys::recv_fds(shim.fd(), shim::kMostPacketBytes, 1));
    if (packet.bytes.empty()) return fail(Code::unavailable, "the shim ended before it answered");
    auto reply = TRY(shim::decode_control_reply(packet.bytes));
    SessionAnswer answer;
    if (!packet.fds.empty()) answer.stream = std::move(packet.fds.front());
    if (auto* opened = std::get_if<shim::SessionOpen>(&reply)) {
        answer.reply = std::move(*opened);
    } else if (auto* ended = std::get_if<shim::Ended>(&reply)) {
        answer.reply = std::move(*ended);
    } else if (const auto* rejected = std::get_if<shim::Rejected>(&reply)) {
        return fail(Code::conflict, rejected->why);
    } else {
        return fail(Code::corrupt, "the shim answered with another reply");
    }
    return answer;
}

Result<SessionResult> attend_terminal(sys::UniqueFd stream, const Console& console,
                                      std::uint64_t offset, SessionResult result)
{
    if (!stream.valid()) return fail(Code::corrupt, "the shim sent no stream");
    TerminalClient client(std::move(stream), console, offset);
    TRY_VOID(client.run());
    result.out_offset = client.offset();
    if (client.exit()) {
        result.exit = shim::exit_of(*client.exit());
        result.exit_status = result.exit->code;
        return result;
    }
    // Neither EXIT nor our own leaving: the stream just ended.
    if (!client.was_left())
        return fail(Code::unavailable, "the shim of the sandbox went away: run 'sandboxctl "
                                       "reconcile'");
    result.exit_status = 0;
    return result;
}

}  // namespace sandbox::supervisor
