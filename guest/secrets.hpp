// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.hpp"
#include "sys/locked.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// Values that must reach neither swap nor a core file: locked memory, wiped when dropped. What a
// message held on its way here is wiped too: wipe.cpp frees no memory of this program unwiped.
class Secrets {
public:
    // False when the memory cannot be locked (RLIMIT_MEMLOCK): then nothing is kept.
    [[nodiscard]] bool keep(const wire::Provision& provision);
    // False: no such value, or one of another size; the old one stays.
    [[nodiscard]] bool rotate(const wire::Rotate& rotate) noexcept;
    // Keeps a variable for the service, or writes a file with mode 0400 on a tmpfs.
    // WireError::refused, with no part of the value in it; a file may then be left behind, empty.
    [[nodiscard]] wire::Decoded<void> take(const wire::Secret& secret, const wire::Bootstrap& boot);

    // Requires: keep() succeeded.
    const wire::Nonce& event_nonce() const noexcept;

    // "NAME=VALUE" of each variable, for execve. They point into the locked pages, which a child
    // sees only while lent, and are valid until forget_variables().
    std::vector<char*> variables() noexcept;
    [[nodiscard]] Status lend_variables() noexcept;
    // Once the service has its own: nothing here needs them any more.
    void forget_variables() noexcept { variables_.clear(); }

private:
    struct Held {
        wire::Nonce event_nonce;
        wire::Nonce egress_token;
        wire::Nonce service_token;
    };
    Held* held() noexcept;

    sys::LockedMemory pages_;  // a Held, for the life of the process
    std::vector<sys::LockedMemory> variables_;
};

}  // namespace sandbox::guest
