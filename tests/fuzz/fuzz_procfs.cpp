// SPDX-License-Identifier: Apache-2.0
#include "fuzz.hpp"
#include "sys/procfs.hpp"

// Texts of /proc, which workloads can shape (comm, mount points, cgroup names): refused as corrupt,
// or printed again as the kernel would they read back equal.
// Input: one letter for the file, then its text.
namespace sandbox::fuzz {

namespace {

// A comma ends each part, so that an empty one stays.
std::string listed(const std::vector<std::string>& parts)
{
    std::string text;
    for (const std::string& part : parts) text += part + ',';
    return text;
}

template <class List>
std::string numbers(const List& list)
{
    std::string text;
    for (const auto value : list) text += std::to_string(value) + " ";
    return text;
}

// mangle() in fs/proc_namespace.c.
std::string mangled(std::string_view plain)
{
    std::string text;
    for (const char c : plain) {
        if (std::string_view(" \t\n\\#").find(c) == std::string_view::npos) {
            text += c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        text += '\\';
        for (const int shift : {6, 3, 0}) text += static_cast<char>('0' + ((byte >> shift) & 7));
    }
    return text;
}

void check_stat(std::string_view text)
{
    const auto stat = sys::parse_stat(text);
    if (!stat) {
        HOLDS(stat.error().code() == Code::corrupt);
        return;
    }
    // The reference: comm lies between the first "(" and the last ")" that more fields follow.
    const std::size_t open = text.find('(');
    const std::size_t close = text.rfind(") ");
    HOLDS(open != text.npos && close != text.npos && open < close);
    HOLDS(stat->comm == text.substr(open + 1, close - open - 1));
    HOLDS(stat->pid > 0);
    std::string printed = std::to_string(stat->pid) + " (" + stat->comm + ") " + stat->state + ' ' +
                          std::to_string(stat->ppid) + ' ' + std::to_string(stat->pgrp) + ' ' +
                          std::to_string(stat->session);
    for (int field = 7; field < 22; ++field) printed += " 0";  // proc(5): starttime is field 22
    printed += ' ' + std::to_string(stat->start_time) + " 0 0\n";
    HOLDS(sys::parse_stat(printed) == *stat);
}

std::string capability_line(const char* name, std::uint64_t value)
{
    std::array<char, 48> line{};
    std::snprintf(line.data(), line.size(), "%s:\t%016llx\n", name,
                  static_cast<unsigned long long>(value));
    return line.data();
}

void check_status(std::string_view text)
{
    const auto status = sys::parse_status(text);
    if (!status) {
        HOLDS(status.error().code() == Code::corrupt);
        return;
    }
    std::array<char, 16> umask{};
    std::snprintf(umask.data(), umask.size(), "%o", status->umask);
    std::string printed = "Umask:\t" + std::string(umask.data()) + "\nUid:\t" +
                          numbers(status->uid) + "\nGid:\t" + numbers(status->gid) + "\nGroups:\t" +
                          numbers(status->groups) + "\nNSpid:\t" + numbers(status->ns_pid) +
                          "\nThreads:\t" + std::to_string(status->threads) + "\n";
    printed += capability_line("CapInh", status->cap_inheritable);
    printed += capability_line("CapPrm", status->cap_permitted);
    printed += capability_line("CapEff", status->cap_effective);
    printed += capability_line("CapBnd", status->cap_bounding);
    printed += capability_line("CapAmb", status->cap_ambient);
    printed += std::string("NoNewPrivs:\t") + (status->no_new_privs ? "1" : "0") + "\nSeccomp:\t" +
               std::to_string(status->seccomp) + "\nSeccomp_filters:\t" +
               std::to_string(status->seccomp_filters) + "\n";
    HOLDS(sys::parse_status(printed) == *status);
}

void check_mountinfo(std::string_view text)
{
    const auto mounts = sys::parse_mountinfo(text);
    if (!mounts) {
        HOLDS(mounts.error().code() == Code::corrupt);
        return;
    }
    HOLDS(mounts->size() <= static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1);
    std::string printed;
    for (const sys::MountInfo& mount : *mounts) {
        printed += std::to_string(mount.id) + ' ' + std::to_string(mount.parent) + ' ' +
                   std::to_string(mount.major) + ':' + std::to_string(mount.minor) + ' ' +
                   mangled(mount.root) + ' ' + mangled(mount.target) + ' ' + listed(mount.options);
        for (const std::string& tag : mount.optional) printed += ' ' + tag;
        printed += " - " + mangled(mount.fstype) + ' ' + mangled(mount.source) + ' ' +
                   listed(mount.super_options) + '\n';
    }
    HOLDS(sys::parse_mountinfo(printed) == *mounts);
}

void check_cgroup(std::string_view text)
{
    const auto lines = sys::parse_cgroup(text);
    if (!lines) {
        HOLDS(lines.error().code() == Code::corrupt);
        return;
    }
    std::string printed;
    for (const sys::CgroupLine& line : *lines) {
        printed += std::to_string(line.hierarchy) + ':' + listed(line.controllers) + ':' +
                   line.path + '\n';
    }
    HOLDS(sys::parse_cgroup(printed) == *lines);
}

void check_id_map(std::string_view text)
{
    const auto map = sys::parse_id_map(text);
    if (!map) {
        HOLDS(map.error().code() == Code::corrupt);
        return;
    }
    HOLDS(map->size() <= 340);  // user_namespaces(7)
    HOLDS(sys::parse_id_map(sys::format_id_map(*map)) == *map);
}

}  // namespace

FUZZ_TARGET(procfs)
{
    Bytes bytes(input);
    switch (bytes.byte() % 5) {
    case 0: return check_stat(bytes.rest());
    case 1: return check_status(bytes.rest());
    case 2: return check_mountinfo(bytes.rest());
    case 3: return check_cgroup(bytes.rest());
    default: return check_id_map(bytes.rest());
    }
}

}  // namespace sandbox::fuzz
