// SPDX-License-Identifier: Apache-2.0
#include "supervisor/log_tail.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "shim/log_writer.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

constexpr std::uint32_t kMostLogFiles = 1000;  // LogLimits::files is at most this
constexpr std::size_t kLogChunk = 64U << 10;

std::string rotated(std::uint32_t number)
{
    return std::string(shim::kLogName) + "." + std::to_string(number);
}

}  // namespace

std::uint32_t LogTail::oldest() const
{
    std::uint32_t last = 0;
    while (last + 1 < kMostLogFiles &&
           faccessat(folder_.get(), rotated(last + 1).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        ++last;
    return last;
}

bool LogTail::open(const std::string& name)
{
    auto file = sys::open_at2(folder_.get(), name, O_RDONLY, 0, sys::kBeneath);
    if (file) file_ = std::move(*file);
    return file.has_value();
}

bool LogTail::is_newest() const
{
    struct stat named{};
    struct stat held{};
    if (fstatat(folder_.get(), shim::kLogName, &named, AT_SYMLINK_NOFOLLOW) != 0) return true;
    if (!file_.valid() || fstat(file_.get(), &held) != 0) return false;
    return named.st_ino == held.st_ino && named.st_dev == held.st_dev;
}

void LogTail::give(const Take& take)
{
    std::size_t begin = 0;
    for (std::size_t end = held_.find('\n'); end != std::string::npos && !enough_;
         end = held_.find('\n', begin)) {
        const auto line = std::string_view(held_).substr(begin, end - begin);
        begin = end + 1;
        enough_ = !line.empty() && !take(line);
    }
    held_.erase(0, begin);
}

Status LogTail::read_file(const Take& take)
{
    if (!file_.valid()) return {};
    std::string chunk(kLogChunk, '\0');
    while (!enough_) {
        const ssize_t count = ::read(file_.get(), chunk.data(), chunk.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("read", shim::kLogName);
        if (count == 0) return {};
        held_.append(chunk, 0, static_cast<std::size_t>(count));
        give(take);
    }
    return {};
}

Status LogTail::read(const Take& take)
{
    if (!started_) {
        for (std::uint32_t number = oldest(); number > 0; --number) {
            // Rotated away meanwhile: its bytes were the oldest.
            if (open(rotated(number))) TRY_VOID(read_file(take));
        }
        started_ = true;
        static_cast<void>(open(shim::kLogName));
    }
    TRY_VOID(read_file(take));
    while (!enough_ && !is_newest() && open(shim::kLogName)) TRY_VOID(read_file(take));
    return {};
}

Result<sys::UniqueFd> watch_log(const std::string& folder)
{
    sys::UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!watch) return fail_errno("inotify_init1");
    if (inotify_add_watch(watch.get(), folder.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
        return fail_errno("inotify_add_watch", folder);
    return watch;
}

void drain_watch(int watch)
{
    std::array<char, 4096> events{};
    while (::read(watch, events.data(), events.size()) > 0) {}
}

}  // namespace sandbox::supervisor
