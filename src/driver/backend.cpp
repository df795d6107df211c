// SPDX-License-Identifier: Apache-2.0
#include "driver/backend.hpp"

#include "base/diagnostic.hpp"
#include "driver/oci/launch.hpp"
#include "sys/artifact/sealed.hpp"

namespace sandbox::driver {

Result<SealedPrograms> seal(const std::map<std::string, ProgramSource>& sources)
{
    SealedPrograms programs;
    for (const auto& [name, source] : sources) {
        if (source.digest.empty())
            return fail(Code::invalid_argument, "no digest is known for " + escaped(name));
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
    case profile::Driver::native:
    case profile::Driver::microvm: return nullptr;
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
