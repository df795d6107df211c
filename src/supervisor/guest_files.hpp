// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

// A guest image on this host, as sandbox-mkguest(8) made it.
namespace sandbox::supervisor {

struct GuestFile {
    std::string path;
    std::string sha256;  // as the manifest says: not of the file that lies there
};

struct GuestFiles {
    std::string arch;
    std::string release;  // of the kernel: the version that its pin carries
    GuestFile kernel;
    GuestFile initrd;
};

// Reads FOLDER/manifest.json. Code::not_found where there is none; Code::corrupt where it breaks
// its schema or names a file outside the folder.
[[nodiscard]] Result<GuestFiles> find_guest(const std::string& folder);

}  // namespace sandbox::supervisor
