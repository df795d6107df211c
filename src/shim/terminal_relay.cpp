// SPDX-License-Identifier: Apache-2.0
#include "shim/terminal_relay.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {

namespace {

// One read or frame: small enough that a fast terminal cannot keep the others waiting.
constexpr std::size_t kPiece = 32U << 10;
constexpr std::size_t kMostTyped = 64U << 10;  // above it the client's stream is not read

bool must_wait(int errnum) { return errnum == EAGAIN || errnum == EINTR; }

template <class M>
std::string framed(const M& message)
{
    const auto frame = wire::encode(message);
    if (!frame) return {};
    return {reinterpret_cast<const char*>(frame->data()), frame->size()};
}

}  // namespace

void Outlet::close()
{
    if (watch_) loop_.forget(*watch_);
    watch_.reset();
    fd_.reset();
}

std::optional<std::size_t> Outlet::write(std::string_view bytes)
{
    const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count >= 0) {
        // All of it or a part: the wait is over, and begins anew when the next write fails.
        if (watch_) loop_.forget(*watch_);
        watch_.reset();
        return static_cast<std::size_t>(count);
    }
    if (!must_wait(errno)) return std::nullopt;
    if (!watch_) {
        auto watch = loop_.when_writable(fd_.get(), [this] { ready_(); });
        // A write that can neither be done nor waited for is as good as broken.
        if (!watch) return std::nullopt;
        watch_ = *watch;
    }
    return 0;
}

// Each outlet has a descriptor of its own: Asio knows one only once (loop.hpp).
TerminalRelay::TerminalRelay(Loop& loop, Terminal terminal, Hooks hooks)
    : loop_(loop), hooks_(std::move(hooks)), master_(std::move(terminal.master)),
      slave_(std::move(terminal.slave)), client_out_(loop, [this] { push(); }),
      input_(loop, [this] { write_master(); }), log_(loop, [this] { push(); })
{
}

TerminalRelay::~TerminalRelay()
{
    if (client_watch_) loop_.forget(*client_watch_);
    if (master_watch_) loop_.forget(*master_watch_);
}

Status TerminalRelay::begin()
{
    // A duplicate: the master is watched for reading at the same time.
    input_.open(TRY(sys::duplicate(master_.get())));
    watch_master();
    return {};
}

void TerminalRelay::watch_master()
{
    // With no room nothing is read, so the program waits at its full terminal.
    const bool wanted = !at_end_ && room() > 0;
    if (wanted && !master_watch_) {
        const auto watch = loop_.when_readable(master_.get(), [this] { read_master(); });
        if (watch) master_watch_ = *watch;
    } else if (!wanted && master_watch_) {
        loop_.forget(*master_watch_);
        master_watch_.reset();
    }
}

// What may be read without losing a byte that somebody is still owed.
std::size_t TerminalRelay::room() const
{
    std::uint64_t behind = ring_.end();
    if (is_attached()) behind = std::min(behind, client_at_);
    if (log_.is_open()) behind = std::min(behind, log_at_);
    return ring_.capacity() - static_cast<std::size_t>(ring_.end() - behind);
}

void TerminalRelay::read_master()
{
    std::array<char, kPiece> piece;
    const ssize_t count = ::read(master_.get(), piece.data(), std::min(piece.size(), room()));
    if (count < 0 && must_wait(errno)) return;
    if (count > 0)
        ring_.append({piece.data(), static_cast<std::size_t>(count)});
    else
        at_end_ = true;  // EIO: no slave is open any more
    push();
}

void TerminalRelay::push()
{
    // The log first: a client may leave, the log may not miss a byte.
    push_log();
    push_client();
    watch_master();
    // The terminal goes with its last byte, whoever may still want to read that.
    if (at_end_ && master_.valid()) {
        input_.close();
        master_.reset();
    }
    // Last: the hook may look at all of the above.
    hooks_.changed();
}

void TerminalRelay::push_log()
{
    while (log_.is_open() && log_at_ < ring_.end()) {
        const auto taken = log_.write(ring_.from(log_at_).substr(0, kPiece));
        if (!taken) return log_.close();  // the worker is gone
        if (*taken == 0) return;
        log_at_ += *taken;
    }
    // Only behind its last byte; the worker then sees the end of the stream.
    if (at_end_) log_.close();
}

// The next piece for the client; false when there is nothing to say.
bool TerminalRelay::next_frame()
{
    // The frame on its way is the last: all of it was counted as the client's.
    if (leaving_) return false;
    if (client_at_ < ring_.end()) {
        const std::string_view bytes = ring_.from(client_at_).substr(0, kPiece);
        const auto header = wire::encode_header(
            {wire::Stdout::kType, static_cast<std::uint32_t>(bytes.size())});
        frame_.assign(reinterpret_cast<const char*>(header.data()), header.size());
        frame_ += bytes;
        client_at_ += bytes.size();
        return true;
    }
    // EXIT behind the last byte, and once for each attachment.
    if (!at_end_ || !exit_ || exit_told_) return false;
    frame_ = framed(*exit_);
    exit_told_ = true;
    return true;
}

void TerminalRelay::push_client()
{
    while (is_attached()) {
        if (frame_.empty() && !next_frame()) {
            if (leaving_ || exit_told_) leave();
            return;
        }
        const auto taken = client_out_.write(frame_);
        if (!taken) return leave();
        if (*taken == 0) return;
        frame_.erase(0, *taken);
    }
}

void TerminalRelay::leave()
{
    // Where the next attachment goes on, unless it names a place itself.
    read_to_ = client_at_;
    client_out_.close();
    if (client_watch_) loop_.forget(*client_watch_);
    client_watch_.reset();
    client_.reset();
    frame_.clear();
    // What was typed and not yet taken is dropped: its author has gone.
    typed_.clear();
    leaving_ = false;
}

Result<TerminalRelay::Attached> TerminalRelay::attach(std::optional<std::uint64_t> from)
{
    if (is_attached())
        return fail(Code::conflict, "somebody is attached to it: only one at a time");
    if (!from) from = read_to_;
    // What has fallen out of the ring is skipped; the reply's offset tells the client.
    client_at_ = std::clamp(from.value_or(ring_.begin()), ring_.begin(), ring_.end());
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::stream));
    const std::uint64_t offset = client_at_;
    TRY_VOID(adopt(std::move(pair.first)));
    return Attached{std::move(pair.second), offset};
}

Status TerminalRelay::adopt(sys::UniqueFd stream)
{
    TRY_VOID(sys::set_nonblocking(stream.get()));
    client_out_.open(TRY(sys::duplicate(stream.get())));
    client_ = std::move(stream);
    // A fresh decoder: half a frame of the last client must not meet the next one's.
    decoder_ = wire::FrameDecoder(wire::Port::session, wire::Direction::to_guest,
                                  wire::Stage::later);
    exit_told_ = false;
    leaving_ = false;
    watch_client();
    // In a turn of its own: the caller has yet to say where the stream begins.
    const auto later = loop_.after(Millis{0}, [this, alive = std::weak_ptr<bool>(alive_)] {
        if (alive.lock()) push();
    });
    return later ? Status{} : fail(later.error());
}

void TerminalRelay::watch_client()
{
    // A program that does not read stops its typist, too.
    const bool wanted = is_attached() && !leaving_ && typed_.size() < kMostTyped;
    if (wanted && !client_watch_) {
        const auto watch = loop_.when_readable(client_.get(), [this] { read_client(); });
        if (watch) client_watch_ = *watch;
    } else if (!wanted && client_watch_) {
        loop_.forget(*client_watch_);
        client_watch_.reset();
    }
}

void TerminalRelay::read_client()
{
    std::array<std::byte, kPiece> piece;
    const ssize_t count = recv(client_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count < 0 && must_wait(errno)) return;
    if (count <= 0) {
        // Half-closed or gone: what is on its way still goes out.
        leaving_ = true;
        watch_client();
        return push();
    }
    std::span<const std::byte> bytes(piece.data(), static_cast<std::size_t>(count));
    while (is_attached()) {
        const auto frame = decoder_.next(bytes);
        // A client that breaks the protocol is dropped; the session goes on.
        if (!frame) return leave();
        if (!*frame) break;
        const auto message = wire::decode_as<wire::SessionMessage>(
            wire::Direction::to_guest, (*frame)->type, (*frame)->payload);
        if (!message) return leave();
        take(*message);
    }
    write_master();
}

void TerminalRelay::take(const wire::SessionMessage& message)
{
    if (const auto* typed = std::get_if<wire::Stdin>(&message)) {
        typed_.append(reinterpret_cast<const char*>(typed->bytes.data()), typed->bytes.size());
    } else if (const auto* size = std::get_if<wire::Resize>(&message)) {
        set_window({size->rows, size->cols});
    } else if (const auto* signal = std::get_if<wire::Signal>(&message)) {
        // The hook decides to whom: the service by its stream, others by their leaf.
        hooks_.signal(signal->signal);
    }
}

void TerminalRelay::write_master()
{
    while (!typed_.empty() && input_.is_open()) {
        const auto taken = input_.write(typed_);
        if (!taken) {
            typed_.clear();  // the terminal is gone: nobody will read it
            break;
        }
        if (*taken == 0) break;
        typed_.erase(0, *taken);
    }
    watch_client();
}

void TerminalRelay::log_into(sys::UniqueFd pipe)
{
    // Non-blocking: a slow log worker must not hold the loop.
    static_cast<void>(sys::set_nonblocking(pipe.get()));
    log_.open(std::move(pipe));
}

void TerminalRelay::leader_gone() { slave_.reset(); }

void TerminalRelay::tell_exit(wire::Exit exit)
{
    exit_ = exit;
    push();
}

bool TerminalRelay::is_drained() const
{
    return at_end_ && !log_.is_open() && (!is_attached() || exit_told_);
}

}  // namespace sandbox::shim
