// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "resolve/steps.hpp"

// A secret is a variable of the service or a file on a tmpfs of its own. The plan knows its name
// and its place; its value passes by from the operator's store to PID 1.
namespace sandbox::resolve {

using plan::MountPlan;

namespace {

constexpr Bytes kSecretsSize{8ULL << 20};  // 64 secrets of 64 KiB, and the tmpfs' own pages
constexpr std::uint32_t kSecretsMode = 0700;
constexpr std::string_view kPlace = "/run/";

std::string folder_of(const GuestPath& file) { return file.str().substr(0, file.str().rfind('/')); }

bool within(std::string_view path, std::string_view folder)
{
    return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

void refuse(Draft& draft, const profile::Secret& secret, std::string_view reason, std::string fact,
            std::string mend)
{
    draft.deny({.denial_class = DenialClass::invalid_profile,
                .reason = std::string(reason),
                .key = "secrets." + secret.name,
                .requirement = "secret " + secret.name + " is given to the workload",
                .fact = std::move(fact),
                .mend = std::move(mend),
                .source = {}});
}

// The folder becomes a tmpfs that holds secrets and nothing else: it must hide nothing, and
// nothing of the host may lie above it.
bool folder_is_free(Draft& draft, const profile::Secret& secret)
{
    const std::string folder = folder_of(*secret.file);
    const std::string mend = "use file = \"/run/secrets/" + secret.name + "\"";
    // Below /run, a tmpfs of the sandbox in every root: no host file can lie there.
    if (!folder.starts_with(kPlace)) {
        refuse(draft, secret, "secret-place", secret.file->str() + " is in no folder below /run",
               mend);
        return false;
    }
    for (const profile::Mount& mount : draft.profile().mounts) {
        if (!within(folder, mount.target.str()) && !within(mount.target.str(), folder)) continue;
        refuse(draft, secret, "secret-folder-taken",
               "the mount at " + mount.target.str() + " meets the folder " + folder, mend);
        return false;
    }
    return true;
}

// A tmpfs of an ordinary user's cannot be kept from the host's swap (mm/shmem.c, noswap), and a secret
// never reaches a disk. Root's can, so nothing is asked of its host.
void require_no_swap(Draft& draft, const profile::Secret& secret)
{
    if (draft.plan.driver != profile::Driver::native ||
        draft.value_of(facts::name::kPrivilege) != "user" ||
        draft.value_of(facts::name::kHostSwap) == "off")
        return;
    draft.deny({.denial_class = DenialClass::required_control_unavailable,
                .reason = "secret-could-be-swapped",
                .key = "secrets." + secret.name,
                .requirement = "the file " + secret.file->str() + " stays in memory",
                .fact = draft.describe(facts::name::kHostSwap),
                .mend = "give it as a variable, turn the host's swap off, or run as root",
                .source = {}});
}

}  // namespace

void resolve_secrets(Draft& draft)
{
    auto& mounts = draft.plan.mounts;
    for (const profile::Secret& secret : draft.profile().secrets) {
        // A variable belongs to a process; sessions do not inherit it.
        if (secret.env && draft.profile().process.idle) {
            refuse(draft, secret, "secret-without-process", "an idle sandbox has no main process",
                   "give it as a file: file = \"/run/secrets/" + secret.name + "\"");
        }
        if (!secret.file || !folder_is_free(draft, secret)) continue;
        require_no_swap(draft, secret);
        MountPlan mount;
        mount.type = profile::MountType::tmpfs;
        mount.target = GuestPath(folder_of(*secret.file));
        mount.read_only = false;
        mount.ownership = plan::Ownership::overflow;
        mount.size = kSecretsSize;
        mount.mode = kSecretsMode;
        // Two secrets of one folder share its tmpfs.
        if (std::ranges::find(mounts, mount) == mounts.end()) mounts.push_back(std::move(mount));
    }
    // The order of the plan is that of paths, as in resolve_mounts(), which ran before.
    std::ranges::stable_sort(mounts, {}, &MountPlan::target);
}

}  // namespace sandbox::resolve
