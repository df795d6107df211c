#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a workload sees of the host, and each way out that it may try.

Each probe runs twice, by the same program: outside as a positive control, and inside. A probe
that cannot succeed outside proves nothing inside, and is reported as such.
"""
import errno
import hashlib
import os
import re
import shutil
import socket
import subprocess

from lib.harness import ATTACKER, BIN, DRIVER, PATIENCE, bind, check, main, read_until, same, scenario, skip, tmpfs

SHELL = '/bin/sh', '-c'
# Killed by the filter: SIGSYS.
KILLED = 'killed 31'


def outcomes(text):
    return dict(line.rsplit(': ', 1) for line in text.splitlines() if ': ' in line)


def name_of(outcome):
    word, number = outcome.split()
    return f'{word} {errno.errorcode.get(int(number), number)}' if word == 'refused' else outcome


def control(probes, cwd='/'):
    """Outside, as root, where only mounts and the host name must not be ours to change."""
    done = subprocess.run(['unshare', '--mount', '--uts', '--propagation', 'private', ATTACKER, *probes],
                          capture_output=True, text=True, timeout=PATIENCE, cwd=cwd, check=False)
    return outcomes(done.stdout)


def digests():
    """Of every program of ours that a workload might want to overwrite."""
    names = [os.path.join(BIN, name) for name in sorted(os.listdir(BIN))] + [shutil.which('crun') or '']
    return {name: hashlib.sha256(open(name, 'rb').read()).hexdigest() for name in names if os.path.isfile(name)}


BEFORE = digests()


class Battle:
    """Collects probes, runs them inside at once, and gives a verdict for each."""

    def __init__(self, root, extra='', **profile):
        self.root, self.cases = root, []
        _, mount = root.attacker()
        self.profile = root.profile('attack', text=mount + tmpfs('/tmp') + extra, **profile)

    def expect(self, sentence, inside, outside=None, wanted=('EPERM', 'ENOSYS', KILLED)):
        self.cases.append((sentence, inside, outside or inside, wanted))

    def verdicts(self):
        done = self.root.ctl('run', self.profile, '--', '/probe/attacker', *[c[1] for c in self.cases])
        check(done.code == 0, 'the attacker runs inside', done)
        found = outcomes(done.out)
        controls = control([c[2] for c in self.cases])
        for sentence, inside, outside, wanted in self.cases:
            met, could = found.get(inside, 'missing 0'), controls.get(outside, 'missing 0')
            if could != 'done 0':
                skip(sentence, f'VACUOUS: outside it gives {name_of(could)} too ({outside})')
                continue
            good = met in wanted or name_of(met).removeprefix('refused ') in wanted
            check(good, f'{sentence} ({name_of(met)})', f'{inside}: {name_of(met)}, wanted {wanted}')


@scenario
def system_calls(root):
    target = subprocess.Popen([ATTACKER, 'target'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    read_until(target.stdout, b'ready')
    pid = target.pid
    battle = Battle(root)
    for name in ('mount', 'mount-proc', 'mount-cgroup', 'fsopen', 'open-tree', 'chroot', 'unshare-user',
                 'unshare-mount', 'unshare-net', 'clone-user', 'clone-pid', 'setns', 'bpf', 'io-uring', 'keyctl',
                 'add-key', 'perf', 'userfaultfd', 'syslog', 'iopl', 'hostname', 'fanotify', 'become-root',
                 'drop-groups', 'x32'):
        battle.expect(f'{name} is refused', name)
    battle.expect('clone3 is ENOSYS', 'clone3', wanted=('ENOSYS',))
    battle.expect('a 32-bit call is refused', 'int80', wanted=(KILLED, 'ENOSYS'))
    battle.expect('umount is refused', 'umount=/usr', 'umount=/proc/sys/fs/binfmt_misc'
                  if os.path.ismount('/proc/sys/fs/binfmt_misc') else 'umount=/dev/shm')
    battle.expect('remounting the root writable is refused', 'remount=/', 'remount=/dev')
    battle.expect('mount_setattr is refused', 'mount-setattr=/', 'mount-setattr=/dev')
    for name in ('ptrace', 'memory', 'pidfd-getfd', 'kcmp'):
        battle.expect(f'{name} of PID 1 is refused', f'{name}=1', f'{name}={pid}')
        battle.expect(f'{name} of a process of the host is refused', f'{name}={pid}',
                      wanted=('EPERM', 'ESRCH', 'ENOSYS', KILLED))
    battle.expect('a signal to a process of the host finds nobody', f'signal={pid}', wanted=('ESRCH',))
    battle.expect('the executable of PID 1 cannot be opened', 'executable=1', f'executable={pid}',
                  wanted=('EACCES', 'EPERM'))
    battle.expect('nor its root', 'root-of=1', f'root-of={pid}', wanted=('EACCES', 'EPERM'))
    battle.expect('a set-user-id bit is refused', 'set-id=/tmp/a', f'set-id={root.work}/a')
    battle.expect('on a descriptor too', 'set-id-fd=/tmp/b', f'set-id-fd={root.work}/b')
    battle.expect('at creation too', 'set-id-open=/tmp/c', f'set-id-open={root.work}/c')
    battle.expect('mknod is refused', 'mknod=/tmp/d', f'mknod={root.work}/d')
    battle.expect('open_by_handle_at is refused', 'handle=/usr', wanted=('EPERM', 'ENOSYS', 'EOPNOTSUPP'))
    battle.verdicts()
    check(target.poll() is None, 'and the process of the host lives')
    target.stdin.close()
    target.wait()
    target.stdout.close()


@scenario
def sockets(root):
    canary = 'sandbox-canary-' + os.urandom(6).hex()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind('\0' + canary)
    listener.listen()
    path = os.path.join(root.work, 'listener')
    named = socket.socket(socket.AF_UNIX)
    named.bind(path)
    battle = Battle(root)
    for family, name, kinds in [(40, 'AF_VSOCK', (1,)), (38, 'AF_ALG', (5,)), (17, 'AF_PACKET', (3, 2)),
                                (15, 'AF_KEY', (3,)), (33, 'AF_RXRPC', (2,)), (31, 'AF_BLUETOOTH', (1,)),
                                (29, 'AF_CAN', (3,)), (44, 'AF_XDP', (3,)), (30, 'AF_TIPC', (1,)), (21, 'AF_RDS', (5,))]:
        for kind in kinds:
            battle.expect(f'a socket of {name} type {kind} is refused', f'socket={family},{kind}',
                          wanted=('EPERM', 'EAFNOSUPPORT', 'EACCES', KILLED))
    battle.expect('a raw socket is refused', 'socket=2,3,1', wanted=('EPERM', 'EPROTONOSUPPORT', 'EACCES'))
    for family in (1, 40, 38, 16):
        battle.expect(f'socketcall of family {family} is refused', f'socketcall={family}', wanted=(KILLED, 'ENOSYS'))
    battle.expect('an abstract socket of the host is out of reach', f'abstract={canary}',
                  wanted=('ECONNREFUSED', 'EPERM'))
    battle.verdicts()
    listener.setblocking(False)
    try:
        listener.accept()[0].close()  # the control's
        listener.accept()[0].close()
        check(False, 'nobody else connected')
    except BlockingIOError:
        check(True, 'nobody else connected')
    script = ('import socket\nok = []\nfor f in range(64):\n  for t in (1, 2, 3, 4, 5, 10):\n'
              '    for p in (0, 9, 12, 15):\n'
              '      try: socket.socket(f, t, p).close(); ok.append((f, t, p))\n      except OSError: pass\nprint(ok)')
    for kind, allowed in [('default', {1, 2, 10, 16}), ('strict', {1})]:
        profile = root.profile('families', text=f'[security]\nseccomp = "{kind}"\n')
        done = root.ctl('run', profile, '--', '/usr/bin/python3', '-c', script)
        got = {tuple(map(int, m)) for m in re.findall(r'\((\d+), (\d+), (\d+)\)', done.out)}
        check(got and {f for f, _, _ in got} <= allowed, f'{kind}: no family but {sorted(allowed)} opens', done, got)
        check(all(p == 0 for f, _, p in got if f == 16), f'{kind}: of netlink only NETLINK_ROUTE', got)
    for s in (listener, named):
        s.close()


@scenario
def terminal_injection(root):
    battle = Battle(root)
    script = 'import os, pty\npid, fd = pty.fork()\n' \
             'if pid == 0: os.execv({!r}, ["a", "tiocsti", "tiocsti-high", "tiocsti-higher"])\n' \
             'out = b""\ntry:\n  while True:\n    p = os.read(fd, 4096)\n    if not p: break\n    out += p\n' \
             'except OSError: pass\nprint(out.decode())'
    outside = outcomes(subprocess.run(['python3', '-c', script.format(ATTACKER)], capture_output=True, text=True,
                                      timeout=PATIENCE, check=False).stdout.replace('\r', ''))
    done = root.ctl('run', battle.profile, '--', '/usr/bin/python3', '-c', script.format('/probe/attacker'))
    inside = outcomes(done.out.replace('\r', ''))
    for name in ('tiocsti', 'tiocsti-high', 'tiocsti-higher'):
        if not any(value == 'done 0' for key, value in outside.items() if key.endswith(name)):
            skip(f'{name} on a terminal of its own is refused', f'VACUOUS: outside it is refused too: {outside}')
            continue
        met = next((v for k, v in inside.items() if k.endswith(name)), 'missing 0')
        check(met in ('refused 1', KILLED), f'{name} on a terminal of its own is refused ({name_of(met)})', done)


@scenario
def identity(root):
    profile = root.profile(text=tmpfs('/tmp'))
    done = root.ctl('run', '--name', 'id', profile, '--', *SHELL, 'cat /proc/self/status; cat /proc/self/uid_map '
                    '/proc/self/gid_map; cat /proc/self/setgroups; cat /proc/self/oom_score_adj')
    status = dict(line.split(':', 1) for line in done.out.splitlines() if ':' in line)
    for kind in ('Inh', 'Prm', 'Eff', 'Bnd', 'Amb'):
        same(int(status[f'Cap{kind}'], 16), 0, f'Cap{kind} is empty')
    same((status['NoNewPrivs'].strip(), status['Seccomp'].strip()), ('1', '2'), 'NoNewPrivs 1, Seccomp 2')
    same(status['Uid'].split(), ['1000'] * 4, 'four times the same uid')
    same(status['Groups'].split(), [], 'no supplementary group')
    for blocked in ('SigBlk', 'SigIgn'):
        same(int(status[blocked], 16), 0, f'{blocked} is empty')
    maps = [tuple(map(int, m)) for m in re.findall(r'^\s*(\d+)\s+(\d+)\s+(\d+)$', done.out, re.M)]
    check(len(maps) == 2 and all(inside == 0 and (first > 65535 or DRIVER == 'microvm') and count == 65536 for inside, first, count in maps),
          'ids are mapped completely and root of the host is not among them', maps)
    for user in ('1000:1000', '65534:65534', '1:0'):
        got = root.ctl('run', root.profile('user', process=f'user = "{user}"\n'), '--', *SHELL, 'id -u; id -g')
        same(got.out.split(), user.split(':'), f'user {user} is that user', got.err)
    got = root.ctl('run', root.profile('zero', process='user = "0:0"\n'), '--', *SHELL,
                   'id -u; grep -h "^Cap\\|^NoNew\\|^Secc" /proc/self/status')
    caps = re.findall(r'Cap\w+:\s+(\w+)', got.out)
    check(got.out.startswith('0\n') and caps == ['0' * 16] * 5, 'user 0 has no capability either', got)


@scenario
def two_sandboxes(root):
    profile = root.profile()
    script = 'for n in user pid mnt net ipc uts cgroup; do readlink /proc/self/ns/$n; done; ' \
             'cat /proc/self/uid_map /proc/sys/kernel/random/boot_id; cat /proc/keys; echo ready; read x'
    seen = []
    for _ in range(2):
        child = root.spawn('run', '-i', profile, '--', *SHELL, script)
        seen.append((child, read_until(child.stdout, b'ready').decode().split('\n')))
    host = [os.readlink(f'/proc/self/ns/{n}') for n in ('user', 'pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup')]
    (first, a), (second, b) = seen
    # Numbers of two kernels say nothing of each other; and in a guest no id is the host's.
    if DRIVER != 'microvm':
        for i, name in enumerate(('user', 'pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup')):
            check(len({a[i], b[i], host[i]}) == 3, f'{name} namespaces of two sandboxes and the host are three',
                  a[i], b[i], host[i])
        check(a[7].split()[1] != b[7].split()[1], 'their id ranges are disjoint', a[7], b[7])
    with open('/proc/sys/kernel/random/boot_id') as file:
        boots = {a[8], b[8], file.read().strip()}
    same(len(boots), 3 if DRIVER == 'microvm' else 1, 'a kernel of their own each where the plan says so', boots)
    for child in (first, second):
        child.communicate(b'\n', PATIENCE)


@scenario
def processes_and_kernel_files(root):
    canary = 'canary-' + os.urandom(8).hex()
    sleeper = subprocess.Popen(['/bin/sh', '-c', f'read {canary.replace("-", "_")}'], stdin=subprocess.PIPE)
    script = ('cat /proc/[0-9]*/cmdline | tr "\\0" " "; echo; ls -d /proc/[0-9]* | wc -l; echo $$; '
              'cat /proc/1/environ /proc/1/maps 2>&1 | wc -c; readlink /proc/self/fd/* | sort -u; readlink /proc/1/cwd')
    done = root.ctl('run', root.profile(), '--', *SHELL, script)
    check(canary.replace('-', '_') not in done.out and 'process' not in done.err, 'no process of the host is visible', done)
    check(int(done.out.splitlines()[1]) <= 4, 'only its own are', done.out)
    sleeper.communicate(b'\n')
    writes = ['/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sys/vm/drop_caches',
              '/proc/sys/net/ipv4/ip_forward', '/proc/sysrq-trigger', '/proc/sys/kernel/modprobe', '/proc/irq/0/smp_affinity',
              '/proc/1/oom_score_adj', '/proc/1/mem', '/proc/1/comm', '/sys/kernel/uevent_helper',
              '/sys/fs/cgroup/cgroup.procs', '/dev/mem', '/dev/kmsg', '/dev/vda', '/dev/kvm', '/dev/fuse',
              '/dev/net/tun', '/dev/vsock', '/dev/loop-control']
    reads = ['/proc/kcore', '/proc/kmsg', '/proc/keys', '/proc/timer_list', '/proc/interrupts', '/proc/acpi/x', '/sys/firmware',
             '/proc/scsi/scsi', '/proc/1/environ', '/proc/1/stack', '/proc/1/root/etc/shadow', '/etc/shadow',
             '/proc/self/cwd/../../etc/shadow', '/proc/sched_debug']
    script = ('import sys\nfor mode, path in [a.split(",") for a in sys.argv[1:]]:\n  try:\n'
              '    d = open(path, mode + "b").read(1) if mode == "r" else open(path, "r+b") and b"w"\n'
              '    print(path, "got" if d else "empty")\n  except OSError as e: print(path, "refused")')
    done = root.ctl('run', root.profile(), '--', '/usr/bin/python3', '-c', script,
                    *[f'w,{p}' for p in writes], *[f'r,{p}' for p in reads])
    found = dict(line.split() for line in done.out.splitlines())
    for path in writes:
        same(found.get(path), 'refused', f'{path} cannot be written')
    for path in reads:
        check(found.get(path) in ('refused', 'empty'), f'{path} gives nothing', found.get(path))
    done = root.ctl('run', root.profile(), '--', *SHELL, 'grep " /proc/sys " /proc/self/mountinfo; ls -A /sys 2>&1; '
                    'find /dev -type b; find /dev -type c | sort')
    check(re.search(r' /proc/sys ro,', done.out), '/proc/sys is read-only', done.out)
    devices = re.findall(r'^/dev/(\S+)$', done.out, re.M)
    check(set(devices) <= {'null', 'zero', 'full', 'random', 'urandom', 'tty', 'pts/ptmx', 'ptmx'},
          'no other device is there', devices)


@scenario
def network(root):
    server = socket.create_server(('127.0.0.1', 0))
    port = server.getsockname()[1]
    script = (f'import socket\ns = socket.socket(); s.settimeout(3)\ntry: s.connect(("127.0.0.1", {port})); print("REACHED")\n'
              'except OSError as e: print("refused", e.errno)\n'
              's = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); print("loopback works")\n'
              'for a in [("1.1.1.1", 53), ("169.254.169.254", 80)]:\n'
              '  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n'
              '  try: s.sendto(b"x", a); print("SENT", a)\n  except OSError as e: print("no route", e.errno)\n'
              'print(sorted(n for _, n in socket.if_nameindex()))\nprint(open("/proc/net/route").read().count(chr(10)))')
    done = root.ctl('run', root.profile(), '--', '/usr/bin/python3', '-c', script)
    same(done.out.splitlines(), ['refused 111', 'loopback works', 'no route 101', 'no route 101', "['lo']", '1'],
         'the network is a loopback of its own, up, and nothing else', done.err)
    server.settimeout(0)
    try:
        server.accept()
        check(False, 'the host was not reached')
    except BlockingIOError:
        check(True, 'the host was not reached')
    host = root.profile('host', text='[network]\nmode = "host"\n')
    done = root.ctl('run', host, '--', '/usr/bin/python3', '-c', script.split('\ns = socket.create_server')[0])
    if DRIVER == 'microvm':
        check(done.code == 125 and 'host-network-in-guest' in done.err, 'network.mode = "host" is refused by name', done)
    else:
        same(done.out, 'REACHED\n', 'network.mode = "host" is the network of the host', done.err)
        check('warning' in done.err and 'network' in done.err, 'with a warning', done.err)
    server.close()


@scenario
def descriptors(root):
    battle = Battle(root)
    leak = os.open(root.work, os.O_RDONLY)
    os.set_inheritable(leak, True)
    for options in ((), ('-i',)):
        child = root.spawn('run', *options, battle.profile, '--', '/probe/attacker', 'descriptors',
                           pass_fds=[leak], stdin=leak)
        out, err = child.communicate(timeout=PATIENCE)
        fds = dict(re.findall(r'^fd (\d+) (.*)$', out.decode(), re.M))
        same(sorted(fds), ['0', '1', '2'], f'only descriptors 0, 1 and 2 are open {options}', out, err)
        check(all(re.match(r'(pipe:|/dev/null)', target) for target in fds.values()), 'and they are ours', fds)
    os.close(leak)
    script = '#!/proc/self/exe\n'
    folder = root.grant('self', {})
    root.write(folder + '/loop', script, 0o755)
    done = root.ctl('run', root.profile('self', text=bind(folder, '/self')), '--', '/self/loop')
    check(done.code != 0, 'an entry point of /proc/self/exe gets nowhere', done)
    same(digests(), BEFORE, 'every program of ours is what it was')


if __name__ == '__main__':
    main()
