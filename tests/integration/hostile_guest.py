#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guests that were taken over: whatever they say on their one port, they are found out, marked faulty
and stopped, nothing of them stays, and their neighbours hardly notice."""
import concurrent.futures
import json
import os
import sys
import time

from lib import guest
from lib.harness import SLOWNESS, SOURCE, Root, Tap, check, load_program, main, read_until, same, scenario, skip, until

HOSTILE = os.environ.get('SANDBOX_HOSTILE', '')
SHELL = '/bin/sh', '-c'
BOOT = 120
# What each does once its workload runs, and the control that finds it out.
ATTACKS = {
    'flood': 'guest.protocol',  # DATA without end, whatever the credit is
    'crumbs': 'guest.protocol',  # the same, a byte at a time
    'credit': 'guest.protocol',  # credit beyond all bounds
    'opens': 'guest.protocol',  # streams without end
    'length': 'guest.protocol',  # a frame of 4 GiB
    'type': 'guest.protocol',  # a frame that is none
    'stranger': 'guest.protocol',  # bytes on a stream that nobody opened
    'reset': 'guest.protocol',  # ends the stream that cannot end
    'session': 'guest.protocol',  # says on a session's stream what only a host may say
    'replay': 'guest.events',  # says on the stream of the nonce what it has said already
    'nonce': 'guest.events',  # comes with another nonce
    'mute': 'guest.liveness',  # never says anything again
}


def image(folder, behaviour):
    """The kernel and initrd of dev/guest, with the attacker in the place of PID 1."""
    os.makedirs(folder)
    os.symlink(os.path.join(guest.GUEST, 'vmlinux'), os.path.join(folder, 'vmlinux'))
    with open(os.path.join(guest.GUEST, 'initrd'), 'rb') as file:
        honest = file.read()
    with open(HOSTILE, 'rb') as file:
        program = file.read()
    # A later archive goes over an earlier one.
    mkguest = load_program('mkguest', os.path.join(SOURCE, 'guest/image/sandbox-mkguest'))
    more = mkguest.archive([('init', 0o100755, program), ('behaviour', 0o100644, behaviour.encode())])
    with open(os.path.join(folder, 'initrd'), 'wb') as file:
        file.write(honest + more)
    return folder


def taken_over(root, behaviour):
    folder = image(os.path.join(root.work, 'image'), behaviour)
    os.chmod(folder, 0o755)
    guest.configure(root, folder)
    return root.profile('evil', None, '[microvm]\nmemory = "256MiB"\ncpus = 1\n', '[process]\nargv = '
                        + json.dumps([*SHELL, 'echo now-be-evil; sleep 1000']) + '\n', isolation='microvm')


def attack(behaviour):
    """Runs one and says what became of it."""
    root = Root()
    try:
        done = root.ctl('run', '-d', '--name', 'evil', taken_over(root, behaviour), timeout=BOOT)
        if done.code != 0:
            return f'it did not start: {done}'
        # A liveness deadline is 75 s long, and its guest is asked at the end of two heartbeats.
        until(lambda: root.one('evil')['exit'], 'its end', 100 * SLOWNESS)
        exit, told = root.one('evil')['exit'], root.ctl('events', 'evil').out
        if exit['reason'] != 'faulty':
            return f'it was not found out: {exit} {told}'
        if ATTACKS[behaviour] not in told:
            return f'no audit record of {ATTACKS[behaviour]}: {told}'
        if root.ctl('rm', 'evil').code != 0:
            return 'rm'
        return '' if root.census_clean(f'{behaviour}: nothing of it stays') else 'census'
    finally:
        root.close(behaviour)


@scenario
def attacks(root):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for behaviour, wrong in zip(ATTACKS, pool.map(attack, ATTACKS)):
            same(wrong, '', f'{behaviour}: it is marked faulty and stopped')


@scenario
def at_the_door(root):
    """Before anything of the workload runs."""
    began = time.monotonic()
    done = root.ctl('run', taken_over(root, 'version'), timeout=BOOT)
    check(done.code == 125 and 'broke the protocol' in done.err, 'another version never becomes a sandbox', done)
    check(time.monotonic() - began < 60 * SLOWNESS, 'and is not waited for')
    root.census_clean('nothing but its record stays', but=['files'])


def p99(root, box, count=60):
    took = []
    for _ in range(count):
        began = time.monotonic()
        assert root.ctl('exec', box, '/bin/true').code == 0
        took.append(time.monotonic() - began)
    return sorted(took)[int(count * 0.99) - 1]


def pss(pid):
    with open(f'/proc/{pid}/smaps_rollup') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('Pss:'))


@scenario
def neighbours(root):
    """A neighbour of a guest that talks as much as it may, and one of a guest that only computes."""
    guest.configure(root)
    root.start_daemon()
    assert root.ctl('run', '-d', '--name', 'box', root.profile('box', ('/bin/sleep', '1000'))).code == 0
    vm = root.profile('vm', ('/bin/true',), '[microvm]\nmemory = "256MiB"\ncpus = 1\n', isolation='microvm')
    before = pss(root.daemon.pid)
    rounds = {}
    # What a flood does to a neighbour it does every time; what a test beside this one does, it does not.
    for _ in range(3):
        for name, script in (('busy', 'echo ready; while :; do :; done'), ('flood', 'echo ready; exec yes')):
            child = root.spawn('run', '--rm', '--name', name, vm, '--', *SHELL, script)
            read_until(child.stdout, b'ready\n', BOOT)
            rounds[name] = min(p99(root, 'box') for _ in range(3))
            root.ctl('rm', '-f', name)
            child.kill()
            child.wait()
        if rounds['flood'] <= 2 * rounds['busy']:
            break
    print(f'# exec p99 beside a guest that computes {rounds["busy"] * 1000:.1f} ms, beside one that floods '
          f'{rounds["flood"] * 1000:.1f} ms; daemon PSS {before} KiB, then {pss(root.daemon.pid)} KiB')
    check(rounds['flood'] <= 2 * rounds['busy'], 'a flood at most doubles a neighbour\'s exec p99', rounds)
    check(pss(root.daemon.pid) < before + 8192, 'the daemon\'s memory is flat', before, pss(root.daemon.pid))
    root.ctl('rm', '-f', 'box')
    same(root.stop_daemon(), 0, 'the daemon ends')


if __name__ == '__main__':
    if guest.MISSING or not HOSTILE:
        skip('hostile guests', f'{", ".join(guest.MISSING) or "SANDBOX_HOSTILE"}: not there (dev/guest, dev/deps --guest)')
        print(f'1..{Tap.count}')
        sys.exit(0)
    main()
