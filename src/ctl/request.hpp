// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "supervisor/paths.hpp"
#include "supervisor/service.hpp"

namespace sandbox::ctl {

// Words of the command line as a service takes them; reads the overlay's file. invalid_argument: an
// -e without '='; whatever reading the file says.
[[nodiscard]] Result<supervisor::Adjustments> adjustments(const supervisor::Paths& paths,
                                                          const std::vector<std::string>& argv,
                                                          const std::vector<std::string>& env,
                                                          const std::string& overlay);

// A plain number is seconds, as with podman and docker; else a duration such as "500ms". Nothing
// for neither.
std::optional<Millis> parse_timeout(const std::string& text);

// "KILL", "SIGKILL" or a number, signal(7). invalid_argument: there is no such signal here.
[[nodiscard]] Result<int> parse_signal(const std::string& text);

// Says why there is no plan, on stderr; denials on stdout where JSON was asked for. Returns the
// exit status `refused`.
int say_refused(const supervisor::PlanOutcome& outcome, bool as_json, int refused);

}  // namespace sandbox::ctl
