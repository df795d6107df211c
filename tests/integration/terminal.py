#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions on a terminal, driven as a person would: keys, resizing, job control, leaving and coming
back, and a terminal that is always given back as it was."""
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from lib.harness import PATIENCE, check, main, read_until, same, scenario, until

SHELL = '/bin/sh', '-c'
PYTHON = '/usr/bin/python3', '-c'
DETACH = b'\x10\x11'  # ctrl-p, ctrl-q

# A program that owns the whole screen: raw keys, a picture of its size, drawn anew at each SIGWINCH.
EDITOR = r'''
import fcntl, os, select, signal, struct, termios, tty
before = termios.tcgetattr(0)
tty.setraw(0)
def size(): return struct.unpack('HHHH', fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))[:2]
def draw():
    rows, cols = size()
    os.write(1, b'\x1b[2J\x1b[1;1H' + f'[size {rows}x{cols}]'.encode())
# A handler of Python's own that comes just before a system call leaves it waiting: by a pipe instead.
wake, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
signal.signal(signal.SIGWINCH, lambda *_: None)
os.write(1, b'\x1b[?1049h')
draw()
while True:
    ready = select.select([0, wake], [], [])[0]
    if wake in ready:
        os.read(wake, 64)
        draw()
    if 0 not in ready: continue
    key = os.read(0, 1)
    if key == b'q': break
    os.write(1, b'[key %d]' % key[0])
os.write(1, b'\x1b[?1049l')
termios.tcsetattr(0, termios.TCSADRAIN, before)
print('left well')
'''


class Person:
    """Somebody at a terminal of their own, with a command running on it."""

    def __init__(self, root, *words, rows=40, cols=100):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            command = root.command(*words)
            os.environ['TERM'] = 'vt220'
            os.execv(command[0], command)
        self.size(rows, cols)
        self.plain = None

    def size(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, cols, 0, 0))

    def types(self, keys):
        os.write(self.fd, keys)

    def sees(self, mark):
        return read_until(self.fd, mark)

    def mode(self):
        return termios.tcgetattr(self.fd)

    def is_raw(self):
        return not self.mode()[3] & (termios.ICANON | termios.ECHO)

    def rest(self):
        """What comes until the command ends."""
        seen = b''
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            ready, _, _ = select.select([self.fd], [], [], 0.05)
            try:
                piece = os.read(self.fd, 65536) if ready else None
            except OSError:
                piece = b''
            if piece == b'':
                break
            if piece:
                seen += piece
        return seen

    def status(self):
        """Its exit status; the mode of its terminal is kept, for who asks afterwards."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            select.select([self.fd], [], [], 0.01)
            try:  # a full terminal would hold it up
                if select.select([self.fd], [], [], 0)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                pass
        raise TimeoutError('the command does not end')

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def idle(root, name='box', **options):
    done = root.ctl('run', '-d', '--name', name, root.profile('idle', ('/bin/sleep', '1000'), **options))
    assert done.code == 0, done
    return name


@scenario
def full_screen(root):
    box = idle(root)
    person = Person(root, 'exec', '-it', box, '--', *PYTHON, EDITOR)
    seen = person.sees(b'[size 40x100]')
    check(b'\x1b[?1049h' in seen, 'a full-screen program draws its screen', seen)
    check(person.is_raw(), 'the keys are handed over unread')
    person.types(b'a\x03\x1a\x1b')
    seen = person.sees(b'[key 27]')
    check(b'[key 97][key 3][key 26]' in seen, 'every key reaches it, Ctrl-C and Ctrl-Z too', seen)
    person.size(50, 132)
    person.sees(b'[size 50x132]')
    check(True, 'a resize is told by SIGWINCH, with the new size')
    person.size(24, 80)
    person.sees(b'[size 24x80]')
    person.types(b'q')
    person.sees(b'left well\r\n')
    same(person.status(), 0, 'and it ends with its status')
    check(not person.is_raw(), 'the terminal is as it was before')
    person.close()


@scenario
def shell_and_jobs(root):
    box = idle(root)
    person = Person(root, 'exec', '-it', box, '/bin/bash', '--norc', '-i')
    person.types(b'PS1="$ "; echo ready-$((1+1))\r')
    person.sees(b'ready-2\r\n')
    person.types(b'tty; echo $TERM; id -u\r')
    check(b'/dev/pts/0\r\nvt220\r\n1000\r\n' in person.sees(b'1000\r\n'), 'a terminal of the sandbox, of its user')
    # It says itself that it runs: keys that come before are the shell's.
    person.types(b'sh -c \'echo run-$((1+1)); exec sleep 1000\'\r')
    person.sees(b'run-2\r\n')
    person.types(b'\x1a')
    person.sees(b'Stopped')
    person.types(b'jobs\r')
    person.sees(b'Stopped')
    person.types(b'fg\r')
    person.sees(b'sleep 1000\'\r\n')
    # Of the two that sleep, the main process and this one, neither is stopped any more.
    until(lambda: 'T' not in root.ctl('exec', box, 'ps', '-C', 'sleep', '-o', 'stat=').out, 'it to go on')
    person.types(b'\x03')
    person.sees(b'$ ')
    person.types(b'echo status-$?\r')
    person.sees(b'status-130')
    check(True, 'job control: Ctrl-Z stops, fg continues, Ctrl-C ends')
    # It says itself that it reads: until then the terminal is the shell's.
    person.types(b"sh -c 'echo cat-$((1+1)); exec cat'\r")
    person.sees(b'cat-2\r\n')
    person.types(b'hello\r\x04')
    person.sees(b'hello\r\nhello\r\n')
    person.types(b'exit 9\r')
    same(person.status(), 9, 'the exit status of the shell')
    check(not person.is_raw(), 'the terminal is as it was before')
    person.close()
    until(lambda: root.ctl('exec', box, 'ls', '/dev/pts').out == 'ptmx\n', 'the end of its terminal inside')


@scenario
def leave_and_come_back(root):
    box = idle(root)
    script = ('import os, select, sys, tty\ntty.setraw(0)\nos.write(1, b"begin\\r\\n")\nn = 0\n'
              'while True:\n'
              '  if select.select([0], [], [], 0.002)[0] and os.read(0, 1) == b"q": break\n'
              '  os.write(1, b"%06d\\r\\n" % n); n += 1\n'
              'os.write(1, b"end %06d\\r\\n" % n); sys.exit(3)')
    person = Person(root, 'exec', '-it', box, '--', *PYTHON, script)
    seen = person.sees(b'000020\r\n')
    person.types(DETACH)
    seen += person.rest()
    same(person.status(), 0, 'the detach keys leave it')
    check(not person.is_raw(), 'the terminal is as it was before')
    person.close()
    row = root.json('sessions', box, '-o', 'json')[0]
    check(row['running'] and not row['attached'] and row['terminal'], 'it runs on', row)
    name = row['session']
    check(f'attach --session {name} {box}'.encode() in seen, 'what to do to come back is said', seen[-200:])
    seen = seen[:seen.index(b'\r\nsandboxctl')]
    for turn in range(3):
        person = Person(root, 'attach', '--session', name, box)
        more = person.sees(b'0\r\n')
        if turn == 1:
            second = root.ctl('attach', '--session', name, box)
            check(second.code == 125 and 'attached' in second.err, 'one at a time', second)
        if turn == 2:
            person.types(b'q')
            seen += more + person.rest()
            same(person.status(), 3, 'the status comes to whoever is there at the end')
        else:
            person.types(DETACH)
            more += person.rest()
            same(person.status(), 0, 'left again')
            seen += more[:more.index(b'\r\nsandboxctl')]
        person.close()
    text = seen[seen.index(b'begin'):].decode()
    lines = text.split('\r\n')
    last = int(re.search(r'end (\d+)', text)[1])
    wanted = ['begin', *(f'{n:06d}' for n in range(last)), f'end {last:06d}', '']
    check(lines == wanted, 'nothing was lost and nothing came twice',
          [pair for pair in zip(lines, wanted) if pair[0] != pair[1]][:3], len(lines), len(wanted))


@scenario
def what_falls_out(root):
    box = idle(root)
    name = root.ctl('exec', '-dt', box, '--', *SHELL,
                    'seq 1 400000; touch /dev/shm/done; while [ ! -e /dev/shm/end ]; do sleep 0.05; done').out.strip()
    until(lambda: root.ctl('exec', box, 'test', '-e', '/dev/shm/done').code == 0, 'the output to be written')
    total = sum(len(str(n)) + 2 for n in range(1, 400001))
    row = root.json('sessions', box, '-o', 'json')[0]
    # Its last bytes may still be in the terminal.
    until(lambda: sum(r['out_offset'] for r in root.json('sessions', box, '-o', 'json') if r['session'] == name) >= total,
          'what was written to be counted')
    row = root.json('sessions', box, '-o', 'json')[0]
    same(row['out_offset'], total, 'with nobody attached it is not held up; what was written is counted')
    root.ctl('exec', box, 'touch', '/dev/shm/end')
    out = root.ctl('attach', '--session', name, '--from', str(total - 8), box)
    same(out.out, '400000\r\n', 'an offset is honoured')
    out = root.ctl('attach', '--session', name, '--from', '0', box)
    check(len(out.out) == 1 << 20 and out.out.endswith('399999\r\n400000\r\n'),
          'the last MiB is there to be had', len(out.out))


@scenario
def other_ends(root):
    box = idle(root)
    person = Person(root, 'exec', '-it', box, '/bin/bash', '--norc', '-i')
    person.types(b'echo up-$((1+1))\r')
    person.sees(b'up-2')
    check(person.is_raw(), 'a shell at work')
    os.kill(person.pid, signal.SIGTERM)
    same(person.status(), 143, 'SIGTERM of the client')
    check(not person.is_raw(), 'gives the terminal back')
    person.close()
    row = root.json('sessions', box, '-o', 'json')[0]
    check(row['running'], 'and leaves the session running', row)
    root.ctl('kill', '--session', row['session'], box)

    person = Person(root, 'exec', '-it', box, '/bin/bash', '--norc', '-i')
    person.types(b'echo up-$((1+1))\r')
    person.sees(b'up-2')
    for stop in (signal.SIGSEGV,):
        os.kill(person.pid, stop)
        same(person.status(), -stop, 'a crash of the client')
        check(not person.is_raw(), 'gives the terminal back')
    person.close()

    before = {row['session'] for row in root.json('sessions', box, '-o', 'json')}
    person = Person(root, 'exec', '-it', box, '/bin/bash', '--norc', '-i')
    person.types(b'echo up-$((1+1))\r')
    person.sees(b'up-2')
    # The shim may not have noticed yet that the one who crashed is gone.
    [name] = [row['session'] for row in root.json('sessions', box, '-o', 'json') if row['session'] not in before]
    os.kill(person.pid, signal.SIGHUP)
    person.status()
    person.close()
    until(lambda: not next(r for r in root.json('sessions', box, '-o', 'json') if r['session'] == name)['running'],
          'the shell to end')
    check(True, 'a hang-up reaches the shell, which ends')

    person = Person(root, 'exec', '-it', box, '/bin/bash', '--norc', '-i')
    person.types(b'echo up-$((1+1))\r')
    person.sees(b'up-2')
    root.ctl('kill', box)
    code = person.status()
    check(code in (125, 137), 'the end of the sandbox ends the session', code)
    check(not person.is_raw(), 'and gives the terminal back')
    person.close()


@scenario
def run_on_a_terminal(root):
    profile = root.profile('shell', ('/bin/bash', '--norc', '-i'), process='terminal = true\n')
    person = Person(root, 'run', '-it', '--name', 'sh', profile)
    person.types(b'PS1="$ "; stty size; tty; echo up-$((1+1))\r')
    seen = person.sees(b'up-2\r\n')
    check(b'40 100\r\n/dev/pts/0\r\n' in seen, 'run -it: the main process has a terminal', seen)
    person.types(DETACH)
    person.rest()
    same(person.status(), 0, 'the detach keys leave it')
    check(not person.is_raw(), 'the terminal is as it was before')
    person.close()
    # Its output may be seen before the ledger's commit that it runs.
    until(lambda: [row['state'] for row in root.ps()] == ['running'], 'it runs on')
    person = Person(root, 'attach', 'sh', rows=30, cols=90)
    person.types(b'stty size; echo again-$((1+1))\r')
    check(b'30 90\r\n' in person.sees(b'again-2\r\n'), 'attach comes back to it, with the size of the new terminal')
    person.types(b'exit 4\r')
    person.rest()
    same(person.status(), 4, 'and ends with its status')
    check(not person.is_raw(), 'the terminal is as it was before')
    person.close()
    log = root.ctl('logs', 'sh')
    check('up-2' in log.out and 'again-2' in log.out, 'all of it is in the log', log)
    same(root.one('sh')['exit']['code'], 4, 'the exit status is recorded')
    piped = root.ctl('run', '-t', '--rm', root.profile('plain', (*SHELL, 'tty; echo out; echo err >&2; exit 2')))
    same((piped.code, piped.out), (2, '/dev/pts/0\r\nout\r\nerr\r\n'), 'run -t without a terminal here')
    typed = root.ctl('run', '-it', '--rm', root.profile('cat', ('/bin/cat',)), stdin=b'line\n')
    check(typed.code == 0 and typed.out.count('line\r\n') == 2, 'the end of the input is the end of what is typed', typed)
    denied = root.ctl('exec', '-it', '--detach-keys', 'nonsense', 'sh', 'true')
    check(denied.code == 125 and 'ctrl-p' in denied.err, 'detach keys that are none are refused', denied)


@scenario
def much_output(root):
    box = idle(root)
    done = root.ctl('exec', '-t', box, '--', *PYTHON,
                    'import os, tty; tty.setraw(1)\nfor i in range(64): os.write(1, bytes(range(256)) * 256)')
    data = bytes(range(256)) * 256 * 64
    same(hashlib.sha256(done.out.encode(errors='surrogateescape')).hexdigest(), hashlib.sha256(data).hexdigest(),
         'four MiB pass a raw terminal as they are', len(done.out), done.code, done.err)
    good = sum(root.ctl('exec', '-t', box, 'seq', '1', '5000').out.endswith('\r\n5000\r\n') for _ in range(20))
    same(good, 20, 'the last line is always there')


if __name__ == '__main__':
    main()
