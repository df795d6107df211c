#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL to each of our processes: ps stays true, reconcile says what it found and removed, the
census is clean, and nobody else notices."""
import glob
import os
import random
import signal
import subprocess
import time

from lib.follow import by_argument, kill_shim
from lib.harness import CENSUS, DRIVER, PATIENCE, check, main, read_until, same, scenario, start_time, stat_of, until

SHELL = '/bin/sh', '-c'
LOOP = 'echo ready; while :; do sleep 0.02; done'
WATCHER = ('import os, signal, sys\n'
           'def note(number, frame): print("signal", number, flush=True)\n'
           'for n in signal.valid_signals() - {9, 17, 19}: signal.signal(n, note)\n'
           'print("ready", flush=True)\nsys.stdin.read()\n')


class Innocents:
    """A process of the host and a sandbox of the same root that nothing here may touch."""

    def __init__(self, root):
        self.root = root
        self.watcher = subprocess.Popen(['python3', '-c', WATCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        root.children.append(self.watcher)
        read_until(self.watcher.stdout, b'ready\n')
        done = root.ctl('run', '-d', '--name', 'bystander', root.profile('bystander'), '--', '/bin/sleep', '1000')
        assert done.code == 0, done
        self.id = root.one('bystander')['id']
        # crun ends by itself a moment after its sandbox runs.
        until(lambda: not any('crun' in program_of(pid) for pid in members(root, self.id)), 'the end of crun')
        self.processes = self.look()

    def look(self):
        return {pid: start_time(pid) for pid in members(self.root, self.id)}

    def verdict(self):
        now = self.look()
        check(self.processes and all(now.get(pid) == start for pid, start in self.processes.items()),
              'an innocent sandbox goes on', self.processes, now)
        same(self.root.one('bystander')['state'], 'running', 'and is said to run')
        self.watcher.stdin.close()
        out = self.watcher.stdout.read()
        same((self.watcher.wait(PATIENCE), out), (0, b''), 'an innocent process got no signal')
        same(self.root.ctl('rm', '-f', 'bystander').code, 0, 'the innocent sandbox can still be removed')


def program_of(pid):
    try:
        return os.readlink(f'/proc/{pid}/exe')
    except OSError:
        return ''


def members(root, sandbox):
    """Process ids of a sandbox by its cgroups."""
    found = set()
    for path in glob.glob(f'/sys/fs/cgroup/**{root.parent}/{sandbox}/**/cgroup.procs', recursive=True) + \
            glob.glob(f'/sys/fs/cgroup/*{root.parent}/{sandbox}/**/cgroup.procs', recursive=True):
        try:
            with open(path) as file:
                found |= set(map(int, file.read().split()))
        except OSError:
            pass
    return found


def start(root, name, script=LOOP):
    path = root.profile(name)
    child = root.spawn('run', '--name', name, path, '--', *SHELL, script)
    read_until(child.stdout, b'ready\n')
    # Its output may be seen before the ledger's commit that it runs.
    until(lambda: root.one(name)['state'] not in ('resolved', 'prepared', 'created'), 'the commit that it runs')
    return child, root.one(name)['id']


def reconciled(root, name, sandbox, what):
    report = root.json('reconcile', '-o', 'json')
    text = str(report['found']) + str(report['removed']) + str(report['now_resting'])
    check(sandbox in text, f'reconcile after {what} reports what it found and removed', report)
    states = {s['name']: s['state'] for s in root.ps()}
    check(states.get(name) not in ('running', 'prepared', 'created'), 'ps no longer says that it runs', states)
    same(members(root, sandbox), set(), 'nothing of it runs')
    again = root.json('reconcile', '-o', 'json')
    same((again['found'], again['removed']), ([], []), 'a second reconcile finds nothing')


@scenario
def kill_the_shim(root):
    innocents = Innocents(root)
    child, sandbox = start(root, 'victim', 'echo ready; trap "" TERM HUP; (setsid sleep 1000 &); ' + LOOP)
    inside = members(root, sandbox)
    kill_shim(root, sandbox)
    until(lambda: not members(root, sandbox), 'the end of the sandbox')
    check(len(inside) >= 2, 'a sandbox does not outlive its shim', inside)
    same(child.wait(PATIENCE), 125, 'run exits 125')
    check(b'reconcile' in child.stderr.read(), 'and says what to do')
    same({s['name']: s['state'] for s in root.ps()}['victim'], 'dead', 'ps says dead')
    same((root.ctl('wait', 'victim').code, root.ctl('stop', 'victim').code), (1, 1), 'wait and stop fail')
    reconciled(root, 'victim', sandbox, 'the death of a shim')
    root.census_clean_of(sandbox)
    check('ready' in root.ctl('logs', 'victim').out, 'its log can still be read')
    same(root.ctl('rm', 'victim').code, 0, 'it can be removed')
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')
    child, sandbox = start(root, 'other')
    kill_shim(root, sandbox)
    child.wait(PATIENCE)
    same(root.ctl('rm', '-f', 'other').code, 0, 'rm -f needs no reconcile')
    root.census_clean_of(sandbox)
    innocents.verdict()


@scenario
def kill_pid_1(root):
    innocents = Innocents(root)
    child, sandbox = start(root, 'victim')
    [init] = [pid for pid in members(root, sandbox) if 'sandbox-init' in CENSUS.link(f'/proc/{pid}/exe')]
    os.kill(init, signal.SIGKILL)
    same(child.wait(PATIENCE), 137, 'run exits 137')
    until(lambda: root.one('victim')['state'] == 'stopped', 'rest')
    check(root.one('victim')['exit']['reason'] in ('unknown', 'signal'), 'inspect does not guess why', root.one('victim')['exit'])
    same(root.json('reconcile', '-o', 'json')['found'], [], 'the shim has cleaned up itself')
    root.census_clean_of(sandbox)
    innocents.verdict()


@scenario
def kill_the_log_worker(root):
    innocents = Innocents(root)
    child, sandbox = start(root, 'victim', 'echo ready; read x; sleep 0.1; exit 3')
    child.kill()
    child.wait()
    child, sandbox = start(root, 'second')
    [worker] = by_argument(f'log:{sandbox}')
    os.kill(worker, signal.SIGKILL)
    same(root.ctl('stop', '-t', '1s', 'second').code, 0, 'a sandbox whose log worker died can be stopped')
    until(lambda: root.one('second')['state'] == 'stopped', 'rest')
    root.census_clean_of(sandbox)
    innocents.verdict()


@scenario
def kill_sandboxctl(root):
    innocents = Innocents(root)
    child, sandbox = start(root, 'victim', 'trap "echo bye; exit 9" TERM; ' + LOOP)
    child.kill()
    child.wait(PATIENCE)
    check(root.one('victim')['state'] == 'running' and members(root, sandbox), 'a sandbox survives its sandboxctl')
    waiter = root.spawn('wait', 'victim')
    same(root.ctl('stop', 'victim').code, 0, 'and obeys the next one')
    same(waiter.communicate(timeout=PATIENCE)[0], b'9\n', 'which learns its status')
    check(root.ctl('logs', 'victim').out.endswith('bye\n'), 'nothing of its log is lost')
    same(root.json('reconcile', '-o', 'json')['found'], [], 'there is nothing to reconcile')
    for verb in (['stop', 'v2'], ['rm', '-f', 'v2']):
        child, sandbox = start(root, 'v2', 'trap "" TERM; ' + LOOP)
        acting = root.spawn(*verb)
        until(lambda: acting.poll() is not None or by_argument(verb[-1]), 'the verb')
        acting.kill()
        acting.wait(PATIENCE)
        same(root.ctl('rm', '-f', 'v2').code in (0, 1), True, f'after a killed {verb[0]}, rm -f goes on')
        check('v2' not in [s['name'] for s in root.ps()], 'and it is gone')
        child.wait(PATIENCE)
        root.census_clean_of(sandbox)
    innocents.verdict()


def settle(root, name):
    """After a launch was killed somewhere: whatever it came to, the truth is told and all can go."""
    root.json('reconcile', '-o', 'json')
    wrong = []
    for sandbox in root.ps():
        if sandbox['name'] != name:
            continue
        alive = bool(members(root, sandbox['id']))
        if alive != (sandbox['state'] == 'running'):
            # A shim that works on: give it the time it needs.
            try:
                until(lambda: bool(members(root, sandbox['id'])) == (root.one(sandbox['id'])['state'] == 'running'), 'truth')
            except TimeoutError:
                wrong.append((root.one(sandbox['id']), members(root, sandbox['id'])))
        if root.ctl('rm', '-f', sandbox['id']).code != 0:
            wrong.append(('rm -f', sandbox))
    return wrong


@scenario
def kill_sandboxctl_while_it_launches(root):
    innocents = Innocents(root)
    profile, wrong, chance = root.profile('victim'), [], random.Random(7)
    for round in range(25):
        child = root.spawn('run', '--name', 'victim', profile, '--', *SHELL, LOOP)
        end = time.monotonic() + chance.random() * 0.06
        while time.monotonic() < end:
            pass
        child.kill()
        child.wait()
        wrong += settle(root, 'victim')
    same(wrong, [], 'twenty-five launches killed at any moment leave the truth and nothing else')
    root.ctl('reconcile')
    root.census_clean('and a clean census', but=innocent_kinds(root))
    innocents.verdict()


def innocent_kinds(root):
    # The bystander lives and has its own; it is counted again when it has been removed.
    return [] if 'bystander' not in [s['name'] for s in root.ps()] else \
        ['processes', 'namespaces', 'cgroups', 'files', 'sockets', 'mounts', 'memfds', 'namespaces pinned']


def kill_while_it_is(program, pid):
    """Kills pid if it is still of that program: it stands still while it is looked at."""
    try:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: (stat_of(pid) or 'X')[0] in 'TtZX', 'the process stands still')
        if program in os.readlink(f'/proc/{pid}/exe'):
            os.kill(pid, signal.SIGKILL)
            return 1
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass
    return 0


@scenario
def kill_the_launching_process(root):
    # It becomes crun, or is still of the shim's program until it becomes sandbox-init.
    program = 'sandbox-shim' if DRIVER == 'native' else 'crun'
    most = 4 if DRIVER == 'native' else 12  # crun is at work for longer, and so is hit more often
    innocents = Innocents(root)
    profile, codes, hits, wrong = root.profile('victim'), [], 0, []
    chance = random.Random(11)
    # Some are killed just as they start, others wherever they have come to; how many rounds that
    # takes is the scheduler's to say.
    end_of_all = time.monotonic() + 4 * PATIENCE
    while (hits < most or 125 not in codes) and time.monotonic() < end_of_all:
        round = len(codes)
        child = root.spawn('run', '--name', f'victim{round}', profile, '--', '/bin/true')
        end, victim = time.monotonic() + PATIENCE, None
        while victim is None and child.poll() is None and time.monotonic() < end:
            for path in glob.glob(f'/sys/fs/cgroup/pids{root.parent}/*/control/tasks') or \
                    glob.glob(f'/sys/fs/cgroup{root.parent}/*/control/cgroup.procs'):
                if innocents.id in path:
                    continue
                try:
                    with open(path) as file:
                        pids = [int(pid) for pid in file.read().split()]
                    found = [pid for pid in pids if program in os.readlink(f'/proc/{pid}/exe')]
                    victim = found[0] if found else None
                except OSError:
                    pass
        if victim:
            pause = time.monotonic() + (round % 2) * chance.random() * 0.01
            while time.monotonic() < pause:
                pass
            hits += kill_while_it_is(program, victim)
        codes.append(child.wait(PATIENCE))
        wrong += settle(root, f'victim{round}')
    check(hits >= most and set(codes) <= {0, 125}, f'killed {hits} times: run says 125, or 0 where it was done', codes)
    check(125 in codes, 'some launches failed of it', codes)
    same(wrong, [], 'the truth is told and nothing stays')
    innocents.verdict()


@scenario
def kill_everything_at_once(root):
    innocents = Innocents(root)
    child, sandbox = start(root, 'victim', '(setsid sleep 1000 &); ' + LOOP)
    pids = by_argument(f'shim:{sandbox}') + by_argument(f'log:{sandbox}') + sorted(members(root, sandbox)) + [child.pid]
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    child.wait(PATIENCE)
    reconciled(root, 'victim', sandbox, 'the death of all')
    root.census_clean_of(sandbox)
    innocents.verdict()


if __name__ == '__main__':
    main()
