// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"

// What a supervisor hands a fresh shim while the intents become durable: a JSON text in a sealed
// memfd, with up to three descriptors beside it. One release on both sides, so the codec is strict.
// Pure.
namespace sandbox::shim {

inline constexpr int kRequestVersion = 1;

// The packet behind the request: its intents are durable. Until then the shim only reads.
inline constexpr std::string_view kGo = "go";

enum class OnExit { keep, remove };  // `remove` is --rm: logs stay, the rest goes
enum class Output { log_only, plain, terminal };  // terminal: escaped before it reaches the client

// A ledger entry written before the shim may act, and the number it has there.
struct JournaledIntent {
    std::uint64_t seq = 0;
    std::string kind;  // ledger::to_string(EntryKind)
    std::string name;
    bool operator==(const JournaledIntent&) const = default;
};

// Of one log folder.
struct LogLimits {
    std::uint64_t bytes = 16ULL << 20;  // of all files together
    std::uint32_t files = 4;
    bool operator==(const LogLimits&) const = default;
};

struct LaunchRequest {
    driver::Binding binding;
    std::string plan_file;  // docs/formats/plan.md
    std::string operation;  // the claim, handed over to the shim
    std::string state_root;  // STATE: ledger.db, audit.jsonl
    std::string cgroup_parent;  // below the hierarchy roots
    std::string secret_store;  // the operator's folder, one file a secret
    std::vector<JournaledIntent> intents;
    OnExit on_exit = OnExit::keep;
    Output out = Output::log_only;  // where stdout goes besides the log
    Output err = Output::log_only;
    bool stdin_open = false;  // a pipe comes along; else the workload reads /dev/null
    bool attached = false;  // the stream of one attached to the terminal comes along
    std::uint16_t rows = 0;  // of the terminal
    std::uint16_t cols = 0;
    std::string term = "xterm";  // TERM of what runs on it
    LogLimits log;
    bool operator==(const LaunchRequest&) const = default;
};

// Fails only for text that is not UTF-8. decode_request: corrupt for everything but what encode
// writes.
[[nodiscard]] Result<std::string> encode(const LaunchRequest& request);
[[nodiscard]] Result<LaunchRequest> decode_request(std::string_view text);

}  // namespace sandbox::shim
