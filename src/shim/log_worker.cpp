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

// One read takes all that a pipe of default size holds.
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
    // From where the worker before came to: offsets go on without a gap.
    Drain(LogInput input, Stream stream, StreamProgress& progress)
        : input_(std::move(input)), splitter_(stream, progress.read), progress_(progress)
    {
    }

    int fd() const { return input_.from.get(); }
    bool open() const { return input_.from.valid(); }

    void pump(LogWriter& log, std::string& buffer)
    {
        const ssize_t count = read(fd(), buffer.data(), buffer.size());
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (count <= 0) return close(log);
        const std::string_view chunk(buffer.data(), static_cast<std::size_t>(count));
        progress_.read += chunk.size();
        // A full disk loses records, never the workload: the writer counts what it dropped.
        splitter_.feed(chunk, now_rfc3339(),
                       [&](LogRecord&& record) { static_cast<void>(log.append(record)); });
        // What the splitter holds is read but not yet logged: it would be lost with us.
        progress_.logged = progress_.read - splitter_.held();
        // The log first: a client that stopped reading must not keep output out of it.
        forward(input_.copy_as == Output::terminal ? safe_.feed(chunk) : std::string(chunk));
    }

private:
    void close(LogWriter& log)
    {
        if (auto last = splitter_.finish(now_rfc3339())) static_cast<void>(log.append(*last));
        progress_.logged = progress_.read.load();
        if (input_.copy_as == Output::terminal) forward(safe_.finish());
        // The copy too: who reads from it sees the end when the workload's output ends.
        input_.from.reset();
        input_.copy.reset();
    }

    // Blocking: a client that reads slowly slows its workload, one that is gone is forgotten.
    void forward(std::string_view bytes)
    {
        if (!input_.copy.valid() || bytes.empty()) return;
        // No MSG_DONTWAIT: the copy is the client's pipe or terminal, and its flags are not ours to
        // change.
        while (!bytes.empty()) {
            const ssize_t count = write(input_.copy.get(), bytes.data(), bytes.size());
            if (count >= 0) {
                bytes.remove_prefix(static_cast<std::size_t>(count));
            } else if (errno == EAGAIN) {
                // Somebody made it non-blocking: wait for room as a blocking one would.
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
    StreamProgress& progress_;
    TerminalSanitiser safe_;
};

void drain_all(LogWriter& log, Drain& out, Drain& err)
{
    // One buffer for both: only one is read at a time.
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
        // 0 to 2 stay as they are: the shim has /dev/null there.
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
    // Never longer than before: "log:" is shorter than "shim:", so it fits in place.
    const std::size_t length = std::strlen(marker);
    if (!std::string_view(marker, length).starts_with(kShim)) return;
    const std::string renamed = std::string(kLog) + (marker + kShim.size());
    // Zeroed first: /proc shows up to the next NUL.
    std::memset(marker, 0, length);
    std::memcpy(marker, renamed.data(), renamed.size());
}

// The first words of a worker that follows a killed one.
void tell_loss(LogWriter& log, LogProgress::Streams& streams)
{
    LogRecord record{.time = now_rfc3339(),
                     .stream = Stream::supervisor,
                     .log = "the log worker was killed: what it held is lost, another one goes on"};
    // Told once: what was counted as lost is then counted as done.
    for (StreamProgress& stream : streams) {
        record.dropped += stream.read - stream.logged;
        stream.logged = stream.read.load();
    }
    static_cast<void>(log.append(record));
}

enum class Place { first, follower };

[[noreturn]] void work(const std::string& log_dir, LogLimits limits, LogInput out, LogInput err,
                       LogProgress::Streams& progress, int alive, Place place)
{
    // Visible in ps; 15 bytes at most, prctl(2).
    prctl(PR_SET_NAME, "sandbox-log", 0, 0, 0);
    std::signal(SIGPIPE, SIG_IGN);
    // Ctrl-C at the client's terminal is not for us: the workload decides when output ends.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
    keep_only({out.from.get(), out.copy.get(), err.from.get(), err.copy.get(), alive});
    // Nobody is left to tell: the exit status says it, and the shim starts another worker.
    auto log = LogWriter::open(log_dir, limits);
    if (!log) _exit(1);
    if (place == Place::follower) tell_loss(*log, progress);
    Drain out_drain(std::move(out), Stream::out, progress[0]);
    Drain err_drain(std::move(err), Stream::err, progress[1]);
    failpoint("log.begin");
    drain_all(*log, out_drain, err_drain);
    failpoint("log.drained");
    _exit(0);
}

// A worker that dies again and again, and reads nothing in between, is not helped by another.
constexpr int kMostDeaths = 8;

struct Started {
    sys::Pidfd process;
    sys::UniqueFd ended;
};

Result<Started> start(const LogSpares& spares, LogInput out, LogInput err, char* marker,
                      Place place)
{
    // Opening here reports a bad folder before anything runs.
    // The descriptors are not passed on: the child opens its own, so that none is shared by
    // accident.
    TRY_VOID(LogWriter::open(spares.log_dir, spares.limits));
    sys::Pipe alive = TRY(sys::make_pipe());
    auto child = TRY(sys::clone_process({}));
    if (child.pid == 0) {
        rename_marker(marker);
        work(spares.log_dir, spares.limits, std::move(out), std::move(err),
             spares.progress.streams(), alive.write.get(), place);
    }
    return Started{sys::Pidfd(std::move(child.pidfd), child.pid), std::move(alive.read)};
}

Result<LogInput> duplicate(const LogInput& input)
{
    LogInput copy;
    copy.from = TRY(sys::duplicate(input.from.get()));
    if (input.copy.valid()) copy.copy = TRY(sys::duplicate(input.copy.get()));
    copy.copy_as = input.copy_as;
    return copy;
}

bool was_killed(const sys::Pidfd& process)
{
    // It hung up a moment before it can be waited for.
    constexpr Millis kMoment{1'000};
    const auto status = process.wait_exit(sys::Deadline::after(kMoment));
    // It drained both streams and left with 0; all else was not its own choice.
    return status && *status && ((*status)->signal != 0 || (*status)->code != 0);
}

}  // namespace

Result<LogWorker> start_log_worker(const std::string& log_dir, LogLimits limits, LogInput out,
                                   LogInput err, char* marker)
{
    LogSpares spares;
    spares.log_dir = log_dir;
    // Copies from the start: when a worker is killed it is too late to make them.
    spares.limits = limits;
    spares.out = TRY(duplicate(out));
    spares.err = TRY(duplicate(err));
    spares.progress = TRY(LogProgress::make());
    auto started = TRY(start(spares, std::move(out), std::move(err), marker, Place::first));
    return LogWorker{std::move(started.process), std::move(started.ended), std::move(spares)};
}

Result<bool> revive(LogWorker& worker, char* marker)
{
    if (!worker.spares) return false;
    LogSpares& spares = *worker.spares;
    if (!spares.vacant) {
        const std::uint64_t come_to = spares.progress.streams()[0].read +
                                      spares.progress.streams()[1].read;
        // A worker that read something has earned another; deaths without progress are counted.
        spares.deaths = come_to == spares.come_to ? spares.deaths + 1 : 1;
        spares.come_to = come_to;
        spares.vacant = was_killed(worker.process);
    }
    if (!spares.vacant || spares.deaths > kMostDeaths) {
        worker.spares.reset();
        return false;
    }
    auto started = TRY(start(spares, TRY(duplicate(spares.out)), TRY(duplicate(spares.err)), marker,
                             Place::follower));
    spares.vacant = false;
    worker.process = std::move(started.process);
    worker.ended = std::move(started.ended);
    return true;
}

}  // namespace sandbox::shim
