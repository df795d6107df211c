// SPDX-License-Identifier: Apache-2.0
#include "shim/pty.hpp"
#include "sys/net/unix.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>

namespace sandbox::shim {

Result<Devpts> Devpts::of(int init_pid)
{
    // Through /proc/PID/root: the sandbox's own mount namespace, without entering it.
    const auto root = TRY_WITH(
        sys::open_file("/proc/" + std::to_string(init_pid) + "/root", O_PATH | O_DIRECTORY),
        "root of PID 1");
    // kBeneath: a link at dev/pts must not lead us out.
    auto folder = TRY_WITH(
        sys::open_at2(root.get(), "dev/pts", O_PATH | O_DIRECTORY, 0, sys::kBeneath),
        "terminals of the sandbox");
    struct statfs kind{};
    struct stat inside{};
    if (fstatfs(folder.get(), &kind) != 0) return fail_errno("fstatfs", "/dev/pts");
    if (fstat(folder.get(), &inside) != 0) return fail_errno("fstat", "/dev/pts");
    // The workload may have mounted something else there.
    if (kind.f_type != DEVPTS_SUPER_MAGIC)
        return fail(Code::conflict, "/dev/pts of the sandbox is no devpts");
    // Two instances of devpts are two devices; the same one would be the host's terminals.
    struct stat host{};
    if (stat("/dev/pts", &host) == 0 && host.st_dev == inside.st_dev)
        return fail(Code::conflict, "/dev/pts of the sandbox is the host's");
    return Devpts(std::move(folder));
}

Result<Terminal> Devpts::open(uid_t uid, gid_t gid, Window window) const
{
    Terminal terminal;
    // The instance's own ptmx, so the new terminal is of that instance (kernel,
    // filesystems/devpts.rst).
    terminal.master = TRY_WITH(
        sys::open_at2(folder_.get(), "ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK, 0, sys::kBeneath),
        "open a terminal");
    // A fresh slave is locked until its master says otherwise, ioctl_tty(2).
    const int unlock = 0;
    if (ioctl(terminal.master.get(), TIOCSPTLCK, &unlock) != 0) return fail_errno("TIOCSPTLCK");
    // By the master, not by name: what lies at that name is for the workload to say. Without
    // O_CLOEXEC, which the kernel would keep in the flags of the file for whoever gets it later.
    const int slave = ioctl(terminal.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY);
    if (slave < 0) return fail_errno("TIOCGPTPEER");
    static_cast<void>(fcntl(slave, F_SETFD, FD_CLOEXEC));
    terminal.slave.reset(slave);
    // By descriptor, for the same reason.
    if (fchown(slave, uid, gid) != 0) return fail_errno("fchown", "terminal");
    if (fchmod(slave, 0600) != 0) return fail_errno("fchmod", "terminal");
    if (window.rows != 0 || window.cols != 0) TRY_VOID(resize(terminal.master.get(), window));
    return terminal;
}

Status resize(int master, Window window)
{
    const winsize size{window.rows, window.cols, 0, 0};
    if (ioctl(master, TIOCSWINSZ, &size) != 0) return fail_errno("TIOCSWINSZ");
    return {};
}

Result<Terminal> make_remote_terminal()
{
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::stream));
    TRY_VOID(sys::set_nonblocking(pair.first.get()));
    return Terminal{std::move(pair.first), std::move(pair.second)};
}

}  // namespace sandbox::shim
