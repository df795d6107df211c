// SPDX-License-Identifier: Apache-2.0
#include "supervisor/shim_client.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::supervisor {

namespace {

constexpr int kLauncherFd = 3;  // shim/main.cpp expects its launcher there

// The child between fork and exec: async-signal-safe calls only.
[[noreturn]] void become_shim(int socket, int null, const char* path, char* const* argv,
                              char* const* envp)
{
    // The socket may itself be 0 … 2 when the caller closed its standard streams: move it first.
    const int high = fcntl(socket, F_DUPFD, 10);
    const int null_high = fcntl(null, F_DUPFD, 10);
    if (high < 0 || null_high < 0) _exit(127);
    for (int fd = 0; fd < 3; ++fd) {
        // Inherited descriptors end here: CLOEXEC would only cover those that somebody remembered
        // to mark.
        if (dup2(null_high, fd) < 0) _exit(127);
    }
    if (dup2(high, kLauncherFd) < 0) _exit(127);
    sys::close_range(kLauncherFd + 1, ~0U);
    // A mask survives execve(2): what the caller had blocked would stay blocked in the shim and in
    // all that it starts.
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(path, argv, envp);
    _exit(127);
}

// Nothing of the caller's environment but, in crash-sweep builds, the failpoint to die at.
std::vector<std::string> shim_environment()
{
    std::vector<std::string> env{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
#ifdef SANDBOX_FAILPOINTS
    for (const char* name : {"SANDBOX_FAILPOINT", "SANDBOX_FAILPOINT_LOG"}) {
        if (const char* value = std::getenv(name)) env.push_back(std::string(name) + "=" + value);
    }
#endif
    return env;
}

std::vector<char*> pointers(std::vector<std::string>& texts)
{
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
}

}  // namespace

Result<ShimConnection> ShimConnection::open(const std::string& run_dir)
{
    auto folder = TRY(sys::open_dir(run_dir));
    auto socket = sys::unix_connect(folder.get(), shim::kSocketName, sys::SocketType::seqpacket);
    if (!socket && socket.error().errnum() == ECONNREFUSED) {
        // A socket file whose owner died refuses: for the caller that is the same as none.
        return fail(Code::not_found, "no shim listens in " + run_dir);
    }
    // A shim that is ending may still accept and never speak.
    ShimConnection connection(TRY(std::move(socket)));
    const auto greeting = TRY(connection.receive(sys::Deadline::after(Millis{5000})));
    if (!greeting || !std::holds_alternative<shim::Greeting>(*greeting)) {
        return fail(Code::unavailable, "the shim did not greet: it is about to end");
    }
    return connection;
}

Status ShimConnection::send(const shim::Request& request, std::span<const int> fds)
{
    return sys::send_fds(socket_.get(), TRY(shim::encode(request)), fds);
}

Result<std::optional<shim::Reply>> ShimConnection::receive(sys::Deadline deadline)
{
    if (TRY(sys::poll_one(socket_.get(), POLLIN, deadline)) == 0) {
        return fail(Code::deadline_exceeded, "the shim did not answer in time");
    }
    // No descriptors are expected: any that come are closed, and the packet is corrupt.
    auto packet = sys::recv_fds(socket_.get(), shim::kMostPacketBytes, 0);
    if (!packet) {
        // The peer closed with unread packets of ours (unix(7)): the end, as EOF is.
        if (packet.error().errnum() == ECONNRESET) return std::optional<shim::Reply>();
        return fail(packet.error());
    }
    if (packet->bytes.empty()) return std::optional<shim::Reply>();
    return std::optional<shim::Reply>(TRY(shim::decode_control_reply(packet->bytes)));
}

Result<FreshShim> start_shim(const Host& host, const SandboxId& id)
{
    const auto value = [&](std::string_view fact) {
        return std::string(host.snapshot.value(fact));
    };
    // argv carries no secret and little else: /proc shows it to everyone. The id in it is how
    // reconcile finds a shim that the ledger lost.
    std::vector<std::string> words{"shim:" + id.str(),
                                   host.paths.state,
                                   std::string(profile::to_string(host.config.default_driver)),
                                   "oci.runtime",
                                   value(facts::name::kOciRuntimePath),
                                   value(facts::name::kOciRuntimeDigest),
                                   "sandbox-init",
                                   host.probing.init.path,
                                   value(facts::name::kInitDigest)};
    // Only where the operator gave guests: without, these facts have no value.
    const auto add_program = [&](const char* artifact, std::string path, std::string_view digest) {
        if (path.empty() || value(digest).empty()) return;
        words.insert(words.end(), {artifact, std::move(path), value(digest)});
    };
    add_program("vmm", value(facts::name::kVmmPath), facts::name::kVmmDigest);
    add_program("virtiofsd", value(facts::name::kVirtiofsd), facts::name::kVirtiofsdDigest);
    add_program("guest.kernel", host.probing.guest_kernel.path, facts::name::kGuestKernel);
    add_program("guest.initrd", host.probing.guest_initrd.path, facts::name::kGuestInitrd);
    words.insert(words.begin(), "sandbox-shim");
    std::vector<std::string> env = shim_environment();
    const std::vector<char*> argv = pointers(words);
    const std::vector<char*> envp = pointers(env);
    // Made before the fork: in the child only async-signal-safe calls are allowed.
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::seqpacket));
    auto null = TRY(sys::open_file("/dev/null", O_RDWR));
    auto child = TRY(sys::clone_process({}));
    if (child.pid == 0) {
        become_shim(pair.second.get(), null.get(), host.probing.shim.path.c_str(), argv.data(),
                    envp.data());
    }
    // The pid cannot be reused before we reap it, so this identity is the child's.
    auto identity = TRY(sys::identity_of(child.pid));
    return FreshShim{ShimConnection(std::move(pair.first)),
                     sys::Pidfd(std::move(child.pidfd), child.pid), std::move(identity)};
}

// A packet of its own, after the commit: the request may travel while the disk still works.
Status release(ShimConnection& connection) { return sys::send_fds(connection.fd(), shim::kGo, {}); }

Status submit(ShimConnection& connection, const shim::LaunchRequest& request,
              std::span<const int> fds)
{
    const std::string text = TRY(shim::encode(request));
    // A memfd, because a request with its plan is larger than a packet; sealed, so that the bytes
    // cannot change after they were sent.
    const auto memfd = TRY(sys::sealed_memfd("launch-request", text));
    std::vector<int> list{memfd.get()};
    list.insert(list.end(), fds.begin(), fds.end());
    return sys::send_fds(connection.fd(), "launch", list);
}

}  // namespace sandbox::supervisor
