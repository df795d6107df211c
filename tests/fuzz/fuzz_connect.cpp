// SPDX-License-Identifier: Apache-2.0
#include "base/units.hpp"
#include "channel/door.hpp"
#include "fuzz.hpp"

// Two short grammars: the CONNECT line of a door, which has one spelling a port but for the case of
// its word, and sizes and durations, whose canonical form is stable.
namespace sandbox::fuzz {

FUZZ_TARGET(connect)
{
    if (const auto port = channel::parse_connect(input)) {
        HOLDS(input.size() <= channel::kLongestLine);
        std::string wanted = "connect " + std::to_string(*port) + "\n";
        std::string found(input);
        for (char& c : found) {
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        }
        HOLDS(found == wanted);
    }
    if (const auto size = parse_bytes(input)) HOLDS(parse_bytes(format(*size)) == size);
    if (const auto time = parse_duration(input))
        HOLDS(parse_duration(format_duration(*time)) == time);
}

}  // namespace sandbox::fuzz
