// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "driver/resources.hpp"
#include "sys/file.hpp"
#include "sys/procfs.hpp"

namespace sandbox::driver {

namespace {

// Our own command lines are short; a longer one is not ours.
constexpr std::size_t kLongestCommandLine = 64U << 10;

pid_t number_of(const std::string& name)
{
    pid_t pid = 0;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), pid);
    return code == std::errc{} && end == name.data() + name.size() ? pid : 0;
}

bool has_argument(std::string_view arguments, std::string_view wanted)
{
    while (!arguments.empty()) {
        const auto one = arguments.substr(0, arguments.find('\0'));
        if (one == wanted) return true;
        arguments.remove_prefix(std::min(arguments.size(), one.size() + 1));
    }
    return false;
}

}  // namespace

Result<std::vector<sys::ProcessIdentity>> find_by_argument(std::string_view name)
{
    const auto proc = TRY(sys::open_dir("/proc"));
    // More processes than the kernel's pid space holds cannot be.
    const auto entries = TRY(sys::list_dir(proc.get(), 1U << 23));
    std::vector<sys::ProcessIdentity> found;
    for (const auto& entry : entries) {
        const pid_t pid = number_of(entry);
        if (pid <= 0 || pid == getpid()) continue;
        const auto folder = sys::open_at(proc.get(), entry, O_RDONLY | O_DIRECTORY);
        struct stat info{};
        // Inside a sandbox nobody is our user on the host: a forged argument there is not ours.
        if (!folder || fstat(folder->get(), &info) != 0 || info.st_uid != geteuid()) continue;
        // Most are somebody else's: their identity, several calls, is never asked for.
        const auto mentions = [&] {
            const auto arguments = sys::read_file_at(folder->get(), "cmdline", kLongestCommandLine);
            return arguments && has_argument(*arguments, name);
        };
        if (!mentions()) continue;
        // Identity first, arguments after it, through the same folder: no reused number slips in.
        const auto identity = sys::identity_of(pid);
        if (identity && mentions()) found.push_back(*identity);
    }
    return found;
}

}  // namespace sandbox::driver
