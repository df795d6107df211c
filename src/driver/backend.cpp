// SPDX-License-Identifier: Apache-2.0
#include "driver/backend.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/diagnostic.hpp"
#include "driver/microvm/launch.hpp"
#include "driver/native/launch.hpp"
#include "driver/oci/launch.hpp"
#include "sys/artifact/sealed.hpp"

namespace sandbox::driver {

namespace {

// Too big to be copied for each sandbox: read where they lie, by a descriptor whose bytes were hashed.
// Only root can change them, which is looked at.
constexpr std::array<std::string_view, 4> kReadInPlace{"vmm", "virtiofsd", "guest.kernel",
                                                       "guest.initrd"};

Result<sys::UniqueFd> pin(const std::string& name, const ProgramSource& source)
{
    sys::UniqueFd file = TRY(sys::open_file(source.path.str(), O_RDONLY));
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) return fail_errno("fstat", source.path.str());
    const bool ours = status.st_uid == 0 || status.st_uid == ::geteuid();
    if (!S_ISREG(status.st_mode) || !ours || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fail(Code::permission_denied,
                    escaped(source.path.str()) +
                        " is not a regular file that only root can change");
    const std::string found = TRY(sys::digest_file(file.get()));
    if (found == source.digest) return file;
    return fail(Code::conflict, name + " at " + escaped(source.path.str()) + " has the digest " +
                                    found + ", not " + source.digest);
}

}  // namespace

Result<SealedPrograms> seal(const std::map<std::string, ProgramSource>& sources)
{
    SealedPrograms programs;
    for (const auto& [name, source] : sources) {
        if (source.digest.empty())
            return fail(Code::invalid_argument, "no digest is known for " + escaped(name));
        if (std::ranges::find(kReadInPlace, name) != kReadInPlace.end()) {
            programs[name] = TRY_WITH(pin(name, source), "pin " + name);
            continue;
        }
        programs[name] = std::move(
            TRY_WITH(sys::seal_executable(source.path.str(), source.digest), "seal " + name).fd);
    }
    return programs;
}

Result<int> program_of(const SealedPrograms& programs, std::string_view name)
{
    const auto found = programs.find(name);
    if (found == programs.end())
        return fail(Code::invalid_argument, "the program " + std::string(name) + " was not sealed");
    return found->second.get();
}

const Backend* find_backend(profile::Driver driver) noexcept
{
    switch (driver) {
    case profile::Driver::oci: return &oci::backend();
    case profile::Driver::native: return &native::backend();
    case profile::Driver::microvm: return &microvm::backend();
    }
    return nullptr;
}

Result<const Backend*> backend_of(const plan::ExecutionPlan& plan)
{
    const Backend* backend = find_backend(plan->driver);
    if (backend != nullptr) return backend;
    return fail(Code::unavailable,
                "this build has no driver " + std::string(profile::to_string(plan->driver)));
}

Result<ArtifactPtr> compile(const plan::ExecutionPlan& plan, const Binding& binding)
{
    return TRY(backend_of(plan))->compile(plan, binding);
}

}  // namespace sandbox::driver
