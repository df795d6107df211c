// SPDX-License-Identifier: Apache-2.0
#include "census.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <sys/stat.h>
#include <unistd.h>

namespace sandbox::probe::test {

namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path)
{
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool is_probe_name(const std::string& name)
{
    return name.starts_with("sandbox-probe") || name.starts_with("crun.");
}

// Our marker only: other programs make and remove cgroups meanwhile.
std::set<std::string> probe_cgroups()
{
    std::set<std::string> found;
    std::error_code ignored;
    const std::string mine = "sandbox-probe-" + std::to_string(getpid());
    // Where v2 is alone, its root is the mount.
    if (fs::exists("/sys/fs/cgroup/" + mine, ignored)) found.insert("/sys/fs/cgroup/" + mine);
    for (const auto& hierarchy : fs::directory_iterator("/sys/fs/cgroup", ignored)) {
        for (const auto& entry : fs::directory_iterator(hierarchy.path(), ignored)) {
            if (entry.path().filename() == mine) found.insert(entry.path());
        }
    }
    return found;
}

std::set<std::string> children()
{
    std::set<std::string> found;
    std::error_code ignored;
    const std::string parent = "\nPPid:\t" + std::to_string(getpid()) + "\n";
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (text_of(entry.path() / "status").find(parent) != std::string::npos) found.insert(name);
    }
    return found;
}

}  // namespace

Census take_census()
{
    Census census;
    census.mounts = text_of("/proc/self/mountinfo");
    census.cgroups = probe_cgroups();
    census.children = children();
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd", ignored)) {
        static_cast<void>(entry);
        ++census.descriptors;
    }
    for (const auto& entry : fs::directory_iterator("/tmp", ignored)) {
        const std::string name = entry.path().filename();
        if (is_probe_name(name)) census.temporary.insert(name);
    }
    return census;
}

std::string describe(const Census& census)
{
    std::string text = "descriptors " + std::to_string(census.descriptors);
    for (const auto& name : census.cgroups) text += " cgroup " + name;
    for (const auto& name : census.children) text += " child " + name;
    for (const auto& name : census.temporary) text += " file " + name;
    return text + '\n' + census.mounts;
}

Scratch::Scratch()
{
    std::string pattern = "/tmp/sandbox-unit-XXXXXX";
    path_ = mkdtemp(pattern.data());
}

Scratch::~Scratch()
{
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

std::string Scratch::write(const std::string& name, const std::string& text, unsigned mode) const
{
    const std::string path = path_ + "/" + name;
    {
        std::ofstream file(path, std::ios::binary);
        file << text;
    }
    chmod(path.c_str(), static_cast<mode_t>(mode));
    return path;
}

}  // namespace sandbox::probe::test
