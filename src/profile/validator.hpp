// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canon/canon.hpp"

// valijson behind a wall: it takes 12 s to compile. None of its types and no exception of its
// leaves this file.
namespace sandbox::profile {

struct SchemaFailure {
    std::string path;  // key path of the offending value, "" for the document
    std::string text;  // valijson's words
    bool operator==(const SchemaFailure&) const = default;
};

// Immutable once made; validate() may run in several threads at once.
class CompiledSchema {
public:
    explicit CompiledSchema(const canon::Json& schema);
    ~CompiledSchema();
    CompiledSchema(const CompiledSchema&) = delete;
    CompiledSchema& operator=(const CompiledSchema&) = delete;

    // Each failure once, in the order found; empty when the document obeys.
    std::vector<SchemaFailure> validate(const canon::Json& document) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Parsed and compiled on first use (thread-safe), kept for the life of the process. Null for
// unknown names. Lean: what decides at run time; published: with descriptions and change classes.
const canon::Json* lean_schema(std::string_view name);
const canon::Json* published_schema(std::string_view name);
const CompiledSchema* lean_validator(std::string_view name);
const CompiledSchema* published_validator(std::string_view name);

}  // namespace sandbox::profile
