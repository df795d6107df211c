// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sys/fd.hpp"
#include "wire/mux_engine.hpp"
#include "wire/wire.hpp"

// One stream of the relay: a client's socket on one side, a stream of the mux on the other.
namespace sandbox::channel {

// The descriptors of one turn of poll(2).
class PollSet {
public:
    static constexpr std::size_t kNone = SIZE_MAX;
    void clear() noexcept
    {
        set_.clear();
        awake_ = false;
    }
    std::size_t watch(int fd, short events)
    {
        set_.push_back({fd, events, 0});
        return set_.size() - 1;
    }
    short ready(std::size_t at) const noexcept
    {
        return at < set_.size() ? set_[at].revents : short{0};
    }
    // There is something to do that no descriptor shows.
    void wake() noexcept { awake_ = true; }
    bool wait(int timeout_ms) noexcept;

private:
    std::vector<pollfd> set_;
    bool awake_ = false;
};

// Owned by the relay; gone when done(). Nothing in it blocks.
class RelayedStream {
public:
    RelayedStream(wire::MuxEngine& engine, wire::StreamId id, std::string session,
                  sys::UniqueFd client)
        : engine_(engine), id_(id), session_(std::move(session)), client_(std::move(client))
    {
    }
    virtual ~RelayedStream() { engine_.close(id_, code_); }
    RelayedStream(const RelayedStream&) = delete;
    RelayedStream& operator=(const RelayedStream&) = delete;

    virtual void watch(PollSet& poll) = 0;
    virtual void handle(const PollSet& poll) = 0;
    bool done() const noexcept { return done_; }
    void accepted() noexcept { accepted_ = true; }
    bool was_accepted() const noexcept { return accepted_; }
    // The guest's RESET with a code: nothing of it is to be believed any more.
    void aborted() noexcept { done_ = true; }
    const std::string& session() const noexcept { return session_; }
    // The guest's PID 1 said what the protocol forbids.
    const std::optional<wire::Failure>& violation() const noexcept { return violation_; }

protected:
    wire::MuxEngine& engine_;
    wire::StreamId id_;
    std::string session_;
    sys::UniqueFd client_;
    bool accepted_ = false;
    bool done_ = false;
    std::uint16_t code_ = 0;
    std::optional<wire::Failure> violation_;
};

// Any port but 5001: bytes as they are, each direction ended by itself.
class RawStream final : public RelayedStream {
public:
    using RelayedStream::RelayedStream;
    void watch(PollSet& poll) override;
    void handle(const PollSet& poll) override;

private:
    void pull();
    void push();

    std::size_t at_ = PollSet::kNone;
    bool client_ended_ = false;  // it sends no more
    bool guest_ended_ = false;
    bool hung_up_ = false;
};

// Port 5001. The client's descriptors, if its OPEN came with some, are read and written here.
class SessionStream final : public RelayedStream {
public:
    using RelayedStream::RelayedStream;
    void watch(PollSet& poll) override;
    void handle(const PollSet& poll) override;

private:
    void read_client();
    void take_client_bytes(std::span<const std::byte> bytes);
    void take_client_frame(const wire::Frame& frame);
    void open(const wire::Frame& frame);
    void adopt_stdio();
    void flush_to_guest();
    void read_input();
    void take_guest();
    bool take_header(std::span<const std::byte> bytes);
    bool take_output(std::span<const std::byte> bytes);
    void take_payload(std::span<const std::byte> bytes);
    void lose_output(int number);
    void flush_to_client();
    void refuse(wire::WireError error, const char* what);
    bool has_room() const;

    wire::FrameDecoder from_client_{wire::Port::session, wire::Direction::to_guest};
    wire::ByteQueue to_guest_;   // whole frames
    wire::ByteQueue to_client_;  // whole frames
    std::array<sys::UniqueFd, 3> stdio_;
    std::vector<sys::UniqueFd> received_;
    bool opened_ = false;
    bool relays_ = false;    // stdio_ is ours to read and write
    bool terminal_ = false;  // stdio_ is one socket, no half of which ends by itself
    bool started_ = false;   // input is read from here on
    bool client_ended_ = false;
    bool closing_ = false;   // what is queued for the client is its last

    // The frame on its way from the guest.
    std::size_t head_fill_ = 0;
    wire::HeaderBytes head_{};
    wire::Header header_{};
    std::size_t left_ = 0;  // of its payload
    wire::ByteVector payload_;
    int blocked_ = 0;  // 1 or 2: the output that takes no more for now

    std::size_t at_client_ = PollSet::kNone;
    std::size_t at_in_ = PollSet::kNone;
    std::size_t at_out_ = PollSet::kNone;
};

}  // namespace sandbox::channel
