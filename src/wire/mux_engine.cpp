// SPDX-License-Identifier: Apache-2.0
#include "wire/mux_engine.hpp"

#include <algorithm>
#include <utility>

namespace sandbox::wire {

namespace {

// What is handed to the link at once. Small, so that what is urgent never waits behind much.
constexpr std::size_t kOutputBytes = 64U << 10;
// A stream that was busy once must not keep a megabyte.
constexpr std::size_t kQueueKept = 64U << 10;  // of an empty queue's memory

}  // namespace

void ByteQueue::append(std::span<const std::byte> bytes)
{
    // Moves the rest to the front only when more was taken than is left: linear in total.
    if (taken_ > bytes_.size() / 2) {
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
        taken_ = 0;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void ByteQueue::take(std::size_t count) noexcept
{
    taken_ += std::min(count, size());
    // The common case is all at once: nothing is moved then.
    if (taken_ < bytes_.size()) return;
    taken_ = 0;
    if (bytes_.capacity() > kQueueKept)
        bytes_ = {};
    else
        bytes_.clear();
}

void ByteQueue::drop() noexcept
{
    bytes_ = {};
    taken_ = 0;
}

MuxEngine::MuxEngine(MuxSide side, MuxLimits limits)
    : side_(side), limits_(limits),
      incoming_(side == MuxSide::host ? Direction::to_host : Direction::to_guest),
      next_(side == MuxSide::host ? 1 : 2)
{
    // A caller's number, within what HELLO may say.
    limits_.window = std::clamp<std::uint32_t>(limits_.window, 1, kMaxMuxWindow);
    Stream& init = streams_[kInitStream];
    // Stream 0 is there from the start, and its credit comes with HELLO.
    init.accepted = true;
    init.granted = limits_.window;
    // One turn may go over by one DATA; the buffer does not grow after this.
    output_.reserve(kOutputBytes + kMaxMuxData);
    // Unasked: both sides say it at once, so a link costs no round trip.
    say(MuxHello{kProtocolVersion, limits_.window});
}

bool MuxEngine::ours(StreamId stream) const noexcept
{
    // Odd numbers are the host's.
    return (stream % 2 == 1) == (side_ == MuxSide::host);
}

MuxEngine::Stream* MuxEngine::find(StreamId stream) noexcept
{
    const auto at = streams_.find(stream);
    return at == streams_.end() ? nullptr : &at->second;
}

const MuxEngine::Stream* MuxEngine::find(StreamId stream) const noexcept
{
    const auto at = streams_.find(stream);
    return at == streams_.end() ? nullptr : &at->second;
}

// --- output -------------------------------------------------------------------------------------

template <class M>
void MuxEngine::say(const M& message)
{
    // Cannot fail: every field was made here, within its ceiling.
    if (const auto frame = encode(message))
        output_.insert(output_.end(), frame->begin(), frame->end());
}

void MuxEngine::queue(StreamId id, Stream& stream)
{
    // At most once in turns_, so its length is bounded by the streams.
    if (stream.queued || !has_work(stream)) return;
    stream.queued = true;
    // What passes beside the ports does not wait for them.
    if (id == kInitStream)
        turns_.push_front(id);
    else
        turns_.push_back(id);
}

bool MuxEngine::credit_due(const Stream& stream) const noexcept
{
    // Half a window: often enough that the peer never stops, seldom enough not to be half of the
    // frames.
    return stream.consumed >= std::max<std::uint32_t>(1, limits_.window / 2) && !stream.eof_got &&
           !stream.reset_got && !stream.closing;
}

bool MuxEngine::has_work(const Stream& stream) const noexcept
{
    // Nothing may follow a RESET.
    if (stream.reset_sent) return false;
    if (stream.open_due || stream.accept_due) return true;
    if (stream.closing && (stream.reset_got || stream.reset_code != 0 || !stream.accepted))
        return true;
    if (stream.reset_got) return false;
    if (credit_due(stream)) return true;
    if (!stream.out.empty()) return stream.credit > 0;
    return stream.closing || (stream.finishing && !stream.eof_sent && stream.accepted);
}

std::span<const std::byte> MuxEngine::output()
{
    // Before the peer's HELLO only ours goes out: it may be of another version.
    while (greeted_ && output_.size() - output_sent_ < kOutputBytes && !turns_.empty()) {
        const StreamId id = turns_.front();
        turns_.pop_front();
        const auto at = streams_.find(id);
        if (at == streams_.end()) continue;
        at->second.queued = false;
        if (!has_work(at->second)) continue;
        // Then to the end of the row again, if there is more: one DATA a turn.
        speak(id, at->second);
        queue(id, at->second);
        settle(at);
    }
    return std::span<const std::byte>(output_).subspan(output_sent_);
}

void MuxEngine::sent(std::size_t count) noexcept
{
    output_sent_ += count;
    // Cleared only when all is gone: output() has handed out a view of it.
    if (output_sent_ < output_.size()) return;
    output_.clear();
    output_sent_ = 0;
}

bool MuxEngine::has_output() const noexcept
{
    return output_sent_ < output_.size() || (greeted_ && !turns_.empty());
}

// Everything a stream has to say but its data, and one DATA.
void MuxEngine::speak(StreamId id, Stream& stream)
{
    if (stream.open_due) {
        stream.open_due = false;
        say(MuxOpen{id, ports_[id], limits_.window, sessions_[id]});
        ports_.erase(id);
        sessions_.erase(id);
    }
    if (stream.accept_due && !stream.reset_got) say(MuxAccept{id, limits_.window});
    stream.accept_due = false;
    // The other side takes nothing, or nothing is to reach it: an EOF and the rest would be lost.
    const bool pointless = stream.reset_got || stream.reset_code != 0 || !stream.accepted;
    if (stream.closing && pointless) {
        say(MuxReset{id, stream.reset_code});
        stream.reset_sent = true;
        stream.out.drop();
        return;
    }
    if (stream.reset_got) return;
    if (credit_due(stream)) {
        // Granted in the same moment in which it is said: the peer cannot send before.
        stream.granted += stream.consumed;
        say(MuxCredit{id, std::exchange(stream.consumed, 0)});
    }
    if (!stream.out.empty()) say_data(id, stream);
    if (!stream.out.empty() || !stream.accepted) return;
    if ((stream.finishing || stream.closing) && !stream.eof_sent) {
        say(MuxEof{id});
        stream.eof_sent = true;
    }
    if (stream.closing) {
        say(MuxReset{id, 0});
        stream.reset_sent = true;
    }
}

void MuxEngine::say_data(StreamId id, Stream& stream)
{
    const std::size_t count = std::min<std::size_t>(
        {stream.out.size(), stream.credit, kMaxMuxData});
    // Without credit: it comes back with CREDIT.
    if (count == 0) return;
    // By hand: a MuxData would be a copy of the bytes.
    const HeaderBytes head = encode_header(
        {MuxData::kType, static_cast<std::uint32_t>(count + kMuxDataHeader)});
    output_.insert(output_.end(), head.begin(), head.end());
    for (const unsigned shift : {24U, 16U, 8U, 0U})
        output_.push_back(static_cast<std::byte>((id >> shift) & 0xFFU));
    const auto bytes = stream.out.front().first(count);
    output_.insert(output_.end(), bytes.begin(), bytes.end());
    stream.out.take(count);
    stream.credit -= static_cast<std::uint32_t>(count);
}

// Forgotten once each side has said its last and nobody owns it here.
void MuxEngine::settle(Streams::iterator at)
{
    const Stream& stream = at->second;
    if (!stream.closing || !stream.reset_sent || !stream.reset_got) return;
    // A DATA may be on its way into it: its rest is dropped.
    if (data_into_ == &stream) data_into_ = nullptr;
    --(ours(at->first) ? ours_open_ : theirs_open_);
    streams_.erase(at);
}

// --- streams ------------------------------------------------------------------------------------

std::optional<MuxEvent> MuxEngine::next_event()
{
    if (events_.empty()) return std::nullopt;
    MuxEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
}

Decoded<StreamId> MuxEngine::open(std::uint32_t port, std::string_view session)
{
    if (failure_) return std::unexpected(*failure_);
    // Numbers never wrap: a link with so many streams has ended its use.
    constexpr StreamId kLast = UINT32_MAX - 2;
    const bool host = side_ == MuxSide::host;
    if (ours_open_ >= (host ? kMaxMuxHostStreams : kMaxMuxGuestStreams) || next_ > kLast)
        return std::unexpected(Failure{WireError::busy, "streams", ours_open_});
    // OPEN's ceiling: what encode() would refuse later, when nobody can be told.
    if (session.size() > 64)
        return std::unexpected(Failure{WireError::bad_payload, "session", session.size()});
    const StreamId id = next_;
    next_ += 2;
    // Said by output(), in turn.
    Stream& stream = streams_[id];
    ++ours_open_;
    stream.open_due = true;
    stream.granted = limits_.window;
    ports_[id] = port;
    sessions_[id] = session;
    queue(id, stream);
    return id;
}

void MuxEngine::accept(StreamId id)
{
    Stream* stream = find(id);
    // Also when the peer has reset it meanwhile: its close() will answer.
    if (stream == nullptr || ours(id) || stream->accepted || stream->closing) return;
    stream->accepted = true;
    stream->accept_due = true;
    stream->granted = limits_.window;
    queue(id, *stream);
}

bool MuxEngine::is_broken(StreamId id) const noexcept
{
    const Stream* stream = find(id);
    return stream == nullptr || stream->reset_got;
}

std::size_t MuxEngine::room(StreamId id) const noexcept
{
    const Stream* stream = find(id);
    if (stream == nullptr || stream->reset_got || stream->finishing || stream->closing) return 0;
    return limits_.send_buffer - std::min(limits_.send_buffer, stream->out.size());
}

std::size_t MuxEngine::write(StreamId id, std::span<const std::byte> bytes)
{
    // What does not fit is the caller's to keep: it is told how much was taken.
    const std::size_t count = std::min(room(id), bytes.size());
    if (count == 0) return 0;
    Stream* stream = find(id);
    stream->out.append(bytes.first(count));
    queue(id, *stream);
    return count;
}

void MuxEngine::finish(StreamId id)
{
    Stream* stream = find(id);
    // Stream 0 ends with the link only.
    if (stream == nullptr || id == kInitStream) return;
    stream->finishing = true;
    queue(id, *stream);
}

std::span<const std::byte> MuxEngine::readable(StreamId id) const noexcept
{
    const Stream* stream = find(id);
    return stream == nullptr ? std::span<const std::byte>() : stream->in.front();
}

void MuxEngine::consume(StreamId id, std::size_t count)
{
    Stream* stream = find(id);
    if (stream == nullptr) return;
    // Credit is for bytes that came, never for more.
    count = std::min(count, stream->in.size());
    stream->in.take(count);
    stream->consumed += static_cast<std::uint32_t>(count);
    queue(id, *stream);
}

bool MuxEngine::at_end(StreamId id) const noexcept
{
    const Stream* stream = find(id);
    return stream == nullptr || (stream->in.empty() && (stream->eof_got || stream->reset_got));
}

void MuxEngine::close(StreamId id, std::uint16_t code)
{
    const auto at = streams_.find(id);
    if (at == streams_.end() || id == kInitStream || at->second.closing) return;
    Stream& stream = at->second;
    stream.closing = true;
    stream.reset_code = code;
    // Nobody reads it any more.
    stream.in.drop();
    // With a code the other side is not to take it for a whole.
    if (code != 0) stream.out.drop();
    queue(id, stream);
    settle(at);
}

}  // namespace sandbox::wire
