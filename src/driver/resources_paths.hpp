// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "driver/resources.hpp"

// Private to resources: the entries that are folders, files and sockets.
namespace sandbox::driver {

// Absolute, without "." or "..", empty components, or NUL.
bool is_plain_absolute(std::string_view path) noexcept;

// `name` is below `root`; no link is followed on the way.
[[nodiscard]] Result<Presence> observe_path(int root, const std::string& name);
[[nodiscard]] Status remove_beneath(int root, const std::string& name);
[[nodiscard]] Status remove_socket(int root, const std::string& name);

// A state folder that only holds logs/ counts as absent: logs have an entry of their own.
[[nodiscard]] Result<Presence> observe_state_dir(int root, const ledger::Entry& entry);
[[nodiscard]] Status undo_state_dir(int root, const ledger::Entry& entry);
[[nodiscard]] Status undo_logs(int root, const ledger::Entry& entry);

[[nodiscard]] Result<Presence> observe_placeholder(const ledger::Entry& entry);
[[nodiscard]] Status undo_placeholder(const ledger::Entry& entry);

}  // namespace sandbox::driver
