// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Host paths no bind may reach: a grant of one is a grant of the host.
namespace sandbox::profile {

// Built in: the kernel's trees, our own folders at their standard place, and the sockets of
// container runtimes and D-Bus. Literals: valid for ever.
std::span<const std::string_view> protected_sources() noexcept;

// The protected path that `source` is, lies below, or lies above; nothing when it may be bound.
// `configured` adds the operator's own directories. Requires: normal absolute paths. By name only,
// so it is one of two checks: the other one is on what was opened.
std::optional<std::string> protected_by(std::string_view source,
                                        std::span<const std::string> configured = {});

// "/srv" is a whole-component prefix of "/srv" and "/srv/x", not of "/srvx". Requires: no '/' at
// the end of `prefix`, except for the root.
bool is_path_prefix(std::string_view prefix, std::string_view path) noexcept;

}  // namespace sandbox::profile
