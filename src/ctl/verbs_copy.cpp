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

// "NAME:PATH"; a local name with a colon is written "./a:b".
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
        request.landing = CopyRequest::Landing::content;
        request.stream = 0;
        return service.copy(request);
    }
    const auto source = TRY(sys::open_archive_source({AT_FDCWD, 0}, from));
    request.landing = source.name == "." ? CopyRequest::Landing::content
                                         : CopyRequest::Landing::named;
    sys::Pipe pipe = TRY(sys::make_pipe());
    request.stream = pipe.read.get();
    tar::Limits limits;
    limits.bytes = request.most_bytes;
    std::optional<Result<sys::Packed>> packed;
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
        if (stdout_is_terminal())
            return fail(Code::invalid_argument, "an archive is not written to a terminal");
        request.stream = 1;
        return service.copy(request);
    }
    const auto landing = means_content(request.path) ? sys::Landing::content : sys::Landing::named;
    auto target = TRY(sys::open_archive_target({AT_FDCWD, 0}, to, landing));
    sys::Pipe pipe = TRY(sys::make_pipe());
    request.stream = pipe.write.get();
    tar::Limits limits;
    limits.bytes = request.most_bytes;
    std::optional<Result<tar::Tally>> unpacked;
    std::thread unpacker([&] {
        unpacked.emplace(sys::unpack_archive(std::move(target), pipe.read.get(), limits));
        pipe.read.reset();
    });
    auto copied = service.copy(request);
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
    std::signal(SIGPIPE, SIG_IGN);
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    CopyRequest request;
    request.reference = from.name.empty() ? to.name : from.name;
    request.path = from.name.empty() ? to.path : from.path;
    request.most_bytes = most->count;
    const auto copied = from.name.empty() ? copy_into(**service, std::move(request), from.path)
                                          : copy_out_of(**service, std::move(request), to.path);
    if (!copied) return complain(copied.error()), kFailed;
    std::string_view notes = copied->notes;
    while (!notes.empty()) {
        const std::size_t end = std::min(notes.find('\n'), notes.size());
        say("sandboxctl: " + escaped(std::string(notes.substr(0, end))));
        notes.remove_prefix(std::min(end + 1, notes.size()));
    }
    return 0;
}

}  // namespace sandbox::ctl
