#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at every named point of `apply`, where it makes, replaces and removes, and at every point
that a starting daemon passes over a wreck."""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402
from arena import harness, until  # noqa: E402

NAME = 'web'
# Of a launch or an end that other sweeps go through whole: where apply has work of its own.
OWN = ('apply.', 'intent.', 'submit.', 'told.', 'rm.', 'stop.', 'update.', 'open-for-business', 'running.')


class Folder:
    """A folder of profiles, with one of ours in it or none."""

    def __init__(self, arena):
        self.arena = arena
        self.path = arena.root.path + '/etc/sandbox/profiles.d'
        os.makedirs(self.path, exist_ok=True)

    def put(self, sleep=''):
        if not sleep:
            for name in os.listdir(self.path):
                os.unlink(f'{self.path}/{name}')
            return
        made = self.arena.root.profile(NAME, ('/bin/sleep', sleep),
                                       '[lifecycle]\nautostart = true\nstop_timeout = "1s"\n')
        os.rename(made, f'{self.path}/{NAME}.toml')


# title: seconds that the workload sleeps before and after ('': no such file), points to be passed
CASES = {'apply, new': ('', '1000', ('apply.before-create', 'apply.created', 'intent.after')),
         'apply, changed': ('1000', '2000', ('apply.before-replace', 'apply.replaced-is-gone', 'intent.after')),
         'apply, removed': ('1000', '', ('rm.begin', 'rm.after-commit'))}


def stage(arena, folder, before, after):
    arena.clear()
    arena.fresh()
    wrong = []
    for sleep in filter(None, (before,)):
        folder.put(sleep)
        done = arena.root.ctl('apply', folder.path)
        wrong += [] if done.code == 0 else [f'the stage: {done}']
    folder.put(after)
    return wrong


def converged(arena, folder, after):
    """Applied again it comes to what the folder says."""
    arena.root.ctl('reconcile')
    done = arena.root.ctl('apply', folder.path)
    wrong = [] if done.code == 0 else [f'applied again: {done}']
    found = [(s['name'], s['state']) for s in arena.victims()]
    if found != ([(NAME, 'running')] if after else []):
        wrong.append(f'the folder says {after or "nothing"}, there is {found}')
    again = arena.root.ctl('apply', '--detailed-exitcode', folder.path)
    return wrong + ([] if again.code == 0 else [f'and again, there is something to do: {again}'])


def sweep_apply(arena, folder, title):
    before, after, required = CASES[title]
    wrong = stage(arena, folder, before, after)
    done = arena.ctl('apply', folder.path)
    wrong += [] if done.code == 0 else [f'{done}']
    if after:
        wrong += arena.must_pass('open-for-business')
    points = arena.passed()
    wrong += [f'{name} was not passed' for name in required if name not in points]
    wrong += converged(arena, folder, after)
    arena.verdict(f'{title}, untouched, passes {len(points)} points', wrong)
    arena.points |= set(points)
    for point in filter(lib.wanted, points):
        if not lib.WHOLE and not point.startswith(OWN):
            continue
        wrong = stage(arena, folder, before, after)
        arena.ctl('apply', folder.path, point=point)
        wrong += arena.must_pass(point)
        until(lambda: not lib.dying_shims(), 'the death of what was killed')
        wrong += converged(arena, folder, after)
        arena.verdict(f'{title}, SIGKILL at {point}', wrong)


def wreck(arena):
    arena.fresh()
    arena.ctl('run', '-d', arena.long, point='open-for-business')
    wrong = arena.must_pass('open-for-business')
    until(lambda: not lib.dying_shims(), 'the death of what was killed')
    os.unlink(arena.trace)
    return wrong


def daemons(arena):
    return [pid for pid in lib.processes() if arena.root.path in lib.arguments(pid) and
            lib.arguments(pid)[0].endswith('/sandboxd')]


def kill_daemon(arena):
    arena.root.daemon.send_signal(signal.SIGKILL)
    arena.root.daemon.wait()
    arena.root.daemon = None
    until(lambda: not daemons(arena), 'the end of what the daemon had started')


def sweep_daemon(arena):
    """The process that reconciles for the daemon dies at a point; then all of the daemon does."""
    wrong = wreck(arena)
    arena.root.start_daemon(env=arena.environment())
    wrong += arena.must_pass('reconcile.recorded')
    points = [name for name in arena.passed() if not name.startswith('log.')]
    wrong += [] if arena.root.stop_daemon() == 0 else ['the daemon did not end well']
    arena.verdict(f'daemon start, untouched, passes {len(points)} points', wrong)
    arena.points |= set(points)
    for point in filter(lib.wanted, points):
        wrong = wreck(arena)
        arena.root.start_daemon(env=arena.environment(point), wait=False)
        wrong += arena.must_pass(point)
        kill_daemon(arena)
        # The next one finds what the first left, and answers.
        arena.root.start_daemon()
        states = [s['state'] for s in arena.victims()]
        try:
            until(lambda: all(s['state'] not in lib.ACTIVE for s in arena.victims()), 'the daemon reconciles',
                  harness.within(10))
        except TimeoutError as late:
            wrong += [str(late), states]
        wrong += [] if arena.root.stop_daemon() == 0 else ['the daemon did not end well']
        arena.verdict(f'daemon start, SIGKILL at {point}', wrong)


def sweep(arena):
    harness.SANDBOXD = os.path.join(lib.FAILPOINT_BIN, 'sandboxd')
    arena.lasting.add(NAME)
    folder = Folder(arena)
    for title in CASES:
        sweep_apply(arena, folder, title)
    folder.put()
    arena.clear()
    sweep_daemon(arena)


if __name__ == '__main__':
    lib.run('desired', sweep)
