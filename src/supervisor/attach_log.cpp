// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "shim/log_record.hpp"
#include "shim/sessions.hpp"
#include "supervisor/attach.hpp"
#include "supervisor/log_tail.hpp"
#include "sys/file.hpp"
#include "wire/wire.hpp"

namespace sandbox::supervisor {

namespace {

// One of the two streams: where it stands, and what of it is on its way.
struct LogStream {
    int to = -1;
    std::uint64_t at = 0;
    std::uint64_t lost = 0;

    void take(const shim::LogRecord& record)
    {
        std::string bytes = record.log;
        if (!record.partial) bytes += '\n';
        const std::uint64_t end = record.offset + bytes.size();
        // All of it was delivered before: `from` may lie in the middle of what the log still has.
        if (end <= at) return;
        if (record.offset > at) lost += record.offset - at;
        if (record.offset < at) bytes.erase(0, static_cast<std::size_t>(at - record.offset));
        at = end;
        // A console that is gone does not stop the session's log: the positions go on counting.
        if (to >= 0) static_cast<void>(sys::write_all(to, bytes));
    }
    void skip(const shim::LogRecord& record)
    {
        at = record.offset + record.log.size() + (record.partial ? 0 : 1);
    }
};

class LogClient {
public:
    LogClient(sys::UniqueFd stream, sys::UniqueFd folder, const Console& console)
        : stream_(std::move(stream)), tail_(std::move(folder)), console_(console)
    {
        out_.to = console.out;
        err_.to = console.err;
    }

    Status run(const std::string& folder, LogPosition from)
    {
        watch_ = TRY(watch_log(folder));
        if (!from.out || !from.err) {
            TRY_VOID(each_record([&](const shim::LogRecord& record) {
                if (record.stream == shim::Stream::out) out_.skip(record);
                if (record.stream == shim::Stream::err) err_.skip(record);
            }));
        } else {
            out_.at = *from.out;
            err_.at = *from.err;
        }
        // What came before the watch was set is read here, what comes after wakes us.
        while (!exit_ && !left_) {
            TRY_VOID(read_log());
            TRY_VOID(wait());
        }
        // EXIT may overtake the last records: what the log worker wrote by then is read once more.
        return exit_ ? read_log() : Status{};
    }

    void report(SessionResult& result) const
    {
        result.out_offset = out_.at;
        result.err_offset = err_.at;
        if (const std::uint64_t lost = out_.lost + err_.lost; lost > 0)
            result.why = std::to_string(lost) + " bytes of older output were dropped";
        // Left with its keys: the session lives on, and that is no failure of the command.
        result.exit_status = 0;
        if (!exit_) return;
        result.exit = shim::exit_of(*exit_);
        result.exit_status = result.exit->code;
    }

private:
    template <class Use>
    Status each_record(const Use& use)
    {
        return tail_.read([&](std::string_view line) {
            if (const auto record = shim::decode(line)) use(*record);
            return true;
        });
    }

    Status read_log()
    {
        return each_record([&](const shim::LogRecord& record) {
            if (record.stream == shim::Stream::out) out_.take(record);
            if (record.stream == shim::Stream::err) err_.take(record);
        });
    }

    Status wait()
    {
        const int steering = console_.steering != nullptr ? console_.steering->fd() : -1;
        std::array<pollfd, 3> wait{
            {{watch_.get(), POLLIN, 0}, {stream_.get(), POLLIN, 0}, {steering, POLLIN, 0}}};
        if (poll(wait.data(), wait.size(), -1) < 0)
            return errno == EINTR ? Status{} : fail_errno("poll");
        drain_watch(watch_.get());
        if (wait[2].revents != 0) steer();
        if (wait[1].revents != 0) return hear();
        return {};
    }

    void steer()
    {
        while (const auto steer = console_.steering->next()) {
            // Its terminal is not ours: the size belongs to whoever owns the session.
            if (steer->kind == Steer::Kind::resize) continue;
            // Its signals are sent by name (`kill --session`): looking on is not owning.
            left_ = true;
        }
    }

    Status hear()
    {
        // EXIT and nothing else of use comes here; the output is in the log.
        std::array<std::byte, 256> chunk;
        const ssize_t count = recv(stream_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (count <= 0)
            return fail(Code::unavailable, "the shim of the sandbox went away: run 'sandboxctl "
                                           "reconcile'");
        std::span<const std::byte> bytes(chunk.data(), static_cast<std::size_t>(count));
        while (auto frame = TRY(decoder_.next(bytes))) {
            const auto message = TRY(wire::decode_as<wire::SessionMessage>(
                wire::Direction::to_host, frame->type, frame->payload));
            if (const auto* exit = std::get_if<wire::Exit>(&message)) exit_ = *exit;
        }
        return {};
    }

    sys::UniqueFd stream_;
    LogTail tail_;
    const Console& console_;
    sys::UniqueFd watch_;
    LogStream out_;
    LogStream err_;
    wire::FrameDecoder decoder_{wire::Port::session, wire::Direction::to_host, wire::Stage::later};
    std::optional<wire::Exit> exit_;
    bool left_ = false;
};

}  // namespace

Result<SessionResult> attend_log(sys::UniqueFd stream, const std::string& folder,
                                 const Console& console, LogPosition from, SessionResult result)
{
    if (!stream.valid()) return fail(Code::corrupt, "the shim sent no stream");
    LogClient client(std::move(stream), TRY_WITH(sys::open_dir(folder), "log of the session"),
                     console);
    TRY_VOID(client.run(folder, from));
    client.report(result);
    return result;
}

}  // namespace sandbox::supervisor
