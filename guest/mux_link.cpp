// SPDX-License-Identifier: Apache-2.0
#include "guest/mux_link.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "sys/file.hpp"

namespace sandbox::guest {
namespace {

// Input of a program that does not read: 272 streams of it stay small beside a guest's memory.
constexpr wire::MuxLimits kLimits{64U << 10, 128U << 10};
constexpr std::size_t kMostTold = 256;  // lines of a host that does not read
constexpr int kReadsATurn = 4;

// For reading; what comes is copied into the engine.
std::array<std::byte, kChunk> g_port_chunk;

}  // namespace

MuxLink::MuxLink(sys::UniqueFd port)
    : port_(std::move(port)), engine_(wire::MuxSide::guest, kLimits)
{
}

void MuxLink::watch(Poller& poller)
{
    // Here too: room may have come since the last flush().
    flush_told();
    const int events = POLLIN | (engine_.has_output() ? POLLOUT : 0);
    at_ = poller.watch(port_.get(), static_cast<short>(events));
}

void MuxLink::receive(const Poller& poller)
{
    // POLLHUP of a virtio port says that the host's side is not connected: then read says 0.
    if ((poller.ready(at_) & ~POLLOUT) != 0) read_port();
}

void MuxLink::read_port()
{
    // Bounded: sessions get their turn also while the host sends without end.
    for (int i = 0; i < kReadsATurn && !ended_; ++i) {
        const ssize_t count = ::read(port_.get(), g_port_chunk.data(), g_port_chunk.size());
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (count <= 0) {
            ended_ = true;
            return;
        }
        // A host that breaks the protocol is not the one that provisioned us.
        if (!engine_.feed({g_port_chunk.data(), static_cast<std::size_t>(count)})) ended_ = true;
        // A short read: nothing more is there.
        if (static_cast<std::size_t>(count) < g_port_chunk.size()) return;
    }
}

std::optional<Link::Arrived> MuxLink::next(const Poller& /*poller*/)
{
    while (const auto event = engine_.next_event()) {
        const auto* opened = std::get_if<wire::StreamOpened>(&*event);
        if (opened == nullptr) continue;  // a reset shows on the stream itself
        // Taken for now; Init may still refuse it, with a frame on the stream itself.
        engine_.accept(opened->stream);
        Arrived arrived;
        arrived.pass.port = opened->port;
        arrived.pass.session = opened->session;
        arrived.stream = std::make_unique<MuxStream>(engine_, opened->stream);
        const bool session = opened->port == static_cast<std::uint32_t>(wire::Port::session);
        if (session && make_leaf_) {
            // Made before the session is known to be good: the child must be born in it.
            if (auto leaf = make_leaf_(opened->session); leaf.valid()) {
                arrived.pass.leaf = wire::LeafKind::v2_dir;
                arrived.pass.leaf_count = 1;
                arrived.leaf.push_back(std::move(leaf));
            } else {
                // Without its limits it does not run at all.
                arrived.note = "no cgroup for a session";
            }
        }
        return arrived;
    }
    return std::nullopt;
}

void MuxLink::tell(wire::ByteVector packet, Keep keep)
{
    // A host that does not read its log loses lines.
    if (keep == Keep::if_room && told_.size() >= kMostTold) return;
    // On stream 0 a packet is a frame: its length goes before the type.
    const auto header = wire::encode_header({std::to_integer<std::uint8_t>(packet.front()),
                                             static_cast<std::uint32_t>(packet.size() - 1)});
    packet.erase(packet.begin());
    packet.insert(packet.begin(), header.begin(), header.end());
    told_.push_back(std::move(packet));
}

void MuxLink::flush_told()
{
    while (!told_.empty()) {
        const std::span<const std::byte> frame(told_.front());
        // As much as the window takes; the rest goes when the host has read on.
        told_sent_ += engine_.write(wire::kInitStream, frame.subspan(told_sent_));
        if (told_sent_ < frame.size()) return;
        told_.pop_front();
        told_sent_ = 0;
    }
}

void MuxLink::flush()
{
    flush_told();
    for (auto bytes = engine_.output(); !bytes.empty(); bytes = engine_.output()) {
        const ssize_t count = ::write(port_.get(), bytes.data(), bytes.size());
        // The port is non-blocking.
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) return;
        if (count <= 0) {
            ended_ = true;
            return;
        }
        engine_.sent(static_cast<std::size_t>(count));
    }
}

Result<MuxLink::Records> MuxLink::await_records()
{
    // Bootstrap first, then the machine: two frames on stream 0.
    wire::FrameDecoder decoder(wire::Port::bootstrap, wire::Direction::to_guest);
    std::optional<wire::Bootstrap> boot;
    Poller poller;
    for (;;) {
        while (!engine_.readable(wire::kInitStream).empty()) {
            auto bytes = engine_.readable(wire::kInitStream);
            const std::size_t came = bytes.size();
            const auto frame = decoder.next(bytes);
            // Returns credit to the host, so that a record larger than the window gets through.
            engine_.consume(wire::kInitStream, came - bytes.size());
            if (!frame) return fail(frame.error());
            if (!*frame) continue;
            auto record = TRY(wire::decode_as<wire::BootstrapMessage>(
                wire::Direction::to_guest, (*frame)->type, (*frame)->payload));
            if (auto* first = std::get_if<wire::Bootstrap>(&record))
                boot = std::move(*first);
            else if (boot)
                return Records{std::move(*boot), std::get<wire::Machine>(std::move(record))};
        }
        flush();
        poller.clear();
        watch(poller);
        // Without a deadline: the host has one, and ends the machine.
        if (!poller.wait(-1)) return fail_errno("poll");
        receive(poller);
        if (ended_) return fail(Code::unavailable, "the host's end of the channel is gone");
    }
}

void MuxLink::drain()
{
    Poller poller;
    // 100 turns of 20 ms: two seconds, then the host is taken for gone.
    for (int turns = 0; turns < 100 && !ended_; ++turns) {
        flush();
        if (told_.empty() && !engine_.has_output()) return;
        poller.clear();
        watch(poller);
        constexpr int kPatienceMs = 20;
        if (!poller.wait(kPatienceMs)) return;
        receive(poller);
    }
}

}  // namespace sandbox::guest
