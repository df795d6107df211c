// SPDX-License-Identifier: Apache-2.0
#include "guest/secrets.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cstring>

#include "sys/archive.hpp"
#include "sys/file.hpp"

namespace sandbox::guest {
namespace {

constexpr mode_t kSecretMode = 0400;

// Files are made as this user while it lives (setfsuid(2)). PID 1 may become anybody it may start a
// session as; it holds no right to give files away (CAP_CHOWN).
class FileOwner {
public:
    // Both return the old id, and say nothing of a failure: the file's owner is looked at
    // afterwards.
    FileOwner(std::uint32_t uid, std::uint32_t gid)
        : uid_(static_cast<uid_t>(::setfsuid(uid))), gid_(static_cast<gid_t>(::setfsgid(gid)))
    {
    }
    ~FileOwner()
    {
        // In reverse, so that the right to change the group is there.
        ::setfsgid(gid_);
        ::setfsuid(uid_);
    }
    FileOwner(const FileOwner&) = delete;
    FileOwner& operator=(const FileOwner&) = delete;

private:
    uid_t uid_;
    gid_t gid_;
};

wire::Failure refuse(const char* what) { return {wire::WireError::refused, what, 0}; }

// A tmpfs and nothing else: a secret is on no disk. Without links: a folder of the sandbox's user
// may have been prepared by somebody.
Result<sys::UniqueFd> open_private_folder(const std::string& path)
{
    const sys::UniqueFd root = TRY(sys::open_at(AT_FDCWD, "/", O_PATH | O_DIRECTORY));
    // kInRoot: below the sandbox's root, whatever ".." is in it.
    auto folder = TRY(sys::open_at2(root.get(), path, O_RDONLY | O_DIRECTORY, 0,
                                    sys::kInRoot | RESOLVE_NO_SYMLINKS));
    struct statfs info{};
    if (::fstatfs(folder.get(), &info) != 0) return fail_errno("fstatfs");
    // linux/magic.h.
    if (info.f_type != TMPFS_MAGIC) return fail(Code::invalid_argument, "no tmpfs");
    return folder;
}

Status write_secret(const wire::Secret& secret)
{
    // The folder is that user's alone: PID 1 has no right of its own in it.
    const FileOwner owner(secret.uid, secret.gid);
    const std::size_t slash = secret.name.rfind('/');
    // The folder of "/name" is "/".
    const auto folder = TRY(
        open_private_folder(secret.name.substr(0, std::max<std::size_t>(slash, 1))));
    // O_EXCL: what is there already was not made by us, and may be open elsewhere.
    const auto file = TRY(sys::open_at(folder.get(), secret.name.substr(slash + 1),
                                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, kSecretMode));
    // The umask may have taken the owner's right away.
    if (::fchmod(file.get(), kSecretMode) != 0) return fail_errno("fchmod");
    struct stat info{};
    if (::fstat(file.get(), &info) != 0) return fail_errno("fstat");
    // What setfsuid could not do shows here, before a byte of the value is written.
    if (info.st_uid != secret.uid || info.st_gid != secret.gid)
        return fail(Code::internal, "the file has another owner");
    return sys::write_all(
        file.get(), {reinterpret_cast<const char*>(secret.value.data()), secret.value.size()});
}

}  // namespace

// Pages begin where any type may begin.
Secrets::Held* Secrets::held() noexcept { return reinterpret_cast<Held*>(pages_.bytes().data()); }

const wire::Nonce& Secrets::event_nonce() const noexcept
{
    return reinterpret_cast<const Held*>(pages_.bytes().data())->event_nonce;
}

bool Secrets::keep(const wire::Provision& provision)
{
    // A second PROVISION is refused before; the pages are made once.
    if (pages_.empty()) {
        auto pages = sys::LockedMemory::make(sizeof(Held));
        if (!pages) return false;
        pages_ = std::move(*pages);
    }
    held()->event_nonce = provision.event_nonce;
    held()->egress_token = provision.egress_token;
    held()->service_token = provision.service_token;
    return true;
}

bool Secrets::rotate(const wire::Rotate& rotate) noexcept
{
    if (pages_.empty()) return false;
    // All three are of one size; a shorter one would leave a part of the old.
    if (rotate.value.size() != wire::kNonceSize) return false;
    wire::Nonce* nonce = nullptr;
    switch (rotate.kind) {
    case wire::RotateKind::event_nonce: nonce = &held()->event_nonce; break;
    case wire::RotateKind::egress_token: nonce = &held()->egress_token; break;
    case wire::RotateKind::service_token: nonce = &held()->service_token; break;
    case wire::RotateKind::provider_key: return false;
    }
    std::memcpy(nonce->data(), rotate.value.data(), wire::kNonceSize);
    return true;
}

wire::Decoded<void> Secrets::take(const wire::Secret& secret, const wire::Bootstrap& boot)
{
    if (secret.place == wire::SecretPlace::file) {
        const wire::PermittedId owner{secret.uid, secret.gid};
        // Any other owner would be a file that the plan has not allowed.
        if (std::ranges::find(boot.permitted_ids, owner) == boot.permitted_ids.end())
            return std::unexpected(refuse("a secret's owner outside the plan"));
        if (!write_secret(secret))
            return std::unexpected(refuse("a secret's file cannot be made on a private tmpfs"));
        return {};
    }
    // NAME, '=', value, NUL: as execve(2) wants it, so that no copy is made later. The pages come
    // zeroed, which is the NUL.
    auto pages = sys::LockedMemory::make(secret.name.size() + secret.value.size() + 2);
    if (!pages) return std::unexpected(refuse("memory for a secret cannot be locked"));
    std::byte* at = pages->bytes().data();
    std::memcpy(at, secret.name.data(), secret.name.size());
    at += secret.name.size();
    *at++ = std::byte{'='};
    if (!secret.value.empty()) std::memcpy(at, secret.value.data(), secret.value.size());
    variables_.push_back(std::move(*pages));
    return {};
}

std::vector<char*> Secrets::variables() noexcept
{
    std::vector<char*> list;
    for (sys::LockedMemory& pages : variables_)
        list.push_back(reinterpret_cast<char*>(pages.bytes().data()));
    return list;
}

Status Secrets::lend_variables() noexcept
{
    // LockedMemory keeps children from the pages otherwise.
    for (sys::LockedMemory& pages : variables_)
        TRY_VOID(pages.let(sys::LockedMemory::Children::see_it));
    return {};
}

}  // namespace sandbox::guest
