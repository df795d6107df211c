// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe/artifacts.hpp"
#include "probe/certified.hpp"
#include "probe/tasks.hpp"
#include "probe/tiny_program.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;

// A root with one small program, and crun's state.
constexpr std::uint64_t kScratchSize = 4U << 20;
constexpr const char* kScratch = "/tmp";  // covered, in the child's own mount namespace

std::string below(std::string_view path) { return fmt::format("{}/{}", kScratch, path); }

// The smallest container that shows whether descriptor 3 arrives: one static program in a fresh
// root, own pid, mount and user namespaces, no capability.
// OCI runtime specification 1.0.0, config.md; only what crun needs to start one process.
std::string container_config(const ProbeSettings& settings)
{
    const std::string map = fmt::format(R"([{{"containerID":0,"hostID":{},"size":65536}}])",
                                        settings.id_base);
    return fmt::format(
        R"({{"ociVersion":"1.0.0","process":{{"terminal":false,"user":{{"uid":0,"gid":0}},)"
        R"("args":["/init"],"cwd":"/","env":["PATH=/"],"capabilities":{{"bounding":[],)"
        R"("effective":[],"inheritable":[],"permitted":[],"ambient":[]}},"noNewPrivileges":true}},)"
        R"("root":{{"path":"rootfs","readonly":true}},"mounts":[)"
        R"({{"destination":"/proc","type":"proc","source":"proc"}},)"
        R"({{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","mode=755"]}}],)"
        R"("linux":{{"namespaces":[{{"type":"mount"}},{{"type":"pid"}},{{"type":"user"}}],)"
        R"("uidMappings":{0},"gidMappings":{0}}}}})",
        map);
}

Status make_bundle(const ProbeSettings& settings)
{
    // Before crun: it mounts and makes state in this child's namespace only.
    TRY_VOID(sys::make_all_private());
    const auto scratch = TRY(sys::make_tmpfs(kScratchSize, 0755, {}));
    TRY_VOID(sys::attach_tree(scratch.get(), AT_FDCWD, kScratch));
    umask(022);  // the container's root is another id here: it must be able to enter
    for (const char* folder :
         {"state", "bundle", "bundle/rootfs", "bundle/rootfs/proc", "bundle/rootfs/dev"}) {
        TRY_VOID(sys::mkdir_at(AT_FDCWD, below(folder), 0755));
    }
    TRY_VOID(
        sys::write_file_at(AT_FDCWD, below("bundle/rootfs/init"), tiny_speaking_program(), 0755));
    return sys::write_file_at(AT_FDCWD, below("bundle/config.json"), container_config(settings),
                              0644);
}

// crun 1.8.1 refuses hybrid hosts while it sees a v2 hierarchy with controllers.
Finding cover_hybrid()
{
    const auto host = sys::cgroup::detect();
    if (!host) return missing(host.error().message());
    if (!host->cover_unified) return found("plain", "no hybrid hierarchy to hide from the runtime");
    // Over it, not instead of it: other hierarchies stay visible.
    const auto* unified = host->v2();
    const auto cover = sys::make_tmpfs(kScratchSize, 0755, {});
    if (!cover) return missing("cover: " + cover.error().message());
    const Status attached = sys::attach_tree(cover->get(), AT_FDCWD, unified->mount);
    if (!attached) return missing("cover: " + attached.error().message());
    return found("covered",
                 fmt::format("hybrid host: {} is covered by a tmpfs in the runtime's own "
                             "mount namespace",
                             unified->mount));
}

Finding try_descriptor(int executable)
{
    auto pipe = sys::make_pipe();
    if (!pipe) return missing(pipe.error().message());
    // The launcher's own options, so that what is proven is what is used.
    const ProgramEnd end = run_program(
        {.executable = executable,
         .argv = {"crun", "--root", below("state"), "--cgroup-manager", "disabled", "run",
                  "--no-new-keyring", "--preserve-fds", "1", "sandbox-probe"},
         .cwd = below("bundle"),
         .passed = pipe->write.get()});
    pipe->write.reset();
    // Ours is closed: end of file comes unless somebody of the container still holds the pipe.
    const auto said = sys::read_all(pipe->read.get(), 16);
    if (end.status != 0 || !said || *said != std::string(1, kTinyByte)) {
        return missing(
            fmt::format("a container with --preserve-fds 1 ended with {}, wrote {} bytes "
                        "to descriptor 3: {}",
                        end.status, said ? said->size() : 0, first_line(end.output)));
    }
    return found("yes", "a container started with --preserve-fds 1 wrote to descriptor 3");
}

Finding judge_pin(const ArtifactSetting& setting, const std::string& digest,
                  const std::string& version)
{
    Finding pin = pin_problem(setting, digest);
    if (pin.status != facts::FactStatus::ok) return pin;
    // A version may be pinned with a digest or alone; both must hold.
    if (setting.pin && !setting.pin->version.empty() && setting.pin->version != version) {
        return missing(fmt::format("{} says version {}, pinned {}", setting.path, version,
                                   setting.pin->version));
    }
    if (setting.pin && !setting.pin->sha256.empty()) {
        return found("config", "path, version and digest are as config.toml pins them");
    }
    if (is_certified("crun", version)) {
        return found("default", fmt::format("no pin; {} is a certified version", version));
    }
    return missing(fmt::format("no pin, and {} is not a certified version", version));
}

void check_runtime(const Reporter& out, const ProbeSettings& settings)
{
    const ArtifactSetting& setting = settings.runtime;
    // The sealed copy is what runs below: hashed bytes and executed bytes are the same.
    const auto artifact = open_artifact(Tool::crun, setting.path);
    if (!artifact) {
        const Finding gap = missing(artifact.error().message());
        for (const auto fact :
             {name::kOciRuntimePath, name::kOciRuntimeDigest, name::kOciRuntimeVersion,
              name::kOciRuntimePinned, name::kOciFdPassing}) {
            out.report(fact, gap);
        }
        out.report(name::kOciHybridCover, cover_hybrid());
        return;
    }
    out.report(name::kOciRuntimePath, found(setting.path, "regular file, owner and mode checked"));
    out.report(name::kOciRuntimeDigest, found(artifact->digest, "of the bytes in a sealed memfd"));
    // PRIVILEGED: nothing of a file that is not the pinned one is executed.
    const Finding pin = pin_problem(setting, artifact->digest);
    if (pin.status != facts::FactStatus::ok) {
        const Finding gap = missing("not executed: " + pin.evidence);
        out.report(name::kOciRuntimePinned, pin);
        out.report(name::kOciRuntimeVersion, gap);
        out.report(name::kOciFdPassing, gap);
        out.report(name::kOciHybridCover, cover_hybrid());
        return;
    }
    const auto version = ask_version(Tool::crun, artifact->executable.get());
    out.report(name::kOciRuntimeVersion,
               version ? found(*version, "crun --version from the sealed memfd")
                       : missing(version.error().message()));
    const Finding pinned = judge_pin(setting, artifact->digest, version ? *version : "");
    out.report(name::kOciRuntimePinned, pinned);
    // Version and digest are reported by now: a container that hangs cannot take them away.
    const Status bundle = make_bundle(settings);
    out.report(name::kOciHybridCover, cover_hybrid());
    if (!bundle) return out.report(name::kOciFdPassing, missing(bundle.error().message()));
    // A runtime that nobody vouches for is not given a container to run.
    out.report(name::kOciFdPassing,
               pinned.status == facts::FactStatus::ok
                   ? try_descriptor(artifact->executable.get())
                   : missing("not tried with a runtime that is neither pinned nor certified"));
}

}  // namespace

Task runtime_task(const ProbeSettings& settings)
{
    Task task;
    task.label = "runtime";
    task.names = {name::kOciRuntimePath,   name::kOciRuntimeDigest, name::kOciRuntimeVersion,
                  name::kOciRuntimePinned, name::kOciFdPassing,     name::kOciHybridCover};
    task.body = [settings](const Reporter& out) { check_runtime(out, settings); };
    return task;
}

}  // namespace sandbox::probe
