// SPDX-License-Identifier: Apache-2.0
#include "ctl/service.hpp"

#include <unistd.h>

#include "control/remote.hpp"
#include "ctl/output.hpp"

namespace sandbox::ctl {

namespace {

// An ordinary user has a daemon of their own, or is in the group that may use the system's. Their
// own comes first: it holds their sandboxes.
std::vector<std::string> sockets_of(const supervisor::Paths& paths)
{
    std::vector<std::string> sockets{paths.socket()};
    const std::string system = paths.root + "/run/sandbox/" + supervisor::kDaemonSocket;
    if (geteuid() != 0) sockets.push_back(system);
    return sockets;
}

}  // namespace

Result<std::unique_ptr<supervisor::SandboxService>> open_service(const Context& context,
                                                                 supervisor::Need need)
{
    const auto paths = TRY(supervisor::locate(context.root));
    for (const std::string& socket : sockets_of(paths)) {
        auto remote = control::RemoteService::connect(socket);
        if (remote) return std::move(*remote);
        const Code code = remote.error().code();
        // Not there, or not ours to use: the next place.
        if (code == Code::not_found || code == Code::permission_denied) continue;
        // Said, because the answer may now come from elsewhere.
        say("sandboxctl: ignoring the daemon of " + escaped(socket) + ": " +
            escaped(remote.error().message()));
    }
    return TRY(supervisor::EmbeddedService::open(paths, need));
}

}  // namespace sandbox::ctl
