// SPDX-License-Identifier: Apache-2.0
#include "daemon/instance.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::daemon {

namespace {

constexpr mode_t kSocketMode = 0660;
constexpr mode_t kRunModeOfGroup = 0710;  // members pass through to the socket and list nothing
constexpr int kBacklog = 1024;
constexpr std::size_t kMostGroupBytes = 4U << 20;

std::string holder_of(int lock)
{
    const auto text = sys::read_all(lock, 64);
    if (!text || text->empty()) return "its pid is not known";
    return "pid " + text->substr(0, text->find('\n'));
}

// A daemon that ends removes its lock: what was locked may no longer be what the name means.
Result<bool> is_named(int run, int lock)
{
    struct stat held{};
    struct stat named{};
    if (fstat(lock, &held) != 0) return fail_errno("fstat", kLockName);
    if (fstatat(run, kLockName, &named, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? Result<bool>(false) : fail_errno("fstatat", kLockName);
    }
    return held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

std::optional<gid_t> find_group(std::string_view group_file, std::string_view name)
{
    while (!group_file.empty()) {
        const std::size_t end = group_file.find('\n');
        std::string_view line = group_file.substr(0, end);
        group_file.remove_prefix(end == std::string_view::npos ? group_file.size() : end + 1);
        // name:password:gid:members, group(5)
        if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
        const std::size_t second = line.find(':', name.size() + 1);
        if (second == std::string_view::npos) continue;
        line.remove_prefix(second + 1);
        line = line.substr(0, line.find(':'));
        gid_t gid = 0;
        const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), gid);
        if (error == std::errc{} && stop == line.data() + line.size()) return gid;
    }
    return std::nullopt;
}

Result<Instance> Instance::claim(const supervisor::Paths& paths)
{
    TRY_VOID(sys::make_dirs(paths.run));
    Instance instance(TRY(sys::open_dir(paths.run)));
    const int run = instance.run_.get();
    do {
        instance.lock_ = TRY(sys::open_at(run, kLockName, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
        if (flock(instance.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return fail_errno("flock", kLockName);
            return fail(Code::conflict, "another sandboxd (" + holder_of(instance.lock_.get()) +
                                            ") serves " + paths.run + ": stop it first");
        }
    } while (!TRY(is_named(run, instance.lock_.get())));
    if (ftruncate(instance.lock_.get(), 0) != 0) return fail_errno("ftruncate", kLockName);
    TRY_VOID(sys::write_all(instance.lock_.get(), std::to_string(getpid()) + "\n"));
    return instance;
}

Result<sys::UniqueFd> Instance::listen()
{
    group_ = getegid();
    const auto groups = sys::read_file("/etc/group", kMostGroupBytes);
    const auto group = geteuid() == 0 && groups ? find_group(*groups, kGroup) : std::nullopt;
    TRY_VOID([&]() -> Status {
        auto gone = sys::unlink_at(run_.get(), supervisor::kDaemonSocket);
        if (!gone && gone.error().code() != Code::not_found) return gone;
        return {};
    }());
    auto socket = TRY(sys::unix_listen(run_.get(), supervisor::kDaemonSocket,
                                       sys::SocketType::stream, group ? 0600 : kSocketMode,
                                       kBacklog));
    listens_ = true;
    if (!group) return socket;
    group_ = *group;
    if (fchownat(run_.get(), supervisor::kDaemonSocket, 0, group_, AT_SYMLINK_NOFOLLOW) != 0 ||
        fchmodat(run_.get(), supervisor::kDaemonSocket, kSocketMode, 0) != 0 ||
        fchown(run_.get(), 0, group_) != 0 || fchmod(run_.get(), kRunModeOfGroup) != 0) {
        return fail_errno("give the socket to the group", kGroup);
    }
    return socket;
}

void Instance::withdraw()
{
    if (listens_) static_cast<void>(sys::unlink_at(run_.get(), supervisor::kDaemonSocket));
    listens_ = false;
    static_cast<void>(sys::unlink_at(run_.get(), kLockName));
    lock_.reset();
}

}  // namespace sandbox::daemon
