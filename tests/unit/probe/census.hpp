// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

// What a probe could leave behind, as seen from this process: equal before and after.
namespace sandbox::probe::test {

struct Census {
    std::string mounts;              // /proc/self/mountinfo
    std::set<std::string> cgroups;   // folders named sandbox* in every hierarchy
    std::set<std::string> children;  // pids whose parent we are
    std::size_t descriptors = 0;
    std::set<std::string> temporary;  // names in /tmp that crun or we would make

    bool operator==(const Census&) const = default;
};

Census take_census();
std::string describe(const Census& census);

// A folder of its own below /tmp, removed at the end.
class Scratch {
public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const std::string& path() const { return path_; }
    std::string write(const std::string& name, const std::string& text, unsigned mode) const;

private:
    std::string path_;
};

}  // namespace sandbox::probe::test
