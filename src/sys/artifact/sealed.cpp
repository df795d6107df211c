// SPDX-License-Identifier: Apache-2.0
#include "sys/artifact/sealed.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "canon/canon.hpp"
#include "sys/file.hpp"
#include "sys/procfs.hpp"

namespace sandbox::sys {

namespace {

// Large enough that the copy is not ruled by system calls, small enough for the stack.
constexpr std::size_t kChunk = 64U << 10;

std::unexpected<Error> too_large()
{
    return fail(Code::resource_exhausted, "an artifact is larger than 256 MiB");
}

// In the kernel, from the start, whatever the descriptor's own offset. The number of bytes.
Result<std::uint64_t> copy_whole(int file, int memfd)
{
    off_t at = 0;
    for (;;) {
        const ssize_t put = ::sendfile(memfd, file, &at, kArtifactLimit + 1);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno("sendfile", std::to_string(file));
        if (static_cast<std::uint64_t>(at) > kArtifactLimit) return too_large();
        if (put == 0) return static_cast<std::uint64_t>(at);
    }
}

Result<std::string> hash_sealed(int memfd, std::uint64_t size)
{
    canon::Sha256 hash;
    if (size == 0) return canon::to_digest(hash.finish());
    // Private: a shared mapping of a sealed memfd, even for reading, needs Linux 6.7.
    void* pages = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, memfd, 0);
    if (pages == MAP_FAILED) return fail_errno("mmap", "a sealed memfd");
    hash.update(std::string_view(static_cast<const char*>(pages), size));
    ::munmap(pages, size);
    return canon::to_digest(hash.finish());
}

// Reads from the start, whatever the descriptor's own offset.
Result<std::string> hash_through(int file)
{
    canon::Sha256 hash;
    std::array<char, kChunk> buffer;
    std::uint64_t at = 0;
    for (;;) {
        // pread: the descriptor may be shared, and its position is the owner's.
        const ssize_t got = ::pread(file, buffer.data(), buffer.size(), static_cast<off_t>(at));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("pread", std::to_string(file));
        if (got == 0) break;
        at += static_cast<std::uint64_t>(got);
        if (at > kArtifactLimit) return too_large();
        const std::string_view chunk(buffer.data(), static_cast<std::size_t>(got));
        hash.update(chunk);
    }
    return canon::to_digest(hash.finish());
}

std::string octal(mode_t mode)
{
    std::string text;
    for (int shift = 9; shift >= 0; shift -= 3)
        text += static_cast<char>('0' + (mode >> shift & 7U));
    return text;
}

}  // namespace

Result<SealedArtifact> seal_artifact(int file, const std::string& name, std::string_view expected)
{
    SealedArtifact artifact;
    artifact.source = TRY(identity_of_fd(file));
    artifact.fd = TRY(make_memfd(name));
    artifact.size = TRY(copy_whole(file, artifact.fd.get()));
    // Sealed before the digest is judged: from here on nobody can change what was judged.
    TRY_VOID(seal_memfd(artifact.fd.get()));
    // What can no longer change, and no copy of it: its pages are mapped, not read again.
    artifact.digest = TRY(hash_sealed(artifact.fd.get(), artifact.size));
    if (!expected.empty() && expected != artifact.digest)
        return fail(Code::conflict, name + " has digest " + artifact.digest + ", pinned is " +
                                        std::string(expected) +
                                        ": reinstall it or pin the new one");
    return artifact;
}

namespace {

// In a user namespace all owners who have no number there look alike, the host's root among them.
// Then bytes that hash as they should are all that can be asked for.
enum class Owner { known, unmapped };

bool is_unmapped(uid_t uid)
{
    const auto self = ProcDir::self();
    const auto map = self ? self->uid_map() : Result<std::vector<IdMapping>>{fail(self.error())};
    // Unreadable: taken for a number of its own.
    return map && std::ranges::none_of(*map, [uid](const IdMapping& one) {
               return uid >= one.inside && uid - one.inside < one.count;
           });
}

Status check_kind(int file, const std::string& name, Owner owner)
{
    struct stat info{};
    if (::fstat(file, &info) != 0) return fail_errno("fstat", name);
    if (!S_ISREG(info.st_mode)) return fail(Code::invalid_argument, name + " is no regular file");
    // Whoever owns a program can exchange it between a check and the next.
    if (info.st_uid != 0 && info.st_uid != ::geteuid() &&
        !(owner == Owner::unmapped && is_unmapped(info.st_uid)))
        return fail(Code::permission_denied, name + " is owned by uid " +
                                                 std::to_string(info.st_uid) +
                                                 ": root or the caller must own it");
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fail(Code::permission_denied, name + " has mode " + octal(info.st_mode & 07777U) +
                                                 ": others can write it, run chmod go-w on it");
    if ((info.st_mode & S_IXUSR) == 0)
        return fail(Code::permission_denied, name + " is not executable");
    return {};
}

}  // namespace

Status check_executable(int file, const std::string& name)
{
    return check_kind(file, name, Owner::known);
}

Result<SealedArtifact> seal_executable(const std::string& path, std::string_view expected)
{
    // O_NOCTTY: a path that leads to a terminal must not take it. Kind and owner are judged on the
    // descriptor.
    const UniqueFd file = TRY(open_file(path, O_RDONLY | O_NOCTTY));
    TRY_VOID(check_kind(file.get(), path, expected.empty() ? Owner::known : Owner::unmapped));
    const auto slash = path.rfind('/');
    const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    auto sealed = seal_artifact(file.get(), name, expected);
    if (!sealed) return fail(std::move(sealed).error().with("seal " + path));
    return sealed;
}

Result<std::string> digest_file(int file) { return hash_through(file); }

}  // namespace sandbox::sys
