// SPDX-License-Identifier: Apache-2.0
#include "timed.hpp"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <ctime>

#include "sys/deadline.hpp"
#include "sys/file.hpp"

namespace sandbox::bench {

namespace {

constexpr std::size_t kKept = 1024;
// Nobody reads while the clock runs: the pipe must hold all that `ps` prints of a thousand
// sandboxes. The default of /proc/sys/fs/pipe-max-size.
constexpr int kPipeSize = 1 << 20;
constexpr auto kReaping = std::chrono::seconds(10);

std::vector<char*> pointers(const std::vector<std::string>& words)
{
    std::vector<char*> list;
    // posix_spawn wants char* and writes to none of them.
    for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
    list.push_back(nullptr);
    return list;
}

// The calling thread in another mount namespace for a while.
class Elsewhere {
public:
    [[nodiscard]] static Result<Elsewhere> enter(int mount_namespace)
    {
        Elsewhere place;
        if (mount_namespace < 0) return place;
        place.home_ = TRY(sys::open_file("/proc/self/ns/mnt", O_RDONLY));
        if (setns(mount_namespace, CLONE_NEWNS) != 0) return fail_errno("setns");
        return place;
    }
    [[nodiscard]] Status leave() const
    {
        if (home_.valid() && setns(home_.get(), CLONE_NEWNS) != 0)
            return fail_errno("setns", "home");
        return {};
    }

private:
    sys::UniqueFd home_;
};

class Actions {
public:
    Actions() { posix_spawn_file_actions_init(&actions_); }
    Actions(const Actions&) = delete;
    Actions& operator=(const Actions&) = delete;
    ~Actions() { posix_spawn_file_actions_destroy(&actions_); }
    void put(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
    const posix_spawn_file_actions_t* get() const { return &actions_; }

private:
    posix_spawn_file_actions_t actions_{};
};

int status_of(const siginfo_t& info)
{
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

}  // namespace

std::uint64_t now_ns() { return static_cast<std::uint64_t>(sys::boottime_ns()); }

Result<Timed> run_timed(const Command& command, Clock clock)
{
    const sys::Pipe input = TRY(sys::make_pipe());
    sys::Pipe output = TRY(sys::make_pipe());
    if (fcntl(output.write.get(), F_SETPIPE_SZ, kPipeSize) < 0)
        return fail_errno("fcntl", "F_SETPIPE_SZ");
    const auto argv = pointers(command.argv);
    const auto envp = pointers(command.env);
    Actions actions;
    actions.put(input.read.get(), 0);
    actions.put(output.write.get(), 1);
    actions.put(output.write.get(), 2);
    const Elsewhere place = TRY(Elsewhere::enter(command.mount_namespace));

    Timed timed;
    pid_t pid = -1;
    char first = 0;
    siginfo_t info{};
    timed.start_ns = now_ns();
    const int failed = posix_spawn(&pid, argv[0], actions.get(), nullptr, argv.data(), envp.data());
    if (failed == 0) {
        if (clock == Clock::first_byte) {
            output.write.reset();
            if (read(output.read.get(), &first, 1) == 1) timed.output = first;
            timed.end_ns = now_ns();
        }
        while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {}
    }
    if (timed.end_ns == 0) timed.end_ns = now_ns();

    TRY_VOID(place.leave());
    if (failed != 0) return fail(Error::from_errno(failed, "posix_spawn", command.argv[0]));
    timed.status = status_of(info);
    TRY_VOID(sys::set_nonblocking(output.read.get()));
    std::string text(kKept, '\0');
    const ssize_t count = read(output.read.get(), text.data(), text.size());
    if (count > 0) timed.output.append(text, 0, static_cast<std::size_t>(count));
    return timed;
}

void reap_ended()
{
    while (waitpid(-1, nullptr, WNOHANG) > 0) {}
}

Status reap_all()
{
    const auto deadline = sys::Deadline::after(kReaping);
    for (;;) {
        const pid_t pid = waitpid(-1, nullptr, WNOHANG);
        if (pid < 0 && errno == ECHILD) return {};
        if (pid > 0) continue;
        if (deadline.passed())
            return fail(Code::deadline_exceeded,
                        "a process that a measured command left does not end");
        pause_ms(1);
    }
}

void pause_ms(int milliseconds)
{
    timespec span{milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
    while (nanosleep(&span, &span) != 0 && errno == EINTR) {}
}

namespace {

// "0.52 0.58 0.59 1/84 2345": the fourth field begins with what runs or wants to, us among them.
bool others_run()
{
    const auto text = sys::read_file("/proc/loadavg", 256);
    if (!text) return false;
    std::size_t at = 0;
    for (int field = 0; field < 3 && at != std::string::npos; ++field)
        at = text->find(' ', at == 0 ? 0 : at + 1);
    return at != std::string::npos && text->compare(at, 3, " 1/") != 0;
}

constexpr int kCalmLooks = 8;
constexpr int kLookMs = 4;  // one tick of a kernel with 250 Hz
constexpr int kMostLooks = 30'000 / kLookMs;

}  // namespace

void pause_between(const Options& options)
{
    pause_ms(options.spacing_ms);
    if (!options.calm) return;
    for (int calm = 0, looks = 0; calm < kCalmLooks && looks < kMostLooks; ++looks) {
        calm = others_run() ? 0 : calm + 1;
        pause_ms(kLookMs);
    }
}

double Series::percentile(double fraction) const
{
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    std::ranges::sort(sorted);
    const double rank = std::ceil(fraction * static_cast<double>(sorted.size()));
    const auto index = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
    return sorted[std::min(index, sorted.size() - 1)];
}

}  // namespace sandbox::bench
