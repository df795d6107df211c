// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "wire/wire.hpp"

namespace sandbox::wire::test {

// Bytes that a receiver must refuse, and the error it names.
struct NegativeCase {
    std::string name;
    Port port;
    Direction direction;
    Stage stage;
    WireError error;
    std::string why;
    ByteVector bytes;
};

std::vector<NegativeCase> negative_cases();

}  // namespace sandbox::wire::test
