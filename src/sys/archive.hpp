// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/tar.hpp"
#include "sys/fd.hpp"

// A tree of files as a tar stream, and back. Both trees may be changed by somebody hostile
// meanwhile: a path is resolved once, to a descriptor, and from there on every step takes one
// name, follows no link and never goes up. Files keep permission bits (no set-id, no sticky bit)
// and mtime; owners are whoever runs this. A hard link becomes a file of its own, holes are
// filled, devices, FIFOs and sockets are not read and not made.
namespace sandbox::sys {

// Where a path begins, and how far it may lead: in a sandbox "/" with RESOLVE_IN_ROOT, on the host
// AT_FDCWD with 0 and the paths of a caller whose own links hold.
struct ArchiveRoot {
    int dir = -1;
    std::uint64_t resolve = 0;  // RESOLVE_*
};
// openat2(2) of Linux 5.6.
extern const std::uint64_t kInRoot;  // RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS

// What is to be packed, opened once: what was judged is what is read.
struct ArchiveSource {
    UniqueFd file;  // a folder or a regular file, open for reading
    std::string name;  // of the first entry; "." where only the content is meant
    bool folder = false;
};
// "a/b" gives entries "b…", "a/b/." and "/" give ".". A link in last place is followed, within what
// `root.resolve` allows. invalid_argument: neither file nor folder.
[[nodiscard]] Result<ArchiveSource> open_archive_source(const ArchiveRoot& root,
                                                        const std::string& path);

struct Packed {
    tar::Tally tally;
    std::vector<std::string> skipped;  // devices, FIFOs, sockets: the first few
};
// Writes the whole archive to `out`, blocking; Requires: SIGPIPE is ignored. resource_exhausted: a
// limit; other errors end the archive in the middle, which its reader notices.
[[nodiscard]] Result<Packed> pack_archive(const ArchiveSource& source, int out,
                                          const tar::Limits& limits);

// `named`: the archive holds one tree, which goes into the path where that is a folder and else
// takes the path's last component for its name. `content`: what the archive holds goes into the
// folder, which is made where the archive brings a folder "." for it.
enum class Landing : std::uint8_t { named, content };

struct ArchiveTarget {
    UniqueFd folder;  // everything lands below it
    std::string rename;  // what the first component is called there; empty: as in the archive
    Landing landing = Landing::named;
    bool wants_folder = false;  // the path ended in "/" and was not there
};
// Opens the folder that everything lands below; makes nothing. not_found: its parent is missing.
[[nodiscard]] Result<ArchiveTarget> open_archive_target(const ArchiveRoot& root,
                                                        const std::string& path, Landing landing);

// Reads one archive from `in`, blocking, up to its end and not beyond what was read with it. Files
// that are there are replaced, folders are kept and filled. An error leaves what was unpacked so
// far. corrupt, invalid_argument and resource_exhausted as tar::Reader; already_exists: a folder
// where the archive has a file, or the other way round.
[[nodiscard]] Result<tar::Tally> unpack_archive(ArchiveTarget target, int in,
                                                const tar::Limits& limits);

}  // namespace sandbox::sys
