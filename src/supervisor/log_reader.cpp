// SPDX-License-Identifier: Apache-2.0
#include "supervisor/log_reader.hpp"

#include <poll.h>

#include <array>
#include <cerrno>

#include "supervisor/log_tail.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::supervisor {

namespace {

Status follow(LogTail& tail, const LogSink& sink, const Listed& listed)
{
    // Without its shim nothing tells when the last line is written: what is there is given.
    if (!listed.shim_alive) return {};
    auto shim = sys::Pidfd::open(*listed.sandbox.shim);
    // It ended between the look and here.
    if (!shim) return {};
    const sys::UniqueFd watch = TRY(watch_log(listed.sandbox.log_path));
    while (true) {
        // What came before the watch was set is read here, what comes after wakes us.
        TRY_VOID(tail.read(sink));
        if (tail.has_enough()) return {};
        std::array<pollfd, 2> wait{{{watch.get(), POLLIN, 0}, {shim->fd(), POLLIN, 0}}};
        if (poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return fail_errno("poll");
        drain_watch(watch.get());
        if (wait[1].revents != 0) return tail.read(sink);
    }
}

}  // namespace

Status read_logs(const Listed& listed, const LogQuery& query, const LogSink& sink)
{
    auto dir = sys::open_dir(listed.sandbox.log_path);
    if (!dir) {
        if (dir.error().code() == Code::not_found) {
            return fail(Code::not_found, "the logs of " + listed.sandbox.name.str() +
                                             " are gone: they were pruned or never made");
        }
        return fail(dir.error());
    }
    LogTail tail(std::move(*dir));
    TRY_VOID(tail.read(sink));
    return query.follow && !tail.has_enough() ? follow(tail, sink, listed) : Status{};
}

}  // namespace sandbox::supervisor
