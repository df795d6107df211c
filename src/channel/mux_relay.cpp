// SPDX-License-Identifier: Apache-2.0
#include "channel/mux_relay.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <map>

#include "channel/mux_session.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::channel {

namespace {

constexpr int kReadsATurn = 4;
constexpr std::size_t kMostTold = 1024;  // packets that the shim has not taken yet

class Relay {
public:
    explicit Relay(MuxRelayEnds ends) : ends_(std::move(ends)), engine_(wire::MuxSide::host) {}

    MuxRelayEnd run(const wire::Bootstrap& bootstrap, const wire::Machine& machine)
    {
        for (const auto& frame : {wire::encode(bootstrap), wire::encode(machine)}) {
            if (!frame) return MuxRelayEnd::failed;
            records_.append(*frame);
        }
        for (const int fd : {ends_.channel.get(), ends_.port.get()})
            if (!sys::set_nonblocking(fd)) return MuxRelayEnd::failed;
        while (!end_) turn();
        return *end_;
    }

private:
    void turn()
    {
        poll_.clear();
        say_records();
        // A shim that is behind is not given more: what the guest says beside the ports waits.
        const int channel = POLLIN | (told_.empty() ? 0 : POLLOUT);
        const std::size_t at_channel = poll_.watch(ends_.channel.get(),
                                                   static_cast<short>(channel));
        const std::size_t at_port = poll_.watch(
            ends_.port.get(), static_cast<short>(POLLIN | (engine_.has_output() ? POLLOUT : 0)));
        for (const auto& [id, stream] : streams_) stream->watch(poll_);
        if (!poll_.wait(-1)) {
            end_ = MuxRelayEnd::failed;
            return;
        }
        if ((poll_.ready(at_port) & ~POLLOUT) != 0) read_port();
        take_events();
        take_init();
        for (const auto& [id, stream] : streams_) {
            stream->handle(poll_);
            if (stream->violation()) faulty(*stream->violation());
        }
        std::erase_if(streams_, [](const auto& entry) { return entry.second->done(); });
        if ((poll_.ready(at_channel) & ~POLLOUT) != 0) take_packet();
        flush_told();
        flush_port();
    }

    void read_port()
    {
        for (int i = 0; i < kReadsATurn && !end_; ++i) {
            const ssize_t count = ::recv(ends_.port.get(), chunk_.data(), chunk_.size(),
                                         MSG_DONTWAIT);
            if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (count <= 0) {
                end_ = MuxRelayEnd::guest_gone;
                return;
            }
            const auto size = static_cast<std::size_t>(count);
            if (const auto fed = engine_.feed(std::span(chunk_).first(size)); !fed)
                return faulty(fed.error());
            if (size < chunk_.size()) return;
        }
    }

    void faulty(const wire::Failure& failure)
    {
        if (end_) return;
        tell(wire::GuestFaulty{static_cast<std::uint16_t>(failure.error), failure.what});
        flush_told();
        end_ = MuxRelayEnd::faulty;
    }

    void take_events()
    {
        while (const auto event = engine_.next_event()) {
            if (const auto* opened = std::get_if<wire::StreamOpened>(&*event)) {
                // Nothing on the host waits for a stream of the guest's.
                engine_.close(opened->stream,
                              static_cast<std::uint16_t>(wire::WireError::not_ready));
            } else if (const auto* accepted = std::get_if<wire::StreamAccepted>(&*event)) {
                const auto at = streams_.find(accepted->stream);
                if (at != streams_.end()) at->second->accepted();
            } else if (const auto* reset = std::get_if<wire::StreamReset>(&*event)) {
                take_reset(*reset);
            }
        }
    }

    void take_reset(const wire::StreamReset& reset)
    {
        const auto at = streams_.find(reset.stream);
        if (at == streams_.end()) return;
        if (!at->second->was_accepted()) {
            tell(wire::PassRefused{at->second->session(), reset.code});
            at->second->aborted();
        } else if (reset.code != 0) {
            at->second->aborted();
        }
    }

    // The guest's packets, checked and passed on as they are.
    void take_init()
    {
        while (!end_ && told_.size() < kMostTold) {
            auto bytes = engine_.readable(wire::kInitStream);
            if (bytes.empty()) return;
            const std::size_t came = bytes.size();
            const auto frame = init_decoder_.next(bytes);
            engine_.consume(wire::kInitStream, came - bytes.size());
            if (!frame) return faulty(frame.error());
            if (!*frame) continue;
            const auto message = wire::decode_as<wire::InitMessage>(
                wire::Direction::to_host, (*frame)->type, (*frame)->payload);
            if (!message) return faulty(message.error());
            if (std::holds_alternative<wire::GuestFaulty>(*message))
                return faulty({wire::WireError::type_not_allowed, "GUEST_FAULTY", 0});
            wire::ByteVector packet;
            packet.reserve(1 + (*frame)->payload.size());  // GCC 12 sees an overrun otherwise
            packet.push_back(std::byte{(*frame)->type});
            packet.insert(packet.end(), (*frame)->payload.begin(), (*frame)->payload.end());
            told_.push_back(std::move(packet));
        }
    }

    void take_packet()
    {
        auto packet = sys::recv_fds(ends_.channel.get(), wire::kMaxInitPacket, sys::kMaxFds);
        if (!packet && (packet.error().errnum() == EAGAIN || packet.error().errnum() == EINTR))
            return;
        if (!packet || packet->bytes.empty()) {
            end_ = MuxRelayEnd::shim_gone;
            return;
        }
        const auto message = wire::decode_packet(wire::Direction::to_guest,
                                                 std::as_bytes(std::span(packet->bytes)));
        const auto* pass = message ? std::get_if<wire::Pass>(&*message) : nullptr;
        // No descriptor of a leaf means anything in a guest: the stream is all that comes.
        if (pass == nullptr || packet->fds.size() != 1U + pass->leaf_count) return;
        add(*pass, std::move(packet->fds.front()));
    }

    void add(const wire::Pass& pass, sys::UniqueFd client)
    {
        const auto id = engine_.open(pass.port, pass.session);
        if (!id) {
            tell(wire::PassRefused{pass.session, static_cast<std::uint16_t>(id.error().error)});
            return;
        }
        static_cast<void>(sys::set_nonblocking(client.get()));
        if (pass.port == static_cast<std::uint32_t>(wire::Port::session))
            streams_.emplace(*id, std::make_unique<SessionStream>(engine_, *id, pass.session,
                                                                  std::move(client)));
        else
            streams_.emplace(
                *id, std::make_unique<RawStream>(engine_, *id, pass.session, std::move(client)));
    }

    template <class M>
    void tell(const M& message)
    {
        if (auto packet = wire::encode_packet(message)) told_.push_back(std::move(*packet));
    }

    void flush_told()
    {
        while (!told_.empty()) {
            const wire::ByteVector& packet = told_.front();
            const ssize_t sent = ::send(ends_.channel.get(), packet.data(), packet.size(),
                                        MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
            told_.pop_front();
        }
    }

    void say_records()
    {
        while (!records_.empty()) {
            const std::size_t count = engine_.write(wire::kInitStream, records_.front());
            if (count == 0) return;
            records_.take(count);
        }
    }

    void flush_port()
    {
        for (auto bytes = engine_.output(); !bytes.empty() && !end_; bytes = engine_.output()) {
            const ssize_t count = ::send(ends_.port.get(), bytes.data(), bytes.size(),
                                         MSG_NOSIGNAL | MSG_DONTWAIT);
            if (count < 0 && errno == EINTR) continue;
            if (count < 0 && errno == EAGAIN) return;
            if (count < 0) {
                end_ = MuxRelayEnd::guest_gone;
                return;
            }
            engine_.sent(static_cast<std::size_t>(count));
            say_records();
        }
    }

    MuxRelayEnds ends_;
    wire::MuxEngine engine_;
    std::map<wire::StreamId, std::unique_ptr<RelayedStream>> streams_;  // before the engine goes
    wire::FrameDecoder init_decoder_{wire::Port::init, wire::Direction::to_host,
                                     wire::Stage::later};
    wire::ByteQueue records_;
    std::deque<wire::ByteVector> told_;
    PollSet poll_;
    std::array<std::byte, 64U << 10> chunk_{};
    std::optional<MuxRelayEnd> end_;
};

}  // namespace

std::string_view to_string(MuxRelayEnd end) noexcept
{
    switch (end) {
    case MuxRelayEnd::shim_gone: return "the shim is gone";
    case MuxRelayEnd::guest_gone: return "the guest is gone";
    case MuxRelayEnd::faulty: return "the guest broke the protocol";
    case MuxRelayEnd::failed: return "the relay failed";
    }
    return "unknown";
}

MuxRelayEnd run_mux_relay(MuxRelayEnds ends, const wire::Bootstrap& bootstrap,
                          const wire::Machine& machine)
{
    std::signal(SIGPIPE, SIG_IGN);  // of pipes whose reader is gone
    return Relay(std::move(ends)).run(bootstrap, machine);
}

}  // namespace sandbox::channel
