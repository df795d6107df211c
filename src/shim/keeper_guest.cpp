// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/diagnostic.hpp"
#include "shim/keeper.hpp"
#include "sys/file.hpp"

// What only a sandbox with a kernel of its own has: a console, a clock of its own, and a protocol
// that it can break.
namespace sandbox::shim {

namespace {

// docs/protocol.md: reply deadline, here one that a client waits for.
constexpr Millis kClockDeadline{2'000};
// From POWEROFF to the VMM's end: a guest has nothing to do then but to write what it holds.
constexpr Millis kPowerDeadline{3'000};
// Of a stopped service whose output nobody takes.
constexpr Millis kReaderDeadline{1'000};
// For what the guest sent before the exit and is on its way; nothing of it is waited for in vain but
// where the guest is a liar.
constexpr Millis kLastWord{500};
// A turn of the loop reads no more: a guest that floods its console waits, and nobody else.
constexpr std::size_t kConsoleTurn = 16U << 10;

}  // namespace

// Into a ring of its last bytes, never into a terminal: what a guest prints is hostile.
Status Keeper::watch_console()
{
    const int console = generation_.launched->console.get();
    if (console < 0) return {};
    console_watch_ = TRY(loop_.when_readable(console, [this, console] {
        char chunk[kConsoleTurn];
        const ssize_t got = ::read(console, chunk, sizeof chunk);
        if (got > 0) return console_.append({chunk, static_cast<std::size_t>(got)});
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (console_watch_) loop_.forget(*console_watch_);
        console_watch_.reset();
    }));
    return {};
}

// Not synced; for a person who looks for why a guest ended.
void Keeper::save_console() const
{
    if (console_.end() == 0 || generation_.request.on_exit == OnExit::remove) return;
    const auto folder = sys::open_dir(generation_.request.binding.state_dir.str());
    if (!folder) return;
    const auto file = sys::open_at2(folder->get(), kConsoleName, O_WRONLY | O_CREAT | O_TRUNC, 0600,
                                    sys::kBeneath);
    if (file) static_cast<void>(sys::write_all(file->get(), console_.from(console_.begin())));
}

// Nothing that comes from there can be believed, and nothing is waited for.
void Keeper::end_as_faulty(const char* control, std::string why)
{
    // A sandbox that is ending may well be silent, or cut off in the middle of a frame.
    if (exit_ || ending_ != Ending::none) return;
    static_cast<void>(journal_.tell(audit::Violation{control, why, 1}));
    exit_why_ = std::move(why);
    ending_ = Ending::faulty;
    kill_everything();
}

// So that what a guest has in memory for its shares is written. Nobody waits for it here: the exit is
// known, and told first.
bool Keeper::power_off_guest()
{
    if (!(*generation_.plan)->microvm || !generation_.control) return false;
    if (!generation_.control->send(wire::Poweroff{})) return false;
    // Its end must not look like one that nobody asked for.
    if (init_watch_) loop_.forget(*init_watch_);
    init_watch_.reset();
    powering_off_ = true;
    return true;
}

void Keeper::await_power_off()
{
    if (!powering_off_) return;
    // Whether it ended or not: nothing of it stays.
    static_cast<void>(
        generation_.launched->machine.wait_ended(sys::Deadline::after(kPowerDeadline)));
    kill_everything();
}

// On a stream that output does not hold up. EXIT comes behind all output, which a reader who does not
// read may keep back for ever; a stop does not wait for such a reader.
void Keeper::on_session_over(const wire::SessionEnded& over)
{
    if (!(*generation_.plan)->microvm || over.session != kServiceSession) return;
    if (!wire::is_exit_value(over.outcome, over.value)) return;
    service_over_ = wire::Exit{over.outcome, over.value};
    if (ending_ == Ending::stopping) give_up_on_output();
}

void Keeper::give_up_on_output()
{
    if (!service_over_) return;
    static_cast<void>(loop_.after(kReaderDeadline, [this] {
        if (!exit_) take_message(*service_over_);
    }));
}

// What the guest's kernel killed for memory is known to the guest alone, and told on a stream of its
// own: that may be read after the exit.
std::uint64_t Keeper::guest_oom_kills()
{
    if (!(*generation_.plan)->microvm || !guest_events_) return 0;
    if (ending_ == Ending::none) guest_events_->await_service_end(sys::Deadline::after(kLastWord));
    return guest_events_->oom_kills();
}

// A clock that stood still while its machine did is set again. A guest that does not answer is told
// by its heartbeat's deadline.
void Keeper::set_guest_clock()
{
    if (!(*generation_.plan)->microvm || !generation_.control) return;
    wire::TimeSet time;
    time.time_ns = unix_time_ns();
    const auto answer = channel::ask<wire::TimeAck>(*generation_.control, time,
                                                    sys::Deadline::after(kClockDeadline));
    if (!answer)
        static_cast<void>(
            journal_.tell(audit::Violation{"guest.clock", answer.error().message(), 1}));
}

}  // namespace sandbox::shim
