// SPDX-License-Identifier: Apache-2.0
#include "probe/child.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::probe {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostReport = 256U << 10;  // a child tells a few KiB
// Of one program; evidence quotes its first line.
constexpr std::size_t kMostOutput = 64U << 10;
// Behind the standard streams, as crun's --preserve-fds counts.
constexpr int kReportDescriptor = 3;
// A killed process in an uninterruptible wait is not waited for longer.
constexpr milliseconds kReapLimit{1000};

struct Running {
    const Task* task = nullptr;
    sys::UniqueFd process;  // pidfd
    sys::UniqueFd report;
    std::string text;
    std::string end;  // how the child ended, for evidence; empty while it runs
};

// Keeps signals away between clone and the moment the child has default handlers: a handler of
// the parent must never run in the child.
class SignalsBlocked {
public:
    SignalsBlocked()
    {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_{};
};

void default_signals()
{
    for (int number = 1; number <= SIGRTMAX; ++number) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
}

enum class Namespaces { shared, own };

[[noreturn]] void run_child(const Task& task, int report, Namespaces namespaces)
{
    // Before anything else: from here on the child cannot outlive its parent.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    default_signals();
    // dup3 refuses equal numbers; the pipe may already be where it belongs.
    if (report != kReportDescriptor) dup3(report, kReportDescriptor, O_CLOEXEC);
    // Nothing of the program stays open here: no lock, socket or ledger of its.
    sys::close_range(kReportDescriptor + 1, ~0U);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    // A check that prints, or a program it runs, must not reach the caller's terminal.
    for (int number = 0; number < kReportDescriptor; ++number) dup2(null, number);
    // What a check makes is nobody else's to read.
    umask(077);
    if (namespaces == Namespaces::own) {
        // Private first: what a check mounts must not propagate to the host. A /proc of the new
        // pid namespace, or /proc/PID would name strangers. Failures show in the checks themselves.
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
    }
    // An exception must not unwind into the copy of the program's stack below.
    try {
        task.body(Reporter(kReportDescriptor));
    } catch (...) {
        _exit(EXIT_FAILURE);
    }
    _exit(EXIT_SUCCESS);
}

Running start(const Task& task)
{
    Running running;
    running.task = &task;
    auto pipe = sys::make_pipe();
    if (!pipe) {
        running.end = "no child: " + pipe.error().message();
        return running;
    }
    // From here to the child's own default_signals() none is delivered.
    const SignalsBlocked blocked;
    // Exit signal 0: no SIGCHLD reaches handlers of the program, and its own wait loops do not see
    // this child.
    Namespaces namespaces = Namespaces::own;
    // A pid namespace makes the child PID 1: killing it kills whatever it started, at once.
    auto child = sys::clone_process({.flags = CLONE_NEWPID | CLONE_NEWNS, .exit_signal = 0});
    // Without CAP_SYS_ADMIN the check runs in our namespaces; the parent-death signal then has to
    // end what it started.
    if (!child) {
        namespaces = Namespaces::shared;
        child = sys::clone_process({.exit_signal = 0});
    }
    if (!child) {
        running.end = "no child: " + child.error().message();
        return running;
    }
    if (child->pid == 0) run_child(task, pipe->write.get(), namespaces);
    running.process = std::move(child->pidfd);
    running.report = std::move(pipe->read);
    return running;
}

enum class More { yes, no };

More take_output(int descriptor, std::string& text, std::size_t most)
{
    char buffer[4096];
    const ssize_t got = read(descriptor, buffer, sizeof buffer);
    if (got < 0) return errno == EINTR ? More::yes : More::no;
    const auto count = static_cast<std::size_t>(got);
    // The rest is read and dropped: a full pipe would block the child instead of ending it.
    text.append(buffer, std::min(count, most - std::min(most, text.size())));
    return count == 0 ? More::no : More::yes;
}

std::string describe_end(const siginfo_t& info)
{
    if (info.si_code == CLD_EXITED && info.si_status == 0) return "the check ended without a word";
    if (info.si_code == CLD_EXITED) return fmt::format("the check failed ({})", info.si_status);
    return fmt::format("the check was ended by signal {}", info.si_status);
}

void reap(Running& running)
{
    // It has closed its pipe or was killed: this is a moment.
    static_cast<void>(
        sys::poll_one(running.process.get(), POLLIN, sys::Deadline::after(kReapLimit)));
    siginfo_t info{};
    const auto id = static_cast<id_t>(running.process.get());
    const int flags = WEXITED | WNOHANG | __WALL;
    // __WALL: with exit signal 0 it is a "clone child" that plain waits do not see.
    if (waitid(P_PIDFD, id, &info, flags) != 0 || info.si_pid == 0) {
        if (running.end.empty()) running.end = "the check's process could not be reaped";
    } else if (running.end.empty()) {
        running.end = describe_end(info);
    }
}

// Reads what the children say until each has closed its pipe or time is up; then ends the late.
void collect(std::vector<Running>& children, milliseconds deadline)
{
    // One deadline for all: they run side by side.
    const auto limit = sys::Deadline::after(deadline);
    while (true) {
        std::vector<pollfd> waiting;
        for (const Running& child : children) {
            if (child.report) waiting.push_back({child.report.get(), POLLIN, 0});
        }
        if (waiting.empty() || limit.passed()) break;
        if (poll(waiting.data(), waiting.size(), limit.poll_timeout()) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        for (const pollfd& ready : waiting) {
            if (ready.revents == 0) continue;
            const auto child = std::ranges::find_if(children, [&](const Running& candidate) {
                return candidate.report && candidate.report.get() == ready.fd;
            });
            if (take_output(ready.fd, child->text, kMostReport) == More::no) child->report.reset();
        }
    }
    // PID 1 of its namespace: the kernel ends everything in there with it.
    for (Running& child : children) {
        if (!child.report || !child.process) continue;
        // By pidfd: the number may be another's by now.
        syscall(SYS_pidfd_send_signal, child.process.get(), SIGKILL, nullptr, 0);
        child.end = fmt::format("the check did not end within {} ms and was killed",
                                deadline.count());
        if (child.task->release) child.task->release();
    }
}

// "name\x1fstatus\x1fvalue\x1fevidence\n": `escaped` keeps both separators out of the fields.
void parse_report(const Running& child, std::map<std::string, facts::Fact>& facts)
{
    std::string_view text = child.text;
    while (true) {
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) return;  // a torn last line is no finding
        std::vector<std::string_view> fields;
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        for (std::size_t cut = 0; cut != std::string_view::npos;) {
            cut = line.find('\x1f');
            fields.push_back(line.substr(0, cut));
            if (cut != std::string_view::npos) line.remove_prefix(cut + 1);
        }
        const auto& names = child.task->names;
        // Only what the task announced: a check cannot overwrite another's fact.
        if (fields.size() != 4 || std::ranges::find(names, fields[0]) == names.end()) continue;
        facts::Fact fact;
        // Anything else is a gap: a word that we do not know promises nothing.
        fact.status = fields[1] == "ok"     ? facts::FactStatus::ok
                      : fields[1] == "note" ? facts::FactStatus::note
                                            : facts::FactStatus::gap;
        fact.value = fields[2];
        fact.evidence = fields[3];
        facts.insert_or_assign(std::string(fields[0]), std::move(fact));
    }
}

}  // namespace

Finding found(std::string value, std::string evidence)
{
    return {facts::FactStatus::ok, std::move(value), std::move(evidence)};
}

Finding missing(std::string evidence) { return {facts::FactStatus::gap, {}, std::move(evidence)}; }

Finding noted(std::string value, std::string evidence)
{
    return {facts::FactStatus::note, std::move(value), std::move(evidence)};
}

std::string errno_text(std::string_view what)
{
    const int number = errno;
    return fmt::format("{}: {} (errno {})", what, std::strerror(number), number);
}

Finding missing_errno(std::string_view what) { return missing(errno_text(what)); }

void Reporter::report(std::string_view name, const Finding& finding) const
{
    const std::string line = fmt::format("{}\x1f{}\x1f{}\x1f{}\n", name,
                                         facts::to_string(finding.status), escaped(finding.value),
                                         escaped(finding.evidence));
    std::size_t done = 0;
    while (done < line.size()) {
        // Nobody reads any more: the parent gave up on this child.
        const ssize_t put = write(descriptor_, line.data() + done, line.size() - done);
        if (put < 0 && errno != EINTR) return;
        if (put > 0) done += static_cast<std::size_t>(put);
    }
}

std::map<std::string, facts::Fact> run_tasks(const std::vector<Task>& tasks, milliseconds deadline)
{
    std::vector<Running> children;
    children.reserve(tasks.size());
    for (const Task& task : tasks) children.push_back(start(task));
    collect(children, deadline);
    std::map<std::string, facts::Fact> facts;
    for (Running& child : children) {
        if (child.process) reap(child);
        parse_report(child, facts);
        for (const std::string_view name : child.task->names) {
            // The first answer stands: a later gap cannot take a finding back.
            if (facts.contains(std::string(name))) continue;
            facts::Fact gap;
            gap.evidence = fmt::format("{}: {}", child.task->label, child.end);
            facts.emplace(name, std::move(gap));
        }
    }
    return facts;
}

int in_process(const std::function<int()>& body)
{
    // fork, not clone_process: a child of the child, which is single-threaded as well.
    const pid_t child = fork();
    if (child < 0) return -1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(body());
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

namespace {

[[noreturn]] void exec_program(const Program& program, int output)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // An ended pipe, not /dev/null: crun gives descriptors 0 to 2 to the container's root, and the
    // owner of the host's own device would change.
    std::array<int, 2> input{};
    if (pipe2(input.data(), O_CLOEXEC) != 0) _exit(126);
    dup2(input[0], STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    // After this the report pipe is closed on exec or replaced by the passed descriptor.
    if (program.passed >= 0 && program.passed != kReportDescriptor) {
        dup2(program.passed, kReportDescriptor);
    }
    if (chdir(program.cwd.c_str()) != 0) _exit(126);
    // Before exec, in a process of one thread: allocation is fine here.
    std::vector<char*> arguments;
    for (const std::string& argument : program.argv) {
        arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    // Nothing of our environment: LISTEN_FDS alone would change what crun does.
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char locale[] = "LC_ALL=C";
    char* environment[] = {path, locale, nullptr};
    // The open file, not a path: what was hashed is what runs.
    fexecve(program.executable, arguments.data(), environment);
    _exit(127);
}

}  // namespace

ProgramEnd run_program(const Program& program)
{
    ProgramEnd end;
    auto pipe = sys::make_pipe();
    if (!pipe) {
        end.output = pipe.error().message();
        return end;
    }
    const pid_t child = fork();
    if (child == 0) exec_program(program, pipe->write.get());
    if (child < 0) {
        end.output = errno_text("fork");
        return end;
    }
    pipe->write.reset();
    while (take_output(pipe->read.get(), end.output, kMostOutput) == More::yes) {}
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return end;
}

std::string first_line(std::string_view text)
{
    return std::string(text.substr(0, text.find('\n')));
}

}  // namespace sandbox::probe
