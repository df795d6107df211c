#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A workload behind a kernel of its own: QEMU's microvm machine, emulated here and said to be so."""
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time

from lib import guest
from lib.harness import CENSUS, Tap, bind, check, main, same, scenario, skip, until

SHELL = '/bin/sh', '-c'
CLOCK = 0.05  # by which a guest's clock may differ once it was set, in seconds
BOOT = 120  # docs/protocol.md: a guest boots within 90 s under emulation


def machine(root, name='vm', argv=('/bin/true',), text='', process=''):
    return root.profile(name, argv, '[microvm]\nmemory = "256MiB"\ncpus = 1\n' + text, process, isolation='microvm')


@scenario
def a_command_in_a_guest(root):
    guest.configure(root)
    release = guest.release()
    profile = machine(root)
    done = root.ctl('plan', profile)
    check(guest.CLASS in done.out and ('EMULATED' in done.out + done.err) == guest.EMULATED, 'the plan says what it is', done)
    done = root.ctl('run', profile, timeout=BOOT)
    same(done.code, 0, '/bin/true in a guest', done.err)
    done = root.ctl('run', profile, '--', *SHELL, 'uname -r; cat /proc/sys/kernel/random/boot_id; echo err >&2; exit 7',
                    timeout=BOOT)
    found, boot = (done.out.split() + ['', ''])[:2]
    check(done.code == 7 and done.err.splitlines()[-1:] == ['err'] and 'err' not in done.out,
          'statuses pass, and the streams stay apart', done)
    same('EMULATED' in done.err, guest.EMULATED, 'and a warning is repeated', done.err)
    with open('/proc/sys/kernel/random/boot_id') as file:
        check(boot and boot != file.read().strip(), 'the kernel is another than the host\'s', done.out, release)
    check(found and (release == 'unknown' or found in release), 'it is the pinned one', done.out, release)
    print(f'# guest kernel {found}, host kernel {os.uname().release}')
    done = root.ctl('run', '-i', profile, '--', '/bin/cat', stdin=b'through\n' * 20000, timeout=BOOT)
    same((done.code, done.out), (0, 'through\n' * 20000), 'standard input reaches it and ends')
    same(root.ctl('run', profile, '--', '/no/such', timeout=BOOT).code, 127, 'a program that is not there gives 127')
    for sandbox in root.ps():
        same((sandbox['driver'], sandbox['isolation_class']), ('microvm', guest.CLASS), 'ps names the class')
        same(root.ctl('rm', sandbox['id']).code, 0, 'rm')
    root.census_clean('nothing is left')


@scenario
def work_in_a_running_guest(root):
    guest.configure(root)
    folder = root.grant('data', {'seen': 'of the host\n'}, owner=1000)
    text = bind(folder, '/work', read_only=False) + bind(root.grant('ro', {'f': 'r\n'}), '/ro')
    profile = machine(root, 'idle', None, '[process]\nidle = true\n' + text)
    done = root.ctl('run', '-d', '--name', 'g', profile, timeout=BOOT)
    same(done.code, 0, 'an idle guest starts', done.err)
    same(root.ctl('exec', 'g', '--', *SHELL, 'cat /work/seen; exit 3')[:2], (3, 'of the host\n'), 'exec; a share is read')
    same(root.ctl('exec', 'g', '--', *SHELL, 'echo x > /work/made').code, 0, 'a writable share is written')
    made = os.stat(os.path.join(folder, 'made'))
    same((made.st_uid, made.st_gid), (1000, 1000), 'and the file is the user\'s')
    done = root.ctl('exec', 'g', '--', *SHELL, 'echo x > /ro/f')
    check(done.code != 0, 'a read-only share is not', done)
    with open(os.path.join(root.work, 'sent'), 'w') as file:
        file.write('copied\n')
    same(root.ctl('cp', os.path.join(root.work, 'sent'), 'g:/tmp/sent').code, 0, 'cp into it')
    same(root.ctl('exec', 'g', '--', '/bin/cat', '/tmp/sent').out, 'copied\n', 'what was copied is there')
    same(root.ctl('pause', 'g').code, 0, 'pause')
    same(root.ctl('resume', 'g').code, 0, 'resume')
    told = [json.loads(line)['event'] for line in root.ctl('events', 'g').out.splitlines()]
    check(told.count('rotate') == 1, 'its nonce was rotated', told)
    began = time.time()
    done = root.ctl('exec', 'g', '--', '/bin/date', '+%s.%N')
    ended = time.time()
    check(done.code == 0 and began - CLOCK <= float(done.out) <= ended + CLOCK, 'its clock was set', began, done, ended)
    controls = {c['name']: c for c in root.one('g')['controls']}
    for name in ('vmm.user', 'vmm.capabilities', 'vmm.seccomp', 'vmm.namespaces', 'vmm.root', 'virtiofsd.confinement'):
        check(controls.get(name, {}).get('observed'), f'{name} was observed on this host', controls.get(name))
    told = [c for c in controls.values() if c['name'].startswith('guest.') and c.get('observed')]
    check(all('guest-reported' in c['observed'] for c in told), 'what a guest says is marked so', told)
    same(root.ctl('stop', 'g').code, 0, 'stop')
    console = f'{root.path}/var/lib/sandbox/sandboxes/{root.one("g")["id"]}/console.log'
    until(lambda: os.path.exists(console), 'its console is kept')
    found = os.stat(console)
    check(0 < found.st_size <= 64 << 10 and found.st_mode & 0o777 == 0o600, 'what its kernel said is kept, bounded',
          found)
    same(root.ctl('rm', 'g').code, 0, 'rm')
    check(not os.path.exists(console), 'until it is removed')
    root.census_clean('nothing is left')


@scenario
def killed_at_any_time(root):
    guest.configure(root)
    profile = machine(root, 'idle', None, '[process]\nidle = true\n')
    for victim in ('vmm', 'virtiofsd', 'shim'):
        name = 'k-' + victim
        same(root.ctl('run', '-d', '--name', name, profile, timeout=BOOT).code, 0, f'a guest whose {victim} will go')
        sandbox = root.one(name)
        if victim == 'shim':
            pid = next(int(p) for p in os.listdir('/proc') if p.isdigit() and
                       f'shim:{sandbox["id"]}' in CENSUS.read(f'/proc/{p}/cmdline').split('\0'))
        else:
            # Both are exec'd as /program; the server is the one that serves.
            wanted = 'virtiofsd' if victim == 'virtiofsd' else 'qemu-system'
            pid = next(int(p) for p in os.listdir('/proc') if p.isdigit() and
                       sandbox['id'] in CENSUS.read(f'/proc/{p}/cgroup') and
                       CENSUS.read(f'/proc/{p}/cmdline').startswith(wanted))
        os.kill(pid, signal.SIGKILL)
        until(lambda name=name: root.ctl('reconcile').code == 0 and
              root.one(name)['state'] in ('dead', 'stopped', 'failed'), f'{name} ended')
        same(root.ctl('rm', '-f', name).code, 0, f'and is removed')
        root.census_clean_of(sandbox['id'])
    root.census_clean('nothing is left')


@scenario
def refusals(root):
    profile = machine(root)
    done = root.ctl('run', profile)
    check(done.code == 125 and 'microvm' in done.err, 'a host that was given no guest says so', done.err)
    guest.configure(root)
    root.bundle('version = 1\nname = "hw"\nvalid_until = "2099-01-01"\nisolation_classes = ["hardware-vm"]\n')
    done = root.ctl('run', '--rm', profile, timeout=BOOT)
    if guest.EMULATED:
        check(done.code == 125 and '10-test.toml:4' in done.err, 'a bundle forbids emulation, by file and line', done.err)
        same(root.ps(), [], 'nothing was made')
    else:
        same(done.code, 0, 'a bundle that demands hardware has it', done.err)


@scenario
def four_at_once(root):
    guest.configure(root)
    profile = machine(root)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda n: root.ctl('run', '--rm', profile, '--', *SHELL, f'echo {n}', timeout=BOOT), range(4)))
    same([(d.code, d.out) for d in ended], [(0, f'{n}\n') for n in range(4)], 'four boots at once', [d.err for d in ended])
    root.census_clean('nothing is left')


if __name__ == '__main__':
    if guest.MISSING:
        skip('microVMs', f'{", ".join(guest.MISSING)}: not there (dev/guest, dev/deps --guest)')
        print(f'1..{Tap.count}')
        sys.exit(0)
    main()
