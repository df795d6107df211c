// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "resolve/draft.hpp"

// What a guest needs beyond a sandbox on the host's kernel. Called by the steps of the same
// concern.
namespace sandbox::resolve {

// Driver: artifacts, accelerator, what cannot be had here, the loud word about emulation.
void require_microvm(Draft& draft);
// hardware_vm unless the operator's accelerator is emulation.
plan::IsolationClass microvm_class(Draft& draft);

// Mounts and rootfs -> shares. After the mounts: it reads the finished list.
void resolve_shares(Draft& draft);

// Size, limits of the guest's own and of the VMM on this host. After the shares: each process that
// serves them adds to the overhead.
void resolve_machine(Draft& draft);

// Landlock's ABI of a kernel by its release ("6.12.117+deb12-cloud-amd64" -> 6); 0 before 5.13 and
// for what is no release.
std::uint32_t landlock_of_release(std::string_view release) noexcept;

}  // namespace sandbox::resolve
