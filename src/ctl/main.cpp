// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "ctl/output.hpp"
#include "ctl/verbs.hpp"

int main(int argc, char** argv)
{
    using namespace sandbox::ctl;
    auto parsed = parse_command_line(argc, argv);
    if (const Answer* answer = std::get_if<Answer>(&parsed)) {
        if (answer->status == 0)
            print(answer->text);
        else
            say(answer->text);
        return answer->status;
    }
    const Command& command = std::get<Command>(parsed);
    const Context context{command.root, command.format};
    int status = std::visit([&](const auto& verb) { return execute(context, verb); }, command.verb);
    // Only success is turned around: a status of the workload must reach the caller.
    if (status == 0 && output_was_lost()) {
        say("sandboxctl: standard output could not be written");
        status = 1;
    }
    // Everything is written and durable; taking memory and database apart would only delay the
    // answer.
    _exit(status);
}
