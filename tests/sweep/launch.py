#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at every named point of `run`, in the foreground, detached and with --rm: whichever of
sandboxctl, shim, launching child and log worker passes it."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402

# One of each kind, so that a sweep that lists too little does not pass.
LAUNCH = ('shim.before', 'intent.before', 'intent.after', 'submit.after', 'effect.shim-cgroup',
          'effect.state-dir', 'effect.cgroup', 'effect.mask-placeholder', 'effect.log-worker',
          'launcher.before-exec', f'effect.{lib.harness.LAUNCH_STEP}', 'effect.handshake', 'effect.session',
          'effect.evidence-verdict', 'gate.before', 'gate.after')
# What each driver has of its own, in place of crun's launching child.
OWN = {'native': ('launcher.in-tree',), 'microvm': ('effect.virtiofsd', 'effect.vmm', 'effect.relay', 'effect.init-up')}
at = LAUNCH.index('launcher.before-exec')
LAUNCH = LAUNCH[:at] + OWN.get(lib.harness.DRIVER, LAUNCH[at:at + 1]) + LAUNCH[at + 1:]
# Behind the pivot the log of points is out of reach: told by what becomes of the launch.
INSIDE = {'native': ('launcher.mapped', 'launcher.before-exec'),
          'microvm': ('jail.tree', 'jail.confined')}.get(lib.harness.DRIVER, ())
RUNNING = ('running.before-commit', 'running.after-commit', 'open-for-business')
ENDED = ('ended.before-commit', 'ended.after-commit')
# One commit for a workload that has ended by then: within milliseconds, which no slow host sees.
AT_ONCE = ('ran.before-commit', 'ran.after-commit') if lib.harness.SLOWNESS == 1 else RUNNING + ENDED
CLEANED = ('ended.seen', 'unwind.before', 'undo.members', 'undo.cgroup_root', 'undo.run_dir',
           'cleaned.before-commit', 'cleaned.after-commit', 'undo.shim-cgroup', 'log.drained',
           'audit.written', 'settled')
ATTEMPTS = 5  # whether a short workload ends at once is the scheduler's to say


def launches(arena):
    return (('run', ('run', arena.short), LAUNCH + RUNNING + ENDED + CLEANED),
            ('run -d', ('run', '-d', arena.long), LAUNCH + RUNNING + ('told.running',)),
            ('run --rm', ('run', '--rm', arena.instant), LAUNCH + AT_ONCE + ('undo.state_dir',) + CLEANED))


def told_wrong(arena, verb, point, done):
    """What was told is true, and what was acknowledged is never lost."""
    if verb == 'run -d' or point == 'log.begin':
        return []  # where no log worker lives the workload's output ends in SIGPIPE
    if done.code not in (7, 125, -9):
        return [f'the exit code is {done.code}: {done.err}']
    told = [r['body']['code'] for r in arena.records() if r['event'] == 'exited'][-1:]
    return [f'7 was told and {told} is recorded'] if done.code == 7 and told != [7] else []


def untouched(arena, verb, command, required):
    for _ in range(ATTEMPTS):
        arena.clear()
        arena.fresh()
        done = arena.ctl(*command)
        if not arena.must_pass(required[-1]) and set(required) <= set(arena.passed()):
            break
    wrong = [] if done.code == (0 if verb == 'run -d' else 7) else [f'{done}']
    # The shim goes on after its client was told.
    wrong += arena.must_pass(required[-1])
    points = arena.passed()
    wrong += [f'{name} was not passed' for name in required if name not in points]
    arena.verdict(f'{verb}, untouched, passes {len(points)} points', wrong)
    arena.points |= set(points)
    return points


def sweep(arena):
    for verb, command, required in launches(arena):
        points = untouched(arena, verb, command, required)
        before_gate = points[:points.index('gate.after')]
        # --rm differs from its end on; the way there is swept twice already.
        if verb == 'run --rm':
            points = [name for name in points if name not in before_gate]
        for point in filter(lib.wanted, points):
            for _ in range(ATTEMPTS):
                arena.clear()
                arena.fresh()
                done = arena.ctl(*command, point=point)
                wrong = arena.must_pass(point)
                if not wrong:
                    break
            # The death of sandboxctl or of the log worker does not keep the shim from going on.
            never = point in before_gate and not point.startswith(('log.', 'submit.'))
            arena.verdict(f'{verb}, SIGKILL at {point}', wrong, 'never' if never else 'may',
                          lambda: told_wrong(arena, verb, point, done))
        for point in filter(lib.wanted, INSIDE):
            arena.clear()
            arena.fresh()
            done = arena.ctl(*command, point=point)
            wrong = [] if done.code == 125 else [f'the launch goes on: {done}']
            arena.verdict(f'{verb}, SIGKILL at {point}', wrong, 'never', lambda: told_wrong(arena, verb, point, done))


if __name__ == '__main__':
    lib.run('_'.join(filter(None, ('launch', lib.harness.DRIVER))), sweep)
