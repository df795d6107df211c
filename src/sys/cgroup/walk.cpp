// SPDX-License-Identifier: Apache-2.0
#include "sys/cgroup/walk.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>

#include <cerrno>
#include <charconv>
#include <memory>

#include "sys/fd.hpp"

namespace sandbox::sys::cgroup {

namespace {

// Far above what a sandbox makes (256 sessions, docs/protocol.md); a workload with its own cgroup
// mount has none.
constexpr std::size_t kMaxCgroups = 4096;

struct CloseDir {
    void operator()(DIR* dir) const noexcept { ::closedir(dir); }
};

Result<std::vector<std::string>> folders_in(int dir, const std::string& path)
{
    std::vector<std::string> names;
    auto fd = open_at(dir, path, O_RDONLY | O_DIRECTORY);
    if (!fd && fd.error().errnum() == ENOENT) return names;
    if (!fd) return std::unexpected(std::move(fd).error());
    const std::unique_ptr<DIR, CloseDir> stream(::fdopendir(fd->get()));
    if (!stream) return fail_errno("fdopendir", path);
    (void)fd->release();
    while (const dirent* entry = ::readdir(stream.get())) {
        const std::string_view name = entry->d_name;
        // cgroupfs tells the type of every entry; no stat is needed.
        if (entry->d_type == DT_DIR && name != "." && name != "..") names.emplace_back(name);
    }
    return names;
}

}  // namespace

Result<std::vector<std::string>> subtree(int dir)
{
    std::vector<std::string> paths{"."};
    // The list grows while it is walked: breadth first, so parents stand before their children.
    for (std::size_t at = 0; at < paths.size(); ++at) {
        const std::string parent = paths[at];
        for (const std::string& name : TRY(folders_in(dir, parent))) {
            if (paths.size() == kMaxCgroups)
                return fail(Code::resource_exhausted, "more than 4096 cgroups below one sandbox");
            paths.push_back(parent == "." ? name : parent + "/" + name);
        }
    }
    return paths;
}

std::uint64_t keyed_value(std::string_view text, std::string_view key) noexcept
{
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        // The space ends the key: "oom" must not match "oom_kill".
        if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ' ') {
            std::uint64_t value = 0;
            std::from_chars(line.data() + key.size() + 1, line.data() + line.size(), value);
            return value;
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return 0;
}

void pause_briefly() noexcept
{
    const timespec millisecond{0, 1'000'000};
    ::nanosleep(&millisecond, nullptr);
}

std::string trimmed(std::string text)
{
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
}

}  // namespace sandbox::sys::cgroup
