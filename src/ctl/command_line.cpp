// SPDX-License-Identifier: Apache-2.0
#include "ctl/command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>

namespace sandbox::ctl {

namespace {

// Everything CLI11 writes into while parsing; the chosen verb is moved out afterwards.
struct Store {
    std::string root;
    std::string format;
    bool json = false;
    ConfigInit config_init;
    ConfigCheck config_check;
    Validate validate;
    Plan plan;
    Run run;
    Ps ps;
    Inspect inspect;
    Logs logs;
    Stop stop;
    Copy copy;
    Kill kill;
    Wait wait;
    Remove remove;
    Probe probe;
    Doctor doctor;
    PolicyExplain policy_explain;
    AuditVerify audit_verify;
    AuditShow audit_show;
    Reconcile reconcile;
    Version version;
    Completion completion;
    std::optional<Verb> chosen;
};

class Tree {
public:
    Tree() : app_("Declarative sandboxes: plan, run, prove, clean up.", "sandboxctl")
    {
        app_.require_subcommand(1);
        add_common(app_);
        add_planning();
        add_running();
        add_looking();
        add_host();
    }

    CLI::App& app() { return app_; }
    Store& store() { return store_; }

private:
    void add_common(CLI::App& app)
    {
        app.add_option("--root", store_.root,
                       "Prefix of every path (/etc/sandbox, /run/sandbox, …)");
    }

    void add_format(CLI::App& app)
    {
        app.add_option("-o,--output", store_.format, "table, json or yaml")
            ->check(CLI::IsMember({"table", "json", "yaml"}));
        app.add_flag("--json", store_.json, "Same as -o json");
    }

    template <class T>
    CLI::App* verb(CLI::App& parent, const std::string& name, const std::string& help, T& value)
    {
        CLI::App* sub = parent.add_subcommand(name, help);
        add_common(*sub);
        sub->callback([this, &value] { store_.chosen = value; });
        return sub;
    }

    static void add_request(CLI::App& sub, std::vector<std::string>& argv,
                            std::vector<std::string>& env, std::string& overlay)
    {
        sub.add_option("-e,--env", env, "NAME=VALUE added to the environment (repeatable)")
            ->allow_extra_args(false);
        sub.add_option("--overlay", overlay, "Profile fragment that narrows (a file)");
        sub.add_option("argv", argv, "Command instead of the profile's (after --)");
    }

    void add_planning()
    {
        CLI::App* config = app_.add_subcommand("config", "Operator configuration");
        config->require_subcommand(1);
        verb(*config, "init", "Find the artifacts and pin them in config.toml", store_.config_init)
            ->add_flag("-f,--force", store_.config_init.force, "Replace an existing file");
        add_format(
            *verb(*config, "check", "Compare the pins with what is on disk", store_.config_check));

        CLI::App* check = verb(app_, "validate", "Check profiles without resolving them",
                               store_.validate);
        check->add_option("profile", store_.validate.profiles, "Name, path or - for stdin")
            ->required();
        check->add_option("--overlay", store_.validate.overlay, "Fragment to check on top");
        add_format(*check);

        CLI::App* plan = verb(app_, "plan", "Show what would be enforced, or why not", store_.plan);
        plan->add_option("profile", store_.plan.profile, "Name, path or - for stdin")->required();
        add_request(*plan, store_.plan.argv, store_.plan.env, store_.plan.overlay);
        plan->add_option("--snapshot", store_.plan.snapshot,
                         "Plan for the host of this saved probe");
        plan->add_option("--diff", store_.plan.diff, "Compare with what this sandbox runs");
        plan->add_flag("--artifact", store_.plan.artifact, "Show what the driver would launch");
        add_format(*plan);
    }

    void add_running()
    {
        CLI::App* run = verb(app_, "run", "Launch a sandbox", store_.run);
        run->add_option("profile", store_.run.profile, "Name, path or - for stdin");
        add_request(*run, store_.run.argv, store_.run.env, store_.run.overlay);
        run->add_option("--plan", store_.run.plan, "Run the plan of this file, if it still holds");
        run->add_option("--name", store_.run.name, "Name of the sandbox");
        run->add_flag("-d,--detach", store_.run.detach, "Return once the workload runs");
        run->add_flag("--rm", store_.run.remove, "Remove the sandbox when it ends; logs stay");
        add_format(*run);
        run->add_flag("-i,--interactive", store_.run.interactive, "Pass standard input on");

        CLI::App* stop = verb(app_, "stop", "TERM, then KILL after the stop timeout", store_.stop);
        stop->add_option("name", store_.stop.names, "Name or id")->required();
        stop->add_option("-t,--time", store_.stop.time, "Timeout, such as 5s");

        CLI::App* copy = verb(app_, "cp", "Copy files into a sandbox or out of it", store_.copy);
        copy->add_option("source", store_.copy.source, "PATH, NAME:PATH, or - for a tar stream")
            ->required();
        copy->add_option("destination", store_.copy.target, "The other of the two")->required();
        copy->add_option("--max-size", store_.copy.max_size, "Copy no more than this")
            ->capture_default_str();

        CLI::App* kill = verb(app_, "kill", "Send a signal to the main process", store_.kill);
        kill->add_option("name", store_.kill.names, "Name or id")->required();
        kill->add_option("-s,--signal", store_.kill.signal, "Name or number")
            ->capture_default_str();

        verb(app_, "wait", "Wait for the end and print the exit status", store_.wait)
            ->add_option("name", store_.wait.names, "Name or id")
            ->required();

        CLI::App* remove = verb(app_, "rm", "Remove sandboxes; logs stay readable", store_.remove);
        remove->add_option("name", store_.remove.names, "Name or id")->required();
        remove->add_flag("-f,--force", store_.remove.force, "Whatever state it is in");
    }

    void add_looking()
    {
        CLI::App* ps = verb(app_, "ps", "List sandboxes", store_.ps);
        ps->add_flag("-a,--all", store_.ps.all, "Removed ones too");
        ps->add_flag("-q,--quiet", store_.ps.quiet, "Only ids");
        add_format(*ps);

        CLI::App* inspect = verb(app_, "inspect", "Everything known of a sandbox", store_.inspect);
        inspect->add_option("name", store_.inspect.names, "Name or id")->required();
        add_format(*inspect);

        CLI::App* logs = verb(app_, "logs", "Print the output of a sandbox", store_.logs);
        logs->add_option("name", store_.logs.name, "Name or id")->required();
        logs->add_flag("-f,--follow", store_.logs.follow, "Wait for more until it ends");
        logs->add_option("--stream", store_.logs.stream, "both, stdout or stderr")
            ->check(CLI::IsMember({"both", "stdout", "stderr"}))
            ->capture_default_str();
        logs->add_flag("--json", store_.logs.raw_json, "The stored records, one a line");
    }

    void add_host()
    {
        add_format(
            *verb(app_, "probe", "What this host really can do, with evidence", store_.probe));
        CLI::App* doctor = verb(app_, "doctor", "Judge this host, and say how to mend each gap",
                                store_.doctor);
        doctor->add_option("profile", store_.doctor.profile, "For this profile");
        add_format(*doctor);

        CLI::App* policy = app_.add_subcommand("policy", "Organisation bundles");
        policy->require_subcommand(1);
        add_format(*verb(*policy, "explain", "Which file and line decides each key",
                         store_.policy_explain));

        CLI::App* audit = app_.add_subcommand("audit", "The audit log");
        audit->require_subcommand(1);
        verb(*audit, "verify", "Check the hash chain", store_.audit_verify);
        verb(*audit, "show", "Events of one sandbox", store_.audit_show)
            ->add_option("name", store_.audit_show.name, "Name or id")
            ->required();

        add_format(*verb(app_, "reconcile", "Remove what dead sandboxes left", store_.reconcile));
        add_format(*verb(app_, "version", "Version and capabilities", store_.version));
        verb(app_, "completion", "Print the completion script of a shell", store_.completion)
            ->add_option("shell", store_.completion.shell, "bash, zsh or fish")
            ->required()
            ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    }

    CLI::App app_;
    Store store_;
};

std::optional<Format> format_of(const Store& store)
{
    static const std::map<std::string, Format> kFormats{
        {"table", Format::table}, {"json", Format::json}, {"yaml", Format::yaml}};
    if (store.json) return Format::json;
    const auto it = kFormats.find(store.format);
    if (it == kFormats.end()) return std::nullopt;
    return it->second;
}

std::string_view verb_of(int argc, const char* const* argv)
{
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--root")
            ++i;
        else if (!word.starts_with('-'))
            return word;
    }
    return {};
}

// Words as CLI11 may see them. What stands behind "--" is the workload's and never shown to it;
// it would also take "[a,b]" among positional words for a list, so such a word gets a guard, and one
// that begins with a guard another.
constexpr char kGuard = '\x01';
struct Split {
    std::vector<std::string> words;
    std::vector<std::string> workload;
};

Split split_words(int argc, const char* const* argv)
{
    const std::string_view verb = verb_of(argc, argv);
    const bool launches = verb == "run" || verb == "plan";
    Split split;
    for (int i = 1; i < argc; ++i) {
        std::string word = argv[i];
        if (launches && word == "--") {
            split.workload.assign(argv + i + 1, argv + argc);
            break;
        }
        const bool list = word.starts_with('[') && word.ends_with(']');
        if (launches && (list || word.starts_with(kGuard))) word.insert(0, 1, kGuard);
        split.words.push_back(std::move(word));
    }
    return split;
}

template <class T>
void finish_argv(T& verb, const std::vector<std::string>& workload)
{
    for (auto* words : {&verb.argv, &verb.env}) {
        for (std::string& word : *words) {
            if (word.starts_with(kGuard)) word.erase(0, 1);
        }
    }
    verb.argv.insert(verb.argv.end(), workload.begin(), workload.end());
}

// What scripts ask. The prefix is somebody's half-typed word: no parser shall look at it.
std::optional<Command> hidden_command(int argc, const char* const* argv)
{
    if (argc < 2) return std::nullopt;
    Command command;
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    std::size_t at = 0;
    if (words.size() > 2 && words[0] == "--root") {
        command.root = words[1];
        at = 2;
    }
    if (words.size() <= at) return std::nullopt;
    if (words[at] == "__commands") {
        command.verb = ShowCommands{};
        return command;
    }
    if (words[at] != "__complete") return std::nullopt;
    CompleteWords wanted;
    if (words.size() > at + 1) wanted.kind = words[at + 1];
    if (words.size() > at + 2) wanted.prefix = words[at + 2];
    command.verb = wanted;
    return command;
}

std::string help_of(Tree& tree, const std::string& path)
{
    const CommandDoc all = describe(tree.app());
    const CommandDoc* command = find_command(all, path);
    return render_help(all, command == nullptr ? all : *command);
}

}  // namespace

CommandDoc command_tree()
{
    Tree tree;
    return describe(tree.app());
}

std::variant<Command, Answer> parse_command_line(int argc, const char* const* argv)
{
    if (auto command = hidden_command(argc, argv)) return *std::move(command);
    Tree tree;
    Split split = split_words(argc, argv);
    try {
        // It takes them from the back.
        tree.app().parse(std::vector<std::string>(split.words.rbegin(), split.words.rend()));
    } catch (const CLI::CallForHelp&) {
        std::string path;
        for (CLI::App* app = &tree.app(); !app->get_subcommands().empty();) {
            app = app->get_subcommands().front();
            path += (path.empty() ? "" : " ") + app->get_name();
        }
        return Answer{help_of(tree, path), 0};
    } catch (const CLI::ParseError& error) {
        const std::string hint = "\nRun 'sandboxctl --help' or 'sandboxctl VERB --help'.\n";
        return Answer{std::string(error.what()) + hint,
                      verb_of(argc, argv) == "run" ? kOurFailure : kUsage};
    }
    Store& store = tree.store();
    if (!store.chosen) return Answer{help_of(tree, {}), kUsage};
    if (Plan* plan = std::get_if<Plan>(&*store.chosen)) finish_argv(*plan, split.workload);
    if (Run* run = std::get_if<Run>(&*store.chosen)) {
        finish_argv(*run, split.workload);
        if (run->profile.empty() == run->plan.empty()) {
            return Answer{"run takes a profile, or --plan FILE\n", kOurFailure};
        }
        if (!run->plan.empty() &&
            (!run->argv.empty() || !run->env.empty() || !run->overlay.empty())) {
            return Answer{"--plan fixes the command, environment and overlay\n", kOurFailure};
        }
    }
    return Command{store.root, format_of(store), std::move(*store.chosen)};
}

}  // namespace sandbox::ctl
