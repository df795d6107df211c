#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Double crashes: SIGKILL at a point of run or rm, then SIGKILL at a point of the reconcile that
follows. The richest wreck is met with every point of reconcile, the others with a sample."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402
from arena import until, with_argument  # noqa: E402

REQUIRED = ('reconcile.before', 'reconcile.before-claim', 'reconcile.claimed', 'undo.members',
            'undo.cgroup_root', 'undo.run_dir', 'reconcile.unwound', 'reconcile.before-commit',
            'reconcile.committed', 'reconcile.after', 'reconcile.recorded', 'audit.written')
SAMPLE = 2  # points of reconcile for each wreck that is not among the richest


def wreck(arena, verb, point):
    """Leaves what a crash at `point` leaves."""
    arena.fresh()
    if verb == 'rm':
        arena.root.ctl('run', '--name', 'victim', arena.short)
        arena.ctl('rm', 'victim', point=point)
    else:
        arena.ctl('run', '-d', arena.long, point=point)
    wrong = arena.must_pass(point)
    # A launch is left alone while its shim lives, and a shim outlives its killed client for a moment.
    try:
        until(lambda: not lib.dying_shims() and not any(
            with_argument(f"shim:{victim['id']}") for victim in arena.victims()),
              'the end of the shim of the wreck')
    except TimeoutError as late:
        wrong.append(str(late))
    os.unlink(arena.trace)
    return wrong


def points_of_launch(arena):
    arena.fresh()
    arena.ctl('run', '-d', arena.long)
    points = arena.passed()
    arena.verdict(f'run -d passes {len(points)} points')
    # Where the shim dies: what sandboxctl's death leaves, the shim finishes itself.
    return [name for name in points if not name.startswith(('told.', 'log.', 'submit.', 'launcher.'))
            and (name.startswith('effect.') or name in ('intent.after', 'shim.bound', 'gate.before',
                                                        'gate.after', 'running.after-commit',
                                                        'open-for-business'))]


def sweep(arena):
    wrecks = [('run', point) for point in points_of_launch(arena)]
    richest = {('run', 'open-for-business'), ('run', 'effect.session'), ('rm', 'rm.after-intent')}
    wrecks += [('rm', 'rm.after-intent'), ('rm', 'rm.after-unwind')]
    for number, (verb, point) in enumerate(wrecks):
        wrong = wreck(arena, verb, point)
        arena.ctl('reconcile')
        # The log worker of the wreck may pass its own meanwhile.
        seconds = [name for name in arena.passed() if not name.startswith('log.')]
        if (verb, point) == ('run', 'open-for-business'):
            wrong += [f'{name} was not passed' for name in REQUIRED if name not in seconds]
        arena.verdict(f'reconcile after {verb} at {point} passes {len(seconds)} points', wrong)
        arena.points |= set(seconds)
        if (verb, point) not in richest:
            # Another sample for each wreck: together they cover all.
            step = max(1, len(seconds) // SAMPLE)
            seconds = seconds[number % step::step]
        for second in filter(lib.wanted, seconds):
            wrong = wreck(arena, verb, point)
            done = arena.ctl('reconcile', point=second)
            # A shim that was not released before its launcher died ends by itself, and may be quicker.
            by_itself = point == 'intent.after' and done.code == 0
            wrong += [] if done.code == -9 or by_itself else [f'nothing was killed: {done}']
            arena.verdict(f'{verb} SIGKILL at {point}, reconcile SIGKILL at {second}', wrong)


if __name__ == '__main__':
    lib.run('recover', sweep)
