// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "facts/facts.hpp"

// Disposable children: each active check runs in one, so that a hang, a crash or a half-made mount
// ends with the child. The caller is single-threaded (sys::clone_process). As root a child is PID 1
// of its own pid and mount namespaces: killing it kills all it started and unmounts all it mounted.
namespace sandbox::probe {

// One fact as a check found it.
struct Finding {
    facts::FactStatus status = facts::FactStatus::gap;
    std::string value;
    std::string evidence;
};

// ok, gap and note, with what was seen; `missing` has no value by nature.
Finding found(std::string value, std::string evidence);
Finding missing(std::string evidence);
Finding noted(std::string value, std::string evidence);
// "mount tmpfs: Operation not permitted (errno 1)", of the present errno.
Finding missing_errno(std::string_view what);
std::string errno_text(std::string_view what);

// The child's way to tell its parent. A finding reported is kept even when the child hangs later.
class Reporter {
public:
    explicit Reporter(int descriptor) : descriptor_(descriptor) {}
    void report(std::string_view name, const Finding& finding) const;

private:
    int descriptor_;  // not owned: the write end of the report pipe
};

// One subject. A child each: what hangs takes no other subject with it.
struct Task {
    std::string label;  // for evidence: "namespaces"
    std::vector<std::string_view> names;  // facts it must report; others are dropped
    std::function<void(const Reporter&)> body;  // runs in the child, which then exits
    // Runs in the caller once the child was killed for being late, before it is waited for: frees
    // what keeps it from dying, as a frozen process in its pid namespace does. May be empty.
    std::function<void()> release;
};

// Runs the tasks side by side, each for at most `deadline` of boot time, and reaps every child. A
// name that its task did not report is a gap that says how the child ended. Never fails: without a
// child every fact of the task is a gap.
std::map<std::string, facts::Fact> run_tasks(const std::vector<Task>& tasks,
                                             std::chrono::milliseconds deadline);

// Within a child: runs `body` in a further process and returns its exit status, 128 + n for a
// signal, or -1 with errno. Waits without a limit of its own: the task's deadline ends both.
int in_process(const std::function<int()>& body);

// Within a child: a program run from its open executable, with an environment of ours.
struct Program {
    int executable = -1;
    std::vector<std::string> argv;
    std::string cwd = "/";
    int passed = -1;  // becomes the program's descriptor 3; -1: none
};
struct ProgramEnd {
    int status = -1;  // exit status, 128 + n for a signal; -1: never started
    std::string output;  // standard output and error, at most 64 KiB
};
ProgramEnd run_program(const Program& program);

// The first line of a program's output, for evidence.
std::string first_line(std::string_view text);

}  // namespace sandbox::probe
