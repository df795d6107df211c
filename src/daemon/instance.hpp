// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.hpp"
#include "supervisor/paths.hpp"
#include "sys/fd.hpp"

namespace sandbox::daemon {

// Below RUN, supervisor/paths.hpp.
inline constexpr const char* kLockName = "sandboxd.lock";
inline constexpr const char* kGroup = "sandbox";

// The one daemon of a state: holds RUN/sandboxd.lock (flock(2)) while it lives. Ends with the
// process in any case; withdraw() only leaves less behind.
class Instance {
public:
    // Makes RUN where it is missing. conflict: another daemon lives; the message names its pid.
    // Never waits. Others: errors of the file system.
    [[nodiscard]] static Result<Instance> claim(const supervisor::Paths& paths);

    // RUN/sandboxd.sock, 0660 and of the group `sandbox` where there is one (and we are root),
    // which may then reach it. Whatever lay there was a dead daemon's. The caller owns the socket.
    // Once.
    [[nodiscard]] Result<sys::UniqueFd> listen();
    // Of the socket: whose members may use the API.
    gid_t group() const noexcept { return group_; }
    // Removes the socket that listen() made, and the lock: the next daemon may begin.
    void withdraw();

private:
    explicit Instance(sys::UniqueFd run) : run_(std::move(run)) {}

    sys::UniqueFd run_;
    sys::UniqueFd lock_;
    gid_t group_ = 0;
    bool listens_ = false;
};

// From the text of /etc/group (group(5)); a static program has no NSS, so groups of LDAP and the
// like are not found. Nothing: no such line. The first one counts.
std::optional<gid_t> find_group(std::string_view group_file, std::string_view name);

}  // namespace sandbox::daemon
