// SPDX-License-Identifier: Apache-2.0
#include "guest/machine_devices.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <string>

#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::guest {
namespace {

struct Node {
    const char* name;
    unsigned major;
    unsigned minor;
};
// Documentation/admin-guide/devices.txt
constexpr Node kNodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                           {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
constexpr std::pair<const char*, const char*> kLinks[] = {{"ptmx", "pts/ptmx"},
                                                          {"fd", "/proc/self/fd"},
                                                          {"stdin", "/proc/self/fd/0"},
                                                          {"stdout", "/proc/self/fd/1"},
                                                          {"stderr", "/proc/self/fd/2"}};
constexpr std::uint64_t kNodesSize = 65536;
constexpr std::uint64_t kSharedMemory = 64U << 20;  // as containers have it

sys::MountAttributes flags(bool devices)
{
    sys::MountAttributes attributes;
    attributes.no_suid = true;
    attributes.no_exec = true;
    attributes.no_dev = !devices;
    return attributes;
}

Status mount_below(int dev, const char* name, Result<sys::UniqueFd> mount)
{
    if (!mount) return fail(std::move(mount).error().with(std::string("/dev/") + name));
    TRY_VOID(sys::mkdir_at(dev, name, 0755));
    return sys::attach_tree(mount->get(), dev, name);
}

}  // namespace

Status mount_devices(int root)
{
    const auto dev = TRY(sys::make_tmpfs(kNodesSize, 0755, flags(true)));
    for (const Node& node : kNodes) {
        if (::mknodat(dev.get(), node.name, S_IFCHR | 0666, makedev(node.major, node.minor)) != 0 ||
            ::fchmodat(dev.get(), node.name, 0666, 0) != 0)
            return fail_errno("mknodat", node.name);
    }
    for (const auto& [name, target] : kLinks)
        if (::symlinkat(target, dev.get(), name) != 0) return fail_errno("symlinkat", name);
    const auto place = TRY(sys::open_at2(root, "dev", O_PATH | O_DIRECTORY, 0, sys::kBeneath));
    TRY_VOID(sys::attach_tree(dev.get(), place.get(), ""));
    TRY_VOID(mount_below(
        dev.get(), "pts",
        sys::make_filesystem(
            "devpts", {{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}}, flags(true))));
    TRY_VOID(mount_below(dev.get(), "shm", sys::make_tmpfs(kSharedMemory, 01777, flags(false))));
    return mount_below(dev.get(), "mqueue", sys::make_filesystem("mqueue", {}, flags(false)));
}

Status mount_proc(int root)
{
    const auto proc = TRY(sys::make_filesystem("proc", {}, flags(false)));
    const auto place = TRY(sys::open_at2(root, "proc", O_PATH | O_DIRECTORY, 0, sys::kBeneath));
    return sys::attach_tree(proc.get(), place.get(), "");
}

}  // namespace sandbox::guest
