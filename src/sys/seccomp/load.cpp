// SPDX-License-Identifier: Apache-2.0
#include "sys/seccomp/load.hpp"

#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "sys/caps.hpp"

namespace sandbox::sys::seccomp {

int load(std::span<const sock_filter> program) noexcept
{
    // BPF_MAXINSNS is 4096, linux/bpf_common.h.
    if (program.empty() || program.size() > BPF_MAXINSNS) return EINVAL;
    // Without it only CAP_SYS_ADMIN may load a filter, seccomp(2).
    if (const int bad = set_no_new_privs()) return bad;
    // The kernel copies the program; its type has no const form.
    const sock_fprog filter{static_cast<unsigned short>(program.size()),
                            const_cast<sock_filter*>(program.data())};
    return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0U, &filter) == 0 ? 0 : errno;
}

}  // namespace sandbox::sys::seccomp
