// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "sys/fd.hpp"
#include "wire/init.hpp"
#include "wire/machine.hpp"

// The host's end of a guest's mux. To the shim it is what sandbox-init itself is for a sandbox on
// this host: the other end of a SEQPACKET channel that takes PASS packets with connected streams
// and answers with INIT_UP, SESSION_OPENED and the rest. No descriptor crosses into a guest: a
// session whose OPEN comes with descriptors gets their bytes as STDIN, STDOUT and STDERR frames, and
// whoever opened it sees no difference.
namespace sandbox::channel {

struct MuxRelayEnds {
    sys::UniqueFd channel;  // SEQPACKET; the shim's end is Launched::channel
    sys::UniqueFd port;  // stream socket: the VMM's virtio-serial character device
};

// Why it came to its end; also the exit status of a process that does nothing else.
enum class MuxRelayEnd : std::uint8_t {
    shim_gone = 0,  // the channel closed: so did the port
    guest_gone = 1,  // the port closed: so did the channel
    faulty = 2,  // the guest broke the protocol; GUEST_FAULTY was said on the channel
    failed = 3,  // a system call that does not fail did
};
std::string_view to_string(MuxRelayEnd end) noexcept;

// Runs until the end and closes everything. Sends BOOTSTRAP and MACHINE once the guest has said
// HELLO, and forwards INIT_UP when it has made its tree. Blocks in poll(2) only; needs no file, no
// capability and no other descriptor, so that it can be confined before. Memory: at most 272
// streams times 320 KiB, reached only by clients that do not read.
[[nodiscard]] MuxRelayEnd run_mux_relay(MuxRelayEnds ends, const wire::Bootstrap& bootstrap,
                                        const wire::Machine& machine);

}  // namespace sandbox::channel
