// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "driver/bootstrap.hpp"
#include "driver/driver.hpp"
#include "driver/tree.hpp"
#include "plan/plan.hpp"

// (plan, binding) -> the VMM, its virtiofsd processes and the guest's file tree, as data. Pure.
//
// Nothing here is opened by name at run time but what lies in the jail's own tree: every device,
// file and socket is an inherited descriptor whose number is fixed below. No text of a profile
// reaches an argument list: sizes are numbers, names are ours, sources are steps of a share's tree.
namespace sandbox::driver::microvm {

// Descriptor numbers, the same for every launch. 0 is /dev/null, 1 and 2 are for messages.
inline constexpr int kQmpFd = 3;  // one end of a socket pair: QMP
inline constexpr int kChannelFd = 4;  // one end of a socket pair: the virtio-serial port
inline constexpr int kConsoleFd = 5;  // write end of a pipe: the guest's serial console, one way
inline constexpr int kFirstShareFd = 6;  // connected to a virtiofsd, one for each of `shares`
inline constexpr int kServeFd = 3;  // in a virtiofsd: the listening end of that connection

// The port the guest looks for below /sys/class/virtio-ports (docs/formats/guest-image.md).
inline constexpr std::string_view kPortName = "org.sandbox.0";

// Where the guest mounts the file systems, "<kSharesRoot>/<tag>"; entry N of one is a share.
inline constexpr std::string_view kSharesRoot = "/shares";
// The tree a virtiofsd serves, in its own jail.
inline constexpr std::string_view kServedRoot = "/shares";

// Names of the files in the VMM's tree; the launcher puts the pinned ones there, read-only.
inline constexpr std::string_view kKernelFile = "/kernel";
inline constexpr std::string_view kInitrdFile = "/initrd";

enum class Role { null, messages, qmp, channel, console, share, serve };
std::string_view to_string(Role role) noexcept;

struct Descriptor {
    int number = -1;
    Role role = Role::null;
    std::string tag;  // of the share, for Role::share and Role::serve
    bool operator==(const Descriptor&) const = default;
};

// A file or device node that the VMM opens by name inside its own tree.
struct JailFile {
    std::string path;  // inside: "/kernel", "/dev/kvm"
    std::string artifact;  // name in plan.artifacts, whose digest it must have; empty: a device
    bool operator==(const JailFile&) const = default;
};

// One virtiofsd: all shares of one writability. It is root of a user namespace that maps ids
// 0..65535 to the sandbox's range, so that what is shown is what the same bind shows in a container.
struct ShareServer {
    std::string tag;  // "ro" | "rw": also the virtiofs tag
    Access access = Access::read_only;
    std::vector<TreeStep> steps;  // the served tree: folder or file N is share N of plan.microvm
    std::vector<std::string> argv;  // argv[0] is "virtiofsd"
    std::vector<Descriptor> descriptors;
    bool operator==(const ShareServer&) const = default;
};

// Artifact::steps is the tree the guest builds for the workload: ids of the guest (0-based, the
// guest maps nothing), sources below kSharesRoot; a mask's `host` stays a path of this host, for
// its placeholder. Artifact::bootstrap says mode microvm, channel virtio_serial. Artifact::digest is
// that of render().
struct MicrovmArtifact : Artifact {
    plan::Accelerator accelerator = plan::Accelerator::kvm;
    std::vector<std::string> arguments;  // of the VMM but "-append"; arguments[0] its name
    std::vector<std::string> kernel_parameters;  // joined by spaces they are what follows "-append"
    std::vector<Descriptor> descriptors;  // of the VMM, by number
    std::vector<JailFile> files;
    std::vector<ShareServer> shares;  // none, one or two
    plan::ResourcePlan host;  // cgroups here: `workload` holds VMM and virtiofsd, `control` PID 1
    Service service;  // what the guest is asked to run; its settings are the guest's own
    Millis boot_deadline{0};  // from exec of the VMM to the guest's HELLO
    bool operator==(const MicrovmArtifact&) const = default;
};

// Fails when the plan is of another driver or holds what this one does not express (a bug of the
// resolver: law 11), and for a guest architecture without a `microvm` machine.
[[nodiscard]] Result<MicrovmArtifact> compile(const plan::ExecutionPlan& plan,
                                              const Binding& binding);

// What is known only when it is launched: no value that a plan could hold.
struct LaunchTime {
    // TSC frequency of this host in kHz; 0 where unknown. Under TCG the guest's kernel hangs while
    // it calibrates unless it is told (facts of Debian's kernel: 24 of 24 under load).
    std::uint32_t tsc_khz = 0;
};

// The whole argument list. Under TCG `tsc_khz` must not be 0: Code::invalid_argument.
[[nodiscard]] Result<std::vector<std::string>> vmm_arguments(const MicrovmArtifact& artifact,
                                                             LaunchTime at_launch);

// `plan --artifact`: one JSON object.
[[nodiscard]] Result<std::string> render(const MicrovmArtifact& artifact);

// From the VMM's exec to the guest's HELLO: 15 s (design 12) where a kernel boots in under one;
// emulation takes 1.0 s alone and was seen at 2.4 with four at once on two cores.
inline constexpr Millis kBootDeadlineKvm{15'000};
inline constexpr Millis kBootDeadlineTcg{90'000};

}  // namespace sandbox::driver::microvm
