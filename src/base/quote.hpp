// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sandbox {

// Appends `text` as the inside of a quoted string that JSON (RFC 8259 section 7) and TOML (basic
// strings) read alike: quotes, backslashes and controls are escaped, DEL too, which TOML forbids.
// UTF-8 passes as it is. Not the canonical form of RFC 8785, whose short escapes differ.
void append_escaped(std::string& out, std::string_view text);

}  // namespace sandbox
