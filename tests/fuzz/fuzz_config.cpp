// SPDX-License-Identifier: Apache-2.0
#include "diagnostics.hpp"
#include "profile/config.hpp"

// The operator's file: located diagnostics, or a value that is rendered and read back equal.
namespace sandbox::fuzz {

FUZZ_TARGET(config)
{
    const profile::ParsedConfig parsed = profile::parse_config(input, kFileName);
    check_diagnostics(parsed.diagnostics, input);
    HOLDS(parsed.config.has_value() == parsed.diagnostics.empty());
    if (!parsed.config) return;
    const std::string rendered = profile::render_config(*parsed.config);
    const profile::ParsedConfig again = profile::parse_config(rendered, kFileName);
    HOLDS(again.config.has_value());
    HOLDS(*again.config == *parsed.config);
    HOLDS(profile::render_config(*again.config) == rendered);
}

}  // namespace sandbox::fuzz
