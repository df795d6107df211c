// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sys/fd.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest::test {

// The host's end of one stream to sandbox-init: blocking, with a deadline on every wait.
class Peer {
public:
    Peer(sys::UniqueFd fd, wire::Port port)
        : fd_(std::move(fd)), decoder_(port, wire::Direction::to_host)
    {
    }

    template <class M>
    void send(const M& message)
    {
        const auto bytes = wire::encode(message);
        if (!bytes) std::abort();  // a test that cannot encode tests nothing
        send_bytes(*bytes);
    }
    void send_bytes(std::span<const std::byte> bytes);
    void send_text(std::string_view bytes) { send_bytes(std::as_bytes(std::span(bytes))); }
    // OPEN with three descriptors.
    void send_open(const wire::Open& open, std::span<const int> fds);

    // Nothing at end of stream, or when nothing came in time.
    std::optional<wire::Frame> receive();
    template <class Messages>
    std::optional<Messages> message()
    {
        const auto frame = receive();
        if (!frame) return std::nullopt;
        auto decoded = wire::decode_as<Messages>(wire::Direction::to_host, frame->type,
                                                 frame->payload);
        if (!decoded) return std::nullopt;
        return *std::move(decoded);
    }
    // The next message when it is an M.
    template <class M, class Messages>
    std::optional<M> expect()
    {
        auto next = message<Messages>();
        if (!next || !std::holds_alternative<M>(*next)) return std::nullopt;
        return std::get<M>(*std::move(next));
    }
    template <class M>
    std::optional<M> control()
    {
        return expect<M, wire::ControlMessage>();
    }
    template <class M>
    std::optional<M> session()
    {
        return expect<M, wire::SessionMessage>();
    }
    // True when the other side closed and nothing more comes.
    bool at_end();
    void shut_sending();
    void close() { fd_.reset(); }
    int fd() const { return fd_.get(); }

private:
    sys::UniqueFd fd_;
    wire::FrameDecoder decoder_;
    std::vector<std::byte> pending_;
    std::size_t taken_ = 0;
};

struct Ran {
    std::string out;
    std::string err;
    wire::Exit exit;
    bool started = false;
    std::optional<wire::ErrorMessage> error;
    std::string trouble;  // of the exchange itself; empty when EXIT or ERROR came
};
// Collects the frames after CONFINED (gate passed or off) until EXIT.
Ran collect(Peer& peer);

// SEQPACKET: PASS with a fresh stream; the host's end comes back.
sys::UniqueFd pass_stream(int channel, wire::Port port, const std::string& session,
                          wire::LeafKind kind = wire::LeafKind::none,
                          std::span<const int> leaf = {});
// HELLO, PROVISION, READY. Empty, or what went wrong.
std::string bring_up(Peer& control);

}  // namespace sandbox::guest::test
