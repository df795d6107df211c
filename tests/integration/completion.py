#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completion in real shells: every verb, option and value of the parser, and the words of this host."""
import json
import os
import shutil
import subprocess
import tempfile

from lib.harness import PATIENCE, SANDBOXCTL, check, main, same, scenario, skip

BASH = r'''
source "$1"
try() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _sandboxctl
    printf '%s\n' "${COMPREPLY[@]}"
    echo --end--
}
'''

ZSH = r'''
compdef() { : }
compset() { PREFIX=${PREFIX#*=}; cur=$PREFIX }
compadd() { local -a given; given=(${(P)@[-1]}); print -rl -- ${(M)given:#$PREFIX*} }
_describe() { local -a given; given=(${(P)@[-1]}); given=(${given%%:*}); print -rl -- ${(M)given:#$PREFIX*} }
_files() { print -rl -- "<files>" }
source "$1"
try() {
    words=("$@")
    CURRENT=$#
    PREFIX=${words[-1]}
    _sandboxctl
    print -r -- --end--
}
'''


def script(shell):
    done = subprocess.run([SANDBOXCTL, 'completion', shell], capture_output=True, text=True, check=True)
    return done.stdout


def quoted(word):
    return "'" + word.replace("'", "'\\''") + "'"


def ask(shell, lines, cwd='/'):
    """What each command line is completed to, in one run of the shell."""
    program, prelude = {'bash': (['bash', '--norc', '--noprofile'], BASH), 'zsh': (['zsh', '-f'], ZSH)}[shell]
    with tempfile.TemporaryDirectory(prefix='sandbox-completion-') as folder:
        path = os.path.join(folder, 'script')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(script(shell))
        text = prelude + '\n'.join('try ' + ' '.join(map(quoted, [SANDBOXCTL, *line])) for line in lines) + '\n'
        with open(path + '.test', 'w', encoding='utf-8') as file:
            file.write(text)
        done = subprocess.run([*program, path + '.test', path], capture_output=True, text=True, check=False,
                              cwd=cwd, timeout=8 * PATIENCE)
    answers = [sorted(filter(None, part.splitlines())) for part in done.stdout.split('--end--\n')[:-1]]
    return answers, done.stderr


def ask_fish(lines):
    # Fish looks at the text, not at words: a path to the program will do.
    with tempfile.TemporaryDirectory(prefix='sandbox-completion-') as folder:
        path = os.path.join(folder, 'script.fish')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(script('fish'))
        answers, errors = [], ''
        for line in lines:
            done = subprocess.run(['fish', '--no-config', '-c', f'source {path}; complete -C "$argv[1]"',
                                   ' '.join([SANDBOXCTL, *line])], capture_output=True, text=True, check=False,
                                  timeout=8 * PATIENCE, env={**os.environ, 'HOME': folder, 'XDG_CONFIG_HOME': folder})
            answers.append(sorted({row.split('\t')[0] for row in done.stdout.splitlines()}))
            errors += done.stderr
    return answers, errors


def tree():
    done = subprocess.run([SANDBOXCTL, '__commands'], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)['verbs']


def questions():
    """(words, completions) for all that the parser knows."""
    verbs = tree()
    first = sorted({verb['path'].split()[0] for verb in verbs})
    yield [''], first
    for word in first:
        inner = sorted(verb['path'].split()[1] for verb in verbs if verb['path'].startswith(word + ' '))
        if inner:
            yield [word, ''], inner
    for verb in verbs:
        path = verb['path'].split()
        yield [*path, '-'], sorted(name for option in verb['options'] for name in option['names'])
        for option in verb['options']:
            if option['choices']:
                for name in option['names']:
                    yield [*path, name, ''], sorted(option['choices'])
                    part = option['choices'][0][:2]
                    yield [*path, name, part], sorted(c for c in option['choices'] if c.startswith(part))


@scenario
def bash_completes_all_the_parser_knows(root):
    asked = list(questions())
    answers, errors = ask('bash', [words for words, _ in asked])
    same(len(answers), len(asked), 'bash answers every question', errors)
    wrong = [f'{words}: {found}, wanted {wanted}' for (words, wanted), found in zip(asked, answers)
             if found != wanted]
    check(not wrong and len(asked) > 60, f'{len(asked)} verbs, options and values are completed in bash', *wrong, errors)
    same(errors, '', 'bash has nothing to complain of')


@scenario
def bash_understands_what_stands_before(root):
    stream = ['both', 'stderr', 'stdout']
    asked = [(['logs', '--stream', '='], stream), (['logs', '--stream', '=', 'std'], stream[1:]),
             (['--root', root.path, 'logs', '--stream', ''], stream),
             (['run', '-e', 'A', '=', 'b', '--no'], []),
             (['ps', '--root', root.path, '-o', 'j'], ['json']),
             (['stop', '-t', '5s', '--ro'], ['--root'])]
    answers, errors = ask('bash', [words for words, _ in asked])
    for (words, wanted), found in zip(asked, answers):
        same(found, wanted, f'{" ".join(words[-3:])} is understood', errors)


def running(root):
    name = 'complete-me'
    done = root.ctl('run', '-d', '--name', name, root.profile(argv=['/bin/sleep', '600']))
    check(done.code == 0, 'a sandbox runs', done)
    return name, root.one(name)['id'] if isinstance(root.one(name), dict) else root.one(name)[0]['id']


@scenario
def sandboxes_and_profiles_of_the_host_are_offered(root):
    profiles = os.path.join(root.path, 'etc/sandbox/profiles.d')
    os.makedirs(profiles)
    for name in ('alpha.toml', 'alpine.toml', '$(touch oops).toml', 'notes.md'):
        root.write(os.path.join(profiles, name), 'version = 1\nname = "x"\n')
    name, sandbox = running(root)
    session = root.ctl('exec', '-d', name, '/bin/sleep', '600').out.strip()
    check(session in root.ctl('sessions', name).out, 'a session runs', session)
    at = ['--root', root.path]
    asked = [([*at, 'rm', ''], [name]), ([*at, 'stop', 'comp'], [name]), ([*at, 'logs', sandbox[:6]], [sandbox]),
             ([*at, 'plan', '--diff', ''], [name]), ([*at, 'run', 'alp'], ['alpha', 'alpine']),
             ([*at, 'kill', '-s', 'KI'], ['KILL']), ([*at, 'audit', 'show', 'com'], [name]),
             ([*at, 'cp', 'comp'], [name + ':']), ([*at, 'cp', 'x', ''], [name + ':']),
             ([*at, 'attach', '--session', ''], [session]), ([*at, 'kill', '--session', 's'], [session]),
             ([*at, 'rm', 'zzz'], [])]
    empty = root.grant('empty')
    answers, errors = ask('bash', [words for words, _ in asked], cwd=empty)
    for (words, wanted), found in zip(asked, answers):
        same(found, wanted, f'bash: {" ".join(words[2:])}', errors)
    if shutil.which('zsh'):
        answers, errors = ask('zsh', [words for words, _ in asked], cwd=empty)
        for (words, wanted), found in zip(asked, answers):
            same([word for word in found if word != '<files>'], wanted, f'zsh: {" ".join(words[2:])}', errors)
    else:
        skip('zsh offers them too', 'zsh is not installed')
    if shutil.which('fish'):
        answers, errors = ask_fish([words for words, _ in asked if words[-1]])
        for (words, wanted), found in zip((a for a in asked if a[0][-1]), answers):
            same([word for word in found if word in wanted], wanted, f'fish: {" ".join(words[2:])}', errors, found)
    else:
        skip('fish offers them too', 'fish is not installed')
    same(os.listdir(empty), [], 'no name of a file was executed')


@scenario
def zsh_completes_all_the_parser_knows(root):
    if not shutil.which('zsh'):
        skip('zsh completes verbs, options and values', 'zsh is not installed')
        return
    asked = list(questions())
    answers, errors = ask('zsh', [words for words, _ in asked])
    wrong = [f'{words}: {found}, wanted {wanted}' for (words, wanted), found in zip(asked, answers)
             if found != wanted]
    check(not wrong and len(answers) == len(asked), f'{len(asked)} verbs, options and values are completed in zsh',
          *wrong, errors)
    same(errors, '', 'zsh has nothing to complain of')


@scenario
def fish_completes_verbs_options_and_values(root):
    if not shutil.which('fish'):
        skip('fish completes verbs, options and values', 'fish is not installed')
        return
    verbs = {verb['path']: verb for verb in tree()}
    asked = [(['lo'], ['logs']), (['audit', 'v'], ['verify']), (['logs', '--stream', ''], ['both', 'stderr', 'stdout']),
             (['run', '--'], sorted(n for o in verbs['run']['options'] for n in o['names'] if n.startswith('--')))]
    answers, errors = ask_fish([words for words, _ in asked])
    for (words, wanted), found in zip(asked, answers):
        same([word for word in found if word in wanted], wanted, f'fish: {" ".join(words)}', errors, found)
    same(errors, '', 'fish has nothing to complain of')


@scenario
def asking_for_words_is_quick_quiet_and_changes_nothing(root):
    fresh = root.grant('fresh')
    for kind in ('sandbox', 'profile', 'signal', 'moon', ''):
        done = subprocess.run([SANDBOXCTL, '--root', fresh, '__complete', kind, '--help'], capture_output=True,
                              text=True, check=False)
        same((done.returncode, done.stdout, done.stderr), (0, '', ''), f'{kind or "no kind"}: nothing, quietly')
    same(os.listdir(fresh), [], 'asking made no folder')
    root.write(os.path.join(fresh, 'var'), 'in the way')
    done = subprocess.run([SANDBOXCTL, '--root', fresh, '__complete', 'sandbox', ''], capture_output=True, text=True,
                          check=False)
    same((done.returncode, done.stdout, done.stderr), (0, '', ''), 'a state folder that is none is no noise')


if __name__ == '__main__':
    main()
