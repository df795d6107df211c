// SPDX-License-Identifier: Apache-2.0
#include "supervisor/copy.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/tar.hpp"
#include "channel/door.hpp"
#include "channel/frame_stream.hpp"
#include "sys/file.hpp"
#include "wire/wire.hpp"

namespace sandbox::supervisor {

namespace {

using CopySession = channel::FrameStream<wire::SessionMessage>;

constexpr Millis kDoorAnswers{10'000};  // docs/protocol.md: reply deadline
// One read; two pipes' worth, so that one turn empties what a pipe holds.
constexpr std::size_t kCopyBuffer = 128U << 10;
constexpr std::size_t kMostNotes = 4096;  // of what the session says on its standard error

// Our ends of the session's descriptors, and the three that go to it.
struct Ends {
    sys::UniqueFd data;
    sys::UniqueFd notes;
    std::array<sys::UniqueFd, 3> theirs;
};

Result<Ends> make_ends(CopyRequest::Way way)
{
    Ends ends;
    sys::Pipe data = TRY(sys::make_pipe());
    sys::Pipe notes = TRY(sys::make_pipe());
    ends.notes = std::move(notes.read);
    ends.theirs[2] = std::move(notes.write);
    // Standard output goes where the notes go: on the way in nothing else is expected on it.
    if (way == CopyRequest::Way::into) {
        ends.theirs[0] = std::move(data.read);
        ends.theirs[1] = TRY(sys::duplicate(ends.theirs[2].get()));
        ends.data = std::move(data.write);
    } else {
        // Its input is at its end from the start: the write end closes with the temporary.
        ends.theirs[0] = std::move(TRY(sys::make_pipe()).read);
        ends.theirs[1] = std::move(data.write);
        ends.data = std::move(data.read);
    }
    // Ours alone: the flag sits on the open file, but the two ends of a pipe are two of them
    // (pipe(7)).
    TRY_VOID(sys::set_nonblocking(ends.data.get()));
    TRY_VOID(sys::set_nonblocking(ends.notes.get()));
    return ends;
}

wire::Open describe_copy(const plan::ProcessPlan& process, const CopyRequest& request,
                         std::uint64_t most_bytes)
{
    const bool into = request.way == CopyRequest::Way::into;
    wire::Open open;
    open.kind = into ? wire::SessionKind::copy_in : wire::SessionKind::copy_out;
    open.uid = process.uid;
    open.gid = process.gid;
    // From "/": the path is absolute, so a working folder that is gone or unreadable does not
    // matter.
    open.cwd = "/";
    open.stdio = wire::SessionStdio::descriptors;
    std::string path = request.path;
    // Inside, "/" is the sandbox's own root: the session resolves the path, never this process.
    if (!path.starts_with('/')) path = process.cwd.str() + "/" + path;
    open.argv = {std::move(path), std::to_string(most_bytes)};
    if (into)
        open.argv.emplace_back(request.landing == CopyRequest::Landing::named ? "named"
                                                                              : "content");
    return open;
}

class Transfer {
public:
    Transfer(const CopyRequest& request, CopySession& session, Ends ends, const tar::Limits& limits)
        : into_(request.way == CopyRequest::Way::into), stream_(request.stream), session_(session),
          data_(std::move(ends.data)), notes_(std::move(ends.notes)), reader_(limits)
    {
    }

    Result<CopyResult> run()
    {
        while (!over()) TRY_VOID(turn());
        return judge();
    }

private:
    // EXIT alone does not end it: the last bytes may still be in the pipes.
    bool over() const { return exit_ && !notes_.valid() && (into_ || !data_.valid()); }

    Status turn()
    {
        // One piece at a time: the next is read when the session has taken the last.
        const bool reads_stream = into_ && data_.valid() && pending_.empty() && !stream_ended_;
        const bool writes_data = into_ && data_.valid() && !pending_.empty();
        std::array<pollfd, 4> watched{{
            {exit_ ? -1 : session_.fd(), POLLIN, 0},
            {notes_.get(), POLLIN, 0},
            {into_ && !writes_data ? -1 : data_.get(), static_cast<short>(into_ ? POLLOUT : POLLIN),
             0},
            {reads_stream ? stream_ : -1, POLLIN, 0},
        }};
        if (::poll(watched.data(), watched.size(), -1) < 0)
            return errno == EINTR ? Status{} : fail_errno("poll");
        // Output first: EXIT may already stand behind it, and a full pipe would keep the session
        // alive.
        if (watched[2].revents != 0) TRY_VOID(into_ ? write_data() : read_data());
        if (watched[1].revents != 0) read_notes();
        if (watched[3].revents != 0) TRY_VOID(read_stream());
        if (watched[0].revents != 0) TRY_VOID(read_session());
        return {};
    }

    // Nothing is passed on that was not understood: how many of the bytes belong to the archive.
    Result<std::size_t> check(std::string_view bytes)
    {
        std::span<const std::byte> left = std::as_bytes(std::span(bytes));
        while (true) {
            // Hostile on the way out, and of a foreign tar on the way in: one parser judges both.
            const auto item = TRY(reader_.next(left));
            if (std::holds_alternative<tar::Reader::More>(item) ||
                std::holds_alternative<tar::Reader::End>(item))
                return bytes.size() - left.size();
        }
    }

    Status read_stream()
    {
        const ssize_t count = ::read(stream_, buffer_.data(), buffer_.size());
        if (count < 0)
            return errno == EINTR || errno == EAGAIN ? Status{} : fail_errno("read", "the archive");
        stream_ended_ = count == 0;
        if (stream_ended_ && !reader_.ended())
            return fail(Code::corrupt, "the archive ends before its end");
        // The session sees the end of its input only when our end closes.
        if (stream_ended_) data_.reset();
        pending_.assign(buffer_.data(), static_cast<std::size_t>(count));
        // Zeros behind the archive's end are dropped: tar pads to its own record size.
        pending_.resize(TRY(check(pending_)));
        return {};
    }

    Status write_data()
    {
        const ssize_t count = ::write(data_.get(), pending_.data(), pending_.size());
        if (count > 0) pending_.erase(0, static_cast<std::size_t>(count));
        if (count >= 0 || errno == EAGAIN || errno == EINTR) return {};
        // It ended; why is in its notes and its EXIT.
        data_.reset();
        return {};
    }

    Status read_data()
    {
        const ssize_t count = ::read(data_.get(), buffer_.data(), buffer_.size());
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (count <= 0) {
            data_.reset();
            return {};
        }
        const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(count));
        // Blocks when the caller's reader is slow, which holds the session back as it should.
        return sys::write_all(stream_, bytes.substr(0, TRY(check(bytes))));
    }

    void read_notes()
    {
        std::array<char, kMostNotes> text{};
        const ssize_t count = ::read(notes_.get(), text.data(), text.size());
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count <= 0) return notes_.reset();
        const std::size_t room = kMostNotes - said_.size();
        // Read on even when full: a session that blocks on its notes never ends.
        said_.append(text.data(), std::min(room, static_cast<std::size_t>(count)));
    }

    Status read_session()
    {
        auto message = session_.receive(sys::Deadline::after(Millis{0}));
        if (!message && message.error().code() == Code::deadline_exceeded) return {};
        if (!message) return fail(message.error());
        if (!*message) return fail(Code::unavailable, "the sandbox ended during the copy");
        if (const auto* error = std::get_if<wire::ErrorMessage>(&**message))
            return fail(channel::to_error(*error));
        if (const auto* exit = std::get_if<wire::Exit>(&**message)) exit_ = *exit;
        return {};
    }

    Result<CopyResult> judge()
    {
        while (said_.ends_with('\n')) said_.pop_back();
        const int value = exit_->value;
        switch (exit_->outcome) {
        case wire::ExitOutcome::exited: break;
        case wire::ExitOutcome::failed_to_start:
            return fail(Error::from_errno(value, "start", "the copy inside"));
        case wire::ExitOutcome::signaled:
        case wire::ExitOutcome::timed_out:
            return fail(Code::io, std::string("the copy inside was ended: ") + ::strsignal(value));
        }
        // Inside's own words come first: they name the file.
        if (value != 0)
            return fail(Code::io, said_.empty() ? "the copy inside failed" : "inside: " + said_);
        if (!reader_.ended()) return fail(Code::corrupt, "the archive ends before its end");
        return CopyResult{reader_.tally().files, reader_.tally().bytes, std::move(said_)};
    }

    bool into_;
    int stream_;
    CopySession& session_;
    sys::UniqueFd data_;
    sys::UniqueFd notes_;
    tar::Reader reader_;
    std::vector<char> buffer_ = std::vector<char>(kCopyBuffer);
    std::string pending_;  // read from the stream, not yet taken by the session
    std::string said_;
    bool stream_ended_ = false;
    std::optional<wire::Exit> exit_;
};

}  // namespace

Result<CopyResult> copy_files(const std::string& run_dir, const plan::ExecutionPlan& plan,
                              const CopyRequest& request)
{
    tar::Limits limits;
    if (request.most_bytes != 0) limits.bytes = request.most_bytes;
    CopySession session(TRY(channel::connect(run_dir + "/" + channel::kDoorName,
                                             static_cast<std::uint32_t>(wire::Port::session),
                                             sys::Deadline::after(kDoorAnswers))));
    Ends ends = TRY(make_ends(request.way));
    const std::array<int, 3> theirs{ends.theirs[0].get(), ends.theirs[1].get(),
                                    ends.theirs[2].get()};
    TRY_VOID(session.send(describe_copy(plan->process, request, limits.bytes), theirs));
    // Ours would keep the pipes open for ever.
    for (sys::UniqueFd& fd : ends.theirs) fd.reset();
    return Transfer(request, session, std::move(ends), limits).run();
}

}  // namespace sandbox::supervisor
