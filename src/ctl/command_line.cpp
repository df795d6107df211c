// SPDX-License-Identifier: Apache-2.0
#include "ctl/command_line.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

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
    Create create;
    Start start;
    Restart restart;
    Pause pause;
    Resume resume;
    Touch touch;
    StatsVerb stats;
    Events events;
    Apply apply;
    Prune prune;
    Ps ps;
    Inspect inspect;
    Logs logs;
    Stop stop;
    Copy copy;
    Exec exec;
    Attach attach;
    Sessions sessions;
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
    // With `only` "run" or "exec" knows that verb alone: what is launched does not wait for the forty
    // others to be described.
    explicit Tree(std::string_view only = {})
        : app_("Declarative sandboxes: plan, run, prove, clean up.", "sandboxctl")
    {
        app_.require_subcommand(1);
        add_common(app_);
        if (only == "run")
            add_run();
        else if (only == "exec")
            add_exec();
        else
            add_all();
    }

    CLI::App& app() { return app_; }
    Store& store() { return store_; }

private:
    void add_all()
    {
        add_planning();
        add_desired();
        add_running();
        add_looking();
        add_host();
    }

    void add_common(CLI::App& app)
    {
        app.add_option("--root", store_.root, "Prefix of every path, such as /etc/sandbox");
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
        // One value each: CLI11 would otherwise take the words behind for more, -e A=b profile.
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

    void add_run()
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
        run->add_flag("-t,--tty", store_.run.terminal, "Give it a terminal");
        add_detach_keys(*run, store_.run.detach_keys);
    }

    void add_running()
    {
        add_run();
        CLI::App* stop = verb(app_, "stop", "TERM, then KILL after the stop timeout", store_.stop);
        stop->add_option("name", store_.stop.names, "Name or id")->required();
        stop->add_option("-t,--time", store_.stop.time,
                         "Timeout: seconds, or a duration such as 500ms");

        add_lifecycle();

        CLI::App* copy = verb(app_, "cp", "Copy files into a sandbox or out of it", store_.copy);
        copy->add_option("source", store_.copy.source, "PATH, NAME:PATH, or - for a tar stream")
            ->required();
        copy->add_option("destination", store_.copy.target, "The other of the two")->required();
        copy->add_option("--max-size", store_.copy.max_size, "Copy no more than this")
            ->capture_default_str();

        add_sessions();

        CLI::App* kill = verb(app_, "kill", "Send a signal to the main process", store_.kill);
        kill->add_option("--session", store_.kill.session, "To this session instead");
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

    void add_names(CLI::App& app, std::vector<std::string>& names)
    {
        app.add_option("name", names, "Name or id")->required();
    }

    void add_lifecycle()
    {
        CLI::App* create = verb(app_, "create", "Make a sandbox without starting it",
                                store_.create);
        create->add_option("profile", store_.create.profile, "Name, path or - for stdin");
        add_request(*create, store_.create.argv, store_.create.env, store_.create.overlay);
        create->add_option("--plan", store_.create.plan,
                           "Make it from the plan of this file, if it still holds");
        create->add_option("--name", store_.create.name, "Name of the sandbox");
        create->add_flag("--rm", store_.create.remove,
                         "Remove the sandbox when it has run and ends; logs stay");
        add_format(*create);

        CLI::App* start = verb(app_, "start", "Start what was created or has ended", store_.start);
        add_names(*start, store_.start.names);
        auto* attach = start->add_flag("-a,--attach", store_.start.attach,
                                       "Show its output and exit with its status");
        start->add_flag("-d,--detach", store_.start.detach, "Return once it runs (the default)")
            ->excludes(attach);
        start->add_flag("-i,--interactive", store_.start.interactive, "Pass standard input on")
            ->needs(attach);

        CLI::App* restart = verb(app_, "restart", "Stop and start again", store_.restart);
        add_names(*restart, store_.restart.names);
        restart->add_option("-t,--time", store_.restart.time,
                            "Timeout of the stop: seconds, or a duration such as 500ms");

        add_names(*verb(app_, "pause", "Freeze everything that runs in it", store_.pause),
                  store_.pause.names);
        add_names(*verb(app_, "resume", "Let a paused sandbox go on", store_.resume),
                  store_.resume.names);
        add_names(*verb(app_, "touch", "Put off its idle timeout", store_.touch),
                  store_.touch.names);
    }

    void add_exec()
    {
        CLI::App* exec = verb(app_, "exec", "Run a command in a running sandbox", store_.exec);
        exec->add_option("name", store_.exec.name, "Name or id")->required();
        exec->add_option("argv", store_.exec.argv, "Command and its arguments (after NAME or --)");
        exec->add_flag("-i,--interactive", store_.exec.interactive, "Pass standard input on");
        exec->add_flag("-t,--tty", store_.exec.terminal, "Give it a terminal");
        exec->add_flag("-d,--detach", store_.exec.detach, "Print the session and return");
        exec->add_option("-e,--env", store_.exec.env,
                         "NAME=VALUE added to the environment (repeatable)")
            ->allow_extra_args(false);
        exec->add_option("-u,--user", store_.exec.user,
                         "Refuse unless this is the user it runs as");
        exec->add_option("-w,--workdir", store_.exec.workdir, "Working directory");
        exec->add_option("--timeout", store_.exec.timeout, "End it after this long, such as 30s");
        exec->add_option("--expect-plan", store_.exec.expect_plan,
                         "Refuse unless the sandbox runs the plan of this digest");
        add_detach_keys(*exec, store_.exec.detach_keys);
    }

    void add_sessions()
    {
        add_exec();
        CLI::App* attach = verb(app_, "attach", "Go back to what runs in a sandbox", store_.attach);
        attach->add_option("name", store_.attach.name, "Name or id")->required();
        attach->add_option("--session", store_.attach.session,
                           "This session instead of the main process");
        attach->add_option("--from", store_.attach.from,
                           "First byte of output wanted (default: where it was left)");
        attach->add_option("--from-stderr", store_.attach.from_stderr,
                           "The same of standard error");
        attach->add_flag("--no-stdin", store_.attach.no_stdin, "Pass nothing on");
        add_detach_keys(*attach, store_.attach.detach_keys);

        CLI::App* sessions = verb(app_, "sessions", "List the sessions of a sandbox",
                                  store_.sessions);
        sessions->add_option("name", store_.sessions.name, "Name or id")->required();
        add_format(*sessions);
    }

    static void add_detach_keys(CLI::App& app, std::string& keys)
    {
        app.add_option("--detach-keys", keys, "Keys that leave the terminal; empty: none")
            ->capture_default_str();
    }

    void add_desired()
    {
        CLI::App* apply = verb(app_, "apply", "Bring sandboxes to what profiles say", store_.apply);
        apply->add_option("file", store_.apply.files, "Profiles: names, paths, folders or -");
        apply->add_option("--plan", store_.apply.plan,
                          "Apply the plan of this file, if it still holds");
        apply->add_flag("-n,--dry-run", store_.apply.dry_run, "Show what would change, key by key");
        apply->add_flag("--detailed-exitcode", store_.apply.detailed,
                        "Exit with 2 where something changes (0: nothing does)");
        apply->add_flag("--no-prune", store_.apply.keep,
                        "Keep sandboxes whose file is gone from the folder");
        add_format(*apply);

        verb(app_, "prune", "Remove sandboxes that have ended; logs stay", store_.prune)
            ->add_option("--filter", store_.prune.filters,
                         "Only those with KEY=VALUE: until, name, id, state, profile, label "
                         "(repeatable)")
            ->allow_extra_args(false);
    }

    void add_looking()
    {
        CLI::App* ps = verb(app_, "ps", "List sandboxes", store_.ps);
        ps->add_flag("-a,--all", store_.ps.all, "Removed ones too");
        ps->add_option("--filter", store_.ps.filters,
                       "Only those with KEY=VALUE: name, id, state, profile, label (repeatable)")
            ->allow_extra_args(false);
        ps->add_flag("-q,--quiet", store_.ps.quiet, "Only ids");
        add_format(*ps);

        CLI::App* inspect = verb(app_, "inspect", "Everything known of a sandbox", store_.inspect);
        inspect->add_option("name", store_.inspect.names, "Name or id")->required();
        add_format(*inspect);

        CLI::App* stats = verb(app_, "stats", "What sandboxes use", store_.stats);
        stats->add_option("name", store_.stats.names, "Name or id; none: all that run");
        stats->add_flag("-f,--follow", store_.stats.follow, "Look again and again");
        stats->add_option("--interval", store_.stats.interval, "Between two looks")
            ->capture_default_str();
        add_format(*stats);

        CLI::App* events = verb(app_, "events", "What happened, one JSON object a line",
                                store_.events);
        events->add_option("name", store_.events.name, "Name or id; none: of all");
        events->add_flag("-f,--follow", store_.events.follow, "Wait for more");
        events->add_option("--since", store_.events.since,
                           "Only what came after the event of this number, or from a time on");

        CLI::App* logs = verb(app_, "logs", "Print the output of a sandbox", store_.logs);
        logs->add_option("name", store_.logs.name, "Name or id")->required();
        logs->add_flag("-f,--follow", store_.logs.follow, "Wait for more until it ends");
        logs->add_option("--stream", store_.logs.stream, "both, stdout or stderr")
            ->check(CLI::IsMember({"both", "stdout", "stderr"}))
            ->capture_default_str();
        logs->add_option("-n,--tail", store_.logs.tail, "Only so many lines of what is there");
        logs->add_option("--since", store_.logs.since,
                         "Only from then on: a UTC time, seconds since 1970, or a duration ago");
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

// Before CLI11 has seen a word: who fails to parse still has to exit as its verb does.
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

// Words as CLI11 may see them. What stands behind "--" is the workload's and never shown to it; it
// would also take "[a,b]" among positional words for a list, so such a word gets a guard, and one
// that begins with a guard another.
constexpr char kGuard = '\x01';
struct Split {
    std::vector<std::string> words;
    std::vector<std::string> workload;
};

// `exec`: whether the next word is this option's value.
// In step with add_exec(): an option that is missing here has its value taken for the name.
bool takes_value(std::string_view word)
{
    constexpr std::array<std::string_view, 8> kLong{"--root",    "--env",        "--user",
                                                    "--workdir", "--timeout",    "--expect-plan",
                                                    "--output",  "--detach-keys"};
    if (word.starts_with("--")) return std::ranges::find(kLong, word) != kLong.end();
    // The last letter of a cluster such as -ite; with letters behind it, -eA=b, they are the value.
    constexpr std::string_view kShort = "euwo";
    const std::size_t first = word.find_first_of(kShort, 1);
    return first != std::string_view::npos && first + 1 == word.size();
}

// As docker and podman have it: behind the sandbox's name everything is the command's.
Split split_exec(int argc, const char* const* argv)
{
    Split split;
    bool verb_seen = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (verb_seen && word == "--") {
            split.workload.assign(argv + i + 1, argv + argc);
            break;
        }
        split.words.emplace_back(word);
        if (word.size() > 1 && word.starts_with('-')) {
            if (takes_value(word) && i + 1 < argc) split.words.emplace_back(argv[++i]);
            continue;
        }
        if (std::exchange(verb_seen, true)) {
            const int next = i + 1 < argc && std::string_view(argv[i + 1]) == "--" ? i + 2 : i + 1;
            split.workload.assign(argv + next, argv + argc);
            break;
        }
    }
    return split;
}

Split split_words(int argc, const char* const* argv)
{
    const std::string_view verb = verb_of(argc, argv);
    if (verb == "exec") return split_exec(argc, argv);
    const bool launches = verb == "run" || verb == "plan" || verb == "create";
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

// 1 and 2 may be the workload's own status there; 125 is what docker and podman have for theirs.
bool exits_as_workload(std::string_view verb)
{
    return verb == "run" || verb == "exec" || verb == "attach" || verb == "create" ||
           verb == "start";
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

// It takes them from the back.
std::vector<std::string> reversed(const Split& split)
{
    return {split.words.rbegin(), split.words.rend()};
}

// Nothing where the words are not those of a good `run` or `exec`: the whole tree then says why.
std::unique_ptr<Tree> parse_quickly(std::string_view verb, const Split& split)
{
    if (verb != "run" && verb != "exec") return nullptr;
    auto tree = std::make_unique<Tree>(verb);
    try {
        tree->app().parse(reversed(split));
    } catch (const CLI::ParseError&) {
        return nullptr;
    }
    return tree;
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
    Split split = split_words(argc, argv);
    std::unique_ptr<Tree> parsed = parse_quickly(verb_of(argc, argv), split);
    const bool quick = parsed != nullptr;
    if (!quick) parsed = std::make_unique<Tree>();
    Tree& tree = *parsed;
    try {
        if (!quick) tree.app().parse(reversed(split));
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
                      exits_as_workload(verb_of(argc, argv)) ? kOurFailure : kUsage};
    }
    Store& store = tree.store();
    if (!store.chosen) return Answer{help_of(tree, {}), kUsage};
    if (Plan* plan = std::get_if<Plan>(&*store.chosen)) finish_argv(*plan, split.workload);
    if (Exec* exec = std::get_if<Exec>(&*store.chosen)) {
        exec->argv.insert(exec->argv.end(), split.workload.begin(), split.workload.end());
        if (exec->argv.empty()) return Answer{"exec takes a command behind NAME\n", kOurFailure};
        if (exec->detach && exec->interactive)
            return Answer{"-d reads no standard input: leave -i out\n", kOurFailure};
    }
    if (const Apply* apply = std::get_if<Apply>(&*store.chosen)) {
        if (apply->files.empty() == apply->plan.empty()) {
            return Answer{"apply takes profiles or folders, or --plan FILE\n", kUsage};
        }
    }
    if (Create* create = std::get_if<Create>(&*store.chosen)) {
        finish_argv(*create, split.workload);
        const bool given = !create->argv.empty() || !create->env.empty() ||
                           !create->overlay.empty();
        if (create->profile.empty() == create->plan.empty() || (!create->plan.empty() && given)) {
            return Answer{"create takes a profile, or --plan FILE alone\n", kOurFailure};
        }
    }
    if (const Start* start = std::get_if<Start>(&*store.chosen)) {
        if (start->attach && start->names.size() > 1) {
            return Answer{"start -a takes one name\n", kOurFailure};
        }
    }
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
