// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "guest/outbox.hpp"
#include "guest/poller.hpp"
#include "sys/fd.hpp"
#include "wire/mux_engine.hpp"

namespace sandbox::guest {

// One connection of a port, however it came: never blocks. Owned by who serves it; closes with it.
class Stream {
public:
    virtual ~Stream() = default;
    // POLLIN, POLLOUT or both; the end of the other side in both directions is reported unasked.
    virtual void watch(Poller& poller, short events) = 0;
    // Of what was watched: POLLIN with bytes or their end, POLLOUT, POLLHUP.
    virtual short ready(const Poller& poller) const = 0;
    // As recv(2): 0 at the end, -1 with errno EAGAIN. `fds`: where descriptors may come with it;
    // null, and they are closed.
    virtual ssize_t read(std::span<std::byte> buffer, std::vector<sys::UniqueFd>* fds) = 0;
    // As Outbox::flush_to_socket().
    virtual Outbox::Flushed flush(Outbox& out) = 0;
};

// A connected socket, handed in by the shim.
class SocketStream final : public Stream {
public:
    explicit SocketStream(sys::UniqueFd fd) : fd_(std::move(fd)) {}
    void watch(Poller& poller, short events) override { at_ = poller.watch(fd_.get(), events); }
    short ready(const Poller& poller) const override { return poller.ready(at_); }
    ssize_t read(std::span<std::byte> buffer, std::vector<sys::UniqueFd>* fds) override;
    Outbox::Flushed flush(Outbox& out) override { return out.flush_to_socket(fd_.get()); }

private:
    sys::UniqueFd fd_;
    std::size_t at_ = Poller::kNone;
};

// A stream of the mux. Requires: the engine outlives it.
class MuxStream final : public Stream {
public:
    MuxStream(wire::MuxEngine& engine, wire::StreamId id) : engine_(engine), id_(id) {}
    ~MuxStream() override { engine_.close(id_); }
    MuxStream(const MuxStream&) = delete;
    MuxStream& operator=(const MuxStream&) = delete;

    // Once a turn, before ready().
    void watch(Poller& poller, short events) override;
    short ready(const Poller& poller) const override;
    ssize_t read(std::span<std::byte> buffer, std::vector<sys::UniqueFd>* fds) override;
    Outbox::Flushed flush(Outbox& out) override;

private:
    wire::MuxEngine& engine_;
    wire::StreamId id_;
    short wanted_ = 0;
};

}  // namespace sandbox::guest
