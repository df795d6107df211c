// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "relay_fixture.hpp"

namespace sandbox::guest::test {

// A guest that is one: QEMU under emulation, the built image, the relay between it and the test.
// SANDBOX_GUEST names the folder of vmlinux and initrd (dev/guest makes it); without them every
// test is skipped and says so.
class MachineTest : public RelayTest {
protected:
    void SetUp() override;
    void TearDown() override;

    // Folders of this host shown by virtiofsd under the tags "ro" and "rw"; empty: no such share.
    struct Shares {
        std::string ro;
        std::string rw;
    };
    void boot(const wire::Machine& machine, const Shares& shares = {});
    // Up to READY, the clock set.
    void boot_ready(const wire::Machine& machine, const Shares& shares = {});
    // A root of tmpfs with the host's /usr from the share "ro".
    static wire::Machine usual_machine();
    // Everything the guest reported before INIT_UP, "name=value" each.
    std::string reported() const { return reported_; }
    // The guest's next line for the log.
    std::string last_words();
    bool machine_gone();

    std::string console_;

private:
    void start_vmm(sys::UniqueFd port, const Shares& shares);
    int start_share(const std::string& folder, std::vector<std::string>& arguments,
                    const std::string& tag);
    void read_console();

    std::string folder_;
    std::string reported_;
    sys::UniqueFd console_pipe_;
    std::optional<sys::Pidfd> vmm_;
    std::vector<sys::Pidfd> servers_;
};

}  // namespace sandbox::guest::test
