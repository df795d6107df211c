// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

namespace sandbox::channel {

// Host side of one port's stream: whole messages in, whole messages out. Everything that arrives is
// from inside and hostile: the decoder bounds it, and a violation ends the stream for good.
template <class Messages>
class FrameStream {
public:
    explicit FrameStream(sys::UniqueFd socket)
        : socket_(std::move(socket)),
          decoder_(wire::kPortOf<Messages>, wire::Direction::to_host, wire::Stage::later)
    {
    }
    // What is unread points into the buffer.
    FrameStream(const FrameStream&) = delete;
    FrameStream& operator=(const FrameStream&) = delete;

    int fd() const noexcept { return socket_.get(); }
    sys::UniqueFd release() noexcept { return std::move(socket_); }

    // Blocks while the peer does not read. `fds` travel with the first byte.
    template <class M>
    [[nodiscard]] Status send(const M& message, std::span<const int> fds = {});

    // The next message; nothing at a clean end of stream. Code::deadline_exceeded, or
    // Code::corrupt when the peer breaks the protocol.
    [[nodiscard]] Result<std::optional<Messages>> receive(sys::Deadline deadline);

private:
    [[nodiscard]] Result<std::optional<wire::Frame>> take_frame();
    std::unexpected<Error> broken(const wire::Failure& failure)
    {
        broken_ = failure;
        return fail(failure);
    }

    sys::UniqueFd socket_;
    wire::FrameDecoder decoder_;
    std::array<std::byte, 16384> buffer_{};
    std::span<const std::byte> unread_;
    std::optional<wire::Failure> broken_;
};

// One request, one reply of the wanted kind; ERROR and anything else become an Error.
template <class Reply, class Request>
[[nodiscard]] Result<Reply> ask(FrameStream<wire::ControlMessage>& stream, const Request& request,
                                sys::Deadline deadline);

// Writes all bytes, descriptors with the first.
[[nodiscard]] Status send_bytes(int socket, std::span<const std::byte> bytes,
                                std::span<const int> fds);

// Reads what is there, at least one byte; 0 at end of stream.
[[nodiscard]] Result<std::size_t> receive_bytes(int socket, std::span<std::byte> buffer,
                                                sys::Deadline deadline);

// What a peer's ERROR says, in words.
Error to_error(const wire::ErrorMessage& message);

template <class Messages>
template <class M>
Status FrameStream<Messages>::send(const M& message, std::span<const int> fds)
{
    const wire::ByteVector frame = TRY(wire::encode(message));
    return send_bytes(socket_.get(), frame, fds);
}

template <class Messages>
Result<std::optional<wire::Frame>> FrameStream<Messages>::take_frame()
{
    if (broken_) return fail(*broken_);
    auto frame = decoder_.next(unread_);
    if (!frame) return broken(frame.error());
    return std::move(*frame);
}

template <class Messages>
Result<std::optional<Messages>> FrameStream<Messages>::receive(sys::Deadline deadline)
{
    while (true) {
        if (auto frame = TRY(take_frame())) {
            auto message = wire::decode_as<Messages>(wire::Direction::to_host, frame->type,
                                                     frame->payload);
            if (!message) return broken(message.error());
            return std::optional<Messages>(std::move(*message));
        }
        const std::size_t count = TRY(receive_bytes(socket_.get(), buffer_, deadline));
        if (count == 0) {
            if (auto end = decoder_.finish(); !end) return fail(end.error());
            return std::optional<Messages>();
        }
        unread_ = std::span<const std::byte>(buffer_).first(count);
    }
}

template <class Reply, class Request>
[[nodiscard]] Result<Reply> ask(FrameStream<wire::ControlMessage>& stream, const Request& request,
                                sys::Deadline deadline)
{
    TRY_VOID(stream.send(request));
    auto reply = TRY(stream.receive(deadline));
    if (!reply) return fail(Code::unavailable, "sandbox-init closed its control port");
    if (const auto* refusal = std::get_if<wire::ErrorMessage>(&*reply))
        return fail(to_error(*refusal));
    if (auto* wanted = std::get_if<Reply>(&*reply)) return std::move(*wanted);
    return fail(Code::corrupt, "sandbox-init answered a control request with another reply");
}

}  // namespace sandbox::channel
