// SPDX-License-Identifier: Apache-2.0
#include "sys/procfs.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "sys/file.hpp"

namespace sandbox::sys {

Result<ProcDir> ProcDir::open(pid_t pid)
{
    // Through the folder opened here, every file is of the same process.
    return ProcDir(TRY(open_dir("/proc/" + std::to_string(pid))));
}

Result<ProcDir> ProcDir::self() { return ProcDir(TRY(open_dir("/proc/self"))); }

Result<std::string> ProcDir::text(const std::string& name) const
{
    return read_file_at(fd_.get(), name, kProcFileLimit);
}

Result<ProcStat> ProcDir::stat() const { return parse_stat(TRY(text("stat"))); }

Result<ProcStatus> ProcDir::status() const { return parse_status(TRY(text("status"))); }

Result<std::vector<IdMapping>> ProcDir::uid_map() const
{
    return parse_id_map(TRY(text("uid_map")));
}

Result<std::vector<IdMapping>> ProcDir::gid_map() const
{
    return parse_id_map(TRY(text("gid_map")));
}

Result<std::vector<MountInfo>> ProcDir::mountinfo() const
{
    return parse_mountinfo(TRY(text("mountinfo")));
}

Result<std::vector<CgroupLine>> ProcDir::cgroup() const
{
    return parse_cgroup(TRY(text("cgroup")));
}

Result<std::uint64_t> ProcDir::namespace_inode(const std::string& name) const
{
    struct stat info{};
    const std::string path = "ns/" + name;
    // Followed on purpose: the target's inode is the namespace's identity, namespaces(7).
    if (::fstatat(fd_.get(), path.c_str(), &info, 0) != 0) return fail_errno("fstatat", path);
    return info.st_ino;
}

Result<UniqueFd> ProcDir::open_namespace(const std::string& name) const
{
    return open_at(fd_.get(), "ns/" + name, O_RDONLY);
}

}  // namespace sandbox::sys
