// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "base/terminal.hpp"
#include "base/units.hpp"
#include "ctl/output.hpp"
#include "ctl/service.hpp"
#include "ctl/verbs.hpp"
#include "sys/archive.hpp"
#include "sys/file.hpp"

// cp: files of the caller on one side, of a sandbox on the other. The caller's side is packed and
// unpacked here, by the same code that does it inside, while the service carries the archive.
namespace sandbox::ctl {

namespace {

using supervisor::CopyRequest;
using supervisor::CopyResult;

struct Side {
    std::string name;  // empty: the caller's files
    std::string path;
};

// "NAME:PATH"; a local name with a colon is written "./a:b" or with any '/' before the colon.
Side parse_side(const std::string& word)
{
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos || colon == 0 || word.find('/') < colon) return {{}, word};
    return {word.substr(0, colon), word.substr(colon + 1)};
}

bool means_content(std::string_view path)
{
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    return path == "/" || path == "." || path == ".." || path.ends_with("/.") ||
           path.ends_with("/..");
}

Result<CopyResult> copy_into(supervisor::SandboxService& service, CopyRequest request,
                             const std::string& from)
{
    request.way = CopyRequest::Way::into;
    if (from == "-") {
        // A tar stream has names of its own: it is unpacked into the folder.
        request.landing = CopyRequest::Landing::content;
        // Borrowed; nobody of ours closes it.
        request.stream = 0;
        return service.copy(request);
    }
    // Opened before the service is asked: a file that is not there is the caller's mistake.
    const auto source = TRY(sys::open_archive_source({AT_FDCWD, 0}, from));
    request.landing = source.name == "." ? CopyRequest::Landing::content
                                         : CopyRequest::Landing::named;
    sys::Pipe pipe = TRY(sys::make_pipe());
    request.stream = pipe.read.get();
    tar::Limits limits;
    limits.bytes = request.most_bytes;
    // Written by the thread, read after join().
    std::optional<Result<sys::Packed>> packed;
    // A thread: packing and sending wait for each other through the pipe.
    std::thread packer([&] {
        packed.emplace(sys::pack_archive(source, pipe.write.get(), limits));
        pipe.write.reset();
    });
    auto copied = service.copy(request);
    pipe.read.reset();  // ends a packer whose archive nobody takes any more
    packer.join();
    // Its failure is why the archive was cut, unless it failed because nobody read on.
    if (!*packed && packed->error().errnum() != EPIPE) return fail(packed->error());
    if (copied && *packed)
        for (const std::string& name : (*packed)->skipped)
            copied->notes += "not copied, no file or folder: " + name + "\n";
    return copied;
}

Result<CopyResult> copy_out_of(supervisor::SandboxService& service, CopyRequest request,
                               const std::string& to)
{
    request.way = CopyRequest::Way::out_of;
    if (to == "-") {
        // Bytes of a tar would steer the terminal.
        if (stdout_is_terminal())
            return fail(Code::invalid_argument, "an archive is not written to a terminal");
        request.stream = 1;
        return service.copy(request);
    }
    // As cp(1): "dir/." is the content, "dir" the folder itself.
    const auto landing = means_content(request.path) ? sys::Landing::content : sys::Landing::named;
    auto target = TRY(sys::open_archive_target({AT_FDCWD, 0}, to, landing));
    sys::Pipe pipe = TRY(sys::make_pipe());
    request.stream = pipe.write.get();
    tar::Limits limits;
    limits.bytes = request.most_bytes;
    std::optional<Result<tar::Tally>> unpacked;
    // The sandbox's archive is hostile: unpack_archive() keeps it below the target.
    std::thread unpacker([&] {
        unpacked.emplace(sys::unpack_archive(std::move(target), pipe.read.get(), limits));
        pipe.read.reset();
    });
    auto copied = service.copy(request);
    // End of file for the unpacker.
    pipe.write.reset();
    unpacker.join();
    // What the service says of the other side comes first, unless it is that we stopped reading.
    if (!copied && copied.error().errnum() != EPIPE) return copied;
    if (!*unpacked) return fail(unpacked->error());
    return copied;
}

}  // namespace

int execute(const Context& context, const Copy& verb)
{
    const Side from = parse_side(verb.source);
    const Side to = parse_side(verb.target);
    // Two sandboxes are two copies, and no sandbox is cp(1).
    if (from.name.empty() == to.name.empty()) {
        say("sandboxctl: cp copies between NAME:PATH and a path of yours: exactly one of the two "
            "names a sandbox");
        return kUsage;
    }
    const auto most = parse_bytes(verb.max_size);
    if (!most || most->count == 0) {
        say("sandboxctl: --max-size wants a size such as 4GiB, found '" + escaped(verb.max_size) +
            "'");
        return kUsage;
    }
    // The pipe's reader may go away; that is an error to read, not a death.
    std::signal(SIGPIPE, SIG_IGN);
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    CopyRequest request;
    request.reference = from.name.empty() ? to.name : from.name;
    request.path = from.name.empty() ? to.path : from.path;
    // Both ways: it bounds the caller's disk, and the sandbox's.
    request.most_bytes = most->count;
    const auto copied = from.name.empty() ? copy_into(**service, std::move(request), from.path)
                                          : copy_out_of(**service, std::move(request), to.path);
    if (!copied) return complain(copied.error()), kFailed;
    std::string_view notes = copied->notes;
    // A note may quote a file's name: escaped line by line.
    while (!notes.empty()) {
        const std::size_t end = std::min(notes.find('\n'), notes.size());
        say("sandboxctl: " + escaped(std::string(notes.substr(0, end))));
        notes.remove_prefix(std::min(end + 1, notes.size()));
    }
    return 0;
}

}  // namespace sandbox::ctl
