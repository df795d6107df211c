// SPDX-License-Identifier: Apache-2.0
#include "fuzz.hpp"
#include "shim/control_protocol.hpp"
#include "shim/request.hpp"

// What reaches a shim from outside: control packets both ways and the launch request. Refused, or
// written again they read back equal.
namespace sandbox::fuzz {

FUZZ_TARGET(shim)
{
    if (const auto request = shim::decode_control_request(input)) {
        const auto packet = shim::encode(*request);
        HOLDS(packet.has_value() && packet->size() <= shim::kMostPacketBytes);
        HOLDS(shim::decode_control_request(*packet) == *request);
    }
    if (const auto reply = shim::decode_control_reply(input)) {
        HOLDS(!shim::decode_control_request(input).has_value());
        const auto packet = shim::encode(*reply);
        HOLDS(packet.has_value() && packet->size() <= shim::kMostPacketBytes);
        HOLDS(shim::decode_control_reply(*packet) == *reply);
    }
    if (const auto launch = shim::decode_request(input)) {
        const auto text = shim::encode(*launch);
        HOLDS(text.has_value());
        HOLDS(shim::decode_request(*text) == *launch);
    }
}

}  // namespace sandbox::fuzz
