// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace sandbox {

// Makes a byte stream safe for a terminal: newline, tab and printable UTF-8 pass, everything that
// could drive a terminal (C0, DEL, C1, BiDi and zero-width controls, a lone carriage return) or is
// not UTF-8 becomes a visible escape. A character cut by a chunk border is held back.
class TerminalSanitiser {
public:
    std::string feed(std::string_view chunk);
    std::string finish();  // what is still held back, escaped

private:
    std::string held_;  // at most 3 bytes of an unfinished character, or one carriage return
};

}  // namespace sandbox
