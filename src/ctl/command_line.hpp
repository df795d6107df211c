// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
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

// Names, paths and times as typed; each verb reads its own. Empty text: not given.
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
    // After "--"; replaces the profile's argv as a whole.
    std::string overlay;
    // "NAME=VALUE", unchecked.
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
    bool terminal = false;
    // As docker has it; see parse_detach_keys().
    std::string detach_keys = "ctrl-p,ctrl-q";
};
struct Create {
    std::string profile;  // or empty with --plan
    std::string plan;  // a plan file
    std::vector<std::string> argv;
    std::vector<std::string> env;
    std::string overlay;
    std::string name;
    bool remove = false;
};
struct Start {
    std::vector<std::string> names;
    bool attach = false;
    bool detach = false;  // the default; may be said
    bool interactive = false;
};
struct Restart {
    std::vector<std::string> names;
    std::string time;  // as Stop::time
};
struct Pause {
    std::vector<std::string> names;
};
struct Resume {
    std::vector<std::string> names;
};
struct Touch {
    std::vector<std::string> names;
};
struct StatsVerb {
    std::vector<std::string> names;  // empty: all that run
    bool follow = false;
    // A duration, units.hpp.
    std::string interval = "1s";
};
struct Events {
    std::string name;  // empty: of all
    bool follow = false;
    std::string since;  // number of an event, or a time
};
struct Apply {
    std::vector<std::string> files;  // or folders
    std::string plan;  // a plan file instead
    bool dry_run = false;
    bool detailed = false;  // exit status 2 where something changed
    bool keep = false;  // of a folder: sandboxes stay whose files are gone
};
struct Prune {
    std::vector<std::string> filters;
};
struct Ps {
    bool all = false;
    std::vector<std::string> filters;
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
    std::optional<std::uint64_t> tail;  // lines
    std::string since;
};
struct Stop {
    std::vector<std::string> names;
    std::string time;  // duration or seconds; empty: the plan's
};
struct Copy {
    std::string source;  // PATH, NAME:PATH or "-"
    std::string target;
    // A bound against a mistake, not a quota: more only when said.
    std::string max_size = "4GiB";
};
struct Exec {
    std::string name;
    std::vector<std::string> argv;
    std::vector<std::string> env;
    std::string user;
    std::string workdir;
    std::string timeout;
    std::string expect_plan;
    std::string detach_keys = "ctrl-p,ctrl-q";
    bool interactive = false;
    bool terminal = false;
    bool detach = false;
};
struct Attach {
    std::string name;
    std::string session;
    std::string detach_keys = "ctrl-p,ctrl-q";
    // Bytes of the stream; nothing: where the last client left it.
    std::optional<std::uint64_t> from;
    std::optional<std::uint64_t> from_stderr;
    bool no_stdin = false;
};
struct Sessions {
    std::string name;
};
struct Kill {
    std::vector<std::string> names;
    std::string session;  // empty: the main process
    // SIGKILL, as docker and podman have it.
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

// Order without meaning.
using Verb = std::variant<Create, Start, Restart, Pause, Resume, Touch, StatsVerb, Events,
                          ConfigInit, ConfigCheck, Validate, Plan, Run, Apply, Prune, Ps, Inspect,
                          Logs, Stop, Copy, Exec, Attach, Sessions, Kill, Wait, Remove, Probe,
                          Doctor, PolicyExplain, AuditVerify, AuditShow, Reconcile, Version,
                          Completion, CompleteWords, ShowCommands>;

// `root` is a prefix of every path; empty: none.
struct Command {
    std::string root;
    std::optional<Format> format;  // what -o or --json asked for
    Verb verb;
};

// Either a command, or text to print and the status to exit with (help: 0, on stdout; wrong usage:
// 2, and 125 for the verbs that otherwise exit with the workload's status, on stderr).
struct Answer {
    std::string text;
    int status = 0;
};
// Pure: no file, no environment. argv as main() gets it, with the program's name first.
std::variant<Command, Answer> parse_command_line(int argc, const char* const* argv);

// Everything the parser takes, as data. Builds the parser once more: for help, completion and
// tests.
CommandDoc command_tree();

}  // namespace sandbox::ctl
