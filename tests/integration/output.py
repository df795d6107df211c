#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a workload writes: exact on the way out, bounded and structured in the log, harmless on a
terminal."""
import base64
import hashlib
import json
import os
import pty
import re
import subprocess

from lib import guest
from lib.harness import PATIENCE, check, main, read_until, same, scenario, until

SHELL = '/bin/sh', '-c'
ESCAPES = ("import sys, os; b = os.write\n"
           "b(1, b'\\x1b]0;owned\\x07\\x1b[2J plain \\xc2\\x9b31m\\x90 bad \\xff \\xe2\\x80\\xae bidi\\r\\n')\n"
           "b(2, b'\\x1b[31mred\\x1b[0m\\x08\\n'); b(1, b'tail \\x1b[')\n")


def records(root, name):
    done = root.ctl('logs', '--json', name)
    return [json.loads(line) for line in done.out.splitlines()]


def text_of(record):
    return base64.b64decode(record['log_b64']) if 'log_b64' in record else record['log'].encode()


def on_a_terminal(command):
    """Runs a command with a terminal as its three streams; returns its status and what came."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    seen = b''
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:  # EIO: the other side is closed
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


@scenario
def big_outputs(root):
    profile = root.profile()
    script = ('import os, hashlib, sys\nd = os.urandom(1 << 20); o = hashlib.sha256(); e = hashlib.sha256()\n'
              'for i in range(10):\n  sys.stdout.buffer.write(d); o.update(d)\n'
              '  sys.stderr.buffer.write(d[:70001]); e.update(d[:70001])\n'
              'sys.stdout.flush()\nopen("/dev/shm/x", "w").write(o.hexdigest() + e.hexdigest())\n'
              'sys.stdout.write(o.hexdigest() + e.hexdigest())')
    child = root.spawn('run', profile, '--', '/usr/bin/python3', '-c', script)
    out, err = child.communicate(timeout=PATIENCE * 2)
    digests = hashlib.sha256(out[:-128]).hexdigest() + hashlib.sha256(guest.without_warning(err)).hexdigest()
    check(child.returncode == 0 and digests.encode() == out[-128:],
          'ten MiB of random bytes come out as they were written', len(out), len(err), child.returncode)
    child = root.spawn('run', profile, '--', '/usr/bin/head', '-c', '20000000', '/dev/zero')
    child.stdout.read(100)
    child.stdout.close()
    code = child.wait(PATIENCE)
    check(code in (0, 141), 'a reader that goes away does not hang the workload', code)


@scenario
def log_records(root):
    profile = root.profile()
    script = "printf 'one\\n\\ntwo\\n'; printf 'bad \\377\\n' >&2; printf 'no newline'"
    root.ctl('run', '--name', 'log', profile, '--', *SHELL, script)
    found = records(root, 'log')
    out = [r for r in found if r['stream'] == 'stdout']
    err = [r for r in found if r['stream'] == 'stderr']
    same([(text_of(r), r['partial'], r['offset']) for r in out],
         [(b'one', False, 0), (b'', False, 4), (b'two', False, 5), (b'no newline', True, 9)],
         'each line of stdout is a record with its offset; the last one is partial')
    same([(text_of(r), 'log_b64' in r) for r in err], [(b'bad \xff', True)], 'bytes that are no UTF-8 are kept')
    check(all(re.match(r'\d{4}-\d\d-\d\dT[\d:.]+Z$', r['time']) for r in found), 'each has its time', found)
    child = root.spawn('logs', 'log')
    same(child.communicate(timeout=PATIENCE), (b'one\n\ntwo\nno newline', b'bad \xff\n'),
         'logs gives back what came, byte for byte and apart')
    child = root.spawn('logs', '--stream', 'stderr', 'log')
    same(child.communicate(timeout=PATIENCE), (b'', b'bad \xff\n'), 'logs --stream gives one of them')


@scenario
def long_lines(root):
    profile = root.profile()
    child = root.spawn('run', '--name', 'long', profile, '--', '/usr/bin/head', '-c', '300000', '/dev/zero')
    out, _ = child.communicate(timeout=PATIENCE)
    same(out, bytes(300000), 'a line without end comes out')
    child = root.spawn('logs', 'long')
    logged, _ = child.communicate(timeout=PATIENCE)
    same(len(logged), 300000, 'and is in the log, in pieces')
    check(all(len(text_of(r)) < 300000 for r in records(root, 'long')), 'no record of which is unbounded')


@scenario(config='[logs]\nsize = "256KiB"\nfiles = 2\n')
def log_cap(root):
    profile = root.profile()
    script = ('i=0; while [ $i -lt 20000 ]; do echo "line $i 0123456789012345678901234567890123456789"; '
              'i=$((i+1)); done; echo last')
    done = root.ctl('run', '--name', 'flood', profile, '--', *SHELL, script)
    same((done.code, done.out.count('\n')), (0, 20001), 'a flood comes out whole')
    sandbox = root.one('flood')
    folder = sandbox['log_path']
    files = sorted(os.listdir(folder))
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in files)
    check(size <= 2 * 256 * 1024, 'its log stays below its cap', size, files)
    same(len(files), 2, 'it was rotated', files)
    done = root.ctl('logs', 'flood')
    check(done.out.endswith('last\n'), 'its end is there', done.out[-200:])
    check('bytes of older output were dropped' in done.err, 'that some is missing is said', done.err)
    marker = [r for r in records(root, 'flood') if r['stream'] not in ('stdout', 'stderr')]
    check(marker, 'and marked in the log', records(root, 'flood')[:2])


@scenario
def logs_after_removal(root):
    profile = root.profile()
    done = root.ctl('run', '--rm', '--name', 'gone', profile, '--', *SHELL, 'echo kept; echo too >&2')
    same((done.code, done.out), (0, 'kept\n'), 'run --rm')
    until(lambda: root.ps() == [], 'removal')
    same(root.ps(), [], 'ps does not list what --rm removed')
    states = [(s['name'], s['state']) for s in root.ps('-a')]
    same(states, [('gone', 'deleted')], 'ps -a does')
    done = root.ctl('logs', 'gone')
    same((done.code, done.out, done.err), (0, 'kept\n', 'too\n'), 'logs still reads its output')
    root.ctl('run', '--name', 'removed', profile, '--', '/bin/echo', 'by hand')
    same(root.ctl('rm', 'removed').code, 0, 'rm')
    same(root.ctl('logs', 'removed').out, 'by hand\n', 'logs reads the output of what rm removed')


@scenario
def following(root):
    profile = root.profile()
    root.ctl('run', '-d', '--name', 'talk', profile, '--', *SHELL,
             'trap "echo second; exit 0" USR1; trap "exit 3" TERM; echo first; while :; do sleep 0.02; done')
    follower = root.spawn('logs', '-f', 'talk')
    read_until(follower.stdout, b'first\n')
    check(follower.poll() is None, 'logs -f waits for more')
    same(root.ctl('kill', '-s', 'USR1', 'talk').code, 0, 'kill -s USR1')
    same(read_until(follower.stdout, b'second\n'), b'second\n', 'logs -f shows what comes')
    same(follower.wait(PATIENCE), 0, 'and ends with the sandbox')
    done = root.ctl('logs', '-f', 'talk')
    same((done.code, done.out), (0, 'first\nsecond\n'), 'logs -f of what has ended just ends')


@scenario
def terminals(root):
    profile = root.profile()
    run = root.command('run', '--name', 'esc', profile, '--', '/usr/bin/python3', '-c', ESCAPES)
    code, seen = on_a_terminal(run)
    same(code, 0, 'run on a terminal')
    check(b'plain' in seen and b'red' in seen and b'tail' in seen, 'shows the text', seen)
    for name, raw in [('ESC', b'\x1b'), ('BEL', b'\x07'), ('BS', b'\x08'), ('C1 CSI', b'\xc2\x9b'),
                      ('a lone C1 byte', b'\x90'), ('invalid UTF-8', b'\xff'), ('bidi override', b'\xe2\x80\xae')]:
        check(raw not in seen, f'run lets no {name} through to a terminal', seen)
    code, seen = on_a_terminal(root.command('logs', 'esc'))
    check(code == 0 and b'plain' in seen, 'logs on a terminal shows the text', seen)
    check(not re.search(rb'[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xff]|\xc2[\x80-\x9f]|\xe2\x80\xae', seen),
          'logs lets no control through to a terminal', seen)
    child = root.spawn('logs', 'esc')
    out, err = child.communicate(timeout=PATIENCE)
    check(out.startswith(b'\x1b]0;owned') and err.startswith(b'\x1b[31m'),
          'where no terminal reads, the bytes are what was written', out, err)
    hostile = root.ctl('inspect', 'no\x1b[31msuch')
    check('\x1b' not in hostile.err, 'nor do messages carry escapes', hostile.err)


@scenario
def keys_typed_at_a_terminal(root):
    profile = root.profile()
    script = 'trap "echo interrupted; exit 9" INT; echo ready; while :; do sleep 0.02; done'
    pid, terminal = pty.fork()
    if pid == 0:
        command = root.command('run', profile, '--', *SHELL, script)
        os.execv(command[0], command)
    read_until(terminal, b'ready')
    os.write(terminal, b'\x03')
    read_until(terminal, b'interrupted')
    same(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9, 'Ctrl-C reaches the workload and nothing else')
    os.close(terminal)
    pid, terminal = pty.fork()
    if pid == 0:
        command = root.command('run', '-i', profile, '--', *SHELL, 'echo ready; read x; echo "got $x"; tty || exit 4')
        os.execv(command[0], command)
    read_until(terminal, b'ready')
    os.write(terminal, b'typed\n')
    read_until(terminal, b'got typed')
    same(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 4, 'with -i a typed line does, through a pipe of ours')
    os.close(terminal)


@scenario
def a_reader_that_does_not_read(root):
    child = root.spawn('run', '--name', 'full', root.profile(), '--', '/usr/bin/yes')
    child.stdout.read(1)
    same(root.ctl('stop', '-t', '10m', 'full').code, 0, 'a workload whose reader does not read can be stopped')
    same(child.wait(PATIENCE), 143, 'and run ends')


@scenario
def closed_streams(root):
    profile = root.profile()
    child = subprocess.run(['/bin/sh', '-c', 'exec "$@" >&- 2>&- <&-', 'sh',
                            *root.command('run', '--name', 'closed', profile, '--', *SHELL, 'echo x; exit 6')],
                           timeout=PATIENCE, check=False)
    same(child.returncode, 6, 'run with closed standard streams runs')
    same(root.ctl('logs', 'closed').out, 'x\n', 'and logs')


if __name__ == '__main__':
    main()
