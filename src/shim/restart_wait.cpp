// SPDX-License-Identifier: Apache-2.0
#include "shim/restart_wait.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/failpoint.hpp"
#include "shim/reception.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {

RestartWait::RestartWait(int listener, std::string id, ledger::Exit last)
    : listener_(listener), id_(std::move(id)), last_(last)
{
}

// Those who asked for the end and wait for it hear of it by the end of their connection.
// Before the sockets close: the loop must not watch numbers that are another's.
RestartWait::~RestartWait()
{
    for (const auto& [number, client] : clients_) loop_.forget(client->watch);
}

Result<std::optional<EndCause>> RestartWait::wait(sys::Deadline due, sys::Deadline ttl)
{
    // The listener is watched by nobody else now: the keeper of the last generation is gone.
    TRY(loop_.when_readable(listener_, [this] { accept_client(); }));
    TRY(loop_.after(due.remaining(), [this] { end(std::nullopt); }));
    if (ttl.boottime_ns() != INT64_MAX) {
        TRY(loop_.after(ttl.remaining(), [this] { end(EndCause::ttl); }));
    }
    failpoint("restart.waiting");
    // A stop inside a handler only ends the turn.
    while (!over_) loop_.run();
    return why_;
}

void RestartWait::end(std::optional<EndCause> why)
{
    // A person's word counts even when the next one was due in the same moment.
    if (over_ && why != EndCause::asked) return;
    over_ = true;
    why_ = why;
    loop_.stop();
}

void RestartWait::accept_client()
{
    auto socket = receive_client(listener_, clients_.size());
    if (!socket) return;
    const std::uint64_t number = next_number_++;
    auto client = std::make_shared<Client>();
    client->socket = std::move(*socket);
    const auto watch = loop_.when_readable(client->socket.get(),
                                           [this, number] { on_client(number); });
    if (!watch) return;
    client->watch = *watch;
    clients_.emplace(number, client);
    send_reply(client->socket.get(), greeting(id_));
}

void RestartWait::on_client(std::uint64_t number)
{
    const auto it = clients_.find(number);
    if (it == clients_.end()) return;
    const std::shared_ptr<Client> client = it->second;
    // Never blocks, and takes no descriptors: nothing here could use them.
    const auto packet = receive_packet(client->socket.get());
    if (!packet) return;
    if (packet->empty()) {
        loop_.forget(client->watch);
        clients_.erase(number);
        return;
    }
    const auto request = decode_control_request(*packet);
    send_reply(client->socket.get(),
               request ? serve(*request) : Reply(Rejected{request.error().message()}));
}

Reply RestartWait::serve(const Request& request)
{
    // The last generation's end: the same answer as if it had been asked a moment before.
    if (std::holds_alternative<WaitRequest>(request)) return Ended{last_, ""};
    if (std::holds_alternative<TouchRequest>(request)) return Accepted{};
    const auto* signal = std::get_if<SignalRequest>(&request);
    if (std::holds_alternative<StopRequest>(request) ||
        (signal != nullptr && means_the_end(signal->signal))) {
        end(EndCause::asked);
        return Accepted{};
    }
    return Rejected{"it does not run: its next start is waited for"};
}

bool means_the_end(int signal) noexcept
{
    // The four by which shells, terminals and service managers end a program; others are messages.
    return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGQUIT;
}

}  // namespace sandbox::shim
