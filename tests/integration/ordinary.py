#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An ordinary user: what only looks works, in folders of the user's own; a launch is refused with reasons."""
import json
import os
import shutil
import subprocess

from lib.harness import BIN, PATIENCE, SOURCE, check, main, same, scenario, skip

NOBODY = 65534
HELLO = os.path.join(SOURCE, 'examples', '01-hello.toml')


class User:
    """Programs and a private home for uid 65534, in a folder it can reach."""

    def __init__(self, root):
        self.bin = os.path.join(root.base, 'user', 'bin')
        self.home = os.path.join(root.base, 'user', 'home')
        os.makedirs(self.bin)
        os.makedirs(self.home, mode=0o700)
        os.chown(self.home, NOBODY, NOBODY)
        for program in ('sandboxctl', 'sandbox-shim', 'sandbox-init'):
            shutil.copy(os.path.join(BIN, program), self.bin)
        self.profile = os.path.join(root.base, 'user', 'hello.toml')
        shutil.copy(HELLO, self.profile)

    def command(self, *words):
        return ['setpriv', '--reuid', str(NOBODY), '--regid', str(NOBODY), '--clear-groups', '--inh-caps=-all',
                os.path.join(self.bin, 'sandboxctl'), *words]

    def environment(self, **more):
        return {'HOME': self.home, 'PATH': '/usr/bin:/bin', **more}

    def ctl(self, *words, before=(), **more):
        return subprocess.run([*before, *self.command(*words)], capture_output=True, text=True, check=False,
                              env=self.environment(**more), timeout=PATIENCE * 2, cwd='/')

    def made(self):
        found = set()
        for folder, folders, files in os.walk(self.home):
            found |= {os.path.relpath(os.path.join(folder, name), self.home) for name in folders + files}
        return found


@scenario
def what_only_looks_works(root):
    user = User(root)
    for words in (['validate', user.profile], ['ps'], ['ps', '-o', 'json'], ['policy', 'explain'], ['version'],
                  ['probe', '--json'], ['config', 'check'], ['reconcile'], ['completion', 'bash'],
                  ['__complete', 'sandbox', '']):
        done = user.ctl(*words, XDG_RUNTIME_DIR=os.path.join(user.home, 'run'))
        check(done.returncode == 0 and 'denied' not in done.stderr,
              f'{" ".join(words[:2]).replace(root.base, "…")} works', done)
    # A login session has a runtime folder; who has none is told which was wanted.
    done = user.ctl('reconcile')
    check(done.returncode == 1 and f'/run/user/{NOBODY}' in done.stderr,
          'without a runtime folder the one that is missing is named', done)
    same(user.ctl('inspect', 'nothing').returncode, 1, 'inspect of what is not there says so')


@scenario
def a_plan_for_another_host_works(root):
    user = User(root)
    snapshot = os.path.join(root.base, 'user', 'host.json')
    done = root.ctl('probe', '--json')
    root.write(snapshot, done.out)
    mine = user.ctl('plan', '-o', 'json', '--snapshot', snapshot, user.profile)
    theirs = root.ctl('plan', '-o', 'json', '--snapshot', snapshot, user.profile)
    same(mine.returncode, 0, 'a plan for the host of a saved probe', mine.stderr)
    same(mine.stdout, theirs.out, 'is the one root gets, byte for byte')


@scenario
def its_files_are_its_own(root):
    user = User(root)
    user.ctl('config', 'init')
    user.ctl('run', '--rm', user.profile)
    user.ctl('ps')
    made = user.made()
    check({'.config/sandbox/config.toml', '.local/state/sandbox/ledger.db', '.local/state/sandbox/audit.jsonl'} <= made,
          'configuration and state are below the home', sorted(made))
    places = {'XDG_CONFIG_HOME': 'etc', 'XDG_STATE_HOME': 'state', 'XDG_RUNTIME_DIR': 'run'}
    shutil.rmtree(os.path.join(user.home, '.config'))
    shutil.rmtree(os.path.join(user.home, '.local'))
    moved = {name: os.path.join(user.home, folder) for name, folder in places.items()}
    user.ctl('config', 'init', **moved)
    user.ctl('run', '--rm', user.profile, **moved)
    made = user.made()
    check({'etc/sandbox/config.toml', 'state/sandbox/ledger.db', 'run/sandbox/probe.json'} <= made,
          'XDG folders are taken where they are named', sorted(made))
    strays = [path for path in made if path.split('/')[0] not in places.values()]
    same(strays, [], 'and nothing is elsewhere')
    open_to_others = []
    for folder in ('state/sandbox', 'run/sandbox'):
        mode = os.stat(os.path.join(user.home, folder)).st_mode & 0o7777
        if mode & 0o077:
            open_to_others.append(f'{folder} {mode:04o}')
    same(open_to_others, [], 'state and runtime folders are closed to others')


@scenario
def a_launch_is_refused_with_the_reason(root):
    user = User(root)
    done = user.ctl('run', '--rm', user.profile)
    same(done.returncode, 125, 'run exits with 125', done.stderr)
    check('(subordinate-ids-missing)' in done.stderr and 'usermod' in done.stderr, 'it says what is missing',
          done.stderr)
    done = user.ctl('run', '--rm', '-o', 'json', user.profile)
    reasons = [denial['reason'] for denial in json.loads(done.stdout)['denials']]
    check({'subordinate-ids-missing', 'cgroup-not-delegated'} <= set(reasons), 'in JSON too', reasons)
    text = open(user.profile).read().replace('isolation = "sandbox"', 'isolation = "sandbox"\ndriver = "oci"')
    pinned = root.write(os.path.join(root.base, 'user', 'pinned.toml'), text)
    done = user.ctl('run', '--rm', pinned)
    check('(root-required)' in done.stderr and 'run as root' in done.stderr, 'oci says that root is required',
          done.stderr)
    same(user.ctl('ps', '-a', '-o', 'json').stdout.strip(), '[]', 'nothing was made')


def needs(user, before=()):
    done = user.ctl('doctor', '-o', 'json', before=before)
    found = json.loads(done.stdout)
    return done, {need['name']: need for need in found['user']}


@scenario
def doctor_says_what_is_missing(root):
    user = User(root)
    done, found = needs(user)
    same(done.returncode, 1, 'doctor fails', done.stderr)
    same(sorted(found), ['delegated cgroup', 'driver', 'newuidmap', 'subordinate ids', 'user namespace'],
         'each need is named')
    same(found['driver']['severity'], 'serious', 'the driver is what stops every launch')
    for need in found.values():
        check(need['severity'] == 'ok' or (need['mend'] and need['evidence']),
              f'{need["name"]}: met, or seen and mendable', need)
    text = user.ctl('doctor').stdout
    check(text.startswith('this user cannot launch sandboxes here'), 'it begins with that', text[:200])
    check('run doctor as root' in text, 'what could not be tried is told from what is missing')
    same(root.json('doctor', '-o', 'json')['user'], [], 'of root nothing of it is said')


@scenario
def subordinate_ids_are_really_tried(root):
    user = User(root)
    if not shutil.which('newuidmap') or not shutil.which('unshare'):
        skip('a range is mapped through newuidmap', 'newuidmap or unshare is not installed')
        return
    # In a mount namespace of its own the host's files stay what they are.
    for name, text, wanted in (('a range', f'{NOBODY}:1500000000:65536\n', 'ok'),
                               ('a short range', f'{NOBODY}:1500000000:65535\n', 'warning'),
                               ("another's range", '12345:1500000000:65536\n', 'warning')):
        ranges = root.write(os.path.join(root.base, 'user', 'ranges'), text)
        shell = f'mount --bind {ranges} /etc/subuid && mount --bind {ranges} /etc/subgid && exec "$@"'
        _, found = needs(user, before=['unshare', '-m', '/bin/sh', '-c', shell, 'sh'])
        need = found['subordinate ids']
        same(need['severity'], wanted, f'{name}: {wanted}', need)
        if wanted == 'ok':
            same(need['value'], '1500000000:65536', 'and it is the one that was given', need)
        else:
            check('usermod' in need['mend'], 'and how to mend it is said', need)


if __name__ == '__main__':
    main()
