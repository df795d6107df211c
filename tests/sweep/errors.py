#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ENOSPC, EIO and EMFILE from system calls of `run`, once and from then on: in sandboxctl and in the
shim. Nothing is told that is not so, and once the fault is gone reconcile leaves nothing."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402
from arena import harness  # noqa: E402

INJECT = os.environ.get('SANDBOX_INJECT', '')
# Numbers of x86-64 (asm/unistd_64.h and asm-generic/errno-base.h).
ENOSPC, EIO, EMFILE, EAGAIN = 28, 5, 24, 11
CALLS = {'write': (1, (ENOSPC,)), 'pwrite64': (18, (ENOSPC, EIO)), 'fsync': (74, (EIO,)),
         'fdatasync': (75, (EIO,)), 'openat': (257, (EMFILE,)), 'openat2': (437, (EMFILE,)),
         'socket': (41, (EMFILE,)), 'clone': (56, (EAGAIN,)), 'clone3': (435, (EAGAIN,)),
         'mkdirat': (258, (ENOSPC,)), 'recvmsg': (47, (EMFILE,))}
TARGETS = ('shim', 'client')
PLACES = 60 if lib.WHOLE else 2  # of one call, spread over all that there are
NOTHING = 99                     # inject: that call was not reached


def injected(arena, target, *order):
    command = arena.root.command('run', '--name', 'victim', arena.short)
    ended = subprocess.run([INJECT, target, *map(str, order), '--', *command], stdin=subprocess.DEVNULL,
                           capture_output=True, timeout=harness.PATIENCE * 4)
    return ended.returncode, ended.stderr.decode(errors='replace')[-300:]


def told_wrong(arena, code, said):
    """7 is the workload's own, and then it is recorded; everything else is a failure with a word."""
    if code in (7, NOTHING):
        if not os.path.exists(arena.canary):
            return ['7 was told and the workload never ran']
        kept = [s['exit'] for s in arena.victims() if s['name'] == 'victim']
        return [] if kept and kept[0] and kept[0]['code'] == 7 else [f'7 was told, {kept} is kept', said]
    if code not in (1, 125):
        return [f'the exit code is {code}', said]
    return [] if said else [f'{code}, and not a word']


def places(count):
    if count <= PLACES:
        return range(1, count + 1)
    return sorted({1 + i * count // PLACES for i in range(PLACES)})


def sweep(arena):
    for target in TARGETS:
        arena.fresh_root()
        path = os.path.join(arena.trace_folder, 'calls')
        code, said = injected(arena, target, 'list', path)
        with open(path) as file:
            made = file.read().split()
        os.unlink(path)
        arena.verdict(f'{target}, untouched', [] if code == 7 else [code, said])
        for name, (number, errors) in CALLS.items():
            for at in places(made.count(str(number))):
                for error in errors:
                    for how in ('once', 'ever'):
                        sentence = f'{os.strerror(error)} from {name} no. {at} of {target}, {how}'
                        if not lib.wanted(sentence):
                            continue
                        arena.fresh_root()
                        code, said = injected(arena, target, 'fail', error, number, at, how)
                        arena.points.add((target, name, at, error))
                        arena.verdict(sentence, more=lambda: told_wrong(arena, code, said))


if __name__ == '__main__':
    if not INJECT:
        print('1..0 # SKIP SANDBOX_INJECT does not name the program that injects')
        sys.exit(0)
    lib.run('errors', sweep, needs_failpoints=False)
