// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ctl/command_line.hpp"

// One function a verb; each returns the exit status and has said everything there is to say. They
// block until the verb is done.
namespace sandbox::ctl {

// What every verb has: where (a prefix of all paths, empty: none) and how (nothing: the verb's
// default).
struct Context {
    std::string root;
    std::optional<Format> format;
};

int execute(const Context& context, const ConfigInit& verb);
int execute(const Context& context, const ConfigCheck& verb);
int execute(const Context& context, const Validate& verb);
int execute(const Context& context, const Plan& verb);
int execute(const Context& context, const Run& verb);
int execute(const Context& context, const Apply& verb);
int execute(const Context& context, const Prune& verb);
int execute(const Context& context, const Create& verb);
int execute(const Context& context, const Start& verb);
int execute(const Context& context, const Restart& verb);
int execute(const Context& context, const Pause& verb);
int execute(const Context& context, const Resume& verb);
int execute(const Context& context, const Touch& verb);
int execute(const Context& context, const StatsVerb& verb);
int execute(const Context& context, const Events& verb);
int execute(const Context& context, const Ps& verb);
int execute(const Context& context, const Inspect& verb);
int execute(const Context& context, const Logs& verb);
int execute(const Context& context, const Stop& verb);
int execute(const Context& context, const Exec& verb);
int execute(const Context& context, const Attach& verb);
int execute(const Context& context, const Sessions& verb);
int execute(const Context& context, const Kill& verb);
int execute(const Context& context, const Copy& verb);
int execute(const Context& context, const Wait& verb);
int execute(const Context& context, const Remove& verb);
int execute(const Context& context, const Probe& verb);
int execute(const Context& context, const Doctor& verb);
int execute(const Context& context, const PolicyExplain& verb);
int execute(const Context& context, const AuditVerify& verb);
int execute(const Context& context, const AuditShow& verb);
int execute(const Context& context, const Reconcile& verb);
int execute(const Context& context, const Version& verb);
int execute(const Context& context, const Completion& verb);
int execute(const Context& context, const CompleteWords& verb);
int execute(const Context& context, const ShowCommands& verb);

}  // namespace sandbox::ctl
