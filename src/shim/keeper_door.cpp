// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <sys/socket.h>

#include "shim/keeper.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

// The door side of a running sandbox: CONNECT lines, and sessions handed to sandbox-init.
namespace sandbox::shim {

namespace {

// One client of ours makes one; a bound on what strangers to the protocol can hold.
constexpr std::size_t kMostVisitors = 64;  // connections that have not finished their CONNECT line
constexpr Millis kKnockDeadline{10'000};  // docs/protocol.md: reply deadline

}  // namespace

void Keeper::accept_visitor()
{
    auto socket = sys::accept_one(door_.get());
    // Dropped without a word, as a full backlog would.
    if (!socket || visitors_.size() >= kMostVisitors) return;
    const std::uint64_t number = next_number_++;
    auto visitor = std::make_shared<Visitor>(channel::Knock(std::move(*socket)));
    const auto watch = loop_.when_readable(visitor->knock.fd(),
                                           [this, number] { on_visitor(number); });
    if (!watch) return;
    visitor->watch = *watch;
    // A visitor that never finishes its line holds a place and a descriptor.
    const auto timer = loop_.after(kKnockDeadline, [this, number] { drop_visitor(number); });
    visitor->timer = timer.value_or(0);
    visitors_.emplace(number, std::move(visitor));
}

void Keeper::drop_visitor(std::uint64_t number)
{
    const auto it = visitors_.find(number);
    if (it == visitors_.end()) return;
    loop_.forget(it->second->watch);
    loop_.forget(it->second->timer);
    visitors_.erase(it);
}

void Keeper::on_visitor(std::uint64_t number)
{
    const auto it = visitors_.find(number);
    if (it == visitors_.end()) return;
    // Held while it is dropped below: read_more() has what let_in() needs.
    const std::shared_ptr<Visitor> visitor = it->second;
    const auto state = visitor->knock.read_more();
    if (state == channel::Knock::State::waiting) return;
    drop_visitor(number);
    // Closing without a word is how a hybrid vsock says that nobody listens.
    if (state == channel::Knock::State::connected) static_cast<void>(let_in(visitor->knock));
}

Status Keeper::let_in(channel::Knock& knock)
{
    if (exit_ || paused_ || !generation_.launched->channel.valid()) return {};
    // The control port is the shim's own: a second connection would replace it.
    // Only port 5001: the others are the shim's, and any other would be a new way in.
    if (knock.port() != static_cast<std::uint32_t>(wire::Port::session)) return {};
    return sessions_->admit(knock.take());
}

}  // namespace sandbox::shim
