// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <algorithm>

#include "base/diagnostic.hpp"

namespace sandbox::plan {

namespace {

// Columns for an 80-column terminal.
constexpr std::size_t kLabelWidth = 14;
constexpr std::size_t kNameWidth = 24;
constexpr std::size_t kMostArgument = 200;  // of a line; the whole is in the JSON

std::string padded(std::string text, std::size_t width)
{
    // A value that fills its column still stands apart from the next.
    text.append(text.size() < width ? width - text.size() : 1, ' ');
    return text;
}

std::string joined(const std::vector<std::string>& items, std::string_view separator)
{
    std::string out;
    for (const std::string& item : items) {
        if (!out.empty()) out += separator;
        out += item;
    }
    return out;
}

// Lines under one label; the label stands beside the first only.
class Table {
public:
    void line(std::string_view label, const std::string& text)
    {
        out_ += padded(label == last_ ? std::string() : std::string(label), kLabelWidth);
        last_ = label;
        // Here and nowhere else, so that no caller can forget it: paths and names are the
        // profile's.
        out_ += escaped(text);
        out_ += '\n';
    }
    std::string take() && { return std::move(out_); }

private:
    std::string out_;
    // A view: labels are literals.
    std::string_view last_;
};

std::string_view meaning(IsolationClass value)
{
    switch (value) {
    case IsolationClass::shared_kernel: return "the sandbox runs on the host's kernel";
    case IsolationClass::emulated_vm: return "an emulated machine: no boundary is promised";
    case IsolationClass::hardware_vm: return "a kernel of its own in a hardware-backed VM";
    }
    return {};
}

void process_lines(Table& table, const ProcessPlan& process)
{
    std::string command = process.idle ? "idle: sessions by exec only" : joined(process.argv, " ");
    // Bytes: it may cut a character of UTF-8, which escaped() then shows as such.
    if (command.size() > kMostArgument) command = command.substr(0, kMostArgument) + "…";
    table.line("process", command);
    std::string how = "as " + std::to_string(process.uid) + ":" + std::to_string(process.gid) +
                      " in " + process.cwd.str();
    if (process.timeout) how += ", ended after " + format_duration(*process.timeout);
    if (process.terminal) how += ", on a terminal";
    table.line("process", how);
}

void filesystem_lines(Table& table, const PlanContent& plan)
{
    const std::string access = plan.rootfs.read_only ? "read-only" : "writes go to a tmpfs";
    table.line("filesystem", padded("/", kNameWidth) + plan.rootfs.source.str() + ", " + access +
                                 " (" + std::string(to_string(plan.rootfs.strategy)) + ")");
    for (const MountPlan& mount : plan.mounts) {
        std::string what = mount.type == profile::MountType::bind
                               ? "bind of " + mount.source.str()
                               : std::string(profile::to_string(mount.type));
        // What is said of a bind mount's size would be a lie: it is the host's file system.
        if (mount.size) what += " of " + format(*mount.size);
        what += mount.read_only ? ", read-only" : ", writable";
        table.line("filesystem", padded(mount.target.str(), kNameWidth) + what);
    }
    for (const GuestPath& path : plan.masks) {
        table.line("filesystem", padded(path.str(), kNameWidth) + "masked");
    }
}

std::string_view meaning(profile::NetworkMode mode)
{
    switch (mode) {
    case profile::NetworkMode::none: return "none: loopback only";
    case profile::NetworkMode::egress: return "egress: allowed destinations only";
    case profile::NetworkMode::host: return "HOST: everything the host reaches";
    }
    return {};
}

void machine_lines(Table& table, const MicrovmPlan& microvm)
{
    const bool emulated = microvm.accelerator == Accelerator::tcg;
    table.line("machine", std::to_string(microvm.cpus) +
                              (microvm.cpus == 1 ? " CPU, " : " CPUs, ") + format(microvm.memory) +
                              ", and " + format(microvm.overhead) + " for the VMM, " +
                              (emulated ? "EMULATED (tcg)" : "by hardware (kvm)"));
    if (!microvm.guest_release.empty()) {
        table.line("machine", "kernel " + microvm.guest_release + " (" + microvm.guest_arch + ")");
    }
    for (const SharePlan& share : microvm.shares) {
        table.line("machine", padded("share", kNameWidth) + share.source.str() +
                                  (share.read_only ? ", read-only" : ", writable"));
    }
}

constexpr std::string_view kInGuest = "guest.";

// "limit.pids" of "guest.limit.pids": what a control is about, wherever it is held.
std::string_view subject(const Control& control)
{
    std::string_view name = control.name;
    if (name.starts_with(kInGuest)) name.remove_prefix(kInGuest.size());
    return name;
}

bool is_limit(const Control& control)
{
    const std::string_view name = subject(control);
    return name.starts_with("limit.") || name.starts_with("rlimit.") ||
           name.starts_with("vmm.limit.");
}

// What the lines above have already said, or what only repeats a namespace.
bool is_told(const Control& control)
{
    const std::string_view name = subject(control);
    return is_limit(control) || name.starts_with("namespace.") || name.starts_with("mount:") ||
           name.starts_with("mask:") || name.starts_with("process.") ||
           name.starts_with("share:") || name == "vmm.accelerator" || name == "rootfs" ||
           name == "network.none";
}

// Bytes and CPUs as the profile spells them; everything else as the kernel does.
std::string readable(const PlanContent& plan, const Control& control)
{
    const std::string_view name = subject(control);
    // The control holds a quota and a period; a person asked for CPUs.
    if (name.ends_with("limit.cpu") && plan.request.resources.cpus) {
        return format(*plan.request.resources.cpus);
    }
    if (!name.ends_with("limit.memory") && !name.ends_with("limit.swap")) return control.planned;
    // "max" and "-1" are not bytes; they stay as the kernel has them.
    const auto bytes = parse_bytes(control.planned);
    return bytes ? format(*bytes) : control.planned;
}

void limit_lines(Table& table, const PlanContent& plan)
{
    for (const Control& control : plan.controls) {
        const std::string_view name = subject(control);
        // PID 1's own leaf is none of the profile's business.
        if (!is_limit(control) || name.starts_with("limit.control.")) continue;
        if (name.ends_with("limit.cpu_period")) continue;  // told by limit.cpu
        // "pids", "rlimit.nofile", "guest.pids", "vmm.memory"
        std::string shown = control.name;
        const std::size_t word = shown.find("limit.");
        if (word == 0 || shown[word - 1] == '.')
            shown.erase(word, std::string_view("limit.").size());
        table.line("limits", padded(std::move(shown), kNameWidth) +
                                 padded(readable(plan, control), kLabelWidth) + control.mechanism);
    }
}

// The whole digest stands in its own line; a list reads better without it.
std::string shortened(const std::string& value)
{
    constexpr std::size_t kShown = 19;  // "sha256:" and 12 digits
    return value.starts_with("sha256:") && value.size() > kShown ? value.substr(0, kShown) + "…"
                                                                 : value;
}

void control_lines(Table& table, const PlanContent& plan)
{
    table.line("controls",
               padded("namespaces", kNameWidth) + joined(plan.security.namespaces, " "));
    for (const Control& control : plan.controls) {
        if (is_told(control)) continue;
        table.line("controls", padded(control.name, kNameWidth) + shortened(control.planned) +
                                   "  (" + control.mechanism + ")");
    }
}

}  // namespace

std::string render_table(const ExecutionPlan& plan)
{
    const PlanContent& content = plan.content();
    Table table;
    table.line("name", content.request.name);
    table.line("isolation", std::string(profile::to_string(content.request.isolation)) + ", " +
                                std::string(to_string(content.isolation_class)) + ": " +
                                std::string(meaning(content.isolation_class)));
    table.line("driver", std::string(profile::to_string(content.driver)));
    if (content.microvm) machine_lines(table, *content.microvm);
    process_lines(table, content.process);
    filesystem_lines(table, content);
    table.line("network", std::string(meaning(content.network.mode)));
    limit_lines(table, content);
    control_lines(table, content);
    for (const Unenforced& item : content.unenforced) {
        table.line("not enforced", padded(item.name, kNameWidth) + item.reason);
    }
    // Said, not left out: an empty section would read as "not looked".
    if (content.unenforced.empty()) table.line("not enforced", "nothing");
    for (const std::string& warning : content.warnings) table.line("warning", warning);
    table.line("digest", plan.digest().str());
    return std::move(table).take();
}

}  // namespace sandbox::plan
