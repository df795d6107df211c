// SPDX-License-Identifier: Apache-2.0
#include "supervisor/converge.hpp"

#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "supervisor/apply.hpp"

namespace sandbox::supervisor {

namespace {

// An editor writes, renames and touches within a few milliseconds; a package manager within some
// hundred. Until the folder has been quiet for so long nothing is done.
constexpr long kQuietNs = 250'000'000;

constexpr std::uint32_t kFolderEvents = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM |
                                        IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF |
                                        IN_ONLYDIR;
// Of a folder above one that is missing: only that something new is in it.
constexpr std::uint32_t kAboveEvents = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;

}  // namespace

Converger::Converger(Paths paths, sys::UniqueFd inotify, sys::UniqueFd quiet)
    : paths_(std::move(paths)), inotify_(std::move(inotify)), quiet_(std::move(quiet))
{
}

Result<Converger> Converger::watch(const Paths& paths)
{
    sys::UniqueFd inotify(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!inotify.valid()) return fail_errno("inotify_init1");
    // BOOTTIME: a suspend in between counts as quiet, too.
    sys::UniqueFd quiet(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!quiet.valid()) return fail_errno("timerfd_create");
    Converger converger(paths, std::move(inotify), std::move(quiet));
    converger.renew_watches();
    return converger;
}

// Adding a watch again changes nothing; a folder that was made anew gets its own.
void Converger::renew_watches()
{
    // A failure is ignored: the folder is then not watched until the next event, and apply by hand
    // still works.
    for (std::string folder : profile_folders(paths_)) {
        if (inotify_add_watch(inotify_.get(), folder.c_str(), kFolderEvents) >= 0) continue;
        // The nearest ancestor that exists is watched, so that the folder is noticed when it
        // appears.
        while (errno == ENOENT && folder.rfind('/') != std::string::npos && folder != "/") {
            folder = folder.rfind('/') == 0 ? "/" : folder.substr(0, folder.rfind('/'));
            // IN_MASK_ADD: it may be the other folder's, or above both.
            if (inotify_add_watch(inotify_.get(), folder.c_str(), kAboveEvents | IN_MASK_ADD) >= 0)
                break;
        }
    }
}

bool Converger::on_event()
{
    std::array<char, 4096> events{};
    bool changed = false;
    // Drained and not looked at: a pass reads the whole folder, and an overflow needs no care then.
    while (read(inotify_.get(), events.data(), events.size()) > 0) changed = true;
    if (changed) {
        renew_watches();
        // Each event starts the time anew: half-written files are not read.
        const itimerspec quiet{{0, 0}, {0, kQuietNs}};
        timerfd_settime(quiet_.get(), 0, &quiet, nullptr);
        return false;
    }
    std::uint64_t over = 0;
    return read(quiet_.get(), &over, sizeof over) == sizeof over;
}

Result<ConvergeReport> Converger::converge()
{
    // Opened anew at each pass: config, policy and pins may have changed, and a long-lived ledger
    // connection would keep its WAL from being emptied.
    auto service = TRY(EmbeddedService::open(paths_, Need::plan));
    const auto folders = profile_folders(paths_);
    ApplyOrder order;
    order.files = resolve_files(service->host(), TRY(read_drop_ins(folders, Trust::owner_only)),
                                Start::only_autostart);
    order.scope = {folders, ApplyRequest::Asker::pass};
    // Told once: `seen_` holds the last pass's complaints only, so one that went away and comes
    // back is told again.
    order.told = seen_;
    order.failed = failed_;
    ApplyResult result = TRY(carry_out(*service, order));
    seen_ = complaints(result);
    failed_ = failed_replacements(order, result);
    return result;
}

}  // namespace sandbox::supervisor
