// SPDX-License-Identifier: Apache-2.0
#include "live.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "driver/groups.hpp"
#include "driver/resources.hpp"
#include "sys/artifact/sealed.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/file.hpp"
#include "sys/landlock.hpp"

namespace sandbox::driver::test {
namespace {

std::string digest_of(const std::string& path)
{
    const auto file = sys::open_file(path, O_RDONLY);
    if (!file) return "missing: " + path;
    return sys::digest_file(file->get()).value_or("unreadable");
}

std::string init_path() { return SANDBOX_INIT_PATH; }

// The fixture is of one kind of host: limits spelled for v1, a recent Landlock. This one may have v2
// alone, with the same limits, and an older Landlock.
void adapt(plan::PlanContent& content)
{
    content.security.landlock_abi = std::min(content.security.landlock_abi,
                                             static_cast<std::uint32_t>(sys::landlock_abi()));
    plan::ResourcePlan& resources = content.resources;
    const auto host = sys::cgroup::detect();
    if (!host || host->layout != sys::cgroup::Layout::v2) return;
    resources.version = plan::CgroupVersion::v2;
    std::erase(resources.controllers, "freezer");
    for (auto* settings : {&resources.workload, &resources.control})
        for (plan::CgroupSetting& setting : *settings)
            if (setting.file == "memory.limit_in_bytes") setting.file = "memory.max";
}

}  // namespace

ScratchDir::ScratchDir()
{
    char name[] = "/tmp/sandbox-driver-XXXXXX";
    path_ = ::mkdtemp(name);
}

ScratchDir::~ScratchDir() { EXPECT_TRUE(sys::remove_tree_at(AT_FDCWD, path_).has_value()); }

Result<SealedPrograms> sealed_programs(const std::map<std::string, std::string>& artifacts)
{
    return seal({{"oci.runtime", {HostPath("/usr/bin/crun"), artifacts.at("oci.runtime")}},
                 {"sandbox-init", {HostPath(init_path()), artifacts.at("sandbox-init")}}});
}

LiveSandbox::LiveSandbox(plan::PlanContent content)
{
    static int number = 0;
    binding = sample_binding();
    char id[33];
    std::snprintf(id, sizeof id, "%024x%08x", static_cast<unsigned>(::getpid()),
                  static_cast<unsigned>(++number));
    binding.id = SandboxId(id);
    binding.cgroup = "/sandbox-test-" + std::to_string(::getpid()) + "/" + id;
    binding.run_dir = HostPath(scratch.path() + "/run/" + id);
    binding.state_dir = HostPath(scratch.path() + "/state/sandboxes/" + id);
    adapt(content);
    content.artifacts["oci.runtime"] = digest_of("/usr/bin/crun");
    content.artifacts["sandbox-init"] = digest_of(init_path());
    plan = sealed(std::move(content));
}

LiveSandbox::~LiveSandbox() { EXPECT_EQ(stop(), ""); }

std::string LiveSandbox::start()
{
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    auto made = compile(*plan, binding);
    if (!made) return made.error().message();
    artifact = std::move(*made);
    const auto programs = sealed_programs((*plan)->artifacts);
    if (!programs) return programs.error().message();
    const auto missing = list_placeholders(artifact->steps);
    if (!missing) return missing.error().message();
    for (const auto& placeholder : *missing) {
        const auto identity = make_placeholder(binding.id, placeholder.path.str(),
                                               PlaceholderType::file);
        if (!identity) return identity.error().message();
        placeholders.emplace_back(placeholder, *identity);
    }
    const auto groups = make_groups(*plan, binding);
    if (!groups) return groups.error().message();
    auto result = find_backend((*plan)->driver)
                      ->launch(*plan, binding, *artifact, *programs, {.groups = &*groups});
    if (!result) return result.error().message();
    launched.emplace(std::move(*result));
    control = std::make_unique<Peer>(
        guest::test::pass_stream(launched->channel.get(), wire::Port::control, ""),
        wire::Port::control);
    return guest::test::bring_up(*control);
}

std::unique_ptr<Peer> LiveSandbox::session(const std::string& name)
{
    const auto leaf = create_session_leaf(*plan, binding, name);
    if (!leaf) {
        ADD_FAILURE() << leaf.error().message();
        return nullptr;
    }
    std::vector<int> joins;
    for (const auto& fd : leaf->joins) joins.push_back(fd.get());
    const auto kind = (*plan)->resources.version == plan::CgroupVersion::v2
                          ? wire::LeafKind::v2_dir
                          : wire::LeafKind::v1_tasks;
    return std::make_unique<Peer>(
        guest::test::pass_stream(launched->channel.get(), wire::Port::session, name, kind, joins),
        wire::Port::session);
}

Ran LiveSandbox::shell(const std::string& name, const std::string& script)
{
    Ran ran;
    const auto peer = session(name);
    peer->send(exec_open(*plan, {"/bin/sh", "-c", script}));
    const auto message = peer->message<wire::SessionMessage>();
    if (!message) {
        ran.trouble = "no CONFINED";
        return ran;
    }
    if (const auto* error = std::get_if<wire::ErrorMessage>(&*message)) {
        ran.error = *error;
        return ran;
    }
    if (const auto* end = std::get_if<wire::Exit>(&*message)) {
        ran.exit = *end;
        return ran;
    }
    const auto* confined = std::get_if<wire::Confined>(&*message);
    if (confined == nullptr) {
        ran.trouble = "another frame than CONFINED";
        return ran;
    }
    const auto pid = find_session_pid(*plan, binding, name, static_cast<int>(confined->pid));
    if (!pid) {
        ran.trouble = pid.error().message();
        return ran;
    }
    auto seen = observe_session(*plan, binding, launched->init_pid, *pid, *confined);
    if (!seen) {
        ran.trouble = seen.error().message();
        return ran;
    }
    session_evidence = std::move(*seen);
    peer->send(wire::Go{});
    ran = guest::test::collect(*peer);
    const auto removed = remove_session_leaf(*plan, binding, name);
    if (!removed) ran.trouble += removed.error().message();
    return ran;
}

std::string LiveSandbox::stop()
{
    std::string trouble;
    control.reset();
    if (launched) {
        launched->channel.reset();
        for (const Launched::Helper& helper : launched->helpers)
            static_cast<void>(helper.process.wait_exit(sys::Deadline::after(Millis{5'000})));
    }
    if (const auto killed = kill_all(binding.cgroup); !killed) trouble += killed.error().message();
    if (launched) ::waitpid(launched->init_pid, nullptr, 0);
    launched.reset();
    if (const auto removed = remove_cgroups(binding.cgroup); !removed)
        trouble += removed.error().message();
    for (const auto& [placeholder, identity] : placeholders) {
        const ledger::Entry entry{.sandbox = binding.id,
                                  .kind = ledger::EntryKind::placeholder,
                                  .name = placeholder.path.str(),
                                  .identity = ledger::encode(identity)};
        if (const auto removed = undo(entry, {}); !removed) trouble += removed.error().message();
    }
    placeholders.clear();
    return trouble;
}

std::vector<std::string> LiveSandbox::cgroup_folders() const
{
    const auto host = sys::cgroup::detect();
    if (!host) return {};
    const auto tree = sys::cgroup::CgroupTree::find(*host, binding.cgroup);
    return tree ? tree->folders() : std::vector<std::string>{};
}

}  // namespace sandbox::driver::test
