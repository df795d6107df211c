// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/calls.hpp"
#include "supervisor/service.hpp"

namespace sandbox::control {

// What the daemon has counted since it began. Copied into the worker that renders it. Counts only
// grow, but for the two that say "now".
struct Counters {
    std::map<std::pair<std::string, int>, std::uint64_t> requests;  // operation, status
    std::map<std::string, std::uint64_t> denials;                   // by class
    std::map<std::string, std::uint64_t> refused;  // connections, by reason
    std::uint64_t launches = 0;
    std::uint64_t launches_failed = 0;
    std::uint64_t execs = 0;
    std::uint64_t connections = 0;  // now
    std::uint64_t workers = 0;      // now
    std::uint64_t reconciles = 0;
    std::uint64_t reconciles_failed = 0;
    std::uint64_t reconcile_ns = 0;
    std::uint64_t removed_things = 0;
    std::uint64_t converge_failures = 0;

    // What an answer tells; `body` is looked at only where it holds denials.
    void count_answer(const Call& call, int status, std::string_view body);
};

// Prometheus' text format, version 0.0.4.
std::string render_metrics(const Counters& counters,
                           const std::vector<supervisor::Listed>& sandboxes);

}  // namespace sandbox::control
