// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
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

// Shims and log workers are the ones that carry such a name, and both are this program.
constexpr std::string_view kProgram = "sandbox-shim";

// Whoever looks for the name (`pgrep -f`, `grep`) has it among its arguments too.
bool is_named(std::string_view arguments, std::string_view wanted)
{
    const std::size_t program = arguments.find('\0');
    if (program == std::string_view::npos) return false;
    arguments.remove_prefix(program + 1);
    return arguments.substr(0, arguments.find('\0')) == wanted;
}

bool runs_our_program(int folder)
{
    std::array<char, 4096> link{};  // PATH_MAX
    const ssize_t length = readlinkat(folder, "exe", link.data(), link.size());
    if (length <= 0) return false;
    std::string_view path(link.data(), static_cast<std::size_t>(length));
    constexpr std::string_view kReplaced = " (deleted)";  // by an upgrade
    if (path.ends_with(kReplaced)) path.remove_suffix(kReplaced.size());
    return path.substr(path.rfind('/') + 1) == kProgram;
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
            return arguments && is_named(*arguments, name) && runs_our_program(folder->get());
        };
        if (!mentions()) continue;
        // Identity first, arguments after it, through the same folder: no reused number slips in.
        const auto identity = sys::identity_of(pid);
        if (identity && mentions()) found.push_back(*identity);
    }
    return found;
}

}  // namespace sandbox::driver
