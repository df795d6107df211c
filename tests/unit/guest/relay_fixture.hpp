// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "channel/mux_relay.hpp"
#include "init_fixture.hpp"

namespace sandbox::guest::test {

// As InitTest, but everything goes by the mux: sandbox-init as for a kernel of its own, its port a
// socket, and the host's relay in a child between it and the test.
class RelayTest : public InitTest {
protected:
    void TearDown() override;

    wire::Bootstrap machine_record();
    void start_relay(const wire::Bootstrap& boot);
    // Up to READY.
    void start_relay_ready();
    // The relay with the test itself in place of a guest: what it says goes into `port`.
    void start_lonely_relay();
    // The next packet of the channel when it is an M.
    template <class M>
    std::optional<M> told();
    channel::MuxRelayEnd relay_end();

    sys::UniqueFd port_;  // start_lonely_relay(): the guest's end
    std::optional<sys::Pidfd> relay_;

    void fork_relay(sys::UniqueFd port, const wire::Bootstrap& boot,
                    const wire::Machine& machine = {});
    std::optional<wire::InitMessage> next_packet();
};

template <class M>
std::optional<M> RelayTest::told()
{
    // Reports and lines come when they come.
    for (int i = 0; i < 64; ++i) {
        auto message = next_packet();
        if (!message) return std::nullopt;
        if (auto* wanted = std::get_if<M>(&*message)) return std::move(*wanted);
    }
    return std::nullopt;
}

}  // namespace sandbox::guest::test
