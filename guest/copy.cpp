// SPDX-License-Identifier: Apache-2.0
#include "guest/copy.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>

#include "sys/file.hpp"

namespace sandbox::guest {

bool copies(wire::SessionKind kind) noexcept
{
    return kind == wire::SessionKind::copy_in || kind == wire::SessionKind::copy_out;
}

wire::Decoded<CopyJob> make_copy(const wire::Open& open)
{
    // Refused and not an error of its own: the request is well-formed and not granted.
    const auto refuse = [](const char* what) {
        return std::unexpected(wire::Failure{wire::WireError::refused, what, 0});
    };
    const bool in = open.kind == wire::SessionKind::copy_in;
    if (open.argv.size() != (in ? 3 : 2)) return refuse("arguments of a copy");
    CopyJob job;
    job.kind = open.kind;
    job.path = open.argv[0];
    // Relative to what: PID 1 has no place that a caller would know.
    if (!job.path.starts_with('/')) return refuse("a copy's path is not absolute");
    const std::string& most = open.argv[1];
    // Digits only; no sign, no unit.
    const auto [end, error] = std::from_chars(most.data(), most.data() + most.size(),
                                              job.limits.bytes);
    if (error != std::errc() || end != most.data() + most.size())
        return refuse("a copy's size limit");
    if (in && open.argv[2] != "named" && open.argv[2] != "content")
        return refuse("a copy's landing");
    // "named" is the default of CopyJob.
    if (in && open.argv[2] == "content") job.landing = sys::Landing::content;
    return job;
}

// In the order of members: resolve() needs job_, and what went wrong is kept for run().
Copy::Copy(CopyJob job) : job_(std::move(job)), resolved_(resolve()) {}

Status Copy::resolve()
{
    // By descriptor: what is opened below cannot leave it, whatever links the workload has made
    // (kInRoot, openat2(2)).
    const sys::UniqueFd root = TRY(sys::open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY));
    const sys::ArchiveRoot within{root.get(), sys::kInRoot};
    if (job_.kind == wire::SessionKind::copy_out)
        source_ = TRY(sys::open_archive_source(within, job_.path));
    else
        target_ = TRY(sys::open_archive_target(within, job_.path, job_.landing));
    return {};
}

Status Copy::transfer()
{
    // Said here and not at once: standard error is the way to tell, and it is the session's.
    TRY_VOID(std::move(resolved_));
    if (job_.kind == wire::SessionKind::copy_in) {
        // Hostile in both directions: the archive from outside is somebody's file, the tree inside
        // a workload's.
        TRY(sys::unpack_archive(std::move(target_), STDIN_FILENO, job_.limits));
        return {};
    }
    const sys::Packed packed = TRY(sys::pack_archive(source_, STDOUT_FILENO, job_.limits));
    // Sockets, devices and pipes have no content to copy.
    for (const std::string& name : packed.skipped)
        TRY_VOID(sys::write_all(STDERR_FILENO, "not copied, no file or folder: " + name + "\n"));
    return {};
}

int Copy::run()
{
    const Status done = transfer();
    if (done) return 0;
    // One line; the caller shows it escaped.
    static_cast<void>(sys::write_all(STDERR_FILENO, done.error().message() + "\n"));
    return 1;
}

}  // namespace sandbox::guest
