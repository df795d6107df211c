// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "sys/file.hpp"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U  // linux 6.3, uapi/linux/memfd.h
#endif

namespace sandbox::sys {

namespace {

// fcntl(2), F_ADD_SEALS: SEAL last of all, or somebody could add or refuse further seals.
constexpr int kAllSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

Result<UniqueFd> make_memfd(const std::string& name)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    // MFD_EXEC states the wish under vm.memfd_noexec=1; older kernels answer EINVAL.
    int fd = ::memfd_create(name.c_str(), flags | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) fd = ::memfd_create(name.c_str(), flags);
    if (fd < 0) return fail_errno("memfd_create", name);
    return UniqueFd(fd);
}

Status seal_memfd(int fd)
{
    if (::fcntl(fd, F_ADD_SEALS, kAllSeals) != 0) return fail_errno("fcntl(F_ADD_SEALS)");
    return {};
}

Result<bool> is_sealed(int fd)
{
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0) return fail_errno("fcntl(F_GET_SEALS)");
    return (seals & kAllSeals) == kAllSeals;
}

Result<UniqueFd> sealed_memfd(const std::string& name, std::string_view bytes)
{
    UniqueFd fd = TRY(make_memfd(name));
    TRY_VOID(write_all(fd.get(), bytes));
    // The writer's position is the reader's: whoever gets the descriptor starts at the beginning.
    if (::lseek(fd.get(), 0, SEEK_SET) != 0) return fail_errno("lseek", name);
    TRY_VOID(seal_memfd(fd.get()));
    return fd;
}

}  // namespace sandbox::sys
