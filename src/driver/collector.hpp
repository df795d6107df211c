// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "sys/procfs.hpp"

namespace sandbox::driver {

enum class Held { yes, no };
inline Held held_if(bool value) { return value ? Held::yes : Held::no; }

// Gathers evidence under the names of the plan's controls, with their own words for what was
// planned. What the plan does not name is kept under its own name: a witness more harms nobody.
class Collector {
public:
    explicit Collector(const plan::PlanContent& plan) : plan_(plan) {}

    void add(std::string name, std::string planned, std::string observed, Held held);
    std::vector<Evidence> take() { return std::move(list_); }

private:
    const plan::PlanContent& plan_;
    std::vector<Evidence> list_;
};

// Mounts of PID 1 against the steps of the plan.
[[nodiscard]] Status observe_mounts(const plan::ExecutionPlan& plan, const Binding& binding,
                                    const sys::ProcDir& init, Collector& collector);

// The control that stands for one cgroup setting.
std::string limit_name(const plan::PlanContent& plan, const std::string& prefix,
                       const plan::CgroupSetting& setting);

// "pipe:[4711]" of /proc/PID/fd, one entry a descriptor.
struct DescriptorSeen {
    int number = -1;
    std::string target;
    bool close_on_exec = false;
};
[[nodiscard]] Result<std::vector<DescriptorSeen>> list_descriptors(const sys::ProcDir& process);

// Path of the process in the hierarchy of `controller` ("" for v2); empty when it is in none.
std::string cgroup_path(const std::vector<sys::CgroupLine>& lines, std::string_view controller);

}  // namespace sandbox::driver
