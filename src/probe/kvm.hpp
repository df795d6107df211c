// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "probe/child.hpp"

namespace sandbox::probe {

// Runs a 64-bit guest that takes two software interrupts, counts down a loop, prints and halts.
// Opening /dev/kvm, making a vCPU, HLT and CPUID prove nothing: a host whose KVM is kvm_pvm
// emulates all of them and still runs no stock kernel. To be called in a disposable child. `limit`
// is for the guest alone (1 s: a real one needs 10 ms, a nested one on a busy processor hundreds). Uses SIGALRM and
// ITIMER_REAL.
Finding run_kvm_guest(const std::string& device, std::chrono::milliseconds limit);

}  // namespace sandbox::probe
