// SPDX-License-Identifier: Apache-2.0
#include "peer.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::guest::test {
namespace {

// A machine under load, not a protocol figure.
constexpr Millis kPatience{20'000};

}  // namespace

void Peer::send_bytes(std::span<const std::byte> bytes)
{
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) return;  // the other side hung up: the test sees it when it reads
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
}

void Peer::send_open(const wire::Open& open, std::span<const int> fds)
{
    const auto bytes = wire::encode(open);
    if (!bytes) std::abort();
    const auto sent = sys::send_fds(
        fd_.get(), {reinterpret_cast<const char*>(bytes->data()), bytes->size()}, fds);
    if (!sent) std::abort();
}

std::optional<wire::Frame> Peer::receive()
{
    const auto deadline = sys::Deadline::after(kPatience);
    for (;;) {
        std::span<const std::byte> rest(pending_.data() + taken_, pending_.size() - taken_);
        auto frame = decoder_.next(rest);
        taken_ = pending_.size() - rest.size();
        if (!frame) return std::nullopt;
        if (*frame) return **std::move(frame);
        const auto ready = sys::poll_one(fd_.get(), POLLIN, deadline);
        if (!ready || *ready == 0) return std::nullopt;
        std::array<std::byte, 65536> chunk;
        const ssize_t count = ::recv(fd_.get(), chunk.data(), chunk.size(), 0);
        if (count <= 0) return std::nullopt;
        pending_.assign(chunk.begin(), chunk.begin() + count);
        taken_ = 0;
    }
}

bool Peer::at_end()
{
    const auto ready = sys::poll_one(fd_.get(), POLLIN, sys::Deadline::after(kPatience));
    if (!ready || *ready == 0) return false;
    char byte = 0;
    return ::recv(fd_.get(), &byte, 1, MSG_PEEK) <= 0;
}

void Peer::shut_sending() { ::shutdown(fd_.get(), SHUT_WR); }

Ran collect(Peer& peer)
{
    Ran ran;
    for (;;) {
        const auto message = peer.message<wire::SessionMessage>();
        if (!message) {
            ran.trouble = "the stream ended or stayed silent";
            return ran;
        }
        const auto text = [](const wire::ByteVector& bytes) {
            return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        };
        if (std::holds_alternative<wire::Started>(*message))
            ran.started = true;
        else if (const auto* out = std::get_if<wire::Stdout>(&*message))
            ran.out += text(out->bytes);
        else if (const auto* err = std::get_if<wire::Stderr>(&*message))
            ran.err += text(err->bytes);
        else if (const auto* error = std::get_if<wire::ErrorMessage>(&*message)) {
            ran.error = *error;
            return ran;
        } else if (const auto* end = std::get_if<wire::Exit>(&*message)) {
            ran.exit = *end;
            return ran;
        }
    }
}

sys::UniqueFd pass_stream(int channel, wire::Port port, const std::string& session,
                          wire::LeafKind kind, std::span<const int> leaf)
{
    auto pair = sys::socket_pair(sys::SocketType::stream);
    if (!pair) std::abort();
    wire::Pass pass{static_cast<std::uint32_t>(port), session, kind,
                    static_cast<std::uint8_t>(leaf.size())};
    const auto packet = wire::encode_packet(pass);
    if (!packet) std::abort();
    std::vector<int> fds{pair->second.get()};
    fds.insert(fds.end(), leaf.begin(), leaf.end());
    const auto sent = sys::send_fds(
        channel, {reinterpret_cast<const char*>(packet->data()), packet->size()}, fds);
    if (!sent) return {};
    return std::move(pair->first);
}

std::string bring_up(Peer& control)
{
    control.send(wire::Hello{});
    if (!control.control<wire::Welcome>()) return "no WELCOME";
    wire::Provision provision;
    provision.event_nonce.fill(1);
    provision.hostname = "sample";
    control.send(provision);
    if (!control.control<wire::Provisioned>()) return "no PROVISIONED";
    control.send(wire::Ready{1});
    if (!control.control<wire::ReadyAck>()) return "no READY_ACK";
    return {};
}

}  // namespace sandbox::guest::test
