// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "shim/control_protocol.hpp"
#include "sys/fd.hpp"

// How clients of shim.sock are received, whether a generation runs or the next one is waited for.
namespace sandbox::shim {

// Makes RUN/ID/shim.sock. Its listener outlives the generations of one shim.
[[nodiscard]] Result<sys::UniqueFd> listen_for_clients(const std::string& run_dir);

// What this release's shim can do, for the client to choose from.
Greeting greeting(const std::string& id);

// Nothing when nobody came, there are too many already, or the peer is neither root nor our user.
std::optional<sys::UniqueFd> receive_client(int listener, std::size_t present);

// Nothing when nothing came yet; empty when the peer is gone.
std::optional<std::string> receive_packet(int socket);

// A client that does not read its answers loses them; it must not stop the loop.
void send_reply(int socket, const Reply& reply);

}  // namespace sandbox::shim
