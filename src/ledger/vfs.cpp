// SPDX-License-Identifier: Apache-2.0
#include "ledger/vfs.hpp"

#include <sqlite3.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "ledger/reserve.hpp"

namespace sandbox::ledger {

namespace {

constexpr const char* kVfsName = "sandbox-ledger";
// SQLite file format, 4.1: the WAL begins with a header of 32 bytes.
constexpr sqlite3_int64 kWalHeader = 32;

// Written once, under the lock below, before any file uses them.
sqlite3_vfs* original_vfs = nullptr;
std::mutex methods_lock;
const sqlite3_io_methods* original_wal = nullptr;
sqlite3_io_methods kept_wal;
std::map<sqlite3_file*, std::string> reserves;  // of open WALs, under the lock

int keep_path(sqlite3_vfs*, const char* name, int size, char* out)
{
    const std::size_t length = std::strlen(name);
    if (length >= static_cast<std::size_t>(size)) return SQLITE_CANTOPEN;
    std::memcpy(out, name, length + 1);
    return SQLITE_OK;
}

// Only beyond the end, where nothing is that a recovery could read; a full disk is no failure.
void fill_up(sqlite3_file* file, sqlite3_int64 from)
{
    static constexpr std::array<char, 64 << 10> kZeros{};
    while (from < kKeptWal) {
        const auto left = kKeptWal - from;
        const auto count = left < sqlite3_int64{kZeros.size()} ? left
                                                               : sqlite3_int64{kZeros.size()};
        if (original_wal->xWrite(file, kZeros.data(), static_cast<int>(count), from) != SQLITE_OK) {
            return;
        }
        from += count;
    }
}

// A header of zeros is an empty WAL to every SQLite (file format, 4.3: the magic number does not
// match). Not synced: should the old header come back after a power cut, so do all frames behind
// it, which the file already holds. SQLite syncs a new header before the first frame after it.
int empty_wal(sqlite3_file* file, sqlite3_int64 size)
{
    sqlite3_int64 now = 0;
    if (size != 0 || original_wal->xFileSize(file, &now) != SQLITE_OK || now < kWalHeader ||
        now > kLargestKeptWal) {
        return original_wal->xTruncate(file, size);
    }
    static constexpr std::array<char, kWalHeader> kNoHeader{};
    const int code = original_wal->xWrite(file, kNoHeader.data(), kWalHeader, 0);
    if (code == SQLITE_OK) fill_up(file, now);
    return code;
}

std::string reserve_of(sqlite3_file* file)
{
    const std::scoped_lock lock(methods_lock);
    const auto found = reserves.find(file);
    return found == reserves.end() ? std::string() : found->second;
}

// What has begun is allowed to end on a full disk.
int write_on_reserve(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 at)
{
    int code = original_wal->xWrite(file, bytes, count, at);
    if (code != SQLITE_FULL) return code;
    const std::string reserve = reserve_of(file);
    while (code == SQLITE_FULL && !reserve.empty() && spend_reserve(reserve)) {
        code = original_wal->xWrite(file, bytes, count, at);
    }
    return code;
}

int close_wal(sqlite3_file* file)
{
    {
        const std::scoped_lock lock(methods_lock);
        reserves.erase(file);
    }
    return original_wal->xClose(file);
}

// SQLite syncs the folder after it made the WAL, and "made" means to it that it was allowed to.
// Frames follow the first sync of the header, and that one includes the folder: a WAL longer than
// its header has its name on the disk.
bool is_known_to_its_folder(const char* name)
{
    struct stat info{};
    return name != nullptr && lstat(name, &info) == 0 && S_ISREG(info.st_mode) &&
           info.st_size > kWalHeader;
}

int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out)
{
    if ((flags & SQLITE_OPEN_WAL) == 0)
        return original_vfs->xOpen(original_vfs, name, file, flags, out);
    int code = SQLITE_CANTOPEN;
    if (is_known_to_its_folder(name)) {
        code = original_vfs->xOpen(original_vfs, name, file, flags & ~SQLITE_OPEN_CREATE, out);
    }
    if (code != SQLITE_OK) code = original_vfs->xOpen(original_vfs, name, file, flags, out);
    if (code != SQLITE_OK || file->pMethods == nullptr) return code;
    const std::scoped_lock lock(methods_lock);
    if (original_wal == nullptr) {
        original_wal = file->pMethods;
        kept_wal = *file->pMethods;
        kept_wal.xTruncate = empty_wal;
        kept_wal.xWrite = write_on_reserve;
        kept_wal.xClose = close_wal;
    }
    // All of one kind in practice; another kind keeps SQLite's own way.
    if (file->pMethods != original_wal) return code;
    file->pMethods = &kept_wal;
    const std::string path = name == nullptr ? "" : name;
    if (const auto slash = path.rfind('/'); slash != std::string::npos) {
        reserves[file] = path.substr(0, slash + 1) + std::string(kReserveName);
    }
    return code;
}

}  // namespace

// SQLite's unix VFS resolves links in the name and then refuses more than 512 bytes. Ours keeps
// "/proc/self/fd/N/ledger.db" as it is: the folder is fixed by descriptor, its path may be long.
const char* registered_vfs()
{
    static std::once_flag once;
    static sqlite3_vfs vfs;
    static bool registered = false;
    std::call_once(once, [] {
        original_vfs = sqlite3_vfs_find("unix");
        if (original_vfs == nullptr) return;
        vfs = *original_vfs;
        vfs.pNext = nullptr;
        vfs.zName = kVfsName;
        vfs.xFullPathname = keep_path;
        vfs.xOpen = open_file;
        registered = sqlite3_vfs_register(&vfs, 0) == SQLITE_OK;
    });
    return registered ? kVfsName : nullptr;
}

}  // namespace sandbox::ledger
