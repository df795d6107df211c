// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <csignal>
#include <cstring>

#include "base/failpoint.hpp"
#include "shim/keeper_client.hpp"
#include "shim/reception.hpp"
#include "shim/restart_wait.hpp"
#include "sys/net/unix.hpp"

// What clients ask of a running generation: the shim.sock side of it.
namespace sandbox::shim {

void Keeper::answer(Client& client, const Reply& reply) { send_reply(client.socket.get(), reply); }

void Keeper::accept_client()
{
    // A bound, and the peer's user is checked: see reception.cpp.
    auto socket = receive_client(listener_.get(), clients_.size());
    if (!socket) return;
    auto client = std::make_shared<Client>();
    client->socket = std::move(*socket);
    client->number = next_number_++;
    auto watch = loop_.when_readable(client->socket.get(),
                                     [this, number = client->number] { on_client(number); });
    if (!watch) return;
    client->watch = *watch;
    clients_.emplace(client->number, client);
    // First packet of every connection: the client learns our generation before it asks.
    answer(*client, greeting(generation_.request.binding.id.str()));
}

void Keeper::drop_client(std::uint64_t number)
{
    const auto it = clients_.find(number);
    if (it == clients_.end()) return;
    loop_.forget(it->second->watch);
    // Somebody looked on until now.
    if (it->second->is_launcher && clocks_) clocks_->touch();
    clients_.erase(it);
}

void Keeper::on_client(std::uint64_t number)
{
    const auto it = clients_.find(number);
    if (it == clients_.end()) return;
    const std::shared_ptr<Client> client = it->second;
    // It is readable: this does not block. A descriptor comes with a session that is to be opened.
    // At most one descriptor: with OpenSession. Others are closed unseen and the packet refused.
    auto packet = sys::recv_fds(client->socket.get(), kMostPacketBytes, 1);
    // Answered, not dropped: a newer client may go on with what we understand.
    if (!packet && packet.error().code() == Code::corrupt)
        return answer(*client, Rejected{packet.error().message()});
    if (!packet || packet->bytes.empty()) return drop_client(number);
    const auto request = decode_control_request(packet->bytes);
    if (!request) return answer(*client, Rejected{request.error().message()});
    serve(*client, *request, std::move(packet->fds));
}

void Keeper::serve(Client& client, const Request& request, std::vector<sys::UniqueFd> fds)
{
    if (std::holds_alternative<WaitRequest>(request)) {
        client.waits = true;  // answered once the end is in the ledger and the output in the log
        return;
    }
    const auto* stop = std::get_if<StopRequest>(&request);
    const auto* signal = std::get_if<SignalRequest>(&request);
    // Also for one that has ended: no policy starts it again after a person's word, and the pause
    // before a restart is decided just after.
    const bool kills = signal != nullptr && means_the_end(signal->signal);
    if (stop != nullptr || kills) blame(EndCause::asked);
    // Whoever wanted its end has it, and that it stays so.
    if (exit_)
        return answer(client, kills ? Reply(Accepted{}) : Rejected{"the workload has ended"});
    if (sessions_ && serve_session(client, request, std::move(fds))) return;
    Status done;
    if (signal != nullptr) {
        // In the audit before it happens. A log that cannot be written does not stop a kill.
        static_cast<void>(journal_.acted("kill", strsignal(signal->signal)));
        signal_workload(signal->signal);
    } else if (stop != nullptr) {
        begin_stop(Millis(static_cast<std::int64_t>(stop->timeout_ms)), EndCause::asked, "stop");
    } else if (const auto* pause = std::get_if<PauseRequest>(&request)) {
        done = pause_workload(pause->generation);
    } else if (const auto* resume = std::get_if<ResumeRequest>(&request)) {
        done = resume_workload(resume->generation, "");
    } else if (const auto* update = std::get_if<UpdateRequest>(&request)) {
        done = update_plan(*update);
    } else if (clocks_) {
        clocks_->touch();
    }
    answer(client, done ? Reply(Accepted{}) : Reply(Rejected{done.error().message()}));
}

bool Keeper::serve_session(Client& client, const Request& request, std::vector<sys::UniqueFd> fds)
{
    // A frozen sandbox would take the request and not answer.
    if (paused_ && (std::holds_alternative<OpenSession>(request))) {
        answer(client, Rejected{"it is paused: 'sandboxctl resume' lets it go on"});
        return true;
    }
    return sessions_->serve(
        request, std::move(fds), [this, number = client.number](const Reply& reply, int fd) {
            // Looked up again: the answer may come after the client has gone.
            const auto it = clients_.find(number);
            const auto packet = encode(reply);
            if (it == clients_.end() || !packet) return;
            const int fds_out[] = {fd};
            static_cast<void>(sys::send_fds(it->second->socket.get(), *packet,
                                            std::span(fds_out, fd >= 0 ? 1 : 0)));
        });
}

void Keeper::signal_workload(int signal)
{
    // PID 1 only passes signals on; SIGKILL is ours to do, by the cgroup and the channel.
    if (signal == SIGKILL || !generation_.service) {
        ending_ = Ending::killed;
        return kill_everything();
    }
    send_signal(signal);
    // A frozen workload gets the signal once it goes on; a person who sends one wants that.
    thaw_after("kill");
}

// Never blocks: a sandbox-init that does not read its session has forfeited the gentle way.
void Keeper::send_signal(int signal)
{
    const auto frame = wire::encode(wire::Signal{static_cast<std::uint8_t>(signal)});
    const ssize_t sent = frame ? ::send(generation_.service->fd(), frame->data(), frame->size(),
                                        MSG_DONTWAIT | MSG_NOSIGNAL)
                               : -1;
    if (frame && sent == static_cast<ssize_t>(frame->size())) return;
    // Short or refused: PID 1 does not read, so nothing gentle can be said any more.
    ending_ = Ending::killed;
    kill_everything();
}

// A person's word stands above every other reason; else the first one counts.
void Keeper::blame(EndCause cause) noexcept
{
    if (cause == EndCause::asked || cause_ == EndCause::workload) cause_ = cause;
}

void Keeper::begin_stop(Millis timeout, EndCause cause, std::string why)
{
    // The verb in the audit says who: a clock of the profile, or a person.
    const std::string verb = cause == EndCause::ttl || cause == EndCause::idle
                                 ? std::string(to_string(cause))
                                 : std::string("stop");
    failpoint("stop.before-commit");
    static_cast<void>(journal_.acted(verb, std::move(why)));
    failpoint("stop.after-commit");
    blame(cause);
    if (ending_ == Ending::none) ending_ = Ending::stopping;
    if (!generation_.service) return power_off_guest() ? on_init_gone() : kill_everything();
    give_up_on_output();
    // The convention of init systems; the workload's PID 1 passes it on.
    send_signal(SIGTERM);
    failpoint("stop.signalled");
    thaw_after("stop");
    const auto timer = loop_.after(timeout, [this] {
        if (exit_) return;
        ending_ = Ending::killed;
        kill_everything();
    });
    // Without a timer the stop would have no end.
    if (!timer) kill_everything();
}

}  // namespace sandbox::shim
