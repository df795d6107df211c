// SPDX-License-Identifier: Apache-2.0
#include "supervisor/log_reader.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "shim/log_writer.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::supervisor {

namespace {

constexpr std::uint32_t kMostFiles = 1000;  // LogLimits::files is at most this

// The newest file while it is written and rotated: holds it open, so that what was written before
// a rotation is read before its successor.
class Reader {
public:
    Reader(sys::UniqueFd dir, const LogSink& sink) : dir_(std::move(dir)), sink_(sink) {}

    Status read_old_files()
    {
        std::uint32_t last = 0;
        for (std::uint32_t number = 1; number < kMostFiles; ++number) {
            const std::string name = std::string(shim::kLogName) + "." + std::to_string(number);
            if (faccessat(dir_.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) break;
            last = number;
        }
        for (std::uint32_t number = last; number > 0; --number) {
            const std::string name = std::string(shim::kLogName) + "." + std::to_string(number);
            // Rotated away meanwhile: its bytes were the oldest.
            if (open_file(name)) TRY_VOID(read_available());
        }
        static_cast<void>(open_file(shim::kLogName));
        return read_available();
    }

    Status read_more()
    {
        TRY_VOID(read_available());
        if (!current_is_newest() && open_file(shim::kLogName)) TRY_VOID(read_available());
        return {};
    }

    bool over() const noexcept { return over_; }

private:
    bool open_file(const std::string& name)
    {
        auto file = sys::open_at2(dir_.get(), name, O_RDONLY, 0, sys::kBeneath);
        if (!file) return false;
        file_ = std::move(*file);
        return true;
    }

    bool current_is_newest() const
    {
        struct stat named{};
        struct stat held{};
        if (fstatat(dir_.get(), shim::kLogName, &named, AT_SYMLINK_NOFOLLOW) != 0) return true;
        if (!file_.valid() || fstat(file_.get(), &held) != 0) return false;
        return named.st_ino == held.st_ino && named.st_dev == held.st_dev;
    }

    Status read_available()
    {
        if (!file_.valid() || over_) return {};
        std::string chunk(1U << 16, '\0');
        while (true) {
            const ssize_t count = read(file_.get(), chunk.data(), chunk.size());
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) return fail_errno("read", shim::kLogName);
            if (count == 0) return {};
            held_.append(chunk, 0, static_cast<std::size_t>(count));
            std::size_t begin = 0;
            for (std::size_t end = held_.find('\n'); end != std::string::npos;
                 end = held_.find('\n', begin)) {
                const auto line = std::string_view(held_).substr(begin, end - begin);
                begin = end + 1;
                // The one who asked has enough.
                if (!line.empty() && !sink_(line)) {
                    over_ = true;
                    return {};
                }
            }
            held_.erase(0, begin);
        }
    }

    sys::UniqueFd dir_;
    const LogSink& sink_;
    sys::UniqueFd file_;
    std::string held_;
    bool over_ = false;
};

Status follow(Reader& reader, const Listed& listed)
{
    if (!listed.shim_alive) return {};
    auto shim = sys::Pidfd::open(*listed.sandbox.shim);
    if (!shim) return {};
    const int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (inotify < 0) return fail_errno("inotify_init1");
    const sys::UniqueFd watch(inotify);
    if (inotify_add_watch(inotify, listed.sandbox.log_path.c_str(),
                          IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0) {
        return fail_errno("inotify_add_watch", listed.sandbox.log_path);
    }
    while (true) {
        // What came before the watch was set is read here, what comes after wakes us.
        TRY_VOID(reader.read_more());
        if (reader.over()) return {};
        std::array<pollfd, 2> wait{{{inotify, POLLIN, 0}, {shim->fd(), POLLIN, 0}}};
        if (poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return fail_errno("poll");
        std::array<char, 4096> events{};
        while (read(inotify, events.data(), events.size()) > 0) {}
        if (wait[1].revents != 0) return reader.read_more();
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
    Reader reader(std::move(*dir), sink);
    TRY_VOID(reader.read_old_files());
    return query.follow ? follow(reader, listed) : Status{};
}

}  // namespace sandbox::supervisor
