// SPDX-License-Identifier: Apache-2.0
#include "fuzz.hpp"
#include "guest/control.hpp"
#include "guest/session.hpp"
#include "guest/stream.hpp"
#include "wire/mux_engine.hpp"

// PID 1's control port and a session, over a mux in memory, with a host that says anything: it ends
// in order or is refused, nothing becomes ready without PROVISION, nothing is provisioned twice, no
// process is ever started before READY, and no reply comes unasked.
// Input: records of (port, kind, length, payload); READY is left out, so that nothing can run.
namespace sandbox::fuzz {

namespace {

using guest::Poller;
using wire::StreamId;

wire::ByteVector payload_of(std::string_view text)
{
    const auto bytes = as_bytes(text);
    return {bytes.begin(), bytes.end()};
}

template <class M>
void append(wire::ByteVector& all, const M& message)
{
    if (const auto frame = wire::encode(message))
        all.insert(all.end(), frame->begin(), frame->end());
}

void append_request(wire::ByteVector& all, Bytes& input)
{
    const std::uint8_t kind = input.byte();
    const std::string text(input.text(60));
    switch (kind % 10) {
    case 0: return append(all, wire::Hello{});
    case 1: {
        wire::Provision provision;
        provision.hostname = "h";
        provision.event_nonce.fill(kind);
        return append(all, provision);
    }
    case 2: return append(all, wire::StatsRequest{});
    case 3: return append(all, wire::TimeSet{kind});
    case 4: return append(all, wire::Rotate{wire::RotateKind::event_nonce, "", payload_of(text)});
    case 5:
        return append(all, wire::Secret{wire::SecretPlace::variable, 0, 0, text, payload_of(text)});
    case 6:
        return append(all,
                      wire::Secret{wire::SecretPlace::file, 0, 0, "/" + text, payload_of(text)});
    case 7: return append(all, wire::Poweroff{wire::PoweroffReason::stop});
    case 8:
        if (kind % 20 == 8) return append(all, wire::Fstrim{});
        return append(all, wire::SignalSession{text, static_cast<std::uint8_t>(1 + kind % 60)});
    default: {
        const auto header = wire::encode_header(
            {kind, static_cast<std::uint32_t>(text.size() + input.byte() % 3)});
        all.insert(all.end(), header.begin(), header.end());
        const auto bytes = as_bytes(text);
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    }
}

void append_session(wire::ByteVector& all, Bytes& input)
{
    const std::uint8_t kind = input.byte();
    const std::string text(input.text(60));
    wire::Open open;
    open.argv = {"/bin/true", text};
    switch (kind % 6) {
    case 0: return append(all, open);
    case 1: return append(all, wire::Stdin{payload_of(text)});
    case 2: return append(all, wire::Signal{static_cast<std::uint8_t>(1 + kind % 60)});
    case 3: return append(all, wire::Go{});
    case 4: return append(all, wire::CloseOutput{1});
    default: {
        const auto header = wire::encode_header({kind, static_cast<std::uint32_t>(text.size())});
        all.insert(all.end(), header.begin(), header.end());
        const auto bytes = as_bytes(text);
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    }
}

void carry(wire::MuxEngine& from, wire::MuxEngine& to)
{
    for (auto bytes = from.output(); !bytes.empty(); bytes = from.output()) {
        HOLDS(to.feed(bytes).has_value());
        from.sent(bytes.size());
    }
}

// Both engines and the two ports on them.
class Pair {
public:
    Pair()
    {
        exchange();
        control_ = open(wire::Port::control);
        session_ = open(wire::Port::session);
        boot_.sandbox_id = "fuzz";
        boot_.mode = wire::BootMode::microvm;
        boot_.channel = wire::BootChannel::virtio_serial;
        control.emplace(std::make_unique<guest::MuxStream>(guest_, control_), boot_, state);
        session.emplace(std::make_unique<guest::MuxStream>(guest_, session_), "s",
                        wire::LeafKind::none, std::vector<sys::UniqueFd>(), boot_, state.gate);
    }

    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
    // Before the engines: a stream closes itself on its engine as it goes.
    ~Pair()
    {
        session.reset();
        control.reset();
    }

    void say(wire::Port port, std::span<const std::byte> bytes)
    {
        host_.write(port == wire::Port::control ? control_ : session_, bytes);
        exchange();
    }

    void turn()
    {
        Poller poller;
        if (control) {
            control->watch(poller);
            control->handle(poller);
            if (control->done()) control.reset();
        }
        if (session) {
            session->watch(poller);
            session->handle(poller, 0);
            HOLDS(session->leader() == 0);
            if (session->done()) session.reset();
        }
        exchange();
    }

    // Frames of the guest's on this port since last asked; every one must decode.
    std::size_t replies()
    {
        std::size_t count = 0;
        auto bytes = host_.readable(control_);
        const std::size_t came = bytes.size();
        while (!bytes.empty()) {
            const auto frame = decoder_.next(bytes);
            HOLDS(frame.has_value());
            if (!*frame) break;
            HOLDS(wire::decode_as<wire::ControlMessage>(wire::Direction::to_host, (*frame)->type,
                                                        (*frame)->payload)
                      .has_value());
            ++count;
        }
        host_.consume(control_, came - bytes.size());
        return count;
    }

    guest::ControlState state;
    std::optional<guest::Control> control;
    std::optional<guest::Session> session;

private:
    StreamId open(wire::Port port)
    {
        const StreamId id = *host_.open(static_cast<std::uint32_t>(port), "s");
        exchange();
        guest_.accept(id);
        exchange();
        return id;
    }
    void exchange()
    {
        for (int i = 0; i < 4; ++i) {
            carry(host_, guest_);
            carry(guest_, host_);
        }
    }

    wire::MuxEngine host_{wire::MuxSide::host};
    wire::MuxEngine guest_{wire::MuxSide::guest};
    wire::Bootstrap boot_;
    StreamId control_ = 0;
    StreamId session_ = 0;
    wire::FrameDecoder decoder_{wire::Port::control, wire::Direction::to_host, wire::Stage::later};
};

}  // namespace

// Locks memory and talks to itself through two engines: fewer of them.
FUZZ_TARGET_OF(guest, 1'000)
{
    Bytes bytes(input);
    Pair pair;
    std::size_t said_bytes = 0;
    std::size_t replies = 0;
    for (int i = 0; i < 40 && !bytes.empty(); ++i) {
        const bool session = bytes.byte() % 3 == 0;
        wire::ByteVector said;
        if (session)
            append_session(said, bytes);
        else
            append_request(said, bytes);
        const bool provisioned = pair.state.gate.provisioned;
        pair.say(session ? wire::Port::session : wire::Port::control, said);
        if (!session) said_bytes += said.size();
        pair.turn();
        HOLDS(!pair.state.gate.ready && !pair.state.gate.service_opened);
        HOLDS(!provisioned || pair.state.gate.provisioned);
        // No request is shorter than its header.
        replies += pair.replies();
        HOLDS(replies <= said_bytes / wire::kHeaderSize);
    }
}

}  // namespace sandbox::fuzz
