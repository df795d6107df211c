// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ctl/command_tree.hpp"

// What a person typed, typed. One struct a verb.
namespace sandbox::ctl {

// Exit statuses (design: contracts). run, exec, attach, create and start give the workload's status
// and keep 125 for our own failures; every other verb fails with 1 and answers wrong usage with 2.
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kOurFailure = 125;

enum class Format { table, json, yaml };

struct ConfigInit {
    bool force = false;
};
struct ConfigCheck {};
struct Validate {
    std::vector<std::string> profiles;
    std::string overlay;
};
struct Plan {
    std::string profile;
    std::vector<std::string> argv;
    std::vector<std::string> env;
    std::string overlay;
    std::string snapshot;  // a saved `probe --json`
    std::string diff;  // name of a sandbox
    bool artifact = false;
};
struct Run {
    std::string profile;  // or empty with --plan
    std::string plan;  // a plan file
    std::vector<std::string> argv;
    std::vector<std::string> env;
    std::string overlay;
    std::string name;
    bool detach = false;
    bool remove = false;
    bool interactive = false;
};
struct Ps {
    bool all = false;
    bool quiet = false;
};
struct Inspect {
    std::vector<std::string> names;
};
struct Logs {
    std::string name;
    bool follow = false;
    std::string stream = "both";  // both | stdout | stderr
    bool raw_json = false;
};
struct Stop {
    std::vector<std::string> names;
    std::string time;  // duration; empty: the plan's
};
struct Copy {
    std::string source;  // PATH, NAME:PATH or "-"
    std::string target;
    std::string max_size = "4GiB";
};
struct Kill {
    std::vector<std::string> names;
    std::string signal = "KILL";
};
struct Wait {
    std::vector<std::string> names;
};
struct Remove {
    std::vector<std::string> names;
    bool force = false;
};
struct Probe {};
struct Doctor {
    std::string profile;
};
struct PolicyExplain {};
struct AuditVerify {};
struct AuditShow {
    std::string name;
};
struct Reconcile {};
struct Version {};
struct Completion {
    std::string shell;  // bash | zsh | fish
};
// Asked by completion scripts and by tests; no person types these, and no help shows them.
struct CompleteWords {
    std::string kind;
    std::string prefix;
};
struct ShowCommands {};

using Verb = std::variant<ConfigInit, ConfigCheck, Validate, Plan, Run, Ps, Inspect, Logs, Stop,
                          Copy, Kill, Wait, Remove, Probe, Doctor, PolicyExplain, AuditVerify, AuditShow,
                          Reconcile, Version, Completion, CompleteWords, ShowCommands>;

struct Command {
    std::string root;
    std::optional<Format> format;  // what -o or --json asked for
    Verb verb;
};

// Either a command, or text to print and the status to exit with (help: 0; wrong usage: 2, and 125
// for the verbs that otherwise exit with the workload's status).
struct Answer {
    std::string text;
    int status = 0;
};
std::variant<Command, Answer> parse_command_line(int argc, const char* const* argv);

// Everything the parser takes.
CommandDoc command_tree();

}  // namespace sandbox::ctl
