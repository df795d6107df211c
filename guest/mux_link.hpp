// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "guest/link.hpp"
#include "wire/machine.hpp"
#include "wire/mux_engine.hpp"

namespace sandbox::guest {

// The port of a guest of its own kernel, or a socket in its place (tests): everything goes by the
// mux. Non-blocking.
class MuxLink final : public Link {
public:
    explicit MuxLink(sys::UniqueFd port);

    // Both records, once they came; before the loop begins. Waits for them: nothing else is there
    // to be done. Code::corrupt when the host breaks the protocol, Code::unavailable at its end.
    struct Records {
        wire::Bootstrap boot;
        wire::Machine machine;
    };
    // Waits without a deadline of its own. Once, before Init.
    [[nodiscard]] Result<Records> await_records();
    // Everything said so far is on its way, or the host is gone: before the power goes. Blocks
    // for two seconds at most.
    void drain();

    // Where a session's processes are born; none: where PID 1 is.
    void leaves_from(std::function<sys::UniqueFd(const std::string&)> make)
    {
        make_leaf_ = std::move(make);
    }

    void watch(Poller& poller) override;
    void receive(const Poller& poller) override;
    std::optional<Arrived> next(const Poller& poller) override;
    void tell(wire::ByteVector packet, Keep keep) override;
    void flush() override;
    bool ended() const override { return ended_; }

private:
    void read_port();
    void flush_told();

    sys::UniqueFd port_;
    wire::MuxEngine engine_;
    std::deque<wire::ByteVector> told_;  // frames for stream 0
    std::size_t told_sent_ = 0;  // of the first
    std::function<sys::UniqueFd(const std::string&)> make_leaf_;
    std::size_t at_ = Poller::kNone;
    bool ended_ = false;
};

}  // namespace sandbox::guest
