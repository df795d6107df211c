// SPDX-License-Identifier: Apache-2.0
#include "ledger/reserve.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "sys/file.hpp"

namespace sandbox::ledger {

namespace {

// An end and a removal write some 30 frames of 4 KiB between them; this is for dozens of them, and
// one piece is for one. In pieces, because whoever writes logs takes what is freed as well.
constexpr off_t kReserve = off_t{1} << 20;
constexpr off_t kPiece = off_t{128} << 10;
// Beside the reserve: a new sandbox has a plan, evidence and a log to write, and must not need it.
constexpr std::uint64_t kLeastRoom = std::uint64_t{1} << 20;

std::unexpected<Error> full()
{
    return fail(Code::resource_exhausted,
                "the disk of the state folder is full: wanted 1 MiB free, and 1 MiB kept so that "
                "what runs can be stopped and removed; free some, for example with sandboxctl "
                "prune");
}

}  // namespace

Status keep_reserve(int dir_fd)
{
    const std::string name(kReserveName);
    struct statvfs room{};
    // f_bavail leaves out the blocks kept for root: they are the host's last room, not ours.
    if (fstatvfs(dir_fd, &room) == 0 && room.f_bavail * room.f_frsize < kLeastRoom) return full();
    struct stat info{};
    // spend_reserve() shortens the file, so its length says how much of it is still there.
    if (fstatat(dir_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_size >= kReserve)
        return {};
    const auto file = TRY(sys::open_at2(dir_fd, name, O_RDWR | O_CREAT, 0600, sys::kBeneath));
    // Really allocated: a sparse file would reserve nothing. posix_fallocate returns the error and
    // leaves errno alone.
    const int code = posix_fallocate(file.get(), 0, kReserve);
    if (code == 0) return {};
    if (code == ENOSPC || code == EDQUOT) return full();
    errno = code;
    return fail_errno("posix_fallocate", name);
}

bool spend_reserve(const std::string& path) noexcept
{
    // By path: called from inside a write of SQLite, where no folder descriptor is at hand.
    struct stat info{};
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return false;
    return truncate(path.c_str(), info.st_size > kPiece ? info.st_size - kPiece : 0) == 0;
}

}  // namespace sandbox::ledger
