// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "confine/session.hpp"
#include "sys/file.hpp"

namespace sandbox::confine {

namespace {

// A session child holds a handful; the ceiling is RLIMIT_NOFILE of any host we know.
constexpr std::size_t kMaxFds = 1U << 20;

std::string ids(const std::array<std::uint32_t, 4>& values)
{
    std::string text;
    for (const std::uint32_t value : values)
        text += (text.empty() ? "" : " ") + std::to_string(value);
    return text;
}

struct Differences {
    std::vector<std::string> found;

    void expect(bool good, const std::string& what, const std::string& wanted,
                const std::string& seen)
    {
        if (!good) found.push_back(what + " is " + seen + ", planned is " + wanted);
    }

    void caps(const char* what, sys::CapSet wanted, sys::CapSet seen)
    {
        const auto text = [](sys::CapSet set) {
            std::string names;
            for (const std::string& name : sys::cap_names(set))
                names += (names.empty() ? "" : ",") + name;
            return names.empty() ? std::string("empty") : names;
        };
        if (wanted != seen) expect(false, what, text(wanted), text(seen));
    }
};

}  // namespace

Result<SelfWitness> SelfWitness::open()
{
    sys::UniqueFd status = TRY(sys::open_file("/proc/self/status", O_RDONLY));
    sys::UniqueFd fds = TRY(sys::open_file("/proc/self/fd", O_RDONLY | O_DIRECTORY));
    return SelfWitness(std::move(status), std::move(fds));
}

Result<SelfReport> SelfWitness::read() const
{
    SelfReport report;
    // The text is made anew when it is read from the start.
    if (::lseek(status_.get(), 0, SEEK_SET) != 0) return fail_errno("lseek", "/proc/self/status");
    const std::string text = TRY(sys::read_all(status_.get(), sys::kProcFileLimit));
    report.status = TRY(sys::parse_status(text));
    for (const int fd : TRY(sys::open_numbers(fds_.get(), kMaxFds)))
        if (fd != status_.get() && fd != fds_.get()) report.open_fds.push_back(fd);
    return report;
}

std::vector<std::string> differences(const Spec& spec, const SelfReport& report,
                                     int filters_expected)
{
    Differences all;
    const sys::ProcStatus& status = report.status;
    const std::array<std::uint32_t, 4> uids{spec.uid, spec.uid, spec.uid, spec.uid};
    const std::array<std::uint32_t, 4> gids{spec.gid, spec.gid, spec.gid, spec.gid};
    all.expect(status.uid == uids, "uid", ids(uids), ids(status.uid));
    all.expect(status.gid == gids, "gid", ids(gids), ids(status.gid));
    std::vector<std::uint32_t> groups(spec.groups.begin(), spec.groups.end());
    std::vector<std::uint32_t> found = status.groups;
    std::sort(groups.begin(), groups.end());
    std::sort(found.begin(), found.end());
    all.expect(groups == found, "number of groups", std::to_string(groups.size()),
               std::to_string(found.size()));
    all.caps("bounding set", spec.capabilities, status.cap_bounding);
    all.caps("permitted set", spec.capabilities, status.cap_permitted);
    all.caps("effective set", spec.capabilities, status.cap_effective);
    all.caps("inheritable set", spec.capabilities, status.cap_inheritable);
    all.caps("ambient set", spec.capabilities, status.cap_ambient);
    all.expect(status.no_new_privs, "NoNewPrivs", "1", "0");
    const int mode = filters_expected > 0 ? 2 : 0;  // SECCOMP_MODE_FILTER
    all.expect(status.seccomp == mode, "Seccomp", std::to_string(mode),
               std::to_string(status.seccomp));
    all.expect(status.seccomp_filters == filters_expected, "Seccomp_filters",
               std::to_string(filters_expected), std::to_string(status.seccomp_filters));
    all.expect(status.umask == spec.umask, "umask", std::to_string(spec.umask),
               std::to_string(status.umask));
    return std::move(all.found);
}

}  // namespace sandbox::confine
