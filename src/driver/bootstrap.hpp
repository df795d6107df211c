// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "sys/seccomp/rules.hpp"
#include "wire/messages.hpp"
#include "wire/wire.hpp"

// What sandbox-init is told, in every driver: its record, and the OPENs of sessions. Pure.
namespace sandbox::driver {

// The channel and mode of PID 1; the rest of the record is the plan's. Encoded: one frame.
struct BootWay {
    wire::BootMode mode = wire::BootMode::host_sandbox;
    wire::BootChannel channel = wire::BootChannel::inherited_fd;
    std::uint32_t channel_fd = 3;  // inherited_fd only: where the launcher puts it
};
[[nodiscard]] Result<std::string> compile_bootstrap(const plan::ExecutionPlan& plan,
                                                    const Binding& binding, BootWay way = {});

// What service_open() will ask of PID 1, and the cgroup settings that make_groups() writes: they
// are part of every artifact, so that a plan that differs in them gives another.
struct Service {
    std::vector<plan::CgroupSetting> workload;
    std::vector<plan::CgroupSetting> control;
    std::vector<std::string> controllers;
    plan::CgroupVersion cgroup_version = plan::CgroupVersion::none;
    std::vector<std::string> argv;  // empty for an idle sandbox
    GuestPath cwd;
    std::uint32_t umask = 0;
    bool terminal = false;  // of the sandbox's own devpts, made before the gate
    std::optional<Millis> timeout;
    bool operator==(const Service&) const = default;
};
Service service_of(const plan::PlanContent& plan);

// The OPEN that starts the profile's [process]: kind service, gate on, stdio by descriptors (the
// log worker's pipes). Requires: the plan is not idle.
[[nodiscard]] wire::Open service_open(const plan::ExecutionPlan& plan);

// The OPEN of an exec session with the plan's user, environment, cwd, umask and limits: gate on,
// stdio by frames; the caller changes what its user asked for.
[[nodiscard]] wire::Open exec_open(const plan::ExecutionPlan& plan, std::vector<std::string> argv);

// What PID 1 holds: to change identity, to shed, to signal; and what sessions may keep.
std::vector<std::string> init_capabilities(const plan::PlanContent& plan);

// The machine the plan was made for, by its facts.
[[nodiscard]] Result<sys::seccomp::Arch> architecture(const plan::PlanContent& plan);
// Digests of both rings as compiled for the plan, by name: what the audit says was loaded.
[[nodiscard]] Result<std::map<std::string, std::string>> filter_digests(
    const plan::PlanContent& plan);
// struct sock_filter as the kernel and crun take it.
std::string bpf_bytes(std::span<const sock_filter> program);

}  // namespace sandbox::driver
