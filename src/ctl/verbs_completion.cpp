// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "ctl/completion.hpp"
#include "ctl/output.hpp"
#include "ctl/verbs.hpp"

namespace sandbox::ctl {

// No context: the script knows no root; completion asks with the one that is typed.
int execute(const Context& /*context*/, const Completion& verb)
{
    const Shell shell = verb.shell == "bash"  ? Shell::bash
                        : verb.shell == "zsh" ? Shell::zsh
                                              : Shell::fish;
    print(completion_script(command_tree(), shell));
    return 0;
}

int execute(const Context& context, const CompleteWords& verb)
{
    std::string text;
    // A shell that asks for words has no use for an error.
    const auto paths = supervisor::locate(context.root);
    if (!paths) return 0;
    for (const std::string& word : complete_words(*paths, verb.kind, verb.prefix)) {
        text += word + "\n";
    }
    print(text);
    return 0;
}

int execute(const Context& /*context*/, const ShowCommands& /*verb*/)
{
    print(to_json(command_tree()), Format::json);
    return 0;
}

}  // namespace sandbox::ctl
