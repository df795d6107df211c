#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Secrets: given as declared, and found nowhere else."""
import os
import re
import secrets
import shutil
import subprocess

from lib.harness import DRIVER, bind, check, main, read_until, same, scenario, tmpfs, until

SCRIPT = 'cat /run/secrets/key >/dev/null; test -n "$TOKEN"; echo ready $?; while :; do sleep 0.05; done'
PROFILE = '[secrets]\nTOKEN = { env = "TOKEN" }\nKEY = { file = "/run/secrets/key" }\n'


def put(root, name, value, mode=0o600):
    store = os.path.join(root.path, 'etc/sandbox/secrets.d')
    os.makedirs(store, mode=0o700, exist_ok=True)
    os.chmod(store, 0o700)
    return root.write(os.path.join(store, name), value, mode)


def run(root, script, text=PROFILE, name='s', process=''):
    path = root.profile(name=name, text=text, process=process)
    return root.ctl('run', '--rm', path, '--', '/bin/sh', '-c', script)


@scenario
def as_declared(root):
    put(root, 'TOKEN', 't0ken\n')
    put(root, 'KEY', b'line\nbytes \xff\n')
    done = run(root, 'echo "<$TOKEN>"; cat /run/secrets/key; stat -c "%a %u %g" /run/secrets/key /run/secrets; '
                     'stat -f -c %T /run/secrets; grep -c " /run/secrets .*noswap" /proc/self/mountinfo; '
                     'echo x > /run/secrets/key; ls /run/secrets')
    lines = done.out.encode(errors='surrogateescape').split(b'\n')
    same(lines[0], b'<t0ken>', 'the variable, without its line end', done)
    same(lines[1:3], [b'line', b'bytes \xff'], 'the file, byte by byte')
    same(lines[3:6], [b'400 1000 1000', b'700 1000 1000', b'tmpfs'], 'is the user\'s alone, on a tmpfs of its own')
    same(lines[7], b'key', 'and nothing else is there', done)
    noswap = tuple(map(int, re.match(r'(\d+)\.(\d+)', os.uname().release).groups())) >= (6, 4)
    same(lines[6], b'1' if noswap else b'0', 'which never swaps where the kernel knows how')
    done = run(root, 'true', text='[secrets]\nTOKEN = { env = "LC_X" }\n')
    same(done.code, 0, 'a name of its own for the variable', done)
    plan = root.json('plan', root.profile(text=PROFILE), '-o', 'json')['plan']
    controls = {c['name'].removeprefix('guest.'): c['planned'] for c in plan['controls'] if 'secret:' in c['name']}
    same(controls, {'secret:TOKEN': 'TOKEN', 'secret:KEY': '/run/secrets/key'}, 'the plan names name and place')


@scenario
def refusals(root):
    done = run(root, 'echo ran')
    check(done.code == 125 and 'ran' not in done.out and 'secret KEY' in done.err and 'install -m 0600' in done.err,
          'a missing secret: nothing runs, and the answer says which and what to do', done)
    put(root, 'KEY', 'k')
    path = put(root, 'TOKEN', 'hunter2', 0o644)
    done = run(root, 'echo ran')
    check(done.code == 125 and 'chmod 0600' in done.err and 'hunter2' not in done.err, 'one that others can read', done)
    os.chmod(path, 0o600)
    os.chmod(os.path.dirname(path), 0o777)
    check('may be changed by others' in run(root, 'echo ran').err, 'a store that others can change')
    os.chmod(os.path.dirname(path), 0o700)
    put(root, 'TOKEN', b'hunter2\0')
    done = run(root, 'echo ran')
    check(done.code == 125 and 'NUL' in done.err and 'hunter2' not in done.err, 'a NUL in a variable', done)
    put(root, 'TOKEN', b'x' * 65537)
    check(run(root, 'echo ran').code == 125, 'one that is too long')
    for text, reason in (('KEY = { file = "/work/key" }', 'secret-place'),
                         ('KEY = { file = "/run/key" }', 'secret-place')):
        done = root.ctl('plan', root.profile(text=f'[secrets]\n{text}\n'), '--json')
        check(done.code == 1 and reason in done.out, text, done)
    done = root.ctl('plan', root.profile(text=tmpfs('/run/secrets') + PROFILE), '--json')
    check(done.code == 1 and 'secret-folder-taken' in done.out, 'a mount in the same folder', done)
    done = root.ctl('plan', root.profile(argv=None, process='[process]\nidle = true\n', text=PROFILE), '--json')
    check(done.code == 1 and 'secret-without-process' in done.out, 'a variable of no process', done)


def memory_holds(pid, needles):
    """Which of the needles lie in what a process can read and write."""
    found = set()
    with open(f'/proc/{pid}/stat') as file:
        if ') Z ' in file.read():  # nothing is left of it
            return found
    with open(f'/proc/{pid}/maps') as maps, open(f'/proc/{pid}/mem', 'rb', 0) as memory:
        for line in maps:
            words = line.split()
            if 'rw' not in words[1] or words[-1] in ('[vvar]', '[vsyscall]'):
                continue
            first, last = (int(word, 16) for word in words[0].split('-'))
            try:
                memory.seek(first)
                held = memory.read(last - first)
            except OSError:
                continue
            found |= {name for name, needle in needles.items() if needle in held}
    return found


def processes():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]


def children_of(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as file:
        return [int(word) for word in file.read().split()]


def files_below(*folders):
    for folder in folders:
        for at, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(at, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield path


@scenario
def found_nowhere(root):
    needles = {'TOKEN': secrets.token_hex(24).encode(), 'KEY': secrets.token_hex(3000).encode()}
    own = {put(root, name, value) for name, value in needles.items()}
    log = os.path.join(root.base, 'said')
    with open(log, 'wb') as said:
        subprocess.run(root.command('run', '-d', '--name', 'holder', root.profile(name='s', text=PROFILE), '--',
                                    '/bin/sh', '-c', SCRIPT), stdout=said, stderr=said, check=True)
    follower = root.spawn('logs', '-f', 'holder')
    read_until(follower.stdout, b'ready 0\n')
    follower.kill()
    one = root.one('holder')
    marker = f'shim:{one["id"]}'
    [shim] = [pid for pid in processes() if marker in command_line(pid)]
    helpers = children_of(shim)
    inits = [pid for pid in helpers if children_of(pid)]
    workload = {child for pid in inits for child in children_of(pid)}
    # Of a guest: PID 1 of the VMM's jail, and of those of its helpers; the VMM has the guest's memory.
    if DRIVER == 'microvm':
        workload = {pid for pid in workload if '\0microvm,' in command_line(pid)}
    check((len(inits) == 1 or DRIVER == 'microvm') and workload, 'shim, log worker, PID 1 and workload are there', helpers)
    for pid in (shim, *helpers):
        same(memory_holds(pid, needles), set(), f'memory of {name_of(pid)}')
    same(memory_holds(next(iter(workload)), needles) & {'TOKEN'}, {'TOKEN'}, 'the search itself finds: the workload has it')
    held = set()
    for pid in set(processes()) - workload - {os.getpid()}:
        # Children of the workload have its environment. Asked first: of one that has ended since
        # nothing can be read.
        if any(below(pid, init) for init in inits):
            continue
        for kind in ('environ', 'cmdline'):
            if any(needle in content(f'/proc/{pid}/{kind}') for needle in needles.values()):
                held.add((pid, kind))
    same(held, set(), 'no environment or command line of any other process')
    for words in (('inspect', 'holder'), ('audit', 'show', 'holder'), ('ps', '-o', 'json'), ('logs', 'holder')):
        done = root.ctl(*words)
        check(not any(needle.decode() in done.out + done.err for needle in needles.values()), f'sandboxctl {words[0]}')
    same(root.ctl('stop', 'holder', '-t', '0s').code, 0, 'stopped')
    spread = [path for path in files_below(root.base, '/run/sandbox', '/var/lib/sandbox') if path not in own
              and any(needle in content(path) for needle in needles.values())]
    same(spread, [], 'no ledger, plan, audit, log, evidence or other file')
    check(any(path in own for path in files_below(root.base)), 'while the search would have seen it')


def content(path):
    try:
        with open(path, 'rb') as file:
            return file.read()
    except OSError:  # of somebody else, and gone meanwhile
        return b''


def command_line(pid):
    return content(f'/proc/{pid}/cmdline').decode()


def name_of(pid):
    with open(f'/proc/{pid}/comm') as file:
        return file.read().strip()


def below(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            with open(f'/proc/{pid}/stat') as file:
                text = file.read()
        except OSError:
            return False
        pid = int(text[text.rfind(')') + 2:].split()[1])
    return False


@scenario
def a_new_generation_reads_anew(root):
    put(root, 'TOKEN', 'first')
    text = '[secrets]\nTOKEN = { env = "TOKEN" }\n'
    path = root.profile(text=text)
    same(root.ctl('run', '--name', 'r', path, '--', '/bin/sh', '-c', 'echo $TOKEN').out, 'first\n', 'one value')
    put(root, 'TOKEN', 'second')
    done = root.ctl('start', '-a', 'r')
    same((done.code, done.out), (0, 'second\n'), 'the next start has the one of then', done)


MOVED = '[directories]\nstate = "/data/sandbox"\nrun = "/srv/run/sandbox"\nsecrets = "/data/secrets"\n'


@scenario(config=MOVED)
def folders_where_the_operator_wants_them(root):
    state, run, store = (root.path + folder for folder in ('/data/sandbox', '/srv/run/sandbox', '/data/secrets'))
    os.makedirs(store, mode=0o700)
    root.write(os.path.join(store, 'TOKEN'), 'moved', 0o600)
    path = root.profile(text='[secrets]\nTOKEN = { env = "TOKEN" }\n')
    done = root.ctl('run', '-d', '--name', 'there', path, '--', '/bin/sh', '-c', 'echo $TOKEN; while :; do sleep 0.05; done')
    same(done.code, 0, 'a sandbox runs', done)
    until(lambda: root.ctl('logs', 'there').out == 'moved\n', 'the secret of the moved store')
    sandbox = root.one('there')['id']
    check(os.path.exists(f'{state}/ledger.db') and os.path.exists(f'{run}/{sandbox}/shim.sock'),
          'its records and sockets are in those folders', os.listdir(root.path))
    check(not os.path.exists(root.path + '/var') and not os.path.exists(root.path + '/run'), 'and nowhere else',
          os.listdir(root.path))
    same(root.ctl('exec', 'there', '/bin/echo', 'in').out, 'in\n', 'sessions find it')
    for folder in (state, run, store, root.path + '/data'):
        done = root.ctl('run', root.profile('bad', text=bind(folder, '/x')))
        check(done.code == 125 and 'never granted' in done.err, f'{folder[len(root.path):]} is granted to nobody', done)
    root.socket = run + '/sandboxd.sock'
    root.start_daemon()
    check('there' in [s['name'] for s in root.ps()], 'so does a daemon', root.ps())
    same(root.stop_daemon(), 0, 'which ends')
    config = root.path + '/etc/sandbox/config.toml'
    with open(config) as file:
        text = file.read()
    root.write(config, text.replace('"/data/sandbox"', '"data"'))
    done = root.ctl('ps')
    line = text[:text.index('"/data/sandbox"')].count('\n') + 1
    check(done.code == 1 and f'config.toml:{line}:' in done.err and 'directories.state' in done.err,
          'a folder that is none is refused with its place, not passed over', done)
    root.write(config, text.replace('"/srv/run/sandbox"', '"/data/sandbox/run"'))
    done = root.ctl('ps')
    check(done.code == 1 and 'lies in directories.state' in done.err, 'so is one within another', done)
    root.write(config, text)
    shutil.rmtree(store)  # the operator's own


if __name__ == '__main__':
    main()
