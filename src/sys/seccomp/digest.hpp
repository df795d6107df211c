// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <span>
#include <string>

#include "sys/seccomp/rules.hpp"

namespace sandbox::sys::seccomp {

// "sha256:…" of canonical_text(profile). Library dep_seccomp_digest (needs canon).
std::string rules_digest(Profile profile);
// "sha256:…" of the program's bytes: what the audit record calls the loaded BPF.
std::string program_digest(std::span<const sock_filter> program);

}  // namespace sandbox::sys::seccomp
