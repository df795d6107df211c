// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <array>

#include "driver/microvm/jail.hpp"

namespace sandbox::driver::microvm {

namespace {

using sys::seccomp::Rule;
using sys::seccomp::Verdict;

// Everything arrives connected: a VMM that wants a socket or a process of its own is a lost one. (A
// pair, which vhost-user makes for its back channel, leads nowhere.)
constexpr std::array<std::string_view, 8> kTakenAway{"accept", "accept4", "bind",   "connect",
                                                     "fork",   "listen",  "socket", "vfork"};

}  // namespace

std::vector<Rule> jail_rules()
{
    std::vector<Rule> rules = sys::seccomp::rules(sys::seccomp::Profile::standard);
    std::erase_if(rules, [](const Rule& rule) {
        return std::ranges::find(kTakenAway, rule.syscall) != kTakenAway.end();
    });
    for (Rule& rule : rules) {
        if (rule.syscall != "clone") continue;
        // Threads only. clone3 is answered with ENOSYS already, for its flags cannot be looked at.
        rule.verdict = Verdict::allow_only_if;
        rule.matches = {{{0, sys::seccomp::Test::equal, CLONE_THREAD, CLONE_THREAD}}};
    }
    return rules;
}

}  // namespace sandbox::driver::microvm
