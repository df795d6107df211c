// SPDX-License-Identifier: Apache-2.0
// Runs a command and its descendants under ptrace(2), and spoils one of their system calls.
//
//   inject TARGET list FILE -- COMMAND...              names of the target's calls, in order
//   inject TARGET kill N -- COMMAND...                 SIGKILL to the target as it enters its N-th
//   inject TARGET fail ERRNO CALL N once|ever -- CMD   its N-th CALL (and those after it) fails
//
// TARGET: "client" is the command itself, "shim" and "crun" are known by the first word of their
// command line, "shim+" and "crun+" are what those forked and what has not become another program.
// Exits as the command does; 99 with one line on stderr when nothing was spoiled.
#include <linux/audit.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr int kNothingDone = 99;
constexpr unsigned kPatience = 40;  // seconds until whatever still runs is let go
constexpr long kOptions = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                          PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD;

struct Order {
    std::string target;
    std::string verb;
    std::string file;
    int error = 0;
    long call = -1;
    long number = 0;
    bool ever = false;
};

struct Tracee {
    std::string kind;
    bool in_call = false;
    bool spoil_exit = false;
};

// What a program is, by its first word.
std::string kind_after_exec(pid_t pid, const std::string& before)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
    std::string word;
    std::getline(file, word, '\0');
    word = word.substr(word.rfind('/') + 1);
    if (word == "sandbox-shim") return "shim";
    if (word == "crun") return "crun";
    if (before == "client" && word == "sandboxctl") return "client";
    return "other";
}

class Tracer {
public:
    explicit Tracer(Order order) : order_(std::move(order))
    {
        if (order_.verb == "list") list_.open(order_.file);
    }

    int run(char** command)
    {
        main_ = fork();
        if (main_ == 0) {
            raise(SIGSTOP);  // until it is traced
            execvp(command[0], command);
            _exit(127);
        }
        int status = 0;
        waitpid(main_, &status, WUNTRACED);
        if (ptrace(PTRACE_SEIZE, main_, 0, kOptions) != 0) return 98;
        tracees_[main_] = {.kind = "client"};
        kill(main_, SIGCONT);
        alarm(kPatience);
        while (!tracees_.empty()) {
            const pid_t pid = waitpid(-1, &status, __WALL);
            if (pid < 0) break;
            handle(pid, status);
        }
        if (order_.verb != "list" && !done_) {
            std::fprintf(stderr, "inject: nothing was spoiled\n");
            return kNothingDone;
        }
        return WIFSIGNALED(main_status_) ? 128 + WTERMSIG(main_status_) : WEXITSTATUS(main_status_);
    }

private:
    void handle(pid_t pid, int status)
    {
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (pid == main_) main_status_ = status;
            tracees_.erase(pid);
            return;
        }
        if (!tracees_.contains(pid)) {
            // Seen before its parent told of it: it stays where it is until then.
            early_.insert(pid);
            return;
        }
        Tracee& tracee = tracees_[pid];
        const int signal = WSTOPSIG(status);
        const int event = status >> 16;
        long deliver = 0;
        if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
            event == PTRACE_EVENT_CLONE) {
            unsigned long child = 0;
            ptrace(PTRACE_GETEVENTMSG, pid, 0, &child);
            std::string kind = tracee.kind;
            if ((kind == "shim" || kind == "crun") || kind == "client") kind += '+';
            adopt(static_cast<pid_t>(child), kind);
        } else if (event == PTRACE_EVENT_EXEC) {
            tracee.kind = kind_after_exec(pid, tracee.kind);
            tracee.in_call = false;
        } else if (event == PTRACE_EVENT_STOP) {
            // The one that ended the stop of a child just born is SIGTRAP; a stop for jobs goes on.
        } else if (signal == (SIGTRAP | 0x80)) {
            on_call(pid, tracee);
        } else {
            deliver = signal;
        }
        go_on(pid, deliver);
    }

    void adopt(pid_t child, const std::string& kind)
    {
        tracees_[child].kind = kind;
        if (early_.erase(child) != 0) go_on(child, 0);
    }

    void go_on(pid_t pid, long signal)
    {
        const long request = tracees_[pid].kind == order_.target ? PTRACE_SYSCALL : PTRACE_CONT;
        ptrace(static_cast<__ptrace_request>(request), pid, 0, signal);
    }

    void on_call(pid_t pid, Tracee& tracee)
    {
        user_regs_struct regs{};
        if (ptrace(PTRACE_GETREGS, pid, 0, &regs) != 0) return;
        tracee.in_call = !tracee.in_call;
        if (!tracee.in_call) {
            if (!tracee.spoil_exit) return;
            tracee.spoil_exit = false;
            regs.rax = static_cast<unsigned long long>(-order_.error);
            ptrace(PTRACE_SETREGS, pid, 0, &regs);
            return;
        }
        const long call = static_cast<long>(regs.orig_rax);
        if (order_.verb == "list") {
            list_ << call << '\n';
            return;
        }
        if (order_.verb == "kill") {
            if (++seen_ != order_.number) return;
            done_ = true;
            kill(pid, SIGKILL);
            return;
        }
        if (call != order_.call) return;
        ++seen_;
        if (seen_ < order_.number || (seen_ > order_.number && !order_.ever)) return;
        done_ = true;
        regs.orig_rax = ~0ULL;  // no such call: the kernel does nothing
        ptrace(PTRACE_SETREGS, pid, 0, &regs);
        tracee.spoil_exit = true;
    }

    Order order_;
    std::ofstream list_;
    std::map<pid_t, Tracee> tracees_;
    std::set<pid_t> early_;
    pid_t main_ = 0;
    int main_status_ = 0;
    long seen_ = 0;
    bool done_ = false;
};

}  // namespace

int main(int argc, char** argv)
{
    Order order;
    int at = 3;
    if (argc > 4) {
        order.target = argv[1];
        order.verb = argv[2];
        if (order.verb == "list") order.file = argv[at++];
        if (order.verb == "kill") order.number = std::atol(argv[at++]);
        if (order.verb == "fail" && argc > 8) {
            order.error = std::atoi(argv[at++]);
            order.call = std::atol(argv[at++]);
            order.number = std::atol(argv[at++]);
            order.ever = std::strcmp(argv[at++], "ever") == 0;
        }
    }
    if (at == 3 || at + 1 >= argc || std::strcmp(argv[at], "--") != 0) {
        std::fprintf(stderr, "usage: see the head of inject.cpp\n");
        return 2;
    }
    return Tracer(std::move(order)).run(argv + at + 1);
}
