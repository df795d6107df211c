// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "ledger/records.hpp"

namespace sandbox::ledger {

namespace {

// Pairs, not a function: the whole table can be read against docs/formats/ledger.md.
struct Transition {
    State from;
    State to;
};

// `deleted` is not listed: every state may become it, itself excepted.
constexpr std::array kTransitions{
    Transition{State::requested, State::resolved},
    Transition{State::requested, State::failed},
    Transition{State::requested, State::dead},
    Transition{State::resolved, State::prepared},
    Transition{State::resolved, State::failed},
    Transition{State::resolved, State::dead},
    Transition{State::prepared, State::created},
    Transition{State::prepared, State::failed},
    Transition{State::prepared, State::dead},
    Transition{State::created, State::running},
    // A start of what was created and rests so.
    Transition{State::created, State::prepared},
    // A workload that exits before it was seen ready is an ordinary exit.
    Transition{State::created, State::stopped},
    Transition{State::created, State::failed},
    Transition{State::created, State::dead},
    Transition{State::running, State::paused},
    Transition{State::running, State::stopped},
    Transition{State::running, State::dead},
    Transition{State::paused, State::running},
    Transition{State::paused, State::stopped},
    Transition{State::paused, State::dead},
    // A new start, with the plan it had or with one resolved again.
    Transition{State::stopped, State::resolved},
    Transition{State::stopped, State::prepared},
    Transition{State::failed, State::resolved},
    Transition{State::failed, State::prepared},
    Transition{State::dead, State::resolved},
    Transition{State::dead, State::prepared},
};

// The enumerator's number is its index here: a new word goes to the end of both lists.
template <class Enum, std::size_t N>
std::optional<Enum> find_word(const std::array<std::string_view, N>& words, std::string_view text)
{
    for (std::size_t i = 0; i < N; ++i) {
        if (words[i] == text) return static_cast<Enum>(i);
    }
    return std::nullopt;
}

// Words in the order of the enumerators.
constexpr std::array<std::string_view, 10> kStates{"requested", "resolved", "prepared", "created",
                                                   "running",   "paused",   "stopped",  "failed",
                                                   "dead",      "deleted"};
constexpr std::array<std::string_view, 3> kDesired{"running", "stopped", "deleted"};
constexpr std::array<std::string_view, 7> kReasons{"exited", "signal",  "oom",   "timeout",
                                                   "killed", "unknown", "faulty"};
constexpr std::array<std::string_view, 15> kKinds{
    "id_range",        "state_dir",        "run_dir",     "cgroup_root",  "cgroup_control",
    "cgroup_workload", "cgroup_session",   "placeholder", "shim_process", "log_worker",
    "pid1_process",    "launcher_process", "door_socket", "shim_socket",  "log_files"};
constexpr std::array<std::string_view, 2> kOrigins{"apply", "profiles.d"};
constexpr std::array<std::string_view, 3> kEntryStates{"intent", "observed", "undone"};
constexpr std::array<std::string_view, 3> kOperationStates{"active", "done", "lost"};

constexpr std::size_t kIdDigits = 32;

}  // namespace

bool may_become(State from, State to) noexcept
{
    if (to == State::deleted) return from != State::deleted;
    return std::any_of(kTransitions.begin(), kTransitions.end(),
                       [&](const Transition& t) { return t.from == from && t.to == to; });
}

bool is_active(State state) noexcept
{
    // The enumerators up to `paused` are in the order a launch passes them.
    return std::to_underlying(state) <= std::to_underlying(State::paused);
}

bool rests(const Sandbox& sandbox) noexcept
{
    // `create` without `start` rests in an active state: no shim of it runs.
    if (!is_active(sandbox.state)) return sandbox.state != State::deleted;
    return sandbox.state == State::created && !sandbox.shim;
}

std::string_view to_string(State value) noexcept
{
    return kStates.at(static_cast<std::size_t>(value));
}

std::string_view to_string(Desired value) noexcept
{
    return kDesired.at(static_cast<std::size_t>(value));
}

std::string_view to_string(ExitReason value) noexcept
{
    return kReasons.at(static_cast<std::size_t>(value));
}

std::string_view to_string(Origin value) noexcept
{
    return kOrigins.at(static_cast<std::size_t>(value));
}

std::string_view to_string(EntryKind value) noexcept
{
    return kKinds.at(static_cast<std::size_t>(value));
}

std::string_view to_string(EntryState value) noexcept
{
    return kEntryStates.at(static_cast<std::size_t>(value));
}

std::string_view to_string(OperationState value) noexcept
{
    return kOperationStates.at(static_cast<std::size_t>(value));
}

std::optional<State> parse_state(std::string_view text) noexcept
{
    return find_word<State>(kStates, text);
}

std::optional<Desired> parse_desired(std::string_view text) noexcept
{
    return find_word<Desired>(kDesired, text);
}

std::optional<ExitReason> parse_exit_reason(std::string_view text) noexcept
{
    return find_word<ExitReason>(kReasons, text);
}

std::optional<Origin> parse_origin(std::string_view text) noexcept
{
    return find_word<Origin>(kOrigins, text);
}

std::optional<EntryKind> parse_entry_kind(std::string_view text) noexcept
{
    return find_word<EntryKind>(kKinds, text);
}

std::optional<EntryState> parse_entry_state(std::string_view text) noexcept
{
    return find_word<EntryState>(kEntryStates, text);
}

std::optional<OperationState> parse_operation_state(std::string_view text) noexcept
{
    return find_word<OperationState>(kOperationStates, text);
}

bool is_sandbox_id(std::string_view text) noexcept
{
    return text.size() == kIdDigits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

}  // namespace sandbox::ledger
