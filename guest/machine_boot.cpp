// SPDX-License-Identifier: Apache-2.0
#include "guest/machine_boot.hpp"

#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>

#include "base/diagnostic.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"
#include "sys/rlimit.hpp"

namespace sandbox::guest {
namespace {

// Places of the guest image, docs/formats/guest-image.md.
constexpr const char* kModules = "/modules";
constexpr const char* kPorts = "/sys/class/virtio-ports";
// docs/protocol.md; the driver gives it to QEMU.
constexpr std::string_view kPortName = "org.sandbox.0";
// The module is loaded; the device's own answers take a few milliseconds, under emulation too.
constexpr Millis kPortDeadline{10'000};

Status mount_one(const char* type, const char* target, unsigned long flags)
{
    // The initrd may have the folder or not.
    if (::mkdir(target, 0755) != 0 && errno != EEXIST) return fail_errno("mkdir", target);
    // EBUSY: the kernel mounted its devtmpfs itself.
    if (::mount(type, target, type, flags, nullptr) != 0 && errno != EBUSY)
        return fail_errno("mount", target);
    return {};
}

Status mount_basics()
{
    TRY_VOID(mount_one("devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC));
    TRY_VOID(mount_one("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
    TRY_VOID(mount_one("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC));
    return mount_one("cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC);
}

Result<std::size_t> load_modules()
{
    const auto folder = sys::open_dir(kModules);
    // A kernel with everything built in.
    if (!folder && folder.error().errnum() == ENOENT) return std::size_t{0};
    if (!folder) return fail(folder.error());
    std::size_t loaded = 0;
    // list_dir() sorts: the image numbers them in the order in which they need each other.
    for (const std::string& name : TRY(sys::list_dir(folder->get()))) {
        const sys::UniqueFd file = TRY(sys::open_at(folder->get(), name, O_RDONLY));
        const long done = ::syscall(SYS_finit_module, file.get(), "", 0);
        // Hardware that is not there; or built in, or loaded by another's need.
        if (done != 0 && errno != ENODEV && errno != EEXIST)
            return fail_errno("finit_module", name);
        if (done == 0) ++loaded;
    }
    return loaded;
}

// The device node whose port says this name; nothing when it is not there (yet).
Result<std::optional<std::string>> find_port()
{
    const auto folder = sys::open_dir(kPorts);
    if (!folder && folder.error().errnum() == ENOENT) return std::optional<std::string>();
    if (!folder) return fail(folder.error());
    for (const std::string& node : TRY(sys::list_dir(folder->get()))) {
        auto name = sys::read_file_at(folder->get(), node + "/name", 256);
        if (!name) continue;  // it has not been told its name
        // sysfs values end with a newline.
        while (name->ends_with('\n')) name->pop_back();
        if (*name == kPortName) return std::optional<std::string>("/dev/" + node);
    }
    return std::optional<std::string>();
}

// Says when a device changed: a port gets its name some time after it came to be.
Result<sys::UniqueFd> listen_to_kernel()
{
    sys::UniqueFd socket(
        ::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT));
    if (!socket) return fail_errno("socket", "uevents");
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    // Group 1 is the kernel's own events; group 2 is udev's, which is not here.
    address.nl_groups = 1;
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return fail_errno("bind", "uevents");
    return socket;
}

void drain(int socket)
{
    std::array<char, 8192> event;
    while (::recv(socket, event.data(), event.size(), MSG_DONTWAIT) > 0) {}
}

Result<std::string> await_port(int events)
{
    const auto deadline = sys::Deadline::after(kPortDeadline);
    for (;;) {
        if (auto node = TRY(find_port())) return std::move(*node);
        // An event of any device: looked up again.
        if (TRY(sys::poll_one(events, POLLIN, deadline)) == 0)
            return fail(Code::deadline_exceeded,
                        "no virtio port named " + std::string(kPortName) + " appeared");
        drain(events);
    }
}

// Before the host's side is connected a port says nothing but its end. No event tells when it is;
// the device's next message does it.
Status await_connection(int port)
{
    const auto deadline = sys::Deadline::after(kPortDeadline);
    for (;;) {
        pollfd state{port, POLLIN | POLLOUT, 0};
        // poll(2) says POLLHUP for a virtio port whose host side is closed.
        if (::poll(&state, 1, 0) < 0 && errno != EINTR) return fail_errno("poll", "port");
        if ((state.revents & POLLHUP) == 0) return {};
        if (deadline.passed())
            return fail(Code::deadline_exceeded, "the host's side of the port is not connected");
        // Half a millisecond: a boot is not to be kept waiting, and this ends in a moment.
        constexpr timespec kBriefly{0, 500'000};
        ::nanosleep(&kBriefly, nullptr);
    }
}

}  // namespace

Result<Booted> boot_machine()
{
    // The kernel starts PID 1 with 4096, below what a plan may give; a session gets its own from it.
    // fs.nr_open (1048576) is the most there can be.
    constexpr std::uint64_t kMostFiles = 1U << 20;
    constexpr std::uint64_t kUsual = 1024;
    static_cast<void>(sys::apply_rlimit({RLIMIT_NOFILE, kUsual, kMostFiles}));
    Booted booted;
    TRY_VOID(mount_basics());
    // Before the modules: an event between looking and listening would be missed.
    const sys::UniqueFd events = TRY(listen_to_kernel());
    booted.modules = TRY(load_modules());
    const std::string node = TRY(await_port(events.get()));
    // Exclusively ours: the kernel gives a port to one opener.
    booted.port = TRY(sys::open_file(node, O_RDWR | O_NONBLOCK));
    TRY_VOID(await_connection(booted.port.get()));
    return booted;
}

void power_off()
{
    // File systems of the host are behind virtiofs; what is not written would be lost.
    ::sync();
    // Not RB_POWER_OFF: see power_off() in the header.
    ::reboot(RB_AUTOBOOT);
    // Only a kernel that will not: PID 1's end is a panic, and panic=-1 its end.
    ::_exit(1);
}

}  // namespace sandbox::guest
