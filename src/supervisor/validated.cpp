// SPDX-License-Identifier: Apache-2.0
#include "supervisor/validated.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "canon/canon.hpp"
#include "profile/profile.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

constexpr const char* kFile = "validated";
// As many profiles as a host launches often; the oldest are forgotten first.
constexpr std::size_t kMostLines = 64;
constexpr std::size_t kMostBytes = 64U << 10;

// The file is believed only if nobody else can have written it, nor the folder it lies in.
bool is_private(int fd)
{
    struct stat status{};
    return ::fstat(fd, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

// One digest a line. Empty where nothing is known, or nothing may be believed.
std::string read_lines(int folder)
{
    if (!is_private(folder)) return {};
    // O_NONBLOCK: opening a FIFO would wait. Refused just after, with everything that is not ours.
    const auto file = sys::open_at2(folder, kFile, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0,
                                    sys::kBeneath);
    if (!file || !is_private(file->get())) return {};
    return sys::read_all(file->get(), kMostBytes).value_or(std::string());
}

bool contains_line(std::string_view lines, std::string_view line)
{
    // Whole lines only: a part of a digest is no digest.
    for (std::size_t at = 0; (at = lines.find(line, at)) != lines.npos; ++at) {
        const bool starts = at == 0 || lines[at - 1] == '\n';
        const std::size_t end = at + line.size();
        if (starts && end < lines.size() && lines[end] == '\n') return true;
    }
    return false;
}

}  // namespace

Validated::Validated(std::string folder, std::string_view schema, std::string_view text)
    : folder_(std::move(folder))
{
    if (folder_.empty()) return;
    // The schema's text is part of it: an upgrade that changes the rules forgets everything.
    canon::Sha256 hash;
    hash.update(schema);
    hash.update(std::string_view("\0", 1));
    hash.update(profile::schema(schema));
    hash.update(std::string_view("\0", 1));
    hash.update(text);
    digest_ = canon::to_digest(hash.finish());
    if (const auto open = sys::open_dir(folder_))
        known_ = contains_line(read_lines(open->get()), digest_);
}

void Validated::remember() const
{
    // Known already: nothing new to write.
    if (known_ || folder_.empty()) return;
    const auto folder = sys::open_dir(folder_);
    if (!folder || !is_private(folder->get())) return;
    // The newest first; the oldest fall off the end.
    std::string lines = digest_ + "\n" + read_lines(folder->get());
    const std::size_t most = kMostLines * (digest_.size() + 1);
    if (lines.size() > most) lines.resize(most);
    // Not synced: rename makes it whole or absent for every reader of this boot.
    const std::string temporary = kFile + std::string(".") + std::to_string(::getpid());
    // Left by one with our pid that was killed.
    static_cast<void>(sys::unlink_at(folder->get(), temporary));
    if (!sys::write_file_at(folder->get(), temporary, lines, 0600)) return;
    static_cast<void>(sys::rename_at(folder->get(), temporary, folder->get(), kFile));
}

}  // namespace sandbox::supervisor
