// SPDX-License-Identifier: Apache-2.0
#include "shim/log_worker.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/failpoint.hpp"
#include "base/terminal.hpp"
#include "shim/log_writer.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

constexpr std::size_t kChunk = 64U << 10;  // a pipe's default capacity, pipe(7)

std::string now_rfc3339()
{
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    tm parts{};
    gmtime_r(&now.tv_sec, &parts);
    std::array<char, 48> text{};
    const std::size_t length = strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::string nanos = std::to_string(1'000'000'000L + now.tv_nsec).substr(1);
    return std::string(text.data(), length) + "." + nanos + "Z";
}

// One stream on its way from the workload to the log and to the client.
class Drain {
public:
    Drain(LogInput input, Stream stream) : input_(std::move(input)), splitter_(stream) {}

    int fd() const { return input_.from.get(); }
    bool open() const { return input_.from.valid(); }

    void pump(LogWriter& log, std::string& buffer)
    {
        const ssize_t count = read(fd(), buffer.data(), buffer.size());
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (count <= 0) return close(log);
        const std::string_view chunk(buffer.data(), static_cast<std::size_t>(count));
        // A full disk loses records, never the workload: the writer counts what it dropped.
        splitter_.feed(chunk, now_rfc3339(),
                       [&](LogRecord&& record) { static_cast<void>(log.append(record)); });
        // The log first: a client that stopped reading must not keep output out of it.
        forward(input_.copy_as == Output::terminal ? safe_.feed(chunk) : std::string(chunk));
    }

private:
    void close(LogWriter& log)
    {
        if (auto last = splitter_.finish(now_rfc3339())) static_cast<void>(log.append(*last));
        if (input_.copy_as == Output::terminal) forward(safe_.finish());
        input_.from.reset();
        input_.copy.reset();
    }

    // Blocking: a client that reads slowly slows its workload, one that is gone is forgotten.
    void forward(std::string_view bytes)
    {
        if (!input_.copy.valid() || bytes.empty()) return;
        while (!bytes.empty()) {
            const ssize_t count = write(input_.copy.get(), bytes.data(), bytes.size());
            if (count >= 0) {
                bytes.remove_prefix(static_cast<std::size_t>(count));
            } else if (errno == EAGAIN) {
                pollfd wait{input_.copy.get(), POLLOUT, 0};
                poll(&wait, 1, -1);
            } else if (errno != EINTR) {
                input_.copy.reset();
                return;
            }
        }
    }

    LogInput input_;
    LineSplitter splitter_;
    TerminalSanitiser safe_;
};

void drain_all(LogWriter& log, Drain& out, Drain& err)
{
    std::string buffer(kChunk, '\0');
    while (out.open() || err.open()) {
        std::array<pollfd, 2> wait{
            {{out.open() ? out.fd() : -1, POLLIN, 0}, {err.open() ? err.fd() : -1, POLLIN, 0}}};
        if (poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return;
        if (wait[0].revents != 0) out.pump(log, buffer);
        if (wait[1].revents != 0) err.pump(log, buffer);
    }
}

// The child keeps exactly what it needs: a descriptor kept by accident would hold a pipe open and
// no end of file would ever come.
void keep_only(std::vector<int> keep)
{
    std::sort(keep.begin(), keep.end());
    unsigned next = 3;
    for (const int fd : keep) {
        if (fd < 3) continue;
        const auto number = static_cast<unsigned>(fd);
        if (number > next) sys::close_range(next, number - 1);
        next = number + 1;
    }
    sys::close_range(next, ~0U);
}

// "shim:ID" to "log:ID" in place: /proc/PID/cmdline shows this very memory.
void rename_marker(char* marker)
{
    constexpr std::string_view kShim = "shim:";
    constexpr std::string_view kLog = "log:";
    const std::size_t length = std::strlen(marker);
    if (!std::string_view(marker, length).starts_with(kShim)) return;
    const std::string renamed = std::string(kLog) + (marker + kShim.size());
    std::memset(marker, 0, length);
    std::memcpy(marker, renamed.data(), renamed.size());
}

[[noreturn]] void work(const std::string& log_dir, LogLimits limits, LogInput out, LogInput err,
                       int alive)
{
    prctl(PR_SET_NAME, "sandbox-log", 0, 0, 0);
    std::signal(SIGPIPE, SIG_IGN);
    // Ctrl-C at the client's terminal is not for us: the workload decides when output ends.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    keep_only({out.from.get(), out.copy.get(), err.from.get(), err.copy.get(), alive});
    auto log = LogWriter::open(log_dir, limits);
    if (!log) _exit(1);
    Drain out_drain(std::move(out), Stream::out);
    Drain err_drain(std::move(err), Stream::err);
    failpoint("log.begin");
    drain_all(*log, out_drain, err_drain);
    failpoint("log.drained");
    _exit(0);
}

}  // namespace

Result<LogWorker> start_log_worker(const std::string& log_dir, LogLimits limits, LogInput out,
                                   LogInput err, char* marker)
{
    // Opening here reports a bad folder before anything runs.
    TRY_VOID(LogWriter::open(log_dir, limits));
    sys::Pipe alive = TRY(sys::make_pipe());
    auto child = TRY(sys::clone_process({}));
    if (child.pid == 0) {
        rename_marker(marker);
        work(log_dir, limits, std::move(out), std::move(err), alive.write.get());
    }
    return LogWorker{sys::Pidfd(std::move(child.pidfd), child.pid), std::move(alive.read)};
}

}  // namespace sandbox::shim
