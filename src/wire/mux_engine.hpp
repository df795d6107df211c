// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "wire/mux.hpp"
#include "wire/wire.hpp"

// One side of a mux, without I/O: bytes of the link in and out, bytes of its streams in and out.
// The same code in host and guest. Single-threaded; nothing here blocks, and what the other side
// can make it hold is bounded by the streams of both sides times window.
namespace sandbox::wire {

enum class MuxSide : std::uint8_t { host, guest };

struct MuxLimits {
    // Times 288 streams: 72 MiB at the very most, of a peer that fills all of them.
    std::uint32_t window = 256U << 10;      // bytes taken in for a stream that nobody reads
    std::size_t send_buffer = 64U << 10;  // bytes held of a stream whose other side does not read
};

// The peer opened a stream: accept() or close() it. It is counted until then.
struct StreamOpened {
    StreamId stream = 0;
    std::uint32_t port = 0;
    std::string session;
};
// Of ours: from now on it may be written.
struct StreamAccepted {
    StreamId stream = 0;
};
// The peer will send nothing more and take nothing more: refused when it was not accepted before.
// With code 0 what lies unread stays readable. The stream is ours until close().
struct StreamReset {
    StreamId stream = 0;
    std::uint16_t code = 0;
};
using MuxEvent = std::variant<StreamOpened, StreamAccepted, StreamReset>;

// Bytes in a row: appended behind, taken in front.
class ByteQueue {
public:
    std::size_t size() const noexcept { return bytes_.size() - taken_; }
    bool empty() const noexcept { return size() == 0; }
    std::span<const std::byte> front() const noexcept
    {
        return std::span<const std::byte>(bytes_).subspan(taken_);
    }
    void append(std::span<const std::byte> bytes);
    void take(std::size_t count) noexcept;
    void drop() noexcept;

private:
    std::vector<std::byte> bytes_;
    std::size_t taken_ = 0;
};

class MuxEngine {
public:
    // Its HELLO is in output() at once. `window` is brought within 1 to kMaxMuxWindow.
    explicit MuxEngine(MuxSide side, MuxLimits limits = {});

    // --- the link -----------------------------------------------------------------------------
    // Bytes that came, cut anywhere. A failure is the peer's break of the protocol and final: the
    // link is to be closed, and whoever speaks there is faulty.
    [[nodiscard]] Decoded<void> feed(std::span<const std::byte> bytes);
    // Bytes to send next, until sent() says how many were. Empty: nothing to say. One DATA of each
    // stream in turn, so that none keeps another from the link.
    std::span<const std::byte> output();
    // At most what output() gave; that view is invalid afterwards.
    void sent(std::size_t count) noexcept;
    bool has_output() const noexcept;
    // The peer's HELLO has come, in our version.
    bool greeted() const noexcept { return greeted_; }

    // --- streams ------------------------------------------------------------------------------
    // In the order in which things came. To be asked after feed() until there is none.
    std::optional<MuxEvent> next_event();

    // WireError::busy at the limit of streams.
    [[nodiscard]] Decoded<StreamId> open(std::uint32_t port, std::string_view session = {});
    // Only for a stream of the peer's that was told by StreamOpened; else nothing.
    void accept(StreamId stream);

    // Bytes that write() would take now; 0 also when nothing can be sent any more.
    std::size_t room(StreamId stream) const noexcept;
    // How many were taken, from the front; they are copied.
    std::size_t write(StreamId stream, std::span<const std::byte> bytes);
    // Half close, behind what was written.
    void finish(StreamId stream);
    // What came, oldest first; consume() makes room for more.
    // Valid until the next feed(), consume() or close().
    std::span<const std::byte> readable(StreamId stream) const noexcept;
    void consume(StreamId stream, std::size_t count);
    // Everything was consumed and nothing more comes.
    bool at_end(StreamId stream) const noexcept;
    // The peer takes nothing more.
    bool is_broken(StreamId stream) const noexcept;
    // Ours no more. What was written is still delivered, with an end behind it; with another code
    // it is dropped. A stream of the peer's that was not accepted is refused so.
    void close(StreamId stream, std::uint16_t code = 0);
    std::size_t open_streams() const noexcept { return streams_.size() - 1; }

private:
    struct Stream {
        std::uint32_t credit = 0;  // bytes we may still send
        std::uint32_t granted = 0;  // bytes the peer may still send
        std::uint32_t consumed = 0;  // not granted again yet
        ByteQueue in;
        ByteQueue out;
        std::uint16_t reset_code = 0;
        bool accepted = false;
        bool open_due = false;
        bool accept_due = false;
        bool finishing = false;  // EOF behind what is queued
        bool eof_sent = false;
        bool eof_got = false;
        bool closing = false;  // RESET behind what is queued: nobody owns it here any more
        bool reset_sent = false;
        bool reset_got = false;
        bool aborted = false;  // by the peer, with a code
        bool queued = false;  // in turns_
    };
    using Streams = std::map<StreamId, Stream>;

    bool ours(StreamId stream) const noexcept;
    bool credit_due(const Stream& stream) const noexcept;
    Stream* find(StreamId stream) noexcept;
    const Stream* find(StreamId stream) const noexcept;
    void queue(StreamId id, Stream& stream);
    bool has_work(const Stream& stream) const noexcept;
    void speak(StreamId id, Stream& stream);
    void say_data(StreamId id, Stream& stream);
    template <class M>
    void say(const M& message);
    void settle(Streams::iterator at);

    [[nodiscard]] Decoded<std::size_t> feed_header(std::span<const std::byte> bytes);
    [[nodiscard]] Decoded<std::size_t> feed_payload(std::span<const std::byte> bytes);
    [[nodiscard]] Decoded<void> begin_data();
    [[nodiscard]] Decoded<void> take(const MuxMessage& message);
    [[nodiscard]] Decoded<void> take(const MuxHello& message);
    [[nodiscard]] Decoded<void> take(const MuxOpen& message);
    [[nodiscard]] Decoded<void> take(const MuxAccept& message);
    [[nodiscard]] Decoded<void> take(const MuxCredit& message);
    [[nodiscard]] Decoded<void> take(const MuxEof& message);
    [[nodiscard]] Decoded<void> take(const MuxReset& message);
    [[nodiscard]] Decoded<Stream*> speaking(StreamId id);

    MuxSide side_;
    MuxLimits limits_;
    Direction incoming_;
    Streams streams_;
    std::deque<StreamId> turns_;  // who has something to say, whose turn is next in front
    std::deque<MuxEvent> events_;
    StreamId next_ = 0;  // of ours
    StreamId last_theirs_ = 0;
    std::size_t ours_open_ = 0;
    std::size_t theirs_open_ = 0;
    // Apart from Stream: they are needed for a moment only.
    std::map<StreamId, std::uint32_t> ports_;  // of ours whose OPEN is due
    std::map<StreamId, std::string> sessions_;
    ByteVector output_;
    std::size_t output_sent_ = 0;
    bool greeted_ = false;

    // The frame on its way in.
    std::size_t head_fill_ = 0;
    HeaderBytes head_{};
    Header header_{};
    ByteVector payload_;  // of all but DATA
    std::size_t data_left_ = 0;  // of a DATA whose stream is known
    Stream* data_into_ = nullptr;  // null: its bytes are dropped
    std::optional<Failure> failure_;
};

}  // namespace sandbox::wire
