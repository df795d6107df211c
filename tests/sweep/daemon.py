#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at every named point that a starting daemon passes over a wreck, then of all of it; the next
daemon finds what the first one left."""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402
from arena import harness, until  # noqa: E402


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


def sweep(arena):
    """The process that reconciles for the daemon dies at a point; then all of the daemon does."""
    harness.SANDBOXD = os.path.join(lib.FAILPOINT_BIN, 'sandboxd')
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
            until(lambda: all(s['state'] not in lib.ACTIVE for s in arena.victims()), 'the daemon reconciles')
        except TimeoutError as late:
            wrong += [str(late), states]
        wrong += [] if arena.root.stop_daemon() == 0 else ['the daemon did not end well']
        arena.verdict(f'daemon start, SIGKILL at {point}', wrong)


if __name__ == '__main__':
    lib.run('daemon', sweep)
