// SPDX-License-Identifier: Apache-2.0
#include "shim/log_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

constexpr mode_t kLogMode = 0600;

std::string file_name(std::uint32_t number)
{
    // As logrotate names them: a higher number is older.
    return number == 0 ? kLogName : std::string(kLogName) + "." + std::to_string(number);
}

Result<sys::UniqueFd> open_log(int dir)
{
    // O_APPEND: nothing that was written is ever overwritten, whoever else has the file open.
    return sys::open_at2(dir, kLogName, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kLogMode,
                         sys::kBeneath);
}

std::uint64_t size_of(int dir, const std::string& name)
{
    struct stat status{};
    // No link is followed: the folder is ours, but it outlives us.
    if (fstatat(dir, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    return static_cast<std::uint64_t>(status.st_size);
}

}  // namespace

LogWriter::LogWriter(sys::UniqueFd dir, sys::UniqueFd file, std::uint64_t size, LogLimits limits)
    : dir_(std::move(dir)), file_(std::move(file)), size_(size), limits_(limits)
{
    // At least one file, or nothing could be written.
    limits_.files = std::max(limits_.files, 1U);
}

Result<LogWriter> LogWriter::open(const std::string& dir, LogLimits limits)
{
    TRY_VOID(sys::make_dirs(dir));
    auto folder = TRY(sys::open_dir(dir));
    auto file = TRY(open_log(folder.get()));
    std::uint64_t size = size_of(folder.get(), kLogName);
    // A host that went down may have left a line without its end: ours must not go on in it.
    char last = '\n';
    if (size > 0 && pread(file.get(), &last, 1, static_cast<off_t>(size) - 1) == 1 &&
        last != '\n') {
        TRY_VOID(sys::write_all(file.get(), "\n"));
        ++size;
    }
    return LogWriter(std::move(folder), std::move(file), size, limits);
}

Status LogWriter::rotate()
{
    // One file cannot be rotated: it begins anew, and all of it counts as dropped.
    if (limits_.files == 1) {
        if (ftruncate(file_.get(), 0) != 0) return fail_errno("ftruncate", kLogName);
        dropped_ += size_;
    } else {
        // No newest file: an earlier rotation moved it away and could not open the next one.
        if (size_of(dir_.get(), kLogName) != 0) TRY_VOID(shift_files());
        file_ = TRY(open_log(dir_.get()));
    }
    size_ = 0;
    return {};
}

Status LogWriter::shift_files()
{
    // Taken before the renames: the last one overwrites that file.
    const std::uint64_t lost = size_of(dir_.get(), file_name(limits_.files - 1));
    for (std::uint32_t number = limits_.files - 1; number > 0; --number) {
        // A gap (a file that was removed by hand) shrinks, and does not stop the rest.
        if (size_of(dir_.get(), file_name(number - 1)) == 0) continue;
        TRY_VOID(sys::rename_at(dir_.get(), file_name(number - 1), dir_.get(), file_name(number)));
    }
    dropped_ += lost;
    return {};
}

Status LogWriter::write_line(const std::string& line)
{
    if (auto status = sys::write_all(file_.get(), line); !status) {
        // A cut line would merge with the next one: take it back.
        // Best effort: if even that fails, a reader drops the one line that does not decode.
        [[maybe_unused]] const int cut = ftruncate(file_.get(), static_cast<off_t>(size_));
        return status;
    }
    size_ += line.size();
    return {};
}

Status LogWriter::write_marker(const std::string& time)
{
    TRY_VOID(write_line(encode({.time = time,
                                .stream = Stream::supervisor,
                                .log = "output dropped",
                                .dropped = dropped_})));
    dropped_ = 0;
    return {};
}

Status LogWriter::append(const LogRecord& record)
{
    const std::string line = encode(record);
    // Each file has its share: together they stay below the limit.
    const std::uint64_t share = limits_.bytes / limits_.files;
    Status status;
    if (size_ != 0 && size_ + line.size() > share) status = rotate();
    // Before the line: the marker stands where the records are missing.
    if (status && dropped_ != 0) status = write_marker(record.time);
    if (status) status = write_line(line);
    // Counted in bytes of records, as the reader will be told.
    if (!status) dropped_ += line.size();
    return status;
}

}  // namespace sandbox::shim
