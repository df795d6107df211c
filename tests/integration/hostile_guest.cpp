// SPDX-License-Identifier: Apache-2.0
// /init of a guest that was taken over: between the real PID 1 and the port stands an attacker, so that
// everything up to the attack is as the host expects it. /behaviour of the initrd says what the attack
// is; it begins at once, or with the output of the workload that says so.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "guest/machine.hpp"
#include "guest/machine_boot.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "wire/mux.hpp"
#include "wire/wire.hpp"

namespace {

using namespace sandbox;
using Frame = std::vector<std::byte>;

constexpr std::string_view kMark = "now-be-evil";
constexpr std::size_t kLoad = 32768;  // bytes of one DATA, docs/protocol.md

void write_whole(int fd, std::span<const std::byte> bytes)
{
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd, bytes.data(), bytes.size());
        if (count > 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(count));
            continue;
        }
        if (count < 0 && errno != EAGAIN && errno != EINTR) guest::power_off();
        pollfd room{fd, POLLOUT, 0};
        ::poll(&room, 1, -1);
    }
}

template <class M>
Frame frame_of(const M& message)
{
    return *wire::encode(message);
}

std::uint32_t number_at(std::span<const std::byte> bytes)
{
    std::uint32_t value = 0;
    for (const std::byte byte : bytes.first(4))
        value = value << 8 | std::to_integer<std::uint32_t>(byte);
    return value;
}

bool holds(std::span<const std::byte> bytes, std::string_view text)
{
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    return std::string_view(begin, bytes.size()).find(text) != std::string_view::npos;
}

class Attack {
public:
    Attack(int port, std::string behaviour) : port_(port), behaviour_(std::move(behaviour)) {}

    // One whole frame of the real PID 1.
    void take(Frame frame)
    {
        const auto type = std::to_integer<std::uint8_t>(frame[4]);
        const std::span payload = std::span(frame).subspan(wire::kHeaderSize);
        const bool data = type == wire::MuxData::kType;
        if (mute_ && behaviour_ == "mute") return;
        if (behaviour_ == "version" && type == wire::MuxHello::kType) payload[0] = std::byte{0x7f};
        // The first bytes on port 5002 are EVENT_AUTH, and the nonce ends the frame.
        if (data && payload.size() > 8 && payload[8] == std::byte{wire::EventAuth::kType} &&
            events_ == 0) {
            events_ = number_at(payload);
            if (behaviour_ == "nonce") payload[4 + wire::kFirstFrameSize - 1] ^= std::byte{1};
        }
        send(frame);
        if (data && armed_ && behaviour_ == "replay" && number_at(payload) == events_) send(frame);
        if (!data || armed_ || !holds(payload, kMark)) return;
        armed_ = true;
        begin(number_at(payload));
    }

private:
    void send(std::span<const std::byte> frame) { write_whole(port_, frame); }

    void begin(std::uint32_t stream)
    {
        const wire::MuxData load{stream, wire::ByteVector(kLoad, std::byte{'x'})};
        mute_ = true;
        // Without end, whatever the credit is.
        while (behaviour_ == "flood") send(frame_of(load));
        while (behaviour_ == "crumbs") send(frame_of(wire::MuxData{stream, {std::byte{'x'}}}));
        while (behaviour_ == "credit") send(frame_of(wire::MuxCredit{stream, wire::kMaxMuxWindow}));
        for (std::uint32_t id = 2; behaviour_ == "opens"; id += 2)
            send(frame_of(wire::MuxOpen{id, 5002, 65536, {}}));
        if (behaviour_ == "length") send(wire::encode_header({wire::MuxData::kType, 0xfffffff0U}));
        if (behaviour_ == "type") send(wire::encode_header({0x99, 0}));
        if (behaviour_ == "stranger") send(frame_of(wire::MuxData{997, {std::byte{'x'}}}));
        if (behaviour_ == "reset") send(frame_of(wire::MuxReset{wire::kInitStream, 0}));
        // On port 5001 a frame that a guest may not send: OPEN.
        if (behaviour_ == "session")
            send(frame_of(wire::MuxData{
                stream,
                {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0x20}}}));
    }

    int port_;
    std::string behaviour_;
    std::uint32_t events_ = 0;
    bool armed_ = false;
    bool mute_ = false;
};

// Cuts what the real PID 1 writes into frames.
void pass_on(int inner, Attack& attack, Frame& pending)
{
    std::array<std::byte, 65536> chunk;
    const ssize_t count = ::read(inner, chunk.data(), chunk.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) guest::power_off();
    pending.insert(pending.end(), chunk.begin(), chunk.begin() + count);
    std::size_t at = 0;
    while (pending.size() - at >= wire::kHeaderSize) {
        const std::size_t size = wire::kHeaderSize + number_at(std::span(pending).subspan(at));
        if (pending.size() - at < size) break;
        const auto from = pending.begin() + static_cast<std::ptrdiff_t>(at);
        attack.take(Frame(from, from + static_cast<std::ptrdiff_t>(size)));
        at += size;
    }
    pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

int main()
{
    auto booted = guest::boot_machine();
    auto pair = sys::socket_pair(sys::SocketType::stream);
    auto behaviour = sys::read_file("/behaviour", 64);
    if (!booted || !pair || !behaviour) guest::power_off();
    ::signal(SIGPIPE, SIG_IGN);
    // The real one has to be PID 1; the attacker is a child that it does not know of.
    if (::fork() != 0) {
        booted->port.reset();
        pair->second.reset();
        static_cast<void>(sys::set_nonblocking(pair->first.get()));
        guest::serve_machine(std::move(pair->first), booted->modules);
        guest::power_off();
    }
    pair->first.reset();
    Attack attack(booted->port.get(), std::move(*behaviour));
    Frame pending;
    std::array<std::byte, 65536> chunk;
    for (;;) {
        std::array<pollfd, 2> wait{
            {{booted->port.get(), POLLIN, 0}, {pair->second.get(), POLLIN, 0}}};
        ::poll(wait.data(), wait.size(), -1);
        if (wait[1].revents != 0) pass_on(pair->second.get(), attack, pending);
        if ((wait[0].revents & (POLLIN | POLLHUP)) == 0) continue;
        const ssize_t count = ::read(booted->port.get(), chunk.data(), chunk.size());
        if (count == 0) guest::power_off();
        if (count > 0)
            write_whole(pair->second.get(),
                        std::span(chunk).first(static_cast<std::size_t>(count)));
    }
}
