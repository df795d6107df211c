#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL by identity, no failpoints: crun, PID 1, log worker, shim and sandboxctl, each at moments
that /proc shows."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402
from arena import harness  # noqa: E402

NAME = 'victim'
ATTEMPTS = 8  # a moment of a few microseconds may pass between two looks
LIMIT = 2 * harness.PATIENCE  # for one launch


def children(pid):
    return [int(word) for word in harness.CENSUS.read(f'/proc/{pid}/task/{pid}/children').split()]


def exe(pid):
    return harness.CENSUS.link(f'/proc/{pid}/exe')


def namespace(pid, kind):
    return harness.CENSUS.link(f'/proc/{pid}/ns/{kind}')


class Launch:
    """The processes of a launch that is under way, as /proc shows them now."""

    def __init__(self, client):
        self.client = client
        self._shim = 0

    def shim(self):
        if not self._shim:
            for pid in children(self.client.pid):
                if any(word.startswith('shim:') for word in lib.arguments(pid)):
                    self._shim = pid
        return self._shim

    def log_worker(self):
        return next((pid for pid in children(self.shim()) if self.is_log_worker(pid)), 0)

    @staticmethod
    def is_log_worker(pid):
        return any(word.startswith('log:') for word in lib.arguments(pid)) or \
            harness.CENSUS.read(f'/proc/{pid}/comm').strip() == 'sandbox-log'

    def launcher(self):
        """The child that is or becomes crun: it has a session of its own."""
        for pid in children(self.shim()) if self.shim() else ():
            if not self.is_log_worker(pid) and self.session(pid) == pid:
                return pid
        return 0

    @staticmethod
    def session(pid):
        text = harness.CENSUS.read(f'/proc/{pid}/stat')
        fields = text[text.rfind(')') + 2:].split()
        return int(fields[3]) if len(fields) > 3 else 0

    def crun(self):
        pid = self.launcher()
        return pid if pid and exe(pid) not in ('', exe(self.shim())) and \
            namespace(pid, 'pid') == namespace('self', 'pid') else 0

    def pid1(self):
        """A child of crun, or of the shim once crun has gone, in a pid namespace of its own."""
        here = namespace('self', 'pid')
        shim = self.shim()
        for parent in ([self.crun(), shim] if shim else ()):
            for pid in children(parent) if parent else ():
                if namespace(pid, 'pid') not in ('', here):
                    return pid
        return 0


def in_cgroup(pid, tail):
    return tail in harness.CENSUS.read(f'/proc/{pid}/cgroup')


def of(pid, *conditions):
    return pid if pid and all(condition(pid) for condition in conditions) else 0


def moments(arena):
    """name: whom to kill, or 0 while the moment has not come."""
    def own_mounts(pid):
        return namespace(pid, 'mnt') not in ('', namespace('self', 'mnt'))

    def in_control(pid):
        return in_cgroup(pid, '/control')

    def is_init(pid):
        return 'init' in exe(pid) or 'init' in harness.CENSUS.read(f'/proc/{pid}/comm')

    def ran(_pid):
        return os.path.exists(arena.canary)

    def has_child(pid):
        return bool(children(pid))

    return {
        'launching child, just born': lambda l: of(l.launcher()),
        'launching child, in its cgroup': lambda l: of(l.launcher(), in_control),
        'launching child, in its mount namespace': lambda l: of(l.launcher(), own_mounts),
        'crun, just begun': lambda l: of(l.crun()),
        'crun, with a child': lambda l: of(l.crun(), has_child),
        'PID 1, just born': lambda l: of(l.pid1()),
        'PID 1, once it is sandbox-init': lambda l: of(l.pid1(), is_init),
        'PID 1, while the workload runs': lambda l: of(l.pid1(), ran),
        'log worker, just born': lambda l: of(l.shim() and l.log_worker()),
        'log worker, while the workload runs': lambda l: of(l.shim() and l.log_worker(), ran),
        'shim, just born': lambda l: of(l.shim()),
        'shim, once the launching child lives': lambda l: of(l.launcher()) and l.shim(),
        'shim, once crun runs': lambda l: of(l.crun()) and l.shim(),
        'shim, once PID 1 lives': lambda l: of(l.pid1()) and l.shim(),
        'shim, once PID 1 is sandbox-init': lambda l: of(l.pid1(), is_init) and l.shim(),
        'shim, while the workload runs': lambda l: of(l.shim(), ran),
        'sandboxctl, once the shim lives': lambda l: l.shim() and l.client.pid,
        'sandboxctl, once the launching child lives': lambda l: of(l.launcher()) and l.client.pid,
        'sandboxctl, while the workload runs': lambda l: of(l.shim(), ran) and l.client.pid,
    }


def kill_at(arena, moment):
    """Launches in the foreground and kills; False: the moment was over before it was seen."""
    client = subprocess.Popen(arena.root.command('run', '--name', NAME, arena.long),
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    launch, end, killed = Launch(client), time.monotonic() + LIMIT, False
    while time.monotonic() < end and client.poll() is None:
        victim = moment(launch)
        if victim:
            try:
                os.kill(victim, signal.SIGKILL)
                killed = True
            except ProcessLookupError:
                pass
            break
        if launch.shim() and os.path.exists(arena.canary) and not moment(launch):
            break  # all that could be seen was
    if not killed:
        end_launch(arena, client)
    return killed, client


def end_launch(arena, client):
    """Until it is heard: a launch that has just begun may have no record yet."""
    def over():
        if client.poll() is None:
            arena.root.ctl('rm', '-f', NAME)
        return client.poll() is not None
    harness.until(over, 'the end of a launch', LIMIT)


def kill_one(arena, name, moment):
    for _ in range(ATTEMPTS):
        arena.fresh()
        killed, client = kill_at(arena, moment)
        if killed:
            break
        arena.clear()
    else:
        harness.skip(f'victims: SIGKILL of {name}',
                     f'that moment was over before it was seen in {ATTEMPTS} launches')
        return
    if name.startswith(('launching child', 'crun')):
        # It may have been crun by then, and its child PID 1 and up already (a busy machine looks late):
        # that one needs crun no more, and the sandbox goes on.
        harness.until(lambda: client.poll() is not None or os.path.exists(arena.canary), 'the end, or the workload', LIMIT)
        end_launch(arena, client)
    if not name.startswith('log worker'):  # whose death ends nothing that writes nothing
        client.wait(LIMIT)
    arena.points.add(name)
    arena.verdict(f'SIGKILL of {name}')
    client.wait(LIMIT)


def stubborn(arena):
    """Hears SIGTERM, says so, and goes on."""
    return arena.root.profile(
        'long', ('/bin/sh', '-c', 'trap "echo heard > /canary/ran" TERM; echo ready;'
                 ' while :; do sleep 1000 & wait; done'),
        harness.bind(arena.canary_folder, '/canary', read_only=False))


def while_stopping(arena):
    profile = stubborn(arena)
    for victim in ('shim', 'sandboxctl', 'log worker', 'PID 1'):
        if not lib.wanted(victim):
            continue
        arena.fresh()
        done = arena.root.ctl('run', '-d', '--name', NAME, profile)
        wrong = [] if done.code == 0 else [f'the stage: {done}']
        sandbox = arena.root.one(NAME)['id']
        # A signal that comes before the trap is set ends it: its first line says that it is set.
        lib.until(lambda: 'ready' in arena.root.ctl('logs', NAME).out, 'ready')
        client = subprocess.Popen(arena.root.command('stop', '--time', '30s', NAME),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        lib.until(lambda: os.path.exists(arena.canary), 'SIGTERM arrives')
        shim, = lib.with_argument(f'shim:{sandbox}')
        here = namespace('self', 'pid')
        target = {'shim': shim, 'sandboxctl': client.pid,
                  'log worker': lib.with_argument(f'log:{sandbox}')[0],
                  'PID 1': next(p for p in children(shim) if namespace(p, 'pid') != here)}[victim]
        os.kill(target, signal.SIGKILL)
        if victim != 'log worker':
            client.communicate(timeout=LIMIT)
        arena.points.add(f'{victim}, while stopping')
        arena.verdict(f'SIGKILL of {victim}, while stopping', wrong)
        client.communicate(timeout=LIMIT)


def sweep(arena):
    for name, moment in moments(arena).items():
        if lib.wanted(name):
            kill_one(arena, name, moment)
    while_stopping(arena)


if __name__ == '__main__':
    lib.run('victims', sweep, needs_failpoints=False)
