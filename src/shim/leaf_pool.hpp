// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "driver/groups.hpp"
#include "plan/plan.hpp"
#include "shim/journal.hpp"

namespace sandbox::shim {

// The cgroup leaves of exec sessions. A name is in the ledger before its first leaf is made and
// stays there while the sandbox runs: leaves come and go under it, and opening a session costs no
// commit but the few that add names, several at a time. Borrows plan, binding and journal; one
// thread.
class LeafPool {
public:
    LeafPool(const plan::ExecutionPlan& plan, const driver::Binding& binding,
             std::string cgroup_parent, Journal& journal)
        : plan_(plan), binding_(binding), cgroup_parent_(std::move(cgroup_parent)),
          journal_(journal)
    {
    }

    struct Leaf {
        std::uint32_t slot = 0;
        std::string name;
        std::vector<sys::UniqueFd> joins;  // go with PASS to PID 1
    };
    // A fresh leaf. Code::resource_exhausted when as many sessions as there may be are open.
    [[nodiscard]] Result<Leaf> make();
    // Kills what is left in it and removes it; false when that takes longer than a moment: ask
    // again. The slot is free once it is true.
    bool clear(std::uint32_t slot);
    // OOM kills counted in it so far. Ask before clear().
    std::uint64_t oom_kills(std::uint32_t slot) const;

    static std::string name_of(std::uint32_t slot) { return "x" + std::to_string(slot); }

private:
    [[nodiscard]] Result<std::uint32_t> free_slot();
    [[nodiscard]] Status add_names();
    std::string path_of(std::uint32_t slot) const;

    const plan::ExecutionPlan& plan_;
    const driver::Binding& binding_;
    std::string cgroup_parent_;
    Journal& journal_;
    std::optional<driver::Groups> groups_;  // opened by the first session
    std::vector<bool> taken_;  // by slot
};

}  // namespace sandbox::shim
