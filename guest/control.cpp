// SPDX-License-Identifier: Apache-2.0
#include "guest/control.hpp"

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>

namespace sandbox::guest {
namespace {

// The release this binary was built from; the shim of one sandbox is of the same.
constexpr const char* kAgentVersion = SANDBOX_VERSION;

std::string kernel_release()
{
    // Cut to WELCOME's ceiling; a release of Linux has 64 characters at most, with the NUL.
    utsname name{};
    return ::uname(&name) == 0 ? std::string(name.release).substr(0, 64) : std::string();
}

wire::Stats stats()
{
    struct sysinfo info{};
    wire::Stats stats;
    stats.uptime_ms = static_cast<std::uint64_t>(now_ms());
    if (::sysinfo(&info) == 0) {
        const std::uint64_t unit = info.mem_unit;
        stats.mem_total_kib = info.totalram * unit / 1024;
        // Less than /proc/meminfo says: page cache that could be given back is not in sysinfo(2).
        stats.mem_available_kib = (info.freeram + info.bufferram) * unit / 1024;
        // Fixed point with 16 fraction bits (sysinfo(2)).
        stats.load1_milli = static_cast<std::uint32_t>(info.loads[0] * 1000 >> 16);
    }
    const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
    // Of the host where there is no kernel of our own.
    stats.cpu_count = static_cast<std::uint16_t>(std::clamp(cpus, 0L, 65535L));
    return stats;
}

// Guest minus host before the step. PRIVILEGED: in a guest of its own kernel the clock is ours.
std::optional<std::int64_t> step_clock(std::uint64_t time_ns, std::int64_t& stepped)
{
    constexpr std::uint64_t kSecond = 1'000'000'000;
    timespec now{};
    if (time_ns > INT64_MAX || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return std::nullopt;
    const std::int64_t ours =
        static_cast<std::int64_t>(now.tv_sec) * static_cast<std::int64_t>(kSecond) + now.tv_nsec;
    const timespec wanted{static_cast<time_t>(time_ns / kSecond),
                          static_cast<long>(time_ns % kSecond)};
    if (::clock_settime(CLOCK_REALTIME, &wanted) != 0) return std::nullopt;
    const std::int64_t offset = ours - static_cast<std::int64_t>(time_ns);
    stepped += offset;
    return offset;
}

}  // namespace

void Control::watch(Poller& poller)
{
    // No reading while closing: the last frame goes out, and nothing new is begun.
    const int wanted = (closing_ ? 0 : POLLIN) | (out_.empty() ? 0 : POLLOUT);
    stream_->watch(poller, static_cast<short>(wanted));
}

void Control::handle(const Poller& poller)
{
    const short ready = stream_->ready(poller);
    if ((ready & POLLIN) != 0 && !closing_) {
        // A control frame is a head at most, a SECRET comes in pieces.
        std::array<std::byte, wire::kMaxHead> chunk;
        const ssize_t count = stream_->read(chunk, nullptr);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) closing_ = true;
        std::span<const std::byte> bytes(chunk.data(),
                                         count > 0 ? static_cast<std::size_t>(count) : 0);
        while (!closing_) {
            const auto frame = decoder_.next(bytes);
            if (!frame) {
                refuse(frame.error());
                break;
            }
            // A half frame waits in the decoder.
            if (!*frame) break;
            const auto message = wire::decode_as<wire::ControlMessage>(
                wire::Direction::to_guest, (*frame)->type, (*frame)->payload);
            if (message)
                take(*message);
            else
                refuse(message.error());
        }
        // A SECRET may have been in it.
        ::explicit_bzero(chunk.data(), chunk.size());
    } else if ((ready & (POLLHUP | POLLERR)) != 0) {
        done_ = true;
        return;
    }
    // At once: most answers fit the socket's buffer, and no turn of the loop is needed.
    flush();
}

void Control::take(const wire::ControlMessage& message)
{
    Gatekeeper& gate = state_.gate;
    // Any number of times, also on a new stream: it changes nothing.
    if (std::holds_alternative<wire::Hello>(message)) {
        out_.send(wire::Welcome{wire::kProtocolVersion, kAgentVersion, kernel_release(),
                                gate.provisioned, state_.service});
    } else if (const auto* provision = std::get_if<wire::Provision>(&message)) {
        // Once a start: replaced nonces go by ROTATE.
        if (gate.provisioned)
            return refuse({wire::WireError::type_not_allowed, "provisioned already", 0});
        // Taken and not handed to the service would be a secret lost without a word.
        if (!provision->provider_keys.empty())
            return refuse({wire::WireError::refused, "provider keys are not built yet", 0});
        if (!state_.secrets.keep(*provision))
            return refuse({wire::WireError::refused, "memory for the values cannot be locked", 0});
        // The name of the workload's uts namespace, which PID 1 has joined.
        if (state_.own_clock && !provision->hostname.empty() &&
            ::sethostname(provision->hostname.c_str(), provision->hostname.size()) != 0)
            return refuse({wire::WireError::refused, "hostname", 0});
        if (state_.own_clock)
            static_cast<void>(step_clock(provision->time_ns, state_.clock_stepped_ns));
        gate.provisioned = true;
        out_.send(wire::Provisioned{});
    } else if (std::holds_alternative<wire::Ready>(message)) {
        if (!gate.provisioned)
            return refuse({wire::WireError::not_provisioned, "READY before PROVISION", 0});
        // From here on sessions are taken; the host has verified that policy is in force.
        gate.ready = true;
        out_.send(wire::ReadyAck{});
    } else if (const auto* secret = std::get_if<wire::Secret>(&message)) {
        if (!gate.provisioned)
            return refuse({wire::WireError::not_provisioned, "SECRET before PROVISION", 0});
        // The service may be running by then, without it.
        if (gate.ready) return refuse({wire::WireError::refused, "SECRET after READY", 0});
        if (const auto kept = state_.secrets.take(*secret, boot_); !kept)
            return refuse(kept.error());
        out_.send(wire::SecretKept{});
    } else if (const auto* rotate = std::get_if<wire::Rotate>(&message)) {
        if (!gate.provisioned)
            return refuse({wire::WireError::not_provisioned, "ROTATE before PROVISION", 0});
        if (!state_.secrets.rotate(*rotate))
            return refuse({wire::WireError::refused, "no such value, or of another size", 0});
        out_.send(wire::Rotated{rotate->kind});
    } else if (std::holds_alternative<wire::StatsRequest>(message)) {
        out_.send(stats());
    } else if (std::holds_alternative<wire::Poweroff>(message)) {
        // Answered first: Init looks at the flag when this turn is over.
        state_.poweroff = true;
        out_.send(wire::PoweroffAck{});
    } else if (const auto* time = std::get_if<wire::TimeSet>(&message)) {
        set_time(time->time_ns);
    } else if (const auto* wanted = std::get_if<wire::SignalSession>(&message)) {
        const bool found = state_.signal_session &&
                           state_.signal_session(wanted->session, wanted->signal);
        out_.send(wire::SessionSignaled{found});
    } else if (std::holds_alternative<wire::Fstrim>(message)) {
        refuse({wire::WireError::refused, "no data disk", 0});
    } else {
        refuse({wire::WireError::type_not_allowed, "not a request", 0});
    }
}

void Control::set_time(std::uint64_t time_ns)
{
    if (!state_.own_clock) return refuse({wire::WireError::refused, "the clock is the host's", 0});
    const auto offset = step_clock(time_ns, state_.clock_stepped_ns);
    if (!offset) return refuse({wire::WireError::refused, "the clock cannot be set", 0});
    out_.send(wire::TimeAck{*offset});
}

void Control::refuse(wire::Failure failure)
{
    // The peer has gone; there is nobody to tell.
    if (failure.error != wire::WireError::truncated)
        out_.send(wire::ErrorMessage{static_cast<std::uint16_t>(failure.error), failure.what});
    // After an ERROR the stream is closed (docs/protocol.md): in an unknown state nothing more is
    // taken.
    closing_ = true;
}

void Control::flush()
{
    const auto flushed = stream_->flush(out_);
    if (flushed == Outbox::Flushed::broken || (flushed == Outbox::Flushed::all && closing_))
        done_ = true;
}

}  // namespace sandbox::guest
