// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "guest/poller.hpp"
#include "guest/stream.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// always: the other side has to hear it. if_room: talk.
enum class Keep { always, if_room };

// What leads to the shim: streams come by it, and what is said beside them goes. Never blocks. In
// one turn: watch, poll, receive, then next until there is nothing, and flush.
class Link {
public:
    // Nothing in it has come yet when `note` says why: a line for the log. A literal. `leaf` are
    // the descriptors of the session's cgroup.
    struct Arrived {
        wire::Pass pass;
        std::unique_ptr<Stream> stream;
        std::vector<sys::UniqueFd> leaf;
        const char* note = nullptr;
    };

    virtual ~Link() = default;
    virtual void watch(Poller& poller) = 0;
    // Before the streams are served: what came for them.
    virtual void receive(const Poller& poller) = 0;
    // After them: one that came, if any. Call until it gives none.
    virtual std::optional<Arrived> next(const Poller& poller) = 0;
    // Whole packets. Those that are kept go in order, when there is room.
    virtual void tell(wire::ByteVector packet, Keep keep) = 0;
    virtual void flush() = 0;
    // The shim is gone: law 6, so are we.
    virtual bool ended() const = 0;
};

// The SEQPACKET channel of a sandbox on the host.
class ShimLink final : public Link {
public:
    explicit ShimLink(sys::UniqueFd channel) : channel_(std::move(channel)) {}
    void watch(Poller& poller) override;
    void receive(const Poller& /*poller*/) override { taken_ = false; }
    std::optional<Arrived> next(const Poller& poller) override;
    void tell(wire::ByteVector packet, Keep keep) override;
    void flush() override;
    bool ended() const override { return ended_; }

private:
    std::optional<Arrived> take_packet();

    sys::UniqueFd channel_;
    std::deque<wire::ByteVector> told_;  // that the channel has not taken yet
    std::size_t at_ = Poller::kNone;
    bool taken_ = false;  // one packet a turn: what came is watched first
    bool ended_ = false;
};

}  // namespace sandbox::guest
