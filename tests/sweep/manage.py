#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at every named point of `stop`, `rm`, `rm -f` and `kill`: in sandboxctl, and in the shim
that does what it was asked."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402

NAME = 'victim'
ENDING = ('ended.seen', 'ended.after-commit', 'unwind.before', 'undo.members', 'undo.pid1_process',
          'undo.cgroup_root', 'cleaned.before-commit', 'cleaned.after-commit', 'settled')

# verb: arguments, what has to be there before, points of sandboxctl, points of the shim.
VERBS = {
    'stop': (('stop', NAME), 'running', ('stop.before-request', 'stop.accepted', 'stop.told'),
             ('stop.before-commit', 'stop.after-commit', 'stop.signalled') + ENDING),
    'kill': (('kill', NAME), 'running', (), ('effect.killed',) + ENDING),
    'rm': (('rm', NAME), 'rested',
           ('rm.begin', 'rm.before-intent', 'rm.after-intent', 'undo.state_dir', 'rm.after-unwind',
            'rm.before-commit', 'rm.after-commit', 'audit.written', 'audit.dropped'), ()),
    'rm -f': (('rm', '-f', NAME), 'running',
              ('rm.begin', 'stop.accepted', 'rm.stopped', 'rm.shim-gone', 'rm.after-intent',
               'undo.state_dir', 'rm.after-commit'), ('effect.killed',) + ENDING),
}


def stage(arena, before, point='', trace=False):
    """A sandbox that runs, or one that has ended."""
    env = arena.environment(point, trace)
    if before == 'running':
        done = arena.root.ctl('run', '-d', '--name', NAME, arena.long, env=env)
        return [] if done.code == 0 else [f'the stage: {done}']
    done = arena.root.ctl('run', '--name', NAME, arena.short, env=env)
    return [] if done.code == 7 else [f'the stage: {done}']


def ended_wrong(arena, verb, done):
    """What was acknowledged is done; a removal is whole or has not begun."""
    listed = [s for s in arena.victims() if s['name'] == NAME]
    if verb.startswith('rm'):
        if listed and done.code == 0:
            return [f'removed, it was told; ps says {listed}']
        plan = [os.path.exists(f'{arena.root.path}/var/lib/sandbox/sandboxes/{s["id"]}/plan.json')
                for s in listed]
        return ['a removal stopped half-way'] if not all(plan) else []
    if verb == 'stop' and done.code == 0 and listed and listed[0]['state'] in lib.ACTIVE:
        return [f'stopped, it was told; ps says {listed}']
    return []


def sweep_client(arena, verb):
    arguments, before, required, _ = VERBS[verb]
    arena.fresh()
    wrong = stage(arena, before)
    done = arena.ctl(*arguments)
    points = arena.passed()
    wrong += [] if done.code == 0 else [f'{done}']
    wrong += [f'{name} was not passed' for name in required if name not in points]
    arena.verdict(f'{verb}, untouched, passes {len(points)} points in sandboxctl', wrong)
    arena.points |= set(points)
    for point in filter(lib.wanted, points):
        arena.fresh()
        wrong = stage(arena, before)
        done = arena.ctl(*arguments, point=point)
        wrong += [] if done.code == -9 else [f'nothing was killed: {done}']
        arena.verdict(f'{verb}, SIGKILL of sandboxctl at {point}', wrong,
                      more=lambda: ended_wrong(arena, verb, done))


def sweep_shim(arena, verb):
    arguments, before, _, required = VERBS[verb]
    if not required:
        return
    arena.fresh()
    wrong = stage(arena, before, trace=True)
    launching = set(arena.passed())
    done = arena.root.ctl(*arguments)
    wrong += [] if done.code == 0 else [f'{done}']
    wrong += arena.must_pass(required[-1])
    points = [name for name in arena.passed() if name not in launching]
    wrong += [f'{name} was not passed' for name in required if name not in points]
    arena.verdict(f'{verb}, untouched, passes {len(points)} points in the shim', wrong)
    arena.points |= set(points)
    for point in filter(lib.wanted, points):
        arena.fresh()
        wrong = stage(arena, before, point, trace=True)
        done = arena.root.ctl(*arguments)
        wrong += arena.must_pass(point)
        arena.verdict(f'{verb}, SIGKILL of the shim at {point}', wrong,
                      more=lambda: ended_wrong(arena, verb, done))


def sweep(arena):
    for verb in VERBS:
        sweep_client(arena, verb)
        sweep_shim(arena, verb)


if __name__ == '__main__':
    lib.run('manage', sweep)
