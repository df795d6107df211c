// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "driver/microvm/jail.hpp"
#include "sys/file.hpp"

// Which libraries a program loads, so that a jail holds these and no others.
namespace sandbox::driver::microvm {

namespace {

// A VMM links some fifty libraries; a path has a few dozen bytes.
constexpr std::size_t kListLimit = 256U << 10;

template <class T>
Result<T> read_struct(int file, off_t at)
{
    T value{};
    if (::pread(file, &value, sizeof value, at) != static_cast<ssize_t>(sizeof value))
        return fail(Code::corrupt, "the program ends inside its ELF headers");
    return value;
}

// PT_INTERP. Nothing: a static program.
Result<std::string> loader_of(int program)
{
    const auto header = TRY(read_struct<Elf64_Ehdr>(program, 0));
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
        return fail(Code::corrupt, "the program is not a 64-bit ELF file");
    for (int i = 0; i < header.e_phnum; ++i) {
        const auto part = TRY(read_struct<Elf64_Phdr>(
            program,
            static_cast<off_t>(header.e_phoff + static_cast<unsigned>(i) * sizeof(Elf64_Phdr))));
        if (part.p_type != PT_INTERP) continue;
        char path[256] = {};
        if (part.p_filesz == 0 || part.p_filesz >= sizeof path) break;
        if (::pread(program, path, part.p_filesz, static_cast<off_t>(part.p_offset)) < 0)
            return fail_errno("pread", "PT_INTERP");
        return std::string(path);
    }
    return std::string();
}

// Runs "LOADER --list /proc/self/fd/3" with nothing in its environment.
Result<std::string> list_of(const std::string& loader, int program)
{
    sys::Pipe output = TRY(sys::make_pipe());
    const sys::UniqueFd null = TRY(sys::open_file("/dev/null", O_RDWR));
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, null.get(), 0);
    ::posix_spawn_file_actions_adddup2(&actions, output.write.get(), 1);
    ::posix_spawn_file_actions_adddup2(&actions, null.get(), 2);
    ::posix_spawn_file_actions_adddup2(&actions, program, 3);
    const std::string path = sys::fd_path(3);
    char* const argv[] = {const_cast<char*>("ld.so"), const_cast<char*>("--list"),
                          const_cast<char*>(path.c_str()), nullptr};
    char* const envp[] = {nullptr};
    pid_t pid = 0;
    const int errnum = ::posix_spawn(&pid, loader.c_str(), &actions, nullptr, argv, envp);
    ::posix_spawn_file_actions_destroy(&actions);
    if (errnum != 0) return fail(Error::from_errno(errnum, "posix_spawn", loader));
    output.write.reset();
    auto text = sys::read_all(output.read.get(), kListLimit);
    output.read.reset();
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (text && status != 0)
        return fail(Code::unavailable, loader + " cannot say which libraries the program loads");
    return text;
}

// "\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x…)", or "\t/lib64/ld-linux-x86-64.so.2 (0x…)".
std::string path_in(std::string_view line)
{
    const auto end = line.find(" (0x");
    const auto arrow = line.find("=> ");
    const auto first = arrow == std::string_view::npos ? line.find('/') : arrow + 3;
    if (end == std::string_view::npos || first >= end || line[first] != '/') return {};
    return std::string(line.substr(first, end - first));
}

}  // namespace

Result<std::vector<JailBind>> libraries_of(int program)
{
    std::vector<JailBind> files;
    const std::string loader = TRY(loader_of(program));
    if (loader.empty()) return files;
    const auto add = [&files](const std::string& path, JailUse use) -> Status {
        files.push_back({TRY_WITH(sys::open_file(path, O_PATH), "library " + path), path, use});
        return {};
    };
    TRY_VOID(add(loader, JailUse::execute));
    const std::string text = TRY(list_of(loader, program));
    for (std::string_view rest = text; !rest.empty();) {
        const auto line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        if (line.find("not found") != std::string_view::npos)
            return fail(Code::unavailable, "a library is missing: " + std::string(line.substr(1)));
        const std::string path = path_in(line);
        if (!path.empty() && path != loader) TRY_VOID(add(path, JailUse::read));
    }
    return files;
}

}  // namespace sandbox::driver::microvm
