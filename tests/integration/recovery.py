#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recovery from what no crash of ours alone makes: reused pids, a reboot, a damaged ledger, a full
disk, cgroups that others remove or make, a killed log worker."""
import ctypes
import glob
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import uuid

from lib.follow import by_argument, kill_shim
from lib.harness import (CENSUS, PATIENCE, Done, bind, check, gone, main, mask, read_until, same, scenario, skip,
                         start_time, until)

SHELL = '/bin/sh', '-c'
FOREVER = ('/bin/sleep', '1000')
SYS_CLONE3 = 435  # asm-generic/unistd.h
WATCHER = ('import os, signal\n'
           'every = signal.valid_signals()\n'
           'signal.pthread_sigmask(signal.SIG_BLOCK, every)\n'
           'os.write(1, b"watching\\n")\n'
           'while True: os.write(1, b"signal %d\\n" % signal.sigwaitinfo(every).si_signo)\n')


class CloneArguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        'flags', 'pidfd', 'child_tid', 'parent_tid', 'exit_signal', 'stack', 'stack_size', 'tls',
        'set_tid', 'set_tid_size', 'cgroup')]


class Innocent:
    """Notes every signal it gets; with `pid`, under the number of somebody who is gone."""

    def __init__(self, pid=0):
        out, into = os.pipe()
        if pid:
            number = (ctypes.c_int32 * 1)(pid)
            arguments = CloneArguments(exit_signal=signal.SIGCHLD, set_tid=ctypes.addressof(number), set_tid_size=1)
            libc = ctypes.CDLL(None, use_errno=True)
            self.pid = libc.syscall(SYS_CLONE3, ctypes.byref(arguments), ctypes.sizeof(arguments))
            if self.pid < 0:
                raise OSError(ctypes.get_errno(), 'clone3')
        else:
            self.pid = os.fork()
        if self.pid == 0:
            os.dup2(into, 1)
            os.execv(sys.executable, [sys.executable, '-c', WATCHER])
        os.close(into)
        self.out = out
        read_until(out, b'watching\n')
        os.set_blocking(out, False)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.out)

    def verdict(self, sentence):
        try:
            heard = os.read(self.out, 4096)
        except BlockingIOError:
            heard = b''
        ended = os.waitpid(self.pid, os.WNOHANG)[0] != 0
        check(not ended and not heard, sentence, f'ended: {ended}', heard)
        if ended:
            os.close(self.out)
        else:
            self.close()


def innocents_named(pids):
    """One Innocent for each number; OSError, and none, where somebody else was quicker."""
    made = []
    try:
        for pid in pids:
            made.append(Innocent(pid))
    except OSError:
        for innocent in made:
            innocent.close()
        raise
    return made


def cgroups(root, sandbox=''):
    """Folders of our parent, or of one sandbox, in each hierarchy; deepest first."""
    found = set()
    for mount in ['/sys/fs/cgroup'] + glob.glob('/sys/fs/cgroup/*'):
        for folder, _, _ in os.walk(f'{mount}{root.parent}/{sandbox}'):
            found.add(os.path.realpath(folder))
    return sorted(found, key=len, reverse=True)


def members(root, sandbox):
    return {int(pid) for folder in cgroups(root, sandbox) for pid in CENSUS.read(folder + '/cgroup.procs').split()}


def remove(folders):
    """Without a process, a cgroup goes once the kernel is done with the last one."""
    def removed(folder):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True
    for folder in folders:
        until(lambda f=folder: removed(f), folder)


def launch(root, name, argv=FOREVER, text=''):
    done = root.ctl('run', '-d', '--name', name, root.profile(name, argv, text))
    assert done.code == 0, done
    return root.one(name)['id']


def shot(root, sandbox):
    """Kills its shim and waits until the kernel has ended everything with it; the pids that had."""
    inside = {pid: start_time(pid) for pid in members(root, sandbox)}
    shim, start = kill_shim(root, sandbox)
    everything = [(shim, start), *inside.items()]
    # A log worker ends by itself, with the last that could write to it.
    until(lambda: all(gone(*one) for one in everything) and not members(root, sandbox)
          and not by_argument(f'log:{sandbox}'), 'the end of all of it')
    return shim, set(inside)


@scenario
def a_reused_pid_is_nobody_we_know(root):
    sandbox = launch(root, 'victim')
    shim, inside = shot(root, sandbox)
    pids = [shim] + sorted(inside)
    try:
        innocents = innocents_named(pids)
    except OSError as why:
        return skip('an innocent process gets the pid of a dead one', why)
    same([i.pid for i in innocents], pids, 'innocent processes have the pids of shim and PID 1')
    same(root.one('victim')['state'], 'dead', 'inspect does not take them for ours')
    check(root.ctl('kill', 'victim').code != 0, 'kill has nobody to signal')
    check(root.ctl('stop', '-t', '1s', 'victim').code != 0, 'stop has nobody to stop')
    same(root.ctl('reconcile').code, 0, 'reconcile goes through')
    same(root.ctl('rm', '-f', 'victim').code, 0, 'rm -f does')
    for innocent in innocents:
        innocent.verdict('and it got no signal')
    root.census_clean_of(sandbox)
    same(root.ctl('audit', 'verify').code, 0, 'the audit chain is whole')


def after_reboot(root, boot_id, *args):
    """sandboxctl in a mount namespace where the kernel has another boot id."""
    script = 'mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'
    ended = subprocess.run(['unshare', '--mount', '--propagation', 'private', *SHELL, script, 'sh', boot_id,
                            *root.command(*args)], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    return Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@scenario
def a_reboot_leaves_only_what_disks_keep(root):
    grant = root.grant('data')
    first = launch(root, 'first', text=bind(grant, '/data', read_only=False) + mask('/data/hidden'))
    rests = root.ctl('run', '--name', 'rests', root.profile('rests', ('/bin/false',)))
    same(rests.code, 1, 'one rests already')
    second = launch(root, 'second')
    check(os.path.exists(grant + '/hidden'), 'a placeholder lies in a folder of the user')
    pids = []
    for sandbox in (first, second):
        pids.append(shot(root, sandbox)[0])
    # Kernel objects and /run are gone by definition.
    remove(cgroups(root))
    shutil.rmtree(root.path + '/run/sandbox')
    boot_id = root.write(root.work + '/boot_id', f'{uuid.uuid4()}\n')
    try:
        innocents = innocents_named(pids)
    except OSError:
        innocents = [Innocent()]
    done = after_reboot(root, boot_id, 'ps', '-a', '-o', 'json')
    same({s['name']: s['state'] for s in json.loads(done.out or '[]')},
         {'first': 'dead', 'second': 'dead', 'rests': 'stopped'}, 'what ran before is dead', done)
    done = after_reboot(root, boot_id, 'reconcile', '-o', 'json')
    report = json.loads(done.out or '{}')
    same({item['id'] for item in report.get('now_resting', [])}, {first, second}, 'reconcile says who is dead', done)
    check(not os.path.exists(grant + '/hidden'), 'the placeholder is swept from the disk')
    again = json.loads(after_reboot(root, boot_id, 'reconcile', '-o', 'json').out or '{}')
    same(again.get('found'), [], 'a second reconcile finds nothing')
    for name in ('first', 'second', 'rests'):
        done = after_reboot(root, boot_id, 'rm', '-f', name)
        same(done.code, 0, f'{name} can be removed', done)
    for innocent in innocents:
        innocent.verdict('whoever has a pid of before got no signal')
    # Not in that namespace: crun is refused a /proc where something is mounted over.
    same(root.ctl('run', '--rm', root.profile('new', (*SHELL, 'exit 5'))).code, 5, 'new sandboxes run')
    same(root.ctl('audit', 'verify').code, 0, 'the audit chain is whole')


@scenario
def a_damaged_ledger_stops_everything(root):
    sandbox = launch(root, 'victim')
    same(root.ctl('run', '--rm', root.profile('brief')).code, 0, 'there is some history')
    ledger = root.path + '/var/lib/sandbox/ledger.db'
    [shim] = by_argument(f'shim:{sandbox}')
    before = start_time(shim)
    with open(ledger + '-wal', 'ab') as file:
        file.write(os.urandom(3000))  # a write that a power cut tore
    same(root.one('victim')['state'], 'running', 'a torn tail is dropped')
    same(root.ctl('reconcile').code, 0, 'and reconcile goes on')
    same(root.ctl('rm', '-f', 'victim').code, 0, 'the sandbox can be removed')
    until(lambda: gone(shim, before), 'the end of the shim')
    same(root.ctl('prune').code, 0, 'prune works')
    root.ctl('run', '--name', 'rests', root.profile('brief'))
    rests = root.one('rests')['id']
    until(lambda: not by_argument('shim:' + rests), 'the end of its shim')
    same(root.ctl('reconcile').code, 0, 'everything stands in the file itself, not in its WAL')
    copies = {path: open(path, 'rb').read() for path in (ledger, ledger + '-wal', ledger + '-shm') if os.path.exists(path)}
    for suffix in ('-wal', '-shm'):
        if os.path.exists(ledger + suffix):
            os.unlink(ledger + suffix)
    with open(ledger, 'r+b') as file:
        size = os.fstat(file.fileno()).st_size
        for page in range(1, size // 4096):  # SQLite's default page; the first one says what it is
            file.seek(page * 4096)
            file.write(b'\xa5' * 64)
    for verb in (['ps', '-a'], ['reconcile'], ['run', root.profile('brief')], ['rm', '-f', 'rests']):
        done = root.ctl(*verb)
        check(done.code not in (0, -11, -6) and 'ledger' in done.err, f'{verb[0]} stops at a ledger damaged in the middle '
              'and says so', done)
    same(cgroups(root, 'nobody'), [], 'nothing was made')
    for path, data in copies.items():
        root.write(path, data, 0o600)
    for suffix in ('-shm',):
        if os.path.exists(ledger + suffix):
            os.unlink(ledger + suffix)
    done = root.ctl('rm', '-f', 'rests')
    same(done.code, 0, 'with the ledger of the backup all goes on', done)


@scenario
def a_full_disk_lets_go_but_takes_nothing_in(root):
    state = root.path + '/var/lib/sandbox'
    os.makedirs(state, exist_ok=True)
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=6m,mode=700', 'none', state], check=True)
    try:
        profile = root.profile('brief', (*SHELL, 'exit 5'))
        for number in range(4):
            launch(root, f'n{number}')
        # Audit lines and a log of its own take their part too.
        with open(state + '/filler', 'wb', buffering=0) as file:
            try:
                while True:
                    file.write(b'\0' * 4096)
            except OSError as full:
                check('space' in str(full), 'the disk is full')
        done = root.ctl('run', '--name', 'more', profile)
        check(done.code in (1, 125) and done.err, 'no new sandbox begins, and it says why', done)
        check(root.ctl('ps').code == 0, 'ps works', root.ctl('ps'))
        done = root.ctl('stop', '-t', '1s', 'n0')
        same(done.code, 0, 'stop works', done)
        until(lambda: not by_argument('shim:' + root.one('n0')['id']), 'the end of the shim')
        for number in range(3):
            done = root.ctl('rm', '-f', f'n{number}')
            same(done.code, 0, f'rm -f of n{number} works', done)
        done = root.ctl('reconcile')
        same(done.code, 0, 'reconcile works', done)
        os.unlink(state + '/filler')
        same(root.ctl('run', '--rm', profile).code, 5, 'with room again, sandboxes begin')
        same(root.ctl('rm', '-f', 'n3').code, 0, 'the last one goes')
        for left in root.ps('-a'):
            root.ctl('rm', '-f', left['id'])
        same(root.ctl('audit', 'verify').code, 0, 'the audit chain is whole')
        root.census_clean('nothing is left behind on the full disk', but=['files', 'mounts'])
    finally:
        for sandbox in root.ps('-a'):
            root.ctl('rm', '-f', sandbox['id'])
        subprocess.run(['umount', '-l', state], check=True)


@scenario
def cgroups_that_others_remove_or_make(root):
    sandbox = launch(root, 'victim')
    shot(root, sandbox)
    remove(cgroups(root, sandbox))
    # The same name, made by somebody else, with somebody in it.
    innocent = Innocent()
    made = [mount for mount in {os.path.dirname(f) for f in cgroups(root) if f.endswith('/shims')}]
    check(made, 'there are hierarchies')
    for parent in made:
        os.makedirs(f'{parent}/{sandbox}', exist_ok=True)
        root.write(f'{parent}/{sandbox}/cgroup.procs', str(innocent.pid))
    report = root.json('reconcile', '-o', 'json')
    check(sandbox in str(report['now_resting']), 'reconcile goes on without the cgroups', report)
    check(all(os.path.isdir(f'{parent}/{sandbox}') for parent in made), 'cgroups made by somebody else stay')
    same(root.ctl('rm', '-f', 'victim').code, 0, 'rm -f')
    for parent in made:
        base = parent[:-len(root.parent)]
        root.write(f'{base}/cgroup.procs', str(innocent.pid))
        until(lambda p=parent: not CENSUS.read(f'{p}/{sandbox}/cgroup.procs'), 'an empty cgroup')
        os.rmdir(f'{parent}/{sandbox}')
    innocent.verdict('who lives in them got no signal')
    same(root.ctl('reconcile').code, 0, 'reconcile takes away the empty parent')


@scenario
def foreign_objects_with_our_names(root):
    sandbox = launch(root, 'healthy')
    stranger = secrets.token_hex(16)
    innocent = Innocent()
    parent = next(f for f in cgroups(root) if f.endswith('/shims')).rsplit('/', 1)[0]
    os.mkdir(f'{parent}/{stranger}')
    root.write(f'{parent}/{stranger}/cgroup.procs', str(innocent.pid))
    theirs = f'{root.path}/run/sandbox/{secrets.token_hex(16)}'
    os.mkdir(theirs)
    os.chown(theirs, 12345, 12345)
    outside = root.grant('outside', {'precious': 'x'})
    link = f'{root.path}/run/sandbox/{secrets.token_hex(16)}'
    os.symlink(outside, link)
    before = members(root, sandbox)
    report = root.json('reconcile', '-o', 'json')
    left = str(report['left'])
    check(stranger in left and os.path.basename(theirs) in left, 'reconcile says what it leaves alone', report)
    check(os.path.isdir(f'{parent}/{stranger}') and os.path.isdir(theirs), 'and leaves it alone')
    check(os.path.exists(outside + '/precious'), 'it follows no link')
    same(members(root, sandbox), before, 'a healthy sandbox goes on')
    root.write(f'{parent[:-len(root.parent)]}/cgroup.procs', str(innocent.pid))
    until(lambda: not CENSUS.read(f'{parent}/{stranger}/cgroup.procs'), 'an empty cgroup')
    os.rmdir(f'{parent}/{stranger}')
    innocent.verdict('who lives in it got no signal')
    os.rmdir(theirs)
    if os.path.islink(link):
        os.unlink(link)


def records(root, sandbox):
    found = []
    for path in sorted(glob.glob(f'{root.path}/var/lib/sandbox/sandboxes/{sandbox}/logs/log.jsonl*'), reverse=True):
        for line in CENSUS.read(path).splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                pass  # cut where the worker was killed
    return found


@scenario
def a_killed_log_worker_harms_nobody(root):
    count = '$| = 1; while (1) { print ++$i, "\\n"; select undef, undef, undef, 0.001 }'
    sandbox = launch(root, 'victim', ('/usr/bin/perl', '-e', count))

    def lines():
        return [int(r['log']) for r in records(root, sandbox) if r['stream'] == 'stdout' and r['log'].isdigit()]
    until(lambda: len(lines()) > 50, 'its first lines')
    before = members(root, sandbox)
    for _ in range(3):
        [worker] = by_argument(f'log:{sandbox}')
        os.kill(worker, signal.SIGKILL)
        until(lambda w=worker: [p for p in by_argument(f'log:{sandbox}') if p != w], 'another log worker')
        seen = lines()[-1]
        until(lambda s=seen: lines()[-1] > s + 50, 'lines that came after')
    same(members(root, sandbox), before, 'the workload lives on')
    # The worker of a detached session is followed too.
    main_worker = by_argument(f'log:{sandbox}')
    same(root.ctl('exec', '-d', 'victim', '--', '/usr/bin/perl', '-e', count).code, 0, 'a session begins')
    until(lambda: len(by_argument(f'log:{sandbox}')) == 2, 'its log worker')
    [log] = glob.glob(f'{root.path}/var/lib/sandbox/sandboxes/{sandbox}/logs/sessions/*/log.jsonl')
    until(lambda: os.path.getsize(log) > 1000, 'its first lines')
    [worker] = set(by_argument(f'log:{sandbox}')) - set(main_worker)
    os.kill(worker, signal.SIGKILL)
    until(lambda: 'was killed' in CENSUS.read(log), 'the word of the next one')
    size = os.path.getsize(log)
    until(lambda: os.path.getsize(log) > size + 1000, 'lines that came after')
    check(True, 'and its log goes on when its worker is killed')
    same(root.ctl('stop', '-t', '1s', 'victim').code, 0, 'it can be stopped')
    until(lambda: root.one('victim')['state'] == 'stopped', 'rest')
    # Now nobody writes or rotates it.
    told = [r for r in records(root, sandbox) if r['stream'] == 'supervisor']
    same(len(told), 3, 'the log says that its worker was killed', told)
    numbers = lines()
    gaps = [(a, b) for a, b in zip(numbers, numbers[1:]) if b != a + 1]
    same(numbers, sorted(set(numbers)), 'no line comes twice or out of order', gaps)
    lost = sum(len(str(n)) + 1 for a, b in gaps for n in range(a + 1, b))
    check(lost <= 3 * 65536, 'no more is lost than what the workers held', gaps, told)
    root.ctl('audit', 'verify')  # brings every line into the file
    with open(root.path + '/var/lib/sandbox/audit.jsonl') as file:
        acted = [e for e in map(json.loads, file) if e['event'] == 'acted' and e['body']['verb'] == 'log-worker']
    same(len(acted), 3, 'the audit log tells of each')
    root.census_clean_of(sandbox)
    child = root.spawn('run', '-i', '--name', 'front', root.profile('front', (*SHELL, 'echo one; read x; echo two; exit 4')))
    read_until(child.stdout, b'one\n')
    front = root.one('front')['id']
    [worker] = by_argument(f'log:{front}')
    os.kill(worker, signal.SIGKILL)
    out, err = child.communicate(b'go\n', timeout=PATIENCE)
    same((child.returncode, out), (4, b'two\n'), 'in the foreground the client gets the rest and the status', err)
    same([r['log'] for r in records(root, front) if r['stream'] == 'stdout'], ['one', 'two'], 'and the log has it all')


if __name__ == '__main__':
    main()
