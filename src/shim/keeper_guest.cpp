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
constexpr Millis kSignalDeadline{2'000};
constexpr Millis kRotateDeadline{2'000};
// Of a stop or cont, which QEMU's own thread does at once.
constexpr Millis kVmmDeadline{5'000};
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
    console_watch_ = TRY(loop_.when_readable(console, [this] {
        if (read_console() >= 0 || errno == EAGAIN || errno == EINTR) return;
        if (console_watch_) loop_.forget(*console_watch_);
        console_watch_.reset();
    }));
    return {};
}

// How much came: a turn's at most. -1 with errno; EPIPE is the end.
ssize_t Keeper::read_console()
{
    char chunk[kConsoleTurn];
    const ssize_t got = ::read(generation_.launched->console.get(), chunk, sizeof chunk);
    if (got > 0) console_.append({chunk, static_cast<std::size_t>(got)});
    if (got != 0) return got;
    errno = EPIPE;
    return -1;
}

// What is in the pipe still.
void Keeper::drain_console()
{
    if (!console_watch_) return;
    // A pipe holds 64 KiB (pipe(7)).
    for (std::size_t turns = 0; turns <= (64U << 10) / kConsoleTurn; ++turns)
        if (read_console() <= 0) return;
}

// Not synced; for a person who looks for why a guest ended.
void Keeper::save_console()
{
    drain_console();
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
    // Its last words came after the exit was told.
    save_console();
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

// The machine's own clock stands still: what waits in the guest for a time waits for as long as it
// would have without the pause. Its heartbeat rests, too.
Status Keeper::halt_machine()
{
    if (!(*generation_.plan)->microvm) return {};
    if (!vmm_) vmm_.emplace(TRY(sys::duplicate(generation_.launched->monitor.get())));
    TRY_WITH(vmm_->ask(driver::microvm::QmpCommand::stop, sys::Deadline::after(kVmmDeadline)),
             "stop the machine");
    if (guest_events_) guest_events_->hold();
    return {};
}

Status Keeper::continue_machine()
{
    if (!(*generation_.plan)->microvm) return {};
    Status went = fail(Code::internal, "the machine was not stopped");
    if (vmm_) {
        const auto done = vmm_->ask(driver::microvm::QmpCommand::cont,
                                    sys::Deadline::after(kVmmDeadline));
        went = done ? Status{} : fail(done.error());
    }
    if (went && guest_events_) went = guest_events_->release();
    // A VMM that obeys no more is lost.
    if (!went)
        end_as_faulty("vmm.monitor", "the machine does not go on: " + went.error().message());
    return went;
}

// Its clock stood still while its machine did. A guest that does not answer is told by its heartbeat's
// deadline.
void Keeper::set_guest_clock()
{
    if (!(*generation_.plan)->microvm || !generation_.control) return;
    const auto off = set_clock(*generation_.control, sys::Deadline::after(kClockDeadline));
    if (off && *off <= kClockTolerance) return;
    // An answer that comes late would be taken for that to another request.
    if (!off) generation_.control.reset();
    const std::string why = off ? "it may be wrong by " +
                                      format_duration(std::chrono::ceil<Millis>(*off))
                                : off.error().message();
    static_cast<void>(journal_.tell(audit::Violation{"guest.clock", why, 1}));
}

// Whoever had a machine that stood still may have copied its memory: the nonce in it opens nothing any
// more.
void Keeper::rotate_guest_nonce()
{
    if (!(*generation_.plan)->microvm || !generation_.control || !guest_events_) return;
    const auto deadline = sys::Deadline::after(kRotateDeadline);
    const auto rotate = [&]() -> Status {
        generation_.event_nonce = TRY(rotate_event_nonce(*generation_.control, deadline));
        auto stream = TRY(open_port(generation_.launched->channel.get(), wire::Port::events));
        return guest_events_->replace(std::move(stream), generation_.event_nonce, deadline);
    };
    const auto done = rotate();
    if (done) {
        static_cast<void>(journal_.acted("rotate", "the event nonce, after a pause"));
        return;
    }
    // An answer that comes late would be taken for that to another request.
    generation_.control.reset();
    static_cast<void>(journal_.tell(audit::Violation{"guest.rotation", done.error().message(), 1}));
}

Status Keeper::signal_in_guest(const std::string& session, int signal)
{
    if (!generation_.control) return fail(Code::unavailable, "the guest's PID 1 does not answer");
    const auto answer = channel::ask<wire::SessionSignaled>(
        *generation_.control, wire::SignalSession{session, static_cast<std::uint8_t>(signal)},
        sys::Deadline::after(kSignalDeadline));
    // An answer that comes late would be taken for that to another request.
    if (!answer) {
        generation_.control.reset();
        return fail(answer.error());
    }
    if (!answer->found) return fail(Code::conflict, "session " + session + " has ended");
    return {};
}

}  // namespace sandbox::shim
