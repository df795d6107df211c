// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "wire/codec.hpp"
#include "wire/mux_engine.hpp"

// What the other side says. Everything is checked against the state of its stream; the first thing
// that does not fit ends the link.
namespace sandbox::wire {

namespace {

// Every one of these ends the link: a peer of another program, or a hostile one.
std::unexpected<Failure> broken(WireError error, const char* what, std::uint64_t found)
{
    return std::unexpected(Failure{error, what, found});
}

}  // namespace

Decoded<void> MuxEngine::feed(std::span<const std::byte> bytes)
{
    if (failure_) return std::unexpected(*failure_);
    while (!bytes.empty()) {
        // In steps: a chunk may hold many frames, or a part of one.
        const auto taken = head_fill_ < kHeaderSize ? feed_header(bytes) : feed_payload(bytes);
        if (!taken) {
            failure_ = taken.error();
            return std::unexpected(taken.error());
        }
        bytes = bytes.subspan(*taken);
    }
    return {};
}

Decoded<std::size_t> MuxEngine::feed_header(std::span<const std::byte> bytes)
{
    const std::size_t count = std::min(kHeaderSize - head_fill_, bytes.size());
    std::ranges::copy(bytes.first(count), head_.begin() + static_cast<std::ptrdiff_t>(head_fill_));
    head_fill_ += count;
    if (head_fill_ < kHeaderSize) return count;
    header_ = TRY(
        decode_header(Port::mux, incoming_, greeted_ ? Stage::later : Stage::first, head_));
    // Every frame of the mux has at least the stream's number.
    if (header_.length == 0) return broken(WireError::bad_payload, "length", 0);
    payload_.clear();
    data_left_ = 0;
    return count;
}

Decoded<std::size_t> MuxEngine::feed_payload(std::span<const std::byte> bytes)
{
    if (data_left_ > 0) {
        const std::size_t count = std::min(data_left_, bytes.size());
        // Straight into the stream's queue: DATA is not collected first.
        if (data_into_ != nullptr) data_into_->in.append(bytes.first(count));
        data_left_ -= count;
        if (data_left_ == 0) head_fill_ = 0;
        return count;
    }
    // All but the bytes of DATA: never more than a head.
    const bool data = header_.type == MuxData::kType;
    const std::size_t wanted = data ? std::min<std::size_t>(header_.length, kMuxDataHeader)
                                    : header_.length;
    const std::size_t count = std::min(wanted - payload_.size(), bytes.size());
    payload_.insert(payload_.end(), bytes.begin(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(count));
    if (payload_.size() < wanted) return count;
    if (data) {
        TRY_VOID(begin_data());
        return count;
    }
    head_fill_ = 0;
    TRY_VOID(take(TRY(decode_as<MuxMessage>(incoming_, header_.type, payload_))));
    return count;
}

// The stream that may speak: open, accepted, and not at its own end.
Decoded<MuxEngine::Stream*> MuxEngine::speaking(StreamId id)
{
    Stream* stream = find(id);
    // Before our OPEN was sent the peer cannot know of it.
    if (stream == nullptr || stream->open_due)
        return broken(WireError::type_not_allowed, "no such stream", id);
    if (!stream->accepted) return broken(WireError::type_not_allowed, "stream not accepted", id);
    if (stream->reset_got) return broken(WireError::type_not_allowed, "after RESET", id);
    return stream;
}

Decoded<void> MuxEngine::begin_data()
{
    StreamId id = 0;
    Reader reader(payload_);
    reader.number("stream", id);
    const std::size_t size = header_.length - std::min<std::size_t>(header_.length, kMuxDataHeader);
    if (reader.failed() || size == 0) return broken(WireError::bad_payload, "DATA", size);
    Stream* stream = TRY(speaking(id));
    if (stream->eof_got) return broken(WireError::type_not_allowed, "DATA after EOF", id);
    // Credit bounds what the peer can make us hold.
    if (size > stream->granted) return broken(WireError::too_long, "DATA beyond credit", size);
    stream->granted -= static_cast<std::uint32_t>(size);
    data_left_ = size;
    // Nobody reads it any more: its credit is never given back, and so it ends.
    data_into_ = stream->closing ? nullptr : stream;
    return {};
}

Decoded<void> MuxEngine::take(const MuxMessage& message)
{
    return std::visit(
        [this](const auto& one) -> Decoded<void> {
            // begin_data() has taken it already.
            if constexpr (std::is_same_v<std::decay_t<decltype(one)>, MuxData>)
                return broken(WireError::type_not_allowed, "DATA", 0);
            else
                return take(one);
        },
        message);
}

Decoded<void> MuxEngine::take(const MuxHello& message)
{
    // A second HELLO is refused by the table: it opens, and opens only.
    greeted_ = true;
    Stream& init = streams_[kInitStream];
    init.credit = message.window;
    queue(kInitStream, init);
    return {};
}

Decoded<void> MuxEngine::take(const MuxOpen& message)
{
    const StreamId id = message.stream;
    // Numbers only grow, so none is ever used twice.
    if (ours(id) || id == kInitStream || id <= last_theirs_)
        return broken(WireError::type_not_allowed, "OPEN of this number", id);
    const bool host = side_ == MuxSide::host;
    // The end of the link and not a RESET: the peer knows the limit.
    if (theirs_open_ >= (host ? kMaxMuxGuestStreams : kMaxMuxHostStreams))
        return broken(WireError::busy, "OPEN beyond the limit", theirs_open_);
    last_theirs_ = id;
    ++theirs_open_;
    Stream& stream = streams_[id];
    stream.credit = message.window;
    events_.emplace_back(StreamOpened{id, message.port, message.session});
    return {};
}

Decoded<void> MuxEngine::take(const MuxAccept& message)
{
    Stream* stream = find(message.stream);
    if (stream == nullptr || !ours(message.stream) || stream->open_due || stream->accepted ||
        stream->reset_got)
        return broken(WireError::type_not_allowed, "ACCEPT", message.stream);
    stream->accepted = true;
    stream->credit = message.window;
    // Nobody owns it here any more: its RESET is on the way.
    if (!stream->closing) events_.emplace_back(StreamAccepted{message.stream});
    queue(message.stream, *stream);
    return {};
}

Decoded<void> MuxEngine::take(const MuxCredit& message)
{
    Stream* stream = TRY(speaking(message.stream));
    // Without the bound credits could be added until they wrap.
    if (message.bytes > kMaxMuxWindow - std::min(kMaxMuxWindow, stream->credit))
        return broken(WireError::too_long, "CREDIT", message.bytes);
    stream->credit += message.bytes;
    queue(message.stream, *stream);
    return {};
}

Decoded<void> MuxEngine::take(const MuxEof& message)
{
    Stream* stream = TRY(speaking(message.stream));
    if (stream->eof_got || message.stream == kInitStream)
        return broken(WireError::type_not_allowed, "EOF", message.stream);
    stream->eof_got = true;
    return {};
}

Decoded<void> MuxEngine::take(const MuxReset& message)
{
    const auto at = streams_.find(message.stream);
    if (message.stream == kInitStream || at == streams_.end() || at->second.open_due ||
        at->second.reset_got)
        return broken(WireError::type_not_allowed, "RESET", message.stream);
    Stream& stream = at->second;
    stream.reset_got = true;
    stream.out.drop();
    // With a code what lies unread is not to be taken for a whole.
    if (message.code != 0) stream.in.drop();
    if (!stream.closing) events_.emplace_back(StreamReset{message.stream, message.code});
    queue(message.stream, stream);
    settle(at);
    return {};
}

}  // namespace sandbox::wire
