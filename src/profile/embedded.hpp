// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

// Data of the program itself: written by tools at build time, never read from a file.
namespace sandbox::profile {

// One schema as the build made it from schemas/*.yaml.
struct EmbeddedSchema {
    std::string_view name;
    std::string_view published;  // what editors get: descriptions, patterns, change classes
    std::string_view lean;       // what decides at run time
};

// Views of string literals; kEmbeddedSchemaCount of them.
extern const EmbeddedSchema kEmbeddedSchemas[];
extern const std::size_t kEmbeddedSchemaCount;

}  // namespace sandbox::profile
