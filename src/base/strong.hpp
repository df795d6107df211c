// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>
#include <utility>

namespace sandbox {

// A string with a meaning of its own: a SandboxId cannot be passed where a HostPath is wanted.
template <class Tag>
class StrongString {
public:
    StrongString() = default;
    explicit StrongString(std::string value) : value_(std::move(value)) {}

    const std::string& str() const noexcept { return value_; }
    const char* c_str() const noexcept { return value_.c_str(); }
    bool empty() const noexcept { return value_.empty(); }

    auto operator<=>(const StrongString&) const = default;

private:
    std::string value_;
};

using SandboxId = StrongString<struct SandboxIdTag>;      // 32 lower-case hex digits
using SandboxName = StrongString<struct SandboxNameTag>;  // a DNS label
using PlanDigest = StrongString<struct PlanDigestTag>;    // "sha256:" and 64 hex digits
using HostPath = StrongString<struct HostPathTag>;        // absolute, on the host
using GuestPath = StrongString<struct GuestPathTag>;      // absolute, inside the sandbox

}  // namespace sandbox
