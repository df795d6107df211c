// SPDX-License-Identifier: Apache-2.0
#include "control/server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>

#include "control/connection.hpp"

namespace sandbox::control {

namespace {

// syslog(3), LOG_NOTICE.
constexpr int kNotice = 5;
constexpr std::size_t kMostGroups = 1024;
constexpr Millis kAcceptRest{100};  // until descriptors may be free again

// Group members come in through the socket's mode; this looks again at who they are.
// The kernel took the groups at connect(2), as it did uid and gid: unix(7), SO_PEERCRED;
// SO_PEERGROUPS since Linux 4.13.
bool may_connect(int socket, const sys::PeerCredentials& peer, gid_t group)
{
    if (peer.uid == 0 || peer.uid == geteuid()) return true;
    if (peer.gid == group) return true;
    std::vector<gid_t> groups(kMostGroups);
    socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) return false;
    groups.resize(size / sizeof(gid_t));
    return std::find(groups.begin(), groups.end(), group) != groups.end();
}

}  // namespace

struct Server::State final : Host, std::enable_shared_from_this<Server::State> {
    State(Loop& loop, ServerParts parts) : loop_(loop), parts_(std::move(parts)) {}

    Loop& loop() override { return loop_; }
    const ServerParts& parts() override { return parts_; }
    Counters& counters() override { return counters_; }
    bool draining() const override { return draining_; }

    struct Listener {
        std::unique_ptr<Loop::Watch> watch;
        gid_t group = 0;
        std::unique_ptr<Loop::Timer> rest;
    };

    void await_client(std::size_t index)
    {
        listeners_[index].watch->when_readable([self = weak_from_this(), index] {
            if (const auto alive = self.lock()) alive->accept_all(index);
        });
    }

    void accept_all(std::size_t index)
    {
        if (draining_) return;
        Listener& listener = listeners_[index];
        while (true) {
            const int fd = accept4(listener.watch->fd(), nullptr, nullptr,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
            // Out of descriptors: the oldest idle client gives way.
            if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
                if (evict({})) continue;
                // The listener stays readable: to ask again at once would be all that is done.
                if (!listener.rest) listener.rest = loop_.timer();
                listener.rest->after(kAcceptRest, [self = weak_from_this(), index] {
                    if (const auto alive = self.lock()) alive->accept_all(index);
                });
                return;
            }
            if (fd < 0) break;
            static_cast<void>(admit(sys::UniqueFd(fd), listener.group));
        }
        await_client(index);
    }

    Status admit(sys::UniqueFd socket, gid_t group)
    {
        const auto peer = TRY(sys::peer_credentials(socket.get()));
        // Refused without a word: who may not connect is told nothing.
        if (!may_connect(socket.get(), peer, group)) {
            ++counters_.refused["peer"];
            log("refused uid " + std::to_string(peer.uid) + ": neither root nor of the group");
            return fail(Code::permission_denied, "peer");
        }
        // Counted each time: a few hundred entries are nothing beside an accept.
        const auto mine = static_cast<std::size_t>(
            std::count_if(connections_.begin(), connections_.end(),
                          [&](const auto& one) { return one->peer().uid == peer.uid; }));
        // First among the user's own, then among all: nobody is pushed out by one user's many.
        const bool room = (mine < parts_.limits.connections_a_user || evict(peer.uid)) &&
                          (connections_.size() < parts_.limits.connections || evict(std::nullopt));
        if (!room) {
            ++counters_.refused["too many connections"];
            return fail(Code::resource_exhausted, "too many connections");
        }
        auto watch = TRY(loop_.watch(std::move(socket)));
        auto connection = std::make_shared<Connection>(*this, std::move(watch), peer);
        connections_.push_back(connection);
        counters_.connections = connections_.size();
        connection->begin();
        return {};
    }

    // Closes the oldest connection that nothing is at work for. A client that has just connected
    // is the last to go.
    bool evict(std::optional<uid_t> of)
    {
        // Oldest first, as they stand in the list.
        const auto it = std::find_if(
            connections_.begin(), connections_.end(),
            [&](const auto& one) { return one->is_idle() && (!of || one->peer().uid == *of); });
        if (it == connections_.end()) return false;
        ++counters_.refused["made room"];
        const auto connection = *it;
        connection->close();
        return true;
    }

    Slot take_slot(Connection& connection, Duration duration) override
    {
        // A daemon that is leaving begins nothing; clients come back to the next one.
        if (draining_) return Slot::refused;
        if (duration == Duration::quick) {
            if (quick_ >= parts_.limits.quick_workers) {
                // Quick calls end by themselves, so waiting is bounded; long ones may never end, so
                // they are refused.
                waiting_.push_back(connection.weak_from_this());
                return Slot::wait;
            }
            ++quick_;
        } else {
            std::size_t& mine = long_of_[connection.peer().uid];
            if (long_ >= parts_.limits.long_workers || mine >= parts_.limits.long_workers_a_user) {
                ++counters_.refused["too many calls"];
                return Slot::refused;
            }
            ++long_;
            ++mine;
        }
        counters_.workers = quick_ + long_;
        return Slot::free;
    }

    void end_slot(const Connection& connection, Duration duration) override
    {
        if (duration == Duration::quick) {
            --quick_;
            start_next();
        } else {
            --long_;
            // No entry for users that have none: the map must not grow with every uid ever seen.
            if (--long_of_[connection.peer().uid] == 0) long_of_.erase(connection.peer().uid);
        }
        counters_.workers = quick_ + long_;
        // The last quick call has ended: the daemon may go.
        if (draining_ && quick_ == 0) finish_drain();
    }

    void start_next()
    {
        while (!waiting_.empty() && quick_ < parts_.limits.quick_workers) {
            const auto next = waiting_.front().lock();
            waiting_.pop_front();
            if (!next || !next->is_queued()) continue;
            // Reserved before the turn: another call could take it meanwhile.
            ++quick_;
            // Not from within another connection's handler.
            loop_.soon([self = shared_from_this(), next] {
                if (next->is_queued())
                    next->resume();
                else
                    self->end_slot(*next, Duration::quick);
            });
        }
    }

    void reap(sys::Pidfd process, std::function<void()> end) override
    {
        // A duplicate: the process keeps its handle for the wait below.
        auto copy = sys::duplicate(process.fd());
        if (!copy) return;
        auto watch = loop_.watch(std::move(*copy));
        if (!watch) return;
        dying_.push_back({std::move(process), std::move(*watch), std::move(end)});
        const auto it = std::prev(dying_.end());
        it->watch->when_readable([self = weak_from_this(), it] {
            const auto alive = self.lock();
            if (!alive) return;
            // Ended already, so this does not wait; without it the zombie would stay.
            static_cast<void>(it->process.wait_exit(sys::Deadline::after(Millis{0})));
            const auto done = std::move(it->end);
            // The watch is calling: it goes on the next turn.
            alive->loop_.soon([alive, it] { alive->dying_.erase(it); });
            if (done) done();
        });
    }

    void forget(Connection& connection) override
    {
        connections_.remove_if([&](const auto& one) { return one.get() == &connection; });
        counters_.connections = connections_.size();
    }

    void finish_drain()
    {
        // Called by the last call and by the timer: the second finds nothing.
        if (!done_) return;
        timer_.reset();
        const auto all = connections_;
        for (const auto& connection : all) connection->close();
        // Answers that were written meanwhile are with the kernel.
        loop_.soon(std::exchange(done_, nullptr));
    }

    void log(const std::string& message)
    {
        if (parts_.log) parts_.log(kNotice, message, {});
    }

    struct Dying {
        sys::Pidfd process;
        std::unique_ptr<Loop::Watch> watch;
        std::function<void()> end;
    };

    Loop& loop_;
    ServerParts parts_;
    Counters counters_;
    std::vector<Listener> listeners_;
    std::list<std::shared_ptr<Connection>> connections_;  // oldest first
    std::deque<std::weak_ptr<Connection>> waiting_;
    std::list<Dying> dying_;
    std::size_t quick_ = 0;
    std::size_t long_ = 0;
    std::map<uid_t, std::size_t> long_of_;
    bool draining_ = false;
    std::unique_ptr<Loop::Timer> timer_;
    std::function<void()> done_;
};

Server::Server(Loop& loop, ServerParts parts)
    : state_(std::make_shared<State>(loop, std::move(parts)))
{
}

// The loop may still hold turns of theirs; they find the state gone.
Server::~Server()
{
    const auto all = state_->connections_;
    for (const auto& connection : all) connection->close();
}

Status Server::listen(sys::UniqueFd listener, gid_t group)
{
    auto watch = TRY(state_->loop_.watch(std::move(listener)));
    state_->listeners_.push_back({std::move(watch), group, nullptr});
    state_->await_client(state_->listeners_.size() - 1);
    return {};
}

Status Server::serve(sys::UniqueFd socket) { return state_->admit(std::move(socket), getegid()); }

void Server::drain(Millis patience, std::function<void()> done)
{
    state_->draining_ = true;
    state_->done_ = std::move(done);
    // The sockets close: a client that connects from here on finds the next daemon, or none.
    state_->listeners_.clear();
    if (state_->quick_ == 0 && state_->waiting_.empty()) return state_->finish_drain();
    state_->timer_ = state_->loop_.timer();
    state_->timer_->after(patience, [state = state_] { state->finish_drain(); });
}

Counters& Server::counters() noexcept { return state_->counters_; }

}  // namespace sandbox::control
