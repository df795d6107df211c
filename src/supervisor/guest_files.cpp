// SPDX-License-Identifier: Apache-2.0
#include "supervisor/guest_files.hpp"

#include "base/diagnostic.hpp"
#include "canon/json.hpp"
#include "profile/profile.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

// A manifest has a few KiB.
constexpr std::size_t kMostManifestBytes = 64U << 10;

// A name and no path: the manifest may say which files, not where they lie.
Result<GuestFile> file_of(const canon::Json& entry, const std::string& folder)
{
    const auto name = entry.at("file").get<std::string>();
    if (name.find('/') != std::string::npos || name == "." || name == "..") {
        return fail(Code::corrupt, "\"" + escaped(name) + "\" is no file beside the manifest");
    }
    return GuestFile{folder + "/" + name, entry.at("sha256").get<std::string>()};
}

}  // namespace

Result<GuestFiles> find_guest(const std::string& folder)
{
    const std::string path = folder + "/manifest.json";
    const std::string text = TRY_WITH(sys::read_file(path, kMostManifestBytes), path);
    const canon::Json json = TRY_WITH(canon::parse(text), path);
    // The schema first: what follows relies on keys and types.
    const auto flaws = profile::check_schema("guest", json);
    if (!flaws.empty()) return fail(Code::corrupt, path + ": " + format(flaws.front()));
    GuestFiles guest;
    guest.arch = json.at("arch").get<std::string>();
    guest.release = json.at("release").get<std::string>();
    guest.kernel = TRY_WITH(file_of(json.at("kernel"), folder), path);
    guest.initrd = TRY_WITH(file_of(json.at("initrd"), folder), path);
    return guest;
}

}  // namespace sandbox::supervisor
