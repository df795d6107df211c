// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include <algorithm>

namespace sandbox::resolve {

namespace name = facts::name;
using plan::Ownership;
using plan::RootfsStrategy;

namespace {

constexpr std::uint32_t kNobody = 65534;  // the kernel's overflow id (sysctl kernel.overflowuid)

// A colon or line break would forge other fields of passwd.
// HOME comes from the profile and is hostile here: it is written into a file that programs parse.
std::string home_of(const plan::ProcessPlan& process)
{
    const std::string& home = process.env.at("HOME");
    const bool plain = home.starts_with('/') && std::none_of(home.begin(), home.end(), [](char c) {
                           return c == ':' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
                       });
    return plain ? home : "/";
}

std::string passwd(const plan::ProcessPlan& process)
{
    const std::string home = home_of(process);
    std::string text = "root:x:0:0:root:" + (process.uid == 0 ? home : "/root") + ":/bin/sh\n";
    // Root and nobody are there already; a second line with the same id would be ambiguous.
    if (process.uid != 0 && process.uid != kNobody) {
        text += "sandbox:x:" + std::to_string(process.uid) + ":" + std::to_string(process.gid) +
                ":sandbox:" + home + ":/bin/sh\n";
    }
    return text + "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
}

std::string group(const plan::ProcessPlan& process)
{
    std::string text = "root:x:0:\n";
    if (process.gid != 0 && process.gid != kNobody) {
        text += "sandbox:x:" + std::to_string(process.gid) + ":\n";
    }
    return text + "nogroup:x:65534:\n";
}

// A tree of the user's brings its own users; names of hosts are always ours.
// Only names and users: what a program reads at once. Everything else is the profile's to bring.
void generate_etc(Draft& draft, bool own_users)
{
    auto& etc = draft.plan.rootfs.etc;
    const std::string& host = draft.profile().name;
    const bool online = draft.profile().network.mode != profile::NetworkMode::none;
    etc["hostname"] = host + "\n";
    etc["hosts"] = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " +
                   host + "\n";
    // Empty, not missing: a resolver that finds no file asks localhost.
    etc["resolv.conf"] = online ? "# Bind the host's /etc/resolv.conf here to resolve names.\n"
                                : "";
    if (!own_users) return;
    etc["passwd"] = passwd(draft.plan.process);
    etc["group"] = group(draft.plan.process);
    etc["nsswitch.conf"] = std::string("passwd: files\ngroup: files\nhosts: files") +
                           (online ? " dns" : "") + "\n";
}

void require_overlay(Draft& draft, std::string_view requirement)
{
    // A guest's overlay is its own kernel's.
    if (draft.plan.driver != profile::Driver::microvm) {
        // Both: an overlay with idmapped layers is how a writable root keeps the host's owners.
        draft.require(name::kOverlayfs, "overlayfs-unavailable", "rootfs.source", requirement);
    }
    draft.require(name::kIdmappedMount, "idmapped-mounts-unavailable", "rootfs.source",
                  requirement);
    draft.plan.rootfs.strategy = RootfsStrategy::overlay_tmpfs;
    draft.plan.rootfs.ownership = Ownership::idmap_all;
}

}  // namespace

void resolve_rootfs(Draft& draft)
{
    const profile::Rootfs& asked = draft.profile().rootfs;
    plan::RootfsPlan& rootfs = draft.plan.rootfs;
    // Every root ends in one of two ways: the host's tree read-only, or an overlay above it.
    rootfs.read_only = asked.read_only;
    if (const auto* dir = std::get_if<profile::DirRootfs>(&asked.source)) {
        rootfs.kind = "dir";
        rootfs.source = dir->path;
        require_overlay(draft, "the folder " + dir->path.str() + " is the root, left unchanged");
        // A tree of the user's has users of its own; names of hosts are always ours.
        generate_etc(draft, false);
        return;
    }
    // An image is refused by check_unsupported; its plan is never sealed.
    rootfs.kind = "host";
    // Only /usr: the host's /etc, /home and /var are never part of a root.
    rootfs.source = HostPath("/usr");
    rootfs.strategy = RootfsStrategy::host_tree;
    rootfs.ownership = Ownership::overflow;
    if (asked.read_only) {
        draft.require(name::kRecursiveReadOnly, "recursive-read-only-unavailable",
                      "rootfs.read_only", "the root and what is mounted in it are read-only");
    } else {
        require_overlay(draft, "writes to the root go to a tmpfs");
    }
    generate_etc(draft, true);
}

}  // namespace sandbox::resolve
