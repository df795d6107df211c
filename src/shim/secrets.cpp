// SPDX-License-Identifier: Apache-2.0
#include "shim/secrets.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace sandbox::shim {

namespace {

// Secrets: nobody else may read, so no bit for group and others at all.
constexpr mode_t kOthers = 077;
constexpr mode_t kOthersWrite = 022;

// Root, or the user whose sandboxes these are.
bool is_ours(uid_t owner) { return owner == 0 || owner == geteuid(); }

std::string mend(const std::string& path)
{
    return ": put it there as root, with 'install -m 0600 FILE " + path + "'";
}

Result<sys::UniqueFd> open_store(const std::string& store)
{
    auto dir = sys::open_dir(store);
    if (!dir) return fail(std::move(dir.error()).with("the operator's secrets"));
    struct stat info{};
    if (fstat(dir->get(), &info) != 0) return fail_errno("fstat", store);
    // Whoever may write the folder may put another file in the place of one that was judged.
    if (!is_ours(info.st_uid) || (info.st_mode & kOthersWrite) != 0) {
        return fail(Code::permission_denied,
                    store + " may be changed by others than root: chown root and chmod 0700");
    }
    return dir;
}

// The value without the line end that editors and `echo` add.
std::span<const std::byte> variable_value(const sys::LockedMemory& secret)
{
    auto value = secret.bytes();
    if (!value.empty() && value.back() == std::byte{'\n'}) value = value.first(value.size() - 1);
    return value;
}

Status give(ControlStream& stream, const profile::Secret& secret, const plan::ProcessPlan& process,
            const sys::LockedMemory& held, sys::Deadline deadline)
{
    wire::Secret message;
    message.place = secret.env ? wire::SecretPlace::variable : wire::SecretPlace::file;
    message.uid = process.uid;
    message.gid = process.gid;
    message.name = secret.env ? *secret.env : secret.file->str();
    const auto value = secret.env ? variable_value(held) : held.bytes();
    // Environment strings end at the first NUL: the value would be cut without a word.
    if (secret.env && std::ranges::find(value, std::byte{0}) != value.end()) {
        return fail(Code::invalid_argument, "a variable cannot hold the NUL byte that is in it");
    }
    // The head alone: the value never enters a buffer that we do not wipe.
    const wire::ByteVector head = TRY(wire::encode_secret_head(message, value.size()));
    TRY_VOID(channel::send_bytes(stream.fd(), head, {}));
    // Straight from the locked pages.
    if (!value.empty()) TRY_VOID(channel::send_bytes(stream.fd(), value, {}));
    const auto reply = TRY(stream.receive(deadline));
    if (!reply) return fail(Code::unavailable, "sandbox-init closed its control port");
    if (const auto* refusal = std::get_if<wire::ErrorMessage>(&*reply)) {
        return fail(channel::to_error(*refusal));
    }
    if (std::holds_alternative<wire::SecretKept>(*reply)) return {};
    return fail(Code::corrupt, "sandbox-init answered SECRET with another message");
}

}  // namespace

Result<sys::LockedMemory> read_secret(const std::string& store, const std::string& name)
{
    const std::string path = store + "/" + name;
    const auto dir = open_store(store);
    // No folder is the same as no file, with the same mend.
    if (!dir && dir.error().errnum() == ENOENT) {
        return fail(Code::not_found, path + " does not exist" + mend(path));
    }
    if (!dir) return fail(dir.error());
    // Never waits for a FIFO's writer.
    // kBeneath and no link: the name comes from a profile.
    const auto file = sys::open_at2(dir->get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0,
                                    sys::kBeneath);
    if (!file && file.error().errnum() == ENOENT) {
        return fail(Code::not_found, path + " does not exist" + mend(path));
    }
    if (!file) return fail(file.error());
    struct stat info{};
    // Judged on the open file, so that what was judged is what is read.
    if (fstat(file->get(), &info) != 0) return fail_errno("fstat", path);
    if (!S_ISREG(info.st_mode)) return fail(Code::permission_denied, path + " is no regular file");
    if (!is_ours(info.st_uid) || (info.st_mode & kOthers) != 0) {
        return fail(Code::permission_denied,
                    path + " is not root's alone: chown root and chmod 0600");
    }
    // Beyond the wire's ceiling (docs/protocol.md, SECRET).
    if (static_cast<std::uint64_t>(info.st_size) > wire::kMaxSecretValue) {
        return fail(Code::invalid_argument, path + " is longer than 64 KiB");
    }
    // Locked before the first byte is read into it; wiped when it goes.
    auto memory = TRY(sys::LockedMemory::make(static_cast<std::size_t>(info.st_size)));
    for (auto left = memory.bytes(); !left.empty();) {
        const ssize_t count = ::read(file->get(), left.data(), left.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("read", path);
        if (count == 0) return fail(Code::conflict, path + " became shorter while it was read");
        left = left.subspan(static_cast<std::size_t>(count));
    }
    return memory;
}

Result<std::vector<driver::Evidence>> give_secrets(ControlStream& stream,
                                                   const plan::ExecutionPlan& plan,
                                                   const std::string& store, sys::Deadline deadline)
{
    std::vector<driver::Evidence> evidence;
    // In the plan's order: evidence and errors come in the same order each time.
    for (const profile::Secret& secret : plan->request.secrets) {
        const auto held = TRY_WITH(read_secret(store, secret.name), "secret " + secret.name);
        const auto given = give(stream, secret, plan->process, held, deadline);
        if (!given) return fail(Error(given.error()).with("secret " + secret.name));
        const std::string name = (plan->microvm ? "guest.secret:" : "secret:") + secret.name;
        const auto control = std::ranges::find(plan->controls, name, &plan::Control::name);
        if (control == plan->controls.end()) continue;  // verify() finds what the plan has
        evidence.push_back({name, control->mechanism, control->planned, control->planned, true});
    }
    return evidence;
}

}  // namespace sandbox::shim
