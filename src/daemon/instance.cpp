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

// Owner and group; the server asks the kernel once more who connects (unix(7), SO_PEERCRED).
constexpr mode_t kSocketMode = 0660;
constexpr mode_t kRunModeOfGroup = 0710;  // members pass through to the socket and list nothing
// As many clients as may knock while a pass of the loop is busy; the kernel caps it at
// net.core.somaxconn.
constexpr int kBacklog = 1024;
// /etc/group of a large site; more is taken for a mistake and there is no group then.
constexpr std::size_t kMostGroupBytes = 4U << 20;

// Only for a message: between the look and its reading the holder may change.
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
        // Not getgrnam(3): a static program has no name services.
        if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
        const std::size_t second = line.find(':', name.size() + 1);
        if (second == std::string_view::npos) continue;
        line.remove_prefix(second + 1);
        line = line.substr(0, line.find(':'));
        gid_t gid = 0;
        const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), gid);
        // A line that is not as it should be does not hide a later one.
        if (error == std::errc{} && stop == line.data() + line.size()) return gid;
    }
    return std::nullopt;
}

Result<Instance> Instance::claim(const supervisor::Paths& paths)
{
    // Before the lock, which lies in it. Owner-only until listen() opens it for the group.
    TRY_VOID(sys::make_dirs(paths.run));
    Instance instance(TRY(sys::open_dir(paths.run)));
    const int run = instance.run_.get();
    // Again whenever the one whose lock we waited for removed it in between.
    do {
        // O_NOFOLLOW: RUN is ours, but a link in it would have us lock and empty something else.
        instance.lock_ = TRY(sys::open_at(run, kLockName, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
        // flock and not a pid in a file: the kernel lets go when the process dies, however it dies.
        if (flock(instance.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return fail_errno("flock", kLockName);
            return fail(Code::conflict, "another sandboxd (" + holder_of(instance.lock_.get()) +
                                            ") serves " + paths.run + ": stop it first");
        }
    } while (!TRY(is_named(run, instance.lock_.get())));
    // Only now: until the lock was ours the text was the holder's.
    if (ftruncate(instance.lock_.get(), 0) != 0) return fail_errno("ftruncate", kLockName);
    TRY_VOID(sys::write_all(instance.lock_.get(), std::to_string(getpid()) + "\n"));
    return instance;
}

Result<sys::UniqueFd> Instance::listen()
{
    // Without root no other group can be given.
    group_ = getegid();
    const auto groups = sys::read_file("/etc/group", kMostGroupBytes);
    const auto group = geteuid() == 0 && groups ? find_group(*groups, kGroup) : std::nullopt;
    // Holding the lock, nobody can be listening on it.
    TRY_VOID([&]() -> Status {
        auto gone = sys::unlink_at(run_.get(), supervisor::kDaemonSocket);
        if (!gone && gone.error().code() != Code::not_found) return gone;
        return {};
    }());
    // 0600 until it has its group: for a moment it would else be open to root's group.
    auto socket = TRY(sys::unix_listen(run_.get(), supervisor::kDaemonSocket,
                                       sys::SocketType::stream, group ? 0600 : kSocketMode,
                                       kBacklog));
    listens_ = true;
    if (!group) return socket;
    group_ = *group;
    // The folder last: it is what keeps members out until the socket is ready.
    if (fchownat(run_.get(), supervisor::kDaemonSocket, 0, group_, AT_SYMLINK_NOFOLLOW) != 0 ||
        fchmodat(run_.get(), supervisor::kDaemonSocket, kSocketMode, 0) != 0 ||
        fchown(run_.get(), 0, group_) != 0 || fchmod(run_.get(), kRunModeOfGroup) != 0) {
        return fail_errno("give the socket to the group", kGroup);
    }
    return socket;
}

// The lock's name goes while we hold it: who opened it in between sees in is_named() that it is
// gone.
void Instance::withdraw()
{
    if (listens_) static_cast<void>(sys::unlink_at(run_.get(), supervisor::kDaemonSocket));
    listens_ = false;
    static_cast<void>(sys::unlink_at(run_.get(), kLockName));
    lock_.reset();
}

}  // namespace sandbox::daemon
