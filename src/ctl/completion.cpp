// SPDX-License-Identifier: Apache-2.0
#include "ctl/completion.hpp"

#include <fmt/format.h>

namespace sandbox::ctl {

namespace {

// One word of any shell, whatever is in it: the scripts are made from texts of ours, and stay right
// when one of them gets a quote.
std::string shell_word(std::string_view text)
{
    std::string out = "'";
    for (const char c : text) {
        // End, an escaped quote, begin again: POSIX shell, 2.2.2.
        if (c == '\'')
            out += "'\\''";
        else
            out += c;
    }
    return out + "'";
}

std::string join(const std::vector<std::string>& words, std::string_view between)
{
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : std::string(between)) + word;
    return out;
}

// rfind gives npos for one word, and npos + 1 is 0.
std::string last_word(const std::string& path) { return path.substr(path.rfind(' ') + 1); }

// Every command that has a line of its own in the tables: the root, groups of verbs, verbs.
void each_command(const CommandDoc& command, const auto& action)
{
    action(command);
    for (const CommandDoc& child : command.children) each_command(child, action);
}

std::vector<std::string> option_names(const CommandDoc& command, bool only_with_value)
{
    std::vector<std::string> names;
    for (const OptionDoc& option : command.options) {
        if (only_with_value && option.value.empty()) continue;
        names.insert(names.end(), option.names.begin(), option.names.end());
    }
    return names;
}

// "profile file*": the kinds of the arguments, the last one again and again.
std::vector<std::string> argument_kinds(const CommandDoc& command)
{
    std::vector<std::string> kinds;
    for (const OptionDoc& argument : command.arguments) {
        const std::string kind = argument.words == WordKind::choice
                                     ? "choice:" + join(argument.choices, ",")
                                     : std::string(to_string(argument.words));
        kinds.push_back(kind + (argument.repeatable ? "*" : ""));
    }
    return kinds;
}

// "choice:table,json,yaml", "file", "none".
std::string value_kind(const OptionDoc& option)
{
    if (option.words == WordKind::choice) return "choice:" + join(option.choices, ",");
    return std::string(to_string(option.words));
}

std::vector<std::string> child_names(const CommandDoc& command)
{
    std::vector<std::string> names;
    for (const CommandDoc& child : command.children) names.push_back(last_word(child.path));
    return names;
}

// A case for each option whose value can be completed: 'run --overlay'|'plan --overlay') …
std::string value_cases(const CommandDoc& tree, std::string_view format)
{
    std::string out;
    each_command(tree, [&](const CommandDoc& command) {
        for (const OptionDoc& option : command.options) {
            if (option.words == WordKind::none || option.value.empty()) continue;
            for (const std::string& name : option.names) {
                // At run time, because each shell has a form of its own; both forms are literals of
                // this file.
                out += fmt::format(fmt::runtime(format), shell_word(command.path + " " + name),
                                   shell_word(value_kind(option)));
            }
        }
    });
    return out;
}

// Needs bash 4 (mapfile). Walks the words before the cursor as the parser would, and then offers
// what may stand at the cursor. All tables come from the command tree; this text has no verb in it.
constexpr std::string_view kBashBody = R"sh(
_sandboxctl_words()
{
    "$program" "${root[@]}" __complete "$1" "$cur" 2>/dev/null
}

_sandboxctl_places()
{
    mapfile -t COMPREPLY < <(
        _sandboxctl_words place
        compgen -f -- "$cur"
    )
    # A path in the sandbox follows the colon.
    if [[ ${COMPREPLY[0]-} == *: ]]; then
        compopt -o nospace 2>/dev/null
    else
        compopt -o filenames 2>/dev/null
    fi
}

_sandboxctl()
{
    local cur=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]/#\~/$HOME}
    local where= verbs= options= valued= kind=none word skip= dashes= i count=0
    local -a arguments=() root=()
    COMPREPLY=()
    _sandboxctl_at ''
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        # bash takes --option=value and uid:gid for three words.
        [[ $word == [=:] ]] && { [[ -n $skip ]] || skip=none; continue; }
        if [[ -n $skip ]]; then
            [[ $skip == --root ]] && root=(--root "${word/#\~/$HOME}")
            skip=
            continue
        fi
        case $word in
        --) dashes=1; break ;;
        -*) [[ " $valued " == *" $word "* ]] && skip=$word ;;
        *)
            if [[ " $verbs " == *" $word "* ]]; then
                where=${where:+$where }$word
                _sandboxctl_at "$where"
            else
                count=$((count + 1))
            fi
            ;;
        esac
    done
    [[ $cur == [=:] ]] && cur=
    if [[ -n $dashes ]]; then
        kind=file
    elif [[ -n $skip ]]; then
        _sandboxctl_value "$where $skip"
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    elif [[ -n $verbs ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$cur")
        return
    elif ((${#arguments[@]} > 0)); then
        word=${arguments[${#arguments[@]} - 1]}
        [[ $word == *\* ]] && kind=$word
        ((count < ${#arguments[@]})) && kind=${arguments[count]}
        kind=${kind%\*}
    fi
    case $kind in
    choice:*)
        kind=${kind#choice:}
        mapfile -t COMPREPLY < <(compgen -W "${kind//,/ }" -- "$cur")
        ;;
    file)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        ;;
    folder)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        ;;
    profile)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(
            _sandboxctl_words profile
            compgen -f -X '!*.toml' -- "$cur"
            compgen -d -- "$cur"
        )
        ;;
    place) _sandboxctl_places ;;
    sandbox | session | signal) mapfile -t COMPREPLY < <(_sandboxctl_words "$kind") ;;
    esac
}

complete -F _sandboxctl sandboxctl
)sh";

std::string bash_script(const CommandDoc& tree)
{
    std::string out = "# bash completion of sandboxctl; made by 'sandboxctl completion bash'.\n"
                      "_sandboxctl_at()\n{\n    verbs= options= valued= arguments=()\n"
                      "    case $1 in\n";
    each_command(tree, [&](const CommandDoc& command) {
        // Tables before the body: the functions below use them.
        out += fmt::format("    {})\n        options={} valued={}\n", shell_word(command.path),
                           shell_word(join(option_names(command, false), " ")),
                           shell_word(join(option_names(command, true), " ")));
        if (!command.is_leaf()) {
            out += fmt::format("        verbs={}\n", shell_word(join(child_names(command), " ")));
        }
        std::string kinds;
        for (const std::string& kind : argument_kinds(command)) kinds += " " + shell_word(kind);
        if (!kinds.empty()) out += fmt::format("        arguments=({})\n", kinds.substr(1));
        out += "        ;;\n";
    });
    out += "    esac\n}\n\n_sandboxctl_value()\n{\n    case $1 in\n";
    out += value_cases(tree, "    {}) kind={} ;;\n");
    // What has no case leaves "none".
    out += "    esac\n}\n";
    out += kBashBody;
    return out;
}

// Runs under compinit (the #compdef line) and when it is sourced; the last lines tell which.
constexpr std::string_view kZshBody = R"sh(
_sandboxctl_words() {
    local -a found
    found=("${(@f)$("$program" "${root[@]}" __complete "$1" "$PREFIX" 2>/dev/null)}")
    found=(${found:#})
    [[ $1 == place ]] && { compadd -S '' -a found; return }
    compadd -a found
}

_sandboxctl() {
    local cur=${words[CURRENT]} program=${(Q)words[1]} where= kind=none word= skip= dashes=
    local -a verbs options valued arguments root choices
    integer i count=0
    _sandboxctl_at ''
    for ((i = 2; i < CURRENT; i++)); do
        word=${(Q)words[i]}
        if [[ -n $skip ]]; then
            [[ $skip == --root ]] && root=(--root "$word")
            skip=
            continue
        fi
        case $word in
        (--) dashes=1; break ;;
        (--root=*) root=("$word") ;;
        (-*) ((${valued[(Ie)$word]})) && skip=$word ;;
        (*)
            if ((${verbs[(I)${(b)word}:*]})); then
                where=${where:+$where }$word
                _sandboxctl_at "$where"
            else
                ((count += 1))
            fi
            ;;
        esac
    done
    if [[ -z $dashes && -z $skip && $cur == --*=* ]]; then
        skip=${cur%%=*}
        compset -P '*='
    fi
    if [[ -n $dashes ]]; then
        kind=file
    elif [[ -n $skip ]]; then
        _sandboxctl_value "$where $skip"
    elif [[ $cur == -* ]]; then
        _describe -o option options
        return
    elif (($#verbs)); then
        _describe verb verbs
        return
    elif (($#arguments)); then
        [[ ${arguments[-1]} == *\* ]] && kind=${arguments[-1]}
        ((count < $#arguments)) && kind=${arguments[count + 1]}
        kind=${kind%\*}
    fi
    case $kind in
    (choice:*)
        choices=(${(s:,:)kind#choice:})
        compadd -a choices
        ;;
    (file) _files ;;
    (folder) _files -/ ;;
    (profile)
        _sandboxctl_words profile
        _files -g '*.toml'
        ;;
    (place)
        _sandboxctl_words place
        _files
        ;;
    (sandbox|session|signal) _sandboxctl_words $kind ;;
    esac
}

if [[ ${funcstack[1]-} == _sandboxctl ]]; then
    _sandboxctl "$@"
else
    compdef _sandboxctl sandboxctl
fi
)sh";

// "NAME:HELP", as _describe wants it; no option has a colon in its name.
std::string described(const std::vector<std::string>& names, const std::string& help)
{
    std::string out;
    for (const std::string& name : names) out += " " + shell_word(name + ":" + help);
    return out;
}

std::string zsh_script(const CommandDoc& tree)
{
    std::string out = "#compdef sandboxctl\n"
                      "# zsh completion of sandboxctl; made by 'sandboxctl completion zsh'.\n"
                      "_sandboxctl_at() {\n    verbs=() options=() valued=() arguments=()\n"
                      "    case $1 in\n";
    each_command(tree, [&](const CommandDoc& command) {
        out += fmt::format("    ({})\n", shell_word(command.path));
        std::string words;
        for (const OptionDoc& option : command.options) {
            words += described(option.names, option.help);
        }
        out += fmt::format("        options=({})\n", words.empty() ? words : words.substr(1));
        out += fmt::format("        valued=({})\n", join(option_names(command, true), " "));
        words.clear();
        for (const CommandDoc& child : command.children) {
            words += described({last_word(child.path)}, child.help);
        }
        if (!words.empty()) out += fmt::format("        verbs=({})\n", words.substr(1));
        words.clear();
        for (const std::string& kind : argument_kinds(command)) words += " " + shell_word(kind);
        if (!words.empty()) out += fmt::format("        arguments=({})\n", words.substr(1));
        out += "        ;;\n";
    });
    out += "    esac\n}\n\n_sandboxctl_value() {\n    case $1 in\n";
    out += value_cases(tree, "    ({}) kind={} ;;\n");
    out += "    esac\n}\n";
    out += kZshBody;
    return out;
}

// fish asks a condition for each line, so the tables are lines here.
constexpr std::string_view kFishBody = R"sh(
# The verb typed so far: "run", "audit show"; nothing before any.
function __sandboxctl_path
    set -l path ''
    set -l skip 0
    set -l words (commandline -opc)
    for word in $words[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case --
                break
            case '--*=*'
                continue
            case '-*'
                contains -- $word (__sandboxctl_valued "$path"); and set skip 1
            case '*'
                set -l next (string trim -- "$path $word")
                contains -- $next $__sandboxctl_paths; and set path $next
        end
    end
    echo $path
end

function __sandboxctl_at
    test (__sandboxctl_path) = "$argv[1]"
end

function __sandboxctl_words
    set -l words (commandline -opc)
    set -l root
    set -l before
    for word in $words
        test "$before" = --root; and set root --root $word
        set before $word
    end
    command $words[1] $root __complete $argv[1] (commandline -ct) 2>/dev/null
end

complete -c sandboxctl -f
)sh";

// In fish a completion without words is one without an argument of its own.
std::string fish_words(const OptionDoc& option)
{
    switch (option.words) {
    case WordKind::choice: return " -a " + shell_word(join(option.choices, " "));
    case WordKind::sandbox:
    case WordKind::session:
    case WordKind::signal:
        return fmt::format(" -a '(__sandboxctl_words {})'", to_string(option.words));
    case WordKind::profile:
        return " -a '(__sandboxctl_words profile; __fish_complete_suffix .toml)'";
    case WordKind::place: return " -F -a '(__sandboxctl_words place)'";
    case WordKind::folder: return " -a '(__fish_complete_directories)'";
    case WordKind::file: return " -F";
    case WordKind::none: return "";
    }
    return "";
}

// In fish's single quotes a backslash escapes a quote and itself.
std::string fish_word(std::string_view text)
{
    std::string out = "'";
    for (const char c : text) {
        if (c == '\'' || c == '\\') out += '\\';
        out += c;
    }
    return out + "'";
}

std::string fish_option(const std::string& condition, const OptionDoc& option)
{
    std::string out = "complete -c sandboxctl -n " + condition;
    for (const std::string& name : option.names) {
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (!option.value.empty()) out += " -r" + fish_words(option);
    return out + " -d " + fish_word(option.help) + "\n";
}

std::string fish_script(const CommandDoc& tree)
{
    std::string out = "# fish completion of sandboxctl; made by 'sandboxctl completion fish'.\n"
                      "set -g __sandboxctl_paths";
    std::string valued = "\nfunction __sandboxctl_valued\n    switch \"$argv[1]\"\n";
    each_command(tree, [&](const CommandDoc& command) {
        if (!command.path.empty()) out += " " + shell_word(command.path);
        // One name a line, for `contains`.
        const std::string names = join(option_names(command, true), "\\n");
        if (!names.empty()) {
            valued += fmt::format("        case {}\n            printf '{}\\n'\n",
                                  shell_word(command.path), names);
        }
    });
    out += "\n" + valued + "    end\nend\n" + std::string(kFishBody);
    each_command(tree, [&](const CommandDoc& command) {
        // Quoted twice: fish evaluates the text of a condition.
        const std::string condition = fish_word("__sandboxctl_at \"" + command.path + "\"");
        for (const CommandDoc& child : command.children) {
            out += fmt::format("complete -c sandboxctl -n {} -a {} -d {}\n", condition,
                               last_word(child.path), fish_word(child.help));
        }
        for (const OptionDoc& option : command.options) out += fish_option(condition, option);
        for (const OptionDoc& argument : command.arguments) {
            const std::string words = fish_words(argument);
            if (!words.empty()) {
                out += fmt::format("complete -c sandboxctl -n {}{}\n", condition, words);
            }
        }
    });
    return out;
}

}  // namespace

std::string completion_script(const CommandDoc& tree, Shell shell)
{
    switch (shell) {
    case Shell::bash: return bash_script(tree);
    case Shell::zsh: return zsh_script(tree);
    case Shell::fish: return fish_script(tree);
    }
    return {};
}

}  // namespace sandbox::ctl
