#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at system calls of `run`, by ptrace on unmodified programs: of sandboxctl, of the shim, of
crun and of what they fork. All of them, or a sample spread evenly over each."""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402
from arena import harness  # noqa: E402

INJECT = os.environ.get('SANDBOX_INJECT', '')
TARGETS = ('shim', 'shim+', 'crun', 'crun+', 'client')
LISTINGS = 2
TRIES = 3
SAMPLE = 8   # calls of each target where not all are wanted
NOTHING = 99  # inject: that call was not reached
# Numbers of x86-64 (asm/unistd_64.h): read, close, fstat, lseek, pread64, getpid, fcntl, geteuid,
# getdents64, openat, newfstatat. Long rows of nothing else walk /proc or hash a program.
LOOKING = {'0', '3', '5', '8', '17', '39', '72', '107', '217', '257', '262'}
LONG_ROW, ONE_OF = 60, 20


def calls(arena, target):
    arena.fresh_root()
    path = os.path.join(arena.trace_folder, 'calls')
    done = injected(arena, target, 'list', path)
    with open(path) as file:
        numbers = file.read().split()
    os.unlink(path)
    arena.verdict(f'{target}, untouched, makes calls', [] if numbers and done == 7 else [f'{done}', len(numbers)])
    return numbers


def injected(arena, target, *order):
    command = arena.root.command('run', '--name', 'victim', arena.short)
    ended = subprocess.run([INJECT, target, *map(str, order), '--', *command], stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=harness.PATIENCE * 2)
    return ended.returncode


def kill(arena, target, index, tries):
    """Again where that call was not reached: a run may make fewer than those that were listed."""
    for left in reversed(range(tries)):
        arena.fresh_root()
        code = injected(arena, target, 'kill', index)
        if code != NOTHING or not left:
            return code
        arena.clear()


def worth(numbers):
    """Indices from 1 of calls to die at: all, but one of some in a long row that only looks."""
    found, start = [], 0
    for at in range(len(numbers) + 1):
        if at < len(numbers) and numbers[at] in LOOKING:
            continue
        step = ONE_OF if at - start > LONG_ROW else 1
        found += range(start + 1, at + 1, step)
        if at < len(numbers):
            found.append(at + 1)
        start = at + 1
    return found


def sample(points):
    if lib.WHOLE or len(points) <= SAMPLE:
        return points
    return [points[i * len(points) // SAMPLE] for i in range(SAMPLE)]


def sweep(arena):
    for target in filter(lib.wanted, TARGETS):
        # Threads of time differ between two runs, and more of them wait on a busy machine: the
        # shortest is what every run gets to.
        numbers = min((calls(arena, target) for _ in range(LISTINGS)), key=len)
        for index in sample(worth(numbers)):
            # The last calls may not come.
            last = index >= len(numbers) * 0.9
            code = kill(arena, target, index, 1 if last else TRIES)
            arena.points.add((target, index))
            wrong = []
            if code == NOTHING and not last:
                wrong.append(f'call {index} of {len(numbers)} was not reached')
            if code not in (NOTHING, 7, 125, 128 + signal.SIGKILL):
                wrong.append(f'the exit code is {code}')
            arena.verdict(f'SIGKILL of {target} at call {index} (number {numbers[index - 1]})', wrong)


if __name__ == '__main__':
    if not INJECT:
        print('1..0 # SKIP SANDBOX_INJECT does not name the program that injects')
        sys.exit(0)
    lib.run('syscalls', sweep, needs_failpoints=False)
