// SPDX-License-Identifier: Apache-2.0
#include "wire/machine.hpp"

#include <algorithm>
#include <string_view>

#include "wire/serialize.hpp"

namespace sandbox::wire {

namespace {

// PATH_MAX, linux/limits.h.
constexpr std::size_t kPath = 4096;

// Every component a name of its own: what is joined to a root stays below it.
bool is_below(std::string_view path)
{
    while (!path.empty()) {
        const std::size_t end = std::min(path.find('/'), path.size());
        const std::string_view name = path.substr(0, end);
        if (name.empty() || name == "." || name == "..") return false;
        // Two spellings of one place would be two targets.
        if (end + 1 == path.size()) return false;  // a slash at the end
        path.remove_prefix(std::min(end + 1, path.size()));
    }
    return true;
}

bool is_absolute(std::string_view path)
{
    // The root itself is no place to mount from or to cover.
    return path.size() > 1 && path.front() == '/' && is_below(path.substr(1));
}

// "memory.max": a controller and what it controls, never a way out of the folder.
bool is_control_file(std::string_view name)
{
    const auto dot = name.find('.');
    if (dot == 0 || dot == std::string_view::npos || name.starts_with("cgroup.")) return false;
    return std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    });
}

bool has_good_paths(const MachineStep& step)
{
    using enum MachineStepKind;
    if (!is_below(step.target)) return false;
    // Only what makes or seals the root has no target; an overlay may be the root or lie in it.
    const bool root = step.kind == root_tmpfs || step.kind == seal_root;
    if (root != step.target.empty() && step.kind != overlay) return false;
    // What a link says is text: it is followed by the workload only, in its own root.
    if (step.kind == symlink) return !step.source.empty();
    const bool sourced = step.kind == overlay || step.kind == bind;
    if (!sourced) return step.source.empty();
    // Nothing of the initrd may become a part of the tree.
    return is_absolute(step.source) && step.source.starts_with("/shares/");
}

}  // namespace

template <class A>
void visit_step(A& a, In<A, MachineStep> step)
{
    a.tag("steps.kind", step.kind, MachineStepKind::root_tmpfs, MachineStepKind::seal_root);
    a.text("steps.source", step.source, kPath, Text::c_string);
    a.text("steps.target", step.target, kPath, Text::c_string);
    a.tag("steps.access", step.access, MachineAccess::read_only, MachineAccess::read_write);
    a.tag("steps.ground", step.ground, MachineGround::ours, MachineGround::operators);
    a.number("steps.mode", step.mode);
    a.number("steps.uid", step.uid);
    a.number("steps.gid", step.gid);
    a.number("steps.size", step.size);
    a.text("steps.content", step.content, 64U << 10);
    // The rule for every kind: bits of chmod(2).
    a.require(step.mode <= 07777, "steps.mode");
    a.require(has_good_paths(step), "steps.target");
}

template <class A>
void visit_paths(A& a, const char* what, In<A, std::vector<std::string>> paths)
{
    a.list(what, paths, 64, [what](auto& archive, auto& path) {
        archive.text(what, path, kPath, Text::c_string);
        archive.require(
            is_absolute(path) && (path.starts_with("/proc/") || path.starts_with("/sys/")), what);
    });
}

template <class A>
void visit_limits(A& a, const char* what, In<A, std::vector<MachineLimit>> limits)
{
    a.list(what, limits, 32, [what](auto& archive, auto& limit) {
        archive.text(what, limit.file, 64, Text::c_string);
        archive.text(what, limit.value, 256, Text::c_string);
        archive.require(is_control_file(limit.file), what);
    });
}

template <class A>
void visit(A& a, In<A, Machine> m)
{
    a.version(m.version, kProtocolVersion);
    a.list("shares", m.shares, 32, [](auto& archive, auto& share) {
        archive.text("shares.tag", share.tag, 36, Text::c_string);
        archive.boolean("shares.read_only", share.read_only);
        // A tag is one component of a path, /shares/TAG.
        archive.require(!share.tag.empty() && is_below(share.tag) &&
                            share.tag.find('/') == std::string::npos,
                        "shares.tag");
    });
    a.list("steps", m.steps, 2048, [](auto& archive, auto& step) { visit_step(archive, step); });
    visit_paths(a, "masked", m.masked);
    visit_paths(a, "read_only", m.read_only);
    a.boolean("loopback", m.loopback);
    visit_limits<A>(a, "workload", m.workload);
    visit_limits<A>(a, "control", m.control);
}

template Result<ByteVector> encode(const Machine&);
template void visit(Reader&, Machine&);  // for init.cpp, which decodes both records
template void visit(Writer&, const Machine&);

}  // namespace sandbox::wire
