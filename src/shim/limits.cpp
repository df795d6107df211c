// SPDX-License-Identifier: Apache-2.0
#include "shim/limits.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "driver/groups.hpp"
#include "shim/guest_link.hpp"
#include "shim/health_check.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
// One leaf a session: 256 of them (docs/protocol.md) and the control files beside.
constexpr std::size_t kMostNames = 4096;

}  // namespace

// Both clocks live in the shim: neither a client nor a daemon has to be there for them.
Clocks::Clocks(Loop& loop, const profile::Lifecycle& lifecycle, sys::Deadline ttl,
               std::function<bool()> busy, Over over)
    : loop_(loop), idle_(lifecycle.idle_timeout), ttl_(ttl), busy_(std::move(busy)),
      over_(std::move(over))
{
}

Clocks::~Clocks() { stop(); }

void Clocks::stop()
{
    for (auto* watch : {&ttl_watch_, &idle_watch_}) {
        if (*watch) loop_.forget(**watch);
        watch->reset();
    }
}

Status Clocks::start()
{
    touch();
    // INT64_MAX is Deadline::never().
    if (ttl_.boottime_ns() != INT64_MAX) {
        ttl_watch_ = TRY(loop_.after(ttl_.remaining(), [this] {
            ttl_watch_.reset();
            over_(EndCause::ttl);
        }));
    }
    return idle_ ? arm_idle(*idle_) : Status{};
}

void Clocks::touch() { active_ns_ = sys::boottime_ns(); }

void Clocks::hold() { held_ = true; }

// After a pause the idle time begins anew: nobody could have been at work.
void Clocks::release()
{
    held_ = false;
    touch();
}

Status Clocks::arm_idle(Millis span)
{
    idle_watch_ = TRY(loop_.after(span, [this] {
        idle_watch_.reset();
        on_idle();
    }));
    return {};
}

// The timer is not moved at each touch: it looks how long it has really been when it fires.
void Clocks::on_idle()
{
    // A fresh start, not a stop: who is busy now may be idle in a moment.
    if (held_ || busy_()) touch();
    const Millis quiet{(sys::boottime_ns() - active_ns_) / kNsPerMs};
    // Without a timer it would never end: then it ends now.
    if (quiet < *idle_ && arm_idle(*idle_ - quiet)) return;
    over_(EndCause::idle);
}

Result<bool> has_sessions(const std::string& cgroup)
{
    // Asked of the kernel and not of our list: sessions opened through the door count as well.
    const sys::cgroup::Host host = TRY(driver::host_cgroups());
    const std::string path = cgroup + "/workload";
    const auto workload = TRY(sys::cgroup::CgroupTree::find(host, path));
    if (workload.empty()) return false;
    const auto folder = TRY(sys::open_dir(workload.folders().front()));
    for (const std::string& name : TRY(sys::list_dir(folder.get(), kMostNames))) {
        // Two leaves that are always there and prove no one's work.
        if (name == kServiceSession || name == kHealthSession) continue;
        // Control files lie beside the leaves; only folders can be entered.
        if (!sys::open_at(folder.get(), name, O_RDONLY | O_DIRECTORY)) continue;
        const auto leaf = TRY(sys::cgroup::CgroupTree::find(host, path + "/" + name));
        if (!TRY(leaf.processes()).empty()) return true;
    }
    return false;
}

OomWatch::OomWatch(Loop& loop, std::function<std::uint64_t()> count,
                   std::function<void(std::uint64_t)> killed)
    : loop_(loop), count_(std::move(count)), killed_(std::move(killed))
{
}

// Before the descriptors close: the loop must not watch a number that is another's.
OomWatch::~OomWatch()
{
    if (watch_) loop_.forget(*watch_);
    if (timer_) loop_.forget(*timer_);
}

Status OomWatch::start(const std::string& cgroup)
{
    const sys::cgroup::Host host = TRY(driver::host_cgroups());
    const sys::cgroup::Hierarchy* memory = host.with("memory");
    if (memory == nullptr) return {};
    const std::string path = memory->mount + cgroup + "/workload";
    if (memory->version == sys::cgroup::Version::v1) {
        // cgroup-v1/memcg_test and memory.rst, section 10: "EVENTFD FD_OF_CONTROL" registers until
        // either is closed.
        const int number = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (number < 0) return fail_errno("eventfd");
        notice_ = sys::UniqueFd(number);
        control_ = TRY(sys::open_file(path + "/memory.oom_control", O_RDONLY));
        auto folder = TRY(sys::open_dir(path));
        TRY_VOID(sys::write_control_at(folder.get(), "cgroup.event_control",
                                       std::to_string(notice_.get()) + " " +
                                           std::to_string(control_.get())));
    } else {
        const int number = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (number < 0) return fail_errno("inotify_init1");
        notice_ = sys::UniqueFd(number);
        // v2 changes memory.events in place; inotify sees that as IN_MODIFY (cgroup-v2.rst,
        // memory.events).
        if (inotify_add_watch(number, (path + "/memory.events").c_str(), IN_MODIFY) < 0) {
            return fail_errno("inotify_add_watch", path + "/memory.events");
        }
    }
    watch_ = TRY(loop_.when_readable(notice_.get(), [this] { on_notice(); }));
    return {};
}

void OomWatch::on_notice()
{
    // An eventfd gives one counter, an inotify many events: both are only a reason to look.
    std::array<char, 4096> drained{};
    while (read(notice_.get(), drained.data(), drained.size()) > 0) {}
    constexpr int kRounds = 5;
    look(kRounds);
}

// v1 gives notice before the victim is chosen and counted: look again, a few times, a little later
// each time.
void OomWatch::look(int rounds)
{
    const std::uint64_t now = count_();
    if (now > told_) {
        const std::uint64_t more = now - told_;
        told_ = now;
        return killed_(more);
    }
    // One look at a time: a second notice while the timer runs is covered by it.
    if (rounds == 0 || timer_) return;
    constexpr Millis kShort{10};
    const auto timer = loop_.after(kShort * (6 - rounds), [this, rounds] {
        timer_.reset();
        look(rounds - 1);
    });
    if (timer) timer_ = *timer;
}

}  // namespace sandbox::shim
