// SPDX-License-Identifier: Apache-2.0
#include "probe/identity.hpp"

#include <fmt/format.h>

#include <fcntl.h>

#include "probe/artifacts.hpp"
#include "probe/child.hpp"
#include "sys/artifact/sealed.hpp"

namespace sandbox::probe {

namespace {

// Names of its own: they go no further than identify().
// What the child of identify() reports.
constexpr std::string_view kDigest = "digest";
constexpr std::string_view kVersionFact = "version";

// Up to the next blank: what follows are features and a copyright.
std::string_view text_before(std::string_view text, std::string_view prefix)
{
    if (!text.starts_with(prefix)) return {};
    text.remove_prefix(prefix.size());
    return text.substr(0, text.find_first_of(" \n"));
}

bool is_version(std::string_view text)
{
    if (text.empty() || text.front() < '0' || text.front() > '9') return false;
    // Lower case only: no tool of ours has other versions, and nothing else gets into a plan.
    return text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz.-+~") ==
           std::string_view::npos;
}

}  // namespace

std::string parse_version(Tool tool, std::string_view output)
{
    std::string_view version;
    if (tool == Tool::crun) version = text_before(output, "crun version ");
    if (tool == Tool::qemu) version = text_before(output, "QEMU emulator version ");
    if (tool == Tool::virtiofsd) {
        // QEMU's own C daemon, else the later Rust one.
        version = text_before(output, "virtiofsd version ");
        if (version.empty()) version = text_before(output, "virtiofsd ");
    }
    return is_version(version) ? std::string(version) : std::string();
}

// Requires: in a disposable child; the program runs.
// As root, a program that the operator named: only in a child with a deadline.
Result<std::string> ask_version(Tool tool, int executable)
{
    const std::string program = tool == Tool::crun   ? "crun"
                                : tool == Tool::qemu ? "qemu-system-x86_64"
                                                     : "virtiofsd";
    const ProgramEnd end = run_program({.executable = executable, .argv = {program, "--version"}});
    std::string version = parse_version(tool, end.output);
    if (end.status != 0 || version.empty()) {
        return fail(Code::unavailable, fmt::format("{} --version ended with {} and said \"{}\"",
                                                   program, end.status, first_line(end.output)));
    }
    return version;
}

Result<OpenArtifact> open_artifact(Tool tool, const std::string& path)
{
    // Not "not there": a tool that nobody configured is looked for nowhere.
    if (path.empty()) return fail(Code::not_found, "no path is configured");
    OpenArtifact artifact;
    artifact.executable = TRY(sys::open_file(path, O_RDONLY));
    if (tool != Tool::data) TRY_VOID(sys::check_executable(artifact.executable.get(), path));
    // crun alone is executed from memory: its own copy of itself is then not needed (facts).
    if (tool == Tool::crun) {
        auto sealed = TRY(sys::seal_artifact(artifact.executable.get(), "crun"));
        artifact.executable = std::move(sealed.fd);
        artifact.digest = std::move(sealed.digest);
    } else {
        artifact.digest = TRY(sys::digest_file(artifact.executable.get()));
    }
    return artifact;
}

// Without a pin every file is the right one: nobody has said which.
Finding pin_problem(const ArtifactSetting& setting, std::string_view digest)
{
    if (!setting.pin || setting.pin->sha256.empty() || setting.pin->sha256 == digest) {
        return found({}, {});
    }
    return missing(fmt::format("{} is {}, pinned {}", setting.path, digest, setting.pin->sha256));
}

// For `config init` and `check`, without a full probe.
Result<ArtifactIdentity> identify(Tool tool, const std::string& path,
                                  std::chrono::milliseconds deadline)
{
    Task task;
    task.label = path;
    task.names = {kDigest, kVersionFact};
    task.body = [tool, path](const Reporter& out) {
        const auto artifact = open_artifact(tool, path);
        // Reported at once: what comes after must not take it away.
        if (!artifact) return out.report(kDigest, missing(artifact.error().message()));
        out.report(kDigest, found(artifact->digest, {}));
        // Our own programs and plain data have no version to be asked for.
        if (tool == Tool::own || tool == Tool::data) return out.report(kVersionFact, found({}, {}));
        const auto version = ask_version(tool, artifact->executable.get());
        out.report(kVersionFact,
                   version ? found(*version, {}) : missing(version.error().message()));
    };
    const auto facts = run_tasks({task}, deadline);
    for (const std::string_view fact : task.names) {
        const facts::Fact& answer = facts.at(std::string(fact));
        // One error for the caller; the first problem is the cause of the others.
        if (answer.status != facts::FactStatus::ok) return fail(Code::unavailable, answer.evidence);
    }
    return ArtifactIdentity{facts.at(std::string(kVersionFact)).value,
                            facts.at(std::string(kDigest)).value};
}

}  // namespace sandbox::probe
