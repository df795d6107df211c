// SPDX-License-Identifier: Apache-2.0
#include "control/pump.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/terminal.hpp"
#include "control/frames.hpp"
#include "sys/fd.hpp"

namespace sandbox::control {

namespace {

// Smaller than a frame may be: the credit is then told in useful steps.
constexpr std::size_t kInputBytes = 32U << 10;
// A pipe that is writable takes this much without blocking (PIPE_BUF, pipe(7)).
constexpr std::size_t kSureBytes = 4096;
// A reader of ours that takes none of the last output for so long is not waited for.
constexpr int kLastOutputMs = 2'000;

// One of the client's own output descriptors.
class Output {
public:
    // In raw mode the bytes are the terminal's own dialogue: they must pass unchanged.
    Output(int fd, bool raw) : fd_(fd), sanitise_(!raw && fd >= 0 && isatty(fd) == 1)
    {
        // Closed by whoever started us: output has nowhere to go, and the session runs all the
        // same.
        if (fd_ >= 0 && fcntl(fd_, F_GETFD) < 0) fd_ = -1;
    }

    bool empty() const noexcept { return held_.empty(); }
    int wanted() const noexcept { return held_.empty() ? -1 : fd_; }
    void add(std::string_view bytes)
    {
        // Owed even where nobody reads: credit is about what the daemon sent.
        owed_ += bytes.size();
        if (fd_ < 0) return;
        held_ += sanitise_ ? safe_.feed(bytes) : std::string(bytes);
    }
    void finish()
    {
        if (fd_ >= 0 && sanitise_) held_ += safe_.finish();
    }
    void write_some()
    {
        const ssize_t put = write(fd_, held_.data(), std::min(held_.size(), kSureBytes));
        if (put > 0) {
            held_.erase(0, static_cast<std::size_t>(put));
            passed_ += static_cast<std::size_t>(put);
        }
        if (put < 0 && errno != EINTR && errno != EAGAIN) {
            fd_ = -1;
            held_.clear();
            gone_ = true;
        }
    }

    // Once: its reader went away.
    bool take_gone() { return std::exchange(gone_, false); }

    // How much of what the daemon sent was passed on since the last call. A reader that has gone
    // counts as having taken everything.
    std::size_t take_passed()
    {
        // What is still held as an unfinished escape is not yet passed on.
        const std::size_t passed = held_.empty() ? owed_ : std::min(owed_, passed_);
        owed_ -= passed;
        passed_ = 0;
        return passed;
    }

private:
    int fd_;
    std::size_t owed_ = 0;  // bytes as the daemon sent them
    bool gone_ = false;
    std::size_t passed_ = 0;  // bytes as they were written, escapes included
    bool sanitise_;
    TerminalSanitiser safe_;
    std::string held_;
};

// What the person at the prompt does, where the caller does not say how to learn of it.
class Signals final : public supervisor::Steering {
public:
    Signals()
    {
        sigset_t set;
        sigemptyset(&set);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
        // Blocked, so that they come through the descriptor and not as an interruption.
        sigprocmask(SIG_BLOCK, &set, &before_);
        fd_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
        // Not among the console's numbers, where those are closed.
        if (auto high = sys::duplicate(fd_.get(), STDERR_FILENO + 1)) fd_ = std::move(*high);
    }
    // As it was: the caller may have had them blocked or not.
    ~Signals() override { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    int fd() const override { return fd_.get(); }
    std::optional<supervisor::Steer> next() override
    {
        signalfd_siginfo info{};
        if (read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
        const auto number = static_cast<int>(info.ssi_signo);
        // A terminal that went away asks for an end, as the embedded service does.
        return supervisor::Steer{.kind = supervisor::Steer::Kind::signal,
                                 .signal = number == SIGHUP ? SIGTERM : number};
    }

private:
    sigset_t before_{};
    sys::UniqueFd fd_;
};

class Pump {
public:
    Pump(int socket, std::string received, const supervisor::Console& console,
         supervisor::Steering& steering, bool input)
        : socket_(socket), steering_(steering), input_(input ? console.in : -1),
          out_(console.out, console.terminal), err_(console.err, console.terminal)
    {
        from_.feed(received);
        // No input: its end is told at once, so that the workload does not wait for any.
        if (input_ < 0) end_input();
    }

    Result<std::string> run()
    {
        while (true) {
            TRY_VOID(take_frames());
            // The result comes last on the wire, but output may still wait for our reader.
            if (result_ && out_.empty() && err_.empty()) return std::move(*result_);
            tell_what_was_taken();
            std::array<pollfd, 5> wait{{{socket_, events_of_socket(), 0},
                                        {reads_input() ? input_ : -1, POLLIN, 0},
                                        {result_ ? -1 : steering_.fd(), POLLIN, 0},
                                        {out_.wanted(), POLLOUT, 0},
                                        {err_.wanted(), POLLOUT, 0}}};
            if (wait[0].events == 0) wait[0].fd = -1;
            // After the result nothing more comes; a reader that does not take it is not waited for
            // without end.
            const int ready = poll(wait.data(), wait.size(), result_ ? kLastOutputMs : -1);
            if (ready < 0 && errno != EINTR) return fail_errno("poll");
            if (ready == 0) return std::move(*result_);
            if (ready < 0) continue;
            // Output first: what was taken is told with the next frames.
            if (wait[3].revents != 0) out_.write_some();
            if (wait[4].revents != 0) err_.write_some();
            if (wait[2].revents != 0) steer();
            if (wait[1].revents != 0) read_input();
            if ((wait[0].revents & POLLOUT) != 0) write_socket();
            if ((wait[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) TRY_VOID(read_socket());
        }
    }

private:
    short events_of_socket() const
    {
        if (result_) return 0;
        return static_cast<short>(to_.empty() ? POLLIN : POLLIN | POLLOUT);
    }

    // In one frame for both streams: the credit is of the connection.
    void tell_what_was_taken()
    {
        if (out_.take_gone()) to_ += encode_frame(FrameType::gone, "\1");
        if (err_.take_gone()) to_ += encode_frame(FrameType::gone, "\2");
        const std::size_t taken = out_.take_passed() + err_.take_passed();
        if (taken == 0 || result_) return;
        to_ += encode_credit(FrameType::taken, static_cast<std::uint32_t>(taken));
    }
    bool reads_input() const
    {
        // Within the credit: more would have to be kept by the daemon.
        return input_ >= 0 && credit_ > 0 && to_.size() < kInputBytes && !result_;
    }

    Status take_frames()
    {
        while (!result_) {
            auto frame = TRY(from_.next());
            if (!frame) return {};
            if (frame->type == FrameType::out) out_.add(frame->payload);
            if (frame->type == FrameType::err) err_.add(frame->payload);
            if (const auto more = decode_credit(*frame)) credit_ += *more;
            if (frame->type == FrameType::result) {
                result_ = std::move(frame->payload);
                out_.finish();
                err_.finish();
            }
        }
        return {};
    }

    Status read_socket()
    {
        std::string chunk(kMostFrameBytes, '\0');
        const ssize_t count = recv(socket_, chunk.data(), chunk.size(), MSG_DONTWAIT);
        if (count > 0) {
            from_.feed(std::string_view(chunk).substr(0, static_cast<std::size_t>(count)));
            return {};
        }
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) return {};
        return fail(Code::unavailable, "the daemon went away: the sandbox goes on, 'sandboxctl "
                                       "logs -f' or 'attach' shows it");
    }

    void write_socket()
    {
        const ssize_t put = send(socket_, to_.data(), to_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put > 0) to_.erase(0, static_cast<std::size_t>(put));
        // That it went away is seen when reading.
        if (put < 0 && errno != EINTR && errno != EAGAIN) to_.clear();
    }

    void read_input()
    {
        // At most the credit: what is read here is sent.
        std::string chunk(std::min(credit_, kInputBytes), '\0');
        const ssize_t count = read(input_, chunk.data(), chunk.size());
        if (count > 0) {
            chunk.resize(static_cast<std::size_t>(count));
            credit_ -= chunk.size();
            to_ += encode_frame(FrameType::in, chunk);
        } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
            end_input();
        }
    }

    void end_input()
    {
        input_ = -1;
        to_ += encode_frame(FrameType::in_end, {});
    }

    void steer()
    {
        while (const auto steer = steering_.next()) to_ += encode_steer(*steer);
    }

    int socket_;
    supervisor::Steering& steering_;
    int input_;
    Output out_;
    Output err_;
    FrameCutter from_{kMostResultBytes};
    std::string to_;
    std::size_t credit_ = kInputCredit;
    std::optional<std::string> result_;
};

}  // namespace

Result<std::string> pump(int socket, std::string received, const supervisor::Console& console,
                         bool input)
{
    // A reader of ours that has gone is no reason to die: the workload's status is still wanted.
    struct sigaction ignore{};
    struct sigaction before{};
    ignore.sa_handler = SIG_IGN;
    // Restored below: this runs in the caller's process.
    sigaction(SIGPIPE, &ignore, &before);
    std::optional<Signals> own;
    supervisor::Steering* steering = console.steering;
    if (steering == nullptr) steering = &own.emplace();
    auto result = Pump(socket, std::move(received), console, *steering, input).run();
    sigaction(SIGPIPE, &before, nullptr);
    return result;
}

}  // namespace sandbox::control
