// SPDX-License-Identifier: Apache-2.0
#include "channel/mux_session.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::channel {

namespace {

constexpr std::size_t kStdioFds = 3;
constexpr std::size_t kHighWater = 64U << 10;  // of what one side has said and the other not taken
constexpr std::size_t kInput = 32U << 10;  // of one STDIN

// One buffer for every read of this single-threaded program.
std::array<std::byte, kHighWater> g_chunk;

bool again(int errnum) { return errnum == EAGAIN || errnum == EINTR; }

bool is_output(std::uint8_t type)
{
    return type == wire::Stdout::kType || type == wire::Stderr::kType;
}

}  // namespace

bool PollSet::wait(int timeout_ms) noexcept
{
    if (::poll(set_.data(), set_.size(), awake_ ? 0 : timeout_ms) >= 0) return true;
    for (pollfd& entry : set_) entry.revents = 0;
    return errno == EINTR;
}

// --- raw ----------------------------------------------------------------------------------------

void RawStream::watch(PollSet& poll)
{
    const bool reads = accepted_ && !client_ended_ && engine_.room(id_) > 0;
    const bool writes = !engine_.readable(id_).empty();
    // What a hung-up client left waits for credit, and its hang-up is not to be heard meanwhile.
    at_ = PollSet::kNone;
    if (hung_up_ && !reads && !client_ended_) return;
    at_ = poll.watch(client_.get(),
                     static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)));
}

void RawStream::handle(const PollSet& poll)
{
    const short ready = poll.ready(at_);
    if ((ready & POLLIN) != 0) pull();
    push();
    if (done_) return;
    if (!guest_ended_ && engine_.at_end(id_)) {
        guest_ended_ = true;
        ::shutdown(client_.get(), SHUT_WR);
    }
    // A hang-up is not the end of what it said: its bytes are read first.
    hung_up_ = hung_up_ || (ready & (POLLHUP | POLLERR)) != 0;
    const bool gone = hung_up_ && (ready & POLLIN) == 0;
    if (engine_.is_broken(id_) && engine_.at_end(id_)) done_ = true;
    if (client_ended_ && (gone || guest_ended_)) done_ = true;
    if (gone && !accepted_) done_ = true;
}

void RawStream::pull()
{
    const std::size_t room = std::min(engine_.room(id_), g_chunk.size());
    if (room == 0) return;
    const ssize_t count = ::recv(client_.get(), g_chunk.data(), room, MSG_DONTWAIT);
    if (count < 0 && again(errno)) return;
    if (count <= 0) {
        client_ended_ = true;
        engine_.finish(id_);
        return;
    }
    engine_.write(id_, std::span(g_chunk).first(static_cast<std::size_t>(count)));
}

void RawStream::push()
{
    for (auto bytes = engine_.readable(id_); !bytes.empty(); bytes = engine_.readable(id_)) {
        const ssize_t count = ::send(client_.get(), bytes.data(), bytes.size(),
                                     MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) return;
        if (count < 0) {
            done_ = true;
            return;
        }
        engine_.consume(id_, static_cast<std::size_t>(count));
    }
}

// --- sessions -----------------------------------------------------------------------------------

bool SessionStream::has_room() const
{
    return engine_.room(id_) > kInput + wire::kHeaderSize && to_guest_.empty();
}

void SessionStream::watch(PollSet& poll)
{
    const bool reads = accepted_ && !client_ended_ && !closing_ && to_guest_.size() < kHighWater;
    at_client_ = poll.watch(client_.get(), static_cast<short>((reads ? POLLIN : 0) |
                                                              (to_client_.empty() ? 0 : POLLOUT)));
    const bool input = started_ && stdio_[0].valid() && has_room();
    at_in_ = input ? poll.watch(stdio_[0].get(), POLLIN) : PollSet::kNone;
    at_out_ = blocked_ != 0 && stdio_.at(static_cast<std::size_t>(blocked_)).valid()
                  ? poll.watch(stdio_.at(static_cast<std::size_t>(blocked_)).get(), POLLOUT)
                  : PollSet::kNone;
    if (!to_guest_.empty() && engine_.room(id_) > 0) poll.wake();
}

void SessionStream::handle(const PollSet& poll)
{
    const short ready = poll.ready(at_client_);
    if ((ready & POLLIN) != 0) read_client();
    if (poll.ready(at_in_) != 0) read_input();
    if (poll.ready(at_out_) != 0) blocked_ = 0;
    take_guest();
    flush_to_guest();
    flush_to_client();
    // Nobody is left to take the result: the guest ends the work, as a host's sandbox-init does.
    if ((ready & (POLLHUP | POLLERR)) != 0 && (ready & POLLIN) == 0) done_ = true;
    const bool silent = engine_.at_end(id_) && blocked_ == 0;
    if (to_client_.empty() && (closing_ || silent)) done_ = true;
}

void SessionStream::read_client()
{
    if (opened_) {
        const ssize_t count = ::recv(client_.get(), g_chunk.data(), g_chunk.size(), MSG_DONTWAIT);
        if (count < 0 && again(errno)) return;
        if (count > 0)
            return take_client_bytes(std::span(g_chunk).first(static_cast<std::size_t>(count)));
        client_ended_ = true;
        if (!relays_) engine_.finish(id_);
        return;
    }
    // The descriptors of stdio come with the first bytes of OPEN.
    auto got = sys::recv_fds(client_.get(), g_chunk.size(), kStdioFds);
    if (!got && again(got.error().errnum())) return;
    if (!got) return refuse(wire::WireError::bad_payload, "descriptors");
    for (sys::UniqueFd& fd : got->fds) received_.push_back(std::move(fd));
    if (received_.size() > kStdioFds) return refuse(wire::WireError::bad_payload, "descriptors");
    if (got->bytes.empty()) {
        done_ = true;
        return;
    }
    take_client_bytes(std::as_bytes(std::span(got->bytes)));
}

void SessionStream::take_client_bytes(std::span<const std::byte> bytes)
{
    while (!bytes.empty() && !closing_) {
        // With frames for its stdio the client speaks to the guest itself.
        if (opened_ && !relays_) return to_guest_.append(bytes);
        const auto frame = from_client_.next(bytes);
        if (!frame) return refuse(frame.error().error, frame.error().what);
        if (*frame) take_client_frame(**frame);
    }
}

void SessionStream::take_client_frame(const wire::Frame& frame)
{
    if (!opened_) return open(frame);
    if (frame.type == wire::Stdin::kType || frame.type == wire::StdinEof::kType)
        return refuse(wire::WireError::type_not_allowed, "STDIN");
    to_guest_.append(
        wire::encode_header({frame.type, static_cast<std::uint32_t>(frame.payload.size())}));
    to_guest_.append(frame.payload);
}

void SessionStream::open(const wire::Frame& frame)
{
    auto message = wire::decode_as<wire::SessionMessage>(wire::Direction::to_guest, frame.type,
                                                         frame.payload);
    if (!message) return refuse(message.error().error, message.error().what);
    auto& open = std::get<wire::Open>(*message);
    relays_ = open.stdio == wire::SessionStdio::descriptors;
    if (received_.size() != (relays_ ? kStdioFds : 0))
        return refuse(wire::WireError::refused, "descriptors with OPEN");
    opened_ = true;
    if (relays_) {
        adopt_stdio();
        open.stdio = wire::SessionStdio::frames;
        terminal_ = terminal_ || open.kind == wire::SessionKind::pty;
        // What says of a service that it has a terminal.
        constexpr std::uint16_t kRows = 24;
        constexpr std::uint16_t kCols = 80;
        if (terminal_ && open.rows == 0) {
            open.rows = kRows;
            open.cols = kCols;
        }
        if (!terminal_) open.rows = open.cols = 0;
    }
    const auto encoded = wire::encode(open);
    if (!encoded) return refuse(wire::WireError::bad_payload, "OPEN");
    to_guest_.append(*encoded);
}

// A socket in place of a pipe is the host's half of a terminal that the guest makes.
void SessionStream::adopt_stdio()
{
    struct stat status{};
    terminal_ = ::fstat(received_[0].get(), &status) == 0 && S_ISSOCK(status.st_mode);
    for (std::size_t i = 0; i < kStdioFds; ++i) {
        stdio_.at(i) = std::move(received_[i]);
        static_cast<void>(sys::set_nonblocking(stdio_.at(i).get()));
    }
    received_.clear();
}

void SessionStream::flush_to_guest()
{
    while (!to_guest_.empty()) {
        const std::size_t count = engine_.write(id_, to_guest_.front());
        if (count == 0) return;
        to_guest_.take(count);
    }
}

void SessionStream::read_input()
{
    if (!has_room()) return;
    const ssize_t count = ::read(stdio_[0].get(), g_chunk.data(), kInput);
    if (count < 0 && again(errno)) return;
    const std::size_t size = count > 0 ? static_cast<std::size_t>(count) : 0;
    if (size == 0) {
        stdio_[0].reset();
        // A terminal's input has no end of its own: whoever left may come back.
        if (!terminal_) to_guest_.append(wire::encode_header({wire::StdinEof::kType, 0}));
        return;
    }
    engine_.write(id_, wire::encode_header({wire::Stdin::kType, static_cast<std::uint32_t>(size)}));
    engine_.write(id_, std::span(g_chunk).first(size));
}

// --- from the guest -----------------------------------------------------------------------------

void SessionStream::take_guest()
{
    while (!done_ && !closing_ && blocked_ == 0 && to_client_.size() < kHighWater) {
        const auto bytes = engine_.readable(id_);
        if (bytes.empty()) return;
        if (!relays_) {
            const std::size_t count = std::min(bytes.size(), kHighWater);
            to_client_.append(bytes.first(count));
            engine_.consume(id_, count);
            flush_to_client();
            continue;
        }
        if (head_fill_ < wire::kHeaderSize) {
            if (!take_header(bytes)) return;
        } else if (is_output(header_.type)) {
            if (!take_output(bytes)) return;
        } else {
            take_payload(bytes);
        }
    }
}

bool SessionStream::take_header(std::span<const std::byte> bytes)
{
    const std::size_t count = std::min(wire::kHeaderSize - head_fill_, bytes.size());
    std::copy_n(bytes.begin(), count, head_.begin() + static_cast<std::ptrdiff_t>(head_fill_));
    head_fill_ += count;
    engine_.consume(id_, count);
    if (head_fill_ < wire::kHeaderSize) return true;
    const auto header = wire::decode_header(wire::Port::session, wire::Direction::to_host,
                                            wire::Stage::later, head_);
    if (!header) {
        violation_ = header.error();
        done_ = true;
        return false;
    }
    header_ = *header;
    left_ = header_.length;
    payload_.clear();
    if (left_ == 0) take_payload({});
    return true;
}

// Straight from the mux into the client's pipe; false when it takes no more.
bool SessionStream::take_output(std::span<const std::byte> bytes)
{
    const int number = header_.type == wire::Stdout::kType ? 1 : 2;
    sys::UniqueFd& out = stdio_.at(static_cast<std::size_t>(number));
    std::size_t count = std::min(left_, bytes.size());
    if (out.valid()) {
        const ssize_t written = ::write(out.get(), bytes.data(), count);
        if (written < 0 && errno == EINTR) return true;
        if (written < 0 && errno == EAGAIN) {
            blocked_ = number;
            return false;
        }
        if (written < 0)
            lose_output(number);
        else
            count = static_cast<std::size_t>(written);
    }
    engine_.consume(id_, count);
    left_ -= count;
    if (left_ == 0) head_fill_ = 0;
    return true;
}

// Nobody reads it: the program is to know at its next write, as with any pipe.
void SessionStream::lose_output(int number)
{
    stdio_.at(static_cast<std::size_t>(number)).reset();
    if (terminal_) return;
    const auto frame = wire::encode(wire::CloseOutput{static_cast<std::uint8_t>(number)});
    if (frame) to_guest_.append(*frame);
}

void SessionStream::take_payload(std::span<const std::byte> bytes)
{
    const std::size_t count = std::min(left_, bytes.size());
    payload_.insert(payload_.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(count));
    if (count > 0) engine_.consume(id_, count);
    left_ -= count;
    if (left_ > 0) return;
    head_fill_ = 0;
    if (is_output(header_.type)) return;  // an empty one
    started_ = started_ || header_.type == wire::Started::kType;
    if (header_.type == wire::Exit::kType || header_.type == wire::ErrorMessage::kType) {
        // All that came before is written: readers come to their end, and then to the result.
        for (sys::UniqueFd& fd : stdio_) fd.reset();
        closing_ = true;
    }
    to_client_.append(head_);
    to_client_.append(payload_);
}

void SessionStream::flush_to_client()
{
    while (!to_client_.empty()) {
        const auto bytes = to_client_.front();
        const ssize_t count = ::send(client_.get(), bytes.data(), bytes.size(),
                                     MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) return;
        if (count < 0) {
            done_ = true;
            return;
        }
        to_client_.take(static_cast<std::size_t>(count));
    }
}

void SessionStream::refuse(wire::WireError error, const char* what)
{
    const auto frame = wire::encode(wire::ErrorMessage{static_cast<std::uint16_t>(error), what});
    if (frame && error != wire::WireError::truncated) to_client_.append(*frame);
    closing_ = true;
    code_ = static_cast<std::uint16_t>(wire::WireError::refused);
    for (sys::UniqueFd& fd : stdio_) fd.reset();
}

}  // namespace sandbox::channel
