// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/diagnostic.hpp"
#include "confine/box.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::confine {

namespace {

// Nodes and links only.
constexpr std::uint64_t kDevSize = 65536;
constexpr std::uint64_t kEmptySize = 4096;

struct Node {
    const char* name;
    unsigned major;
    unsigned minor;
};
// Those that every program expects (OCI runtime spec, "Default Devices"); of our own making, so
// that nothing done to them is done to the host's.
constexpr std::array<Node, 6> kNodes{{{"full", 1, 7},
                                      {"null", 1, 3},
                                      {"random", 1, 8},
                                      {"tty", 5, 0},
                                      {"urandom", 1, 9},
                                      {"zero", 1, 5}}};
// Same place: "Dev symbolic links".
constexpr std::array<std::pair<const char*, const char*>, 5> kLinks{
    {{"fd", "/proc/self/fd"},
     {"ptmx", "pts/ptmx"},
     {"stderr", "/proc/self/fd/2"},
     {"stdin", "/proc/self/fd/0"},
     {"stdout", "/proc/self/fd/1"}}};

sys::MountAttributes inert()
{
    sys::MountAttributes attributes;
    attributes.no_suid = true;
    attributes.no_dev = true;
    attributes.no_exec = true;
    return attributes;
}

Status own(int dir, const char* name, std::uint32_t owner)
{
    if (::fchownat(dir, name, owner, owner, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno("fchownat", name);
    return {};
}

Status make_node(int dev, const Node& node, std::uint32_t owner)
{
    if (::mknodat(dev, node.name, S_IFCHR | 0666, ::makedev(node.major, node.minor)) != 0)
        return fail_errno("mknodat", node.name);
    TRY_VOID(own(dev, node.name, owner));
    // The umask took the write bits.
    if (::fchmodat(dev, node.name, 0666, 0) != 0) return fail_errno("fchmodat", node.name);
    return {};
}

// The host's /dev is still in sight: the tree is entered later.
Status bind_node(int dev, const Node& node)
{
    const std::string path = std::string("/dev/") + node.name;
    const sys::UniqueFd host = TRY(sys::open_file(path, O_PATH | O_NOFOLLOW));
    struct stat status{};
    if (::fstat(host.get(), &status) != 0) return fail_errno("fstat", path);
    if (!S_ISCHR(status.st_mode) || status.st_rdev != ::makedev(node.major, node.minor))
        return fail(Code::conflict, path + " of this host is another device than its name says");
    const sys::UniqueFd bound = TRY(sys::clone_tree(host.get(), "", sys::Depth::single));
    sys::MountAttributes attributes;
    attributes.no_suid = true;
    attributes.no_exec = true;
    TRY_VOID(sys::set_mount_attributes(bound.get(), attributes, sys::Depth::single));
    TRY_VOID(sys::write_file_at(dev, node.name, "", 0444));
    return sys::attach_tree(bound.get(), dev, node.name);
}

// `dev` is attached already where nodes are bound: a mount needs a place in the tree.
Status fill_dev(int dev, const BoxSpec& spec)
{
    const std::uint32_t owner = spec.owner;
    for (const Node& node : kNodes)
        TRY_VOID(spec.devices == Devices::bound ? bind_node(dev, node)
                                                : make_node(dev, node, owner));
    for (const auto& [name, target] : kLinks) {
        if (::symlinkat(target, dev, name) != 0) return fail_errno("symlinkat", name);
        TRY_VOID(own(dev, name, owner));
    }
    for (const char* name : {"mqueue", "pts", "shm"}) {
        TRY_VOID(sys::mkdir_at(dev, name, 0755));
        TRY_VOID(own(dev, name, owner));
    }
    return own(dev, ".", owner);
}

Result<sys::UniqueFd> make_shm(const BoxSpec& spec)
{
    sys::UniqueFd shm = TRY(sys::make_tmpfs(spec.shm_size, 01777, inert()));
    TRY_VOID(own(shm.get(), ".", spec.owner));
    if (::fchmodat(shm.get(), ".", 01777, 0) != 0) return fail_errno("fchmodat", "/dev/shm");
    return shm;
}

// Returns the folder /dev, attached.
Result<sys::UniqueFd> mount_dev(const BoxSpec& spec, int root)
{
    sys::MountAttributes nodes;
    nodes.no_suid = true;
    nodes.no_exec = true;
    sys::UniqueFd dev = TRY(sys::make_tmpfs(kDevSize, 0755, nodes));
    // Filled before it is seen, where that can be.
    if (spec.devices == Devices::made) TRY_VOID(fill_dev(dev.get(), spec));
    TRY_VOID(sys::attach_tree(dev.get(), root, "dev"));
    if (spec.devices == Devices::bound) TRY_VOID(fill_dev(dev.get(), spec));
    const sys::UniqueFd pts = TRY(sys::make_filesystem(
        "devpts", {{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "0620"}}, nodes));
    TRY_VOID(sys::attach_tree(pts.get(), dev.get(), "pts"));
    const sys::UniqueFd shm = TRY(make_shm(spec));
    TRY_VOID(sys::attach_tree(shm.get(), dev.get(), "shm"));
    const sys::UniqueFd queues = TRY(sys::make_filesystem("mqueue", {}, inert()));
    TRY_VOID(sys::attach_tree(queues.get(), dev.get(), "mqueue"));
    return dev;
}

// Nothing: this kernel does not have it.
Result<sys::UniqueFd> kernel_path(int root, const std::string& path)
{
    auto found = sys::open_at2(root, path.substr(1), O_PATH | O_NOFOLLOW, 0, sys::kBeneath);
    if (found || found.error().code() == Code::not_found) {
        return found ? std::move(found) : sys::UniqueFd();
    }
    return fail(std::move(found).error());
}

Status cover(int place, int dev)
{
    struct stat status{};
    if (::fstat(place, &status) != 0) return fail_errno("fstat");
    sys::MountAttributes attributes = inert();
    attributes.read_only = true;
    if (S_ISDIR(status.st_mode)) {
        const sys::UniqueFd empty = TRY(sys::make_tmpfs(kEmptySize, 0555, attributes));
        return sys::attach_tree(empty.get(), place, "");
    }
    const sys::UniqueFd null = TRY(sys::clone_tree(dev, "null", sys::Depth::single));
    attributes.no_dev = false;
    TRY_VOID(sys::set_mount_attributes(null.get(), attributes, sys::Depth::single));
    return sys::attach_tree(null.get(), place, "");
}

Status freeze(int place)
{
    const sys::UniqueFd self = TRY(sys::clone_tree(place, "", sys::Depth::recursive));
    sys::MountAttributes attributes = inert();
    attributes.read_only = true;
    TRY_VOID(sys::set_mount_attributes(self.get(), attributes, sys::Depth::recursive));
    return sys::attach_tree(self.get(), place, "");
}

}  // namespace

Status furnish(const BoxSpec& spec, int root)
{
    const sys::UniqueFd dev = TRY_WITH(mount_dev(spec, root), "mount /dev");
    const sys::UniqueFd proc = TRY(sys::make_filesystem("proc", {}, inert()));
    TRY_VOID(sys::attach_tree(proc.get(), root, "proc"));
    for (const std::string& path : spec.masked) {
        const sys::UniqueFd place = TRY(kernel_path(root, path));
        if (!place.valid()) continue;
        if (auto done = cover(place.get(), dev.get()); !done)
            return fail(std::move(done).error().with("mask " + escaped(path)));
    }
    for (const std::string& path : spec.read_only) {
        const sys::UniqueFd place = TRY(kernel_path(root, path));
        if (!place.valid()) continue;
        if (auto done = freeze(place.get()); !done)
            return fail(std::move(done).error().with("make read-only " + escaped(path)));
    }
    return {};
}

Status enter_tree(int root)
{
    auto pivoted = sys::pivot_root_into(root);
    if (pivoted || pivoted.error().errnum() != EINVAL) return pivoted;
    // The kernel's first root has no parent to be put under: it is covered for good instead
    // (switch_root(8)). What it holds is out of reach, since nobody is left inside it.
    if (::fchdir(root) != 0) return fail_errno("fchdir");
    if (::mount(".", "/", nullptr, MS_MOVE, nullptr) != 0) return fail_errno("mount(MS_MOVE)", "/");
    if (::chroot(".") != 0) return fail_errno("chroot");
    if (::chdir("/") != 0) return fail_errno("chdir", "/");
    return {};
}

Status raise_loopback()
{
    const sys::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return fail_errno("socket", "loopback");
    ifreq request{};
    std::string_view("lo").copy(request.ifr_name, sizeof request.ifr_name - 1);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
        return fail_errno("SIOCSIFFLAGS", "loopback");
    return {};
}

}  // namespace sandbox::confine
