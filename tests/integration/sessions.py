#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions inside a running sandbox: exec in the foreground, detached sessions and their attachments."""
import concurrent.futures
import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess

from lib import guest
from lib.harness import DRIVER, PATIENCE, check, main, read_until, same, scenario, until

SHELL = '/bin/sh', '-c'
PYTHON = '/usr/bin/python3', '-c'


def idle(root, name='box', **options):
    """A sandbox with nothing to do but to be there."""
    done = root.ctl('run', '-d', '--name', name, root.profile('idle', ('/bin/sleep', '1000'), **options))
    assert done.code == 0, done
    return name


def sessions(root, name='box'):
    return {row['session']: row for row in root.json('sessions', name, '-o', 'json')}


def has_inotify(pid):
    try:
        for number in os.listdir(f'/proc/{pid}/fd'):
            if 'inotify' in os.readlink(f'/proc/{pid}/fd/{number}'):
                return True
    except OSError:  # closed, or ended, meanwhile
        pass
    return False


def has_read(pid):
    """It waits for records, and has read all that there were."""
    for number in os.listdir(f'/proc/{pid}/fd'):
        path = os.readlink(f'/proc/{pid}/fd/{number}')
        if path.endswith('/log.jsonl'):
            with open(f'/proc/{pid}/fdinfo/{number}') as file:
                return int(file.readline().split()[1]) == os.stat(path).st_size > 0
    return False


def is_looking(pid):
    try:
        return has_inotify(pid) and has_read(pid)
    except OSError:  # closed, or ended, meanwhile
        return False


def lookers(root, *clients, look=has_inotify):
    """How many wait for records to come: the clients, or what the daemon forked for them."""
    if not root.daemon:
        return sum(look(client.pid) for client in clients)
    with open(f'/proc/{root.daemon.pid}/task/{root.daemon.pid}/children') as file:
        return sum(look(pid) for pid in file.read().split())


def leaves(root, sandbox):
    """Cgroups below the workload, other than the main process's."""
    if DRIVER == 'microvm':
        # They are the guest's own, and the workload sees none of them: what is in them tells as much.
        script = ('import os\nfor pid in os.listdir("/proc"):\n  try:\n    mine = pid.isdigit() and int(pid) != os.getpid()'
                  ' and os.stat("/proc/" + pid).st_uid == os.getuid()\n    if mine: print(pid)\n  except OSError: pass')
        pids = root.ctl('exec', sandbox, '--', *PYTHON, script).out.split()
        return set(sorted(pids, key=int)[1:])
    found = set()
    for folder in root.census()['cgroups']:
        match = re.search(re.escape(sandbox) + r'/workload/(.+)$', folder)
        if match and match[1] != 's1':
            found.add(match[1])
    return found


@scenario
def exit_statuses(root):
    box = idle(root)
    for script, wanted, sentence in (
            ('exit 0', 0, 'a session that ends well'), ('exit 7', 7, 'its exit code'),
            ('exit 255', 255, 'the largest one'), ('kill -9 $$', 137, 'SIGKILL is 137'),
            ('kill -15 $$', 143, 'SIGTERM is 143')):
        same(root.ctl('exec', box, '--', *SHELL, script).code, wanted, f'exit status: {sentence}')
    gone = root.ctl('exec', box, '/no/such/program')
    check(gone.code == 127 and 'No such file' in gone.err, 'a program that is not there is 127', gone)
    barred = root.ctl('exec', box, '/etc/passwd')
    check(barred.code == 126 and 'ermission denied' in barred.err, 'one that is no program is 126', barred)
    late = root.ctl('exec', '--timeout', '300ms', box, '/bin/sleep', '100')
    check(late.code == 124 and 'timed out' in late.err, 'a time-out is 124', late)
    for words, text in ((('exec', box), 'command'), (('exec', 'nobody', 'true'), 'nobody'),
                        (('exec', '-u', '0', box, 'id'), 'user 0:0'),
                        (('exec', '-w', 'tmp', box, 'pwd'), 'absolute')):
        done = root.ctl(*words)
        check(done.code == 125 and text in done.err, f'{" ".join(words)} is our failure', done)


@scenario
def streams_and_surroundings(root):
    box = idle(root, process='env = { FROM = "profile" }\ncwd = "/tmp"\numask = "0027"\n')
    done = root.ctl('exec', '-e', 'ADDED=by hand', box, '--', *SHELL,
                    'echo out; echo err >&2; echo $FROM $ADDED; pwd; umask; id -u; id -g')
    same(done.out, 'out\nprofile by hand\n/tmp\n0027\n1000\n1000\n', 'it has the surroundings of the plan')
    same(done.err, 'err\n', 'stdout and stderr come apart')
    same(root.ctl('exec', '-w', '/usr', box, 'pwd').out, '/usr\n', 'a working directory of its own')
    same(root.ctl('exec', '-w/usr', '-eA=b', box, 'sh', '-c', 'echo $A -x --').out, 'b -x --\n',
         'what stands behind the name is the command\'s')
    numbers = root.ctl('exec', box, '--', *PYTHON, 'import os; print(sorted(os.listdir("/proc/self/fd")))')
    same(numbers.out, "['0', '1', '2', '3']\n", 'it has 0, 1 and 2, and what listing them takes')
    kinds = root.ctl('exec', box, '--', *SHELL, 'readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2')
    # Into a guest go bytes and no descriptor: there an input that is not wanted is a pipe at its end.
    unwanted = r'pipe:\[\d+\]' if DRIVER == 'microvm' else '/dev/null'
    check(re.fullmatch(unwanted + r'\npipe:\[\d+\]\npipe:\[\d+\]\n', kinds.out), 'they are not the caller\'s', kinds)
    same(root.ctl('exec', '-i', box, 'cat', stdin=b'').out, '', 'an empty input is at its end')
    same(root.ctl('exec', box, 'cat', stdin=b'unseen').out, '', 'without -i nothing is passed on')
    quick = root.ctl('exec', box, '--', *SHELL, 'sleep 1000 & echo back')
    check(quick.code == 0 and quick.out == 'back\n', 'what it leaves behind holds nobody up', quick)
    until(lambda: not leaves(root, root.one(box)['id']), 'the leaves to be gone')
    check(True, 'and ends with it: no leaf is left')


@scenario
def big_streams(root):
    box = idle(root)
    data = os.urandom(64 << 20)
    child = root.spawn('exec', '-i', box, 'cat')
    out, err = child.communicate(data, timeout=PATIENCE * 2)
    check(child.returncode == 0 and not err and hashlib.sha256(out).digest() == hashlib.sha256(data).digest(),
          '64 MiB go in and come out as they were', child.returncode, len(out), err)
    done = subprocess.run(f'{" ".join(root.command("exec", box, "yes"))} | head -c 100000 | wc -c', shell=True,
                          capture_output=True, timeout=PATIENCE)
    same(done.stdout.strip(), b'100000', 'a reader that goes away ends the writer')
    until(lambda: not sessions(root), 'the session to end')
    child = root.spawn('exec', '-i', box, 'head', '-c', '1')
    child.stdin.write(b'x' * 100)
    same(child.wait(PATIENCE), 0, 'a program that stops reading ends all the same')
    # Back-pressure: with nobody reading, the writer gets no further than what the pipes hold.
    script = ('import os\nn = 0\nwhile True:\n  n += os.write(1, b"x" * 65536)\n'
              '  with open("/dev/shm/new", "w") as file: file.write(str(n))\n'
              '  os.replace("/dev/shm/new", "/dev/shm/n")')
    child = root.spawn('exec', box, '--', *PYTHON, script)

    def written():
        text = root.ctl('exec', box, 'cat', '/dev/shm/n').out
        return int(text) if text else 0
    until(written, 'the writer to begin')
    looks = [-1]
    while len(looks) < 5 or len(set(looks[-5:])) > 1:
        looks.append(written())
    now = looks[-1]
    check(0 < now < (8 << 20), 'a client that does not read holds its writer up', now)
    child.kill()
    child.wait()
    until(lambda: not sessions(root), 'the session to end with its client')
    check(True, 'a client that is killed takes its session with it')


@scenario
def many_at_once(root):
    box = idle(root)

    def one(number):
        done = root.ctl('exec', '-i', box, '--', *SHELL, f'read line; echo $line; exit {number}',
                        stdin=f'session {number}\n'.encode())
        return done.code == number and done.out == f'session {number}\n' and not done.err
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        good = list(pool.map(one, range(50)))
    check(all(good), 'fifty sessions at once, each with its own streams and status',
          [number for number, fine in enumerate(good) if not fine])
    until(lambda: not leaves(root, root.one(box)['id']), 'the leaves to be gone')
    check(True, 'and not one leaf is left behind')


@scenario
def signals(root):
    box = idle(root)
    script = 'trap "echo got; exit 3" USR1; echo ready; while :; do sleep 0.05; done'
    child = root.spawn('exec', box, '--', *SHELL, script)
    read_until(child.stdout, b'ready')
    child.send_signal(signal.SIGUSR1)
    out, _ = child.communicate(timeout=PATIENCE)
    check(child.returncode == 3 and out.endswith(b'got\n'),
          'a signal to the client is the session\'s', child.returncode, out)
    # No shell: one that is about to start a command may take an interrupt for itself and go on. And no
    # handler of Python's own, which one that comes just before a system call leaves waiting behind it.
    child = root.spawn('exec', box, '--', *PYTHON, 'import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); '
                       'print("ready", flush=True); signal.pause()')
    read_until(child.stdout, b'ready')
    child.send_signal(signal.SIGINT)
    same(child.wait(PATIENCE), 130, 'an interrupt ends it as it would outside')
    for verb, status in (('TERM', 143), ('KILL', 137)):
        child = root.spawn('exec', box, '--', *PYTHON, 'import time; print("ready", flush=True); time.sleep(1000)')
        read_until(child.stdout, b'ready')
        name, = (name for name, row in sessions(root).items() if row['running'])
        same(root.ctl('kill', '--session', name, '-s', verb, box).code, 0, f'kill --session sends {verb} to it, too')
        same(child.wait(PATIENCE), status, 'and its client hears how it ended')
    # The whole leaf, also what left the leader's group.
    late = root.ctl('exec', '--timeout', '300ms', box, '--', *SHELL, 'setsid sleep 1000 & sleep 1000')
    same(late.code, 124, 'a time-out')
    until(lambda: not leaves(root, root.one(box)['id']), 'the leaf to be gone')
    check(True, 'ends everything of the session, whatever its group')


@scenario
def detached(root):
    box = idle(root)
    script = ('for i in 1 2 3; do echo line $i; echo error $i >&2; done; printf "\\000\\377"; '
              'while [ ! -e /dev/shm/go ]; do sleep 0.02; done; echo last; exit 5')
    done = root.ctl('exec', '-d', box, '--', *SHELL, script)
    name = done.out.strip()
    check(done.code == 0 and re.fullmatch(r's\d+', name), 'exec -d prints the session', done)
    row = sessions(root)[name]
    check(row['running'] and not row['terminal'] and row['pid'] > 0 and row['argv'][:2] == list(SHELL),
          'it is listed while it runs', row)
    check(name in root.ctl('sessions', box).out, 'in the table too')
    first = root.spawn('attach', '--session', name, box)
    head = read_until(first.stdout, b'line 3\n')
    check(head.startswith(b'line 1\nline 2\nline 3\n'), 'an attachment gets what was written before it', head)
    first.send_signal(signal.SIGINT)
    same(first.wait(PATIENCE), 130, 'looking on ends by an interrupt, the session does not')
    second = root.spawn('attach', '--session', name, '--from', str(len(head)), '--from-stderr', '0', box)
    root.ctl('exec', box, 'touch', '/dev/shm/go')
    out, err = second.communicate(timeout=PATIENCE)
    check(head + out == b'line 1\nline 2\nline 3\n\x00\xfflast\n',
          'the next one goes on at its offset: not a byte is lost or repeated', out)
    same(err, b'error 1\nerror 2\nerror 3\n', 'standard error has offsets of its own')
    same(second.returncode, 5, 'and ends with the status of the session')
    row = sessions(root)[name]
    check(not row['running'] and row['exit']['code'] == 5, 'which can be asked for afterwards', row)
    again = root.ctl('attach', '--session', name, box)
    check(again.code == 5 and again.out.endswith('last\n'), 'as its output can', again)
    for verb, wanted in (('KILL', 137), ('TERM', 143)):
        name = root.ctl('exec', '-d', box, '/bin/sleep', '1000').out.strip()
        same(root.ctl('kill', '--session', name, '-s', verb, box).code, 0, f'kill --session sends {verb}')
        same(root.ctl('attach', '--session', name, box).code, wanted, 'and the status says so')
    wrong = root.ctl('kill', '--session', 's999', box)
    check(wrong.code == 1 and 's999' in wrong.err, 'a session that is not there cannot be killed', wrong)
    missing = root.ctl('exec', '-d', box, '/no/such')
    check(missing.code == 127 and 'No such file' in missing.err, 'what cannot be executed says so at once', missing)


@scenario
def states_and_plans(root):
    box = idle(root)
    digest = root.one(box)['plan_digest']
    same(root.ctl('exec', '--expect-plan', digest, box, 'true').code, 0, 'the expected plan')
    other = root.ctl('exec', '--expect-plan', 'sha256:' + '0' * 64, box, 'touch', '/dev/shm/ran')
    check(other.code == 125 and digest in other.err, 'another plan is refused, and named', other)
    same(root.ctl('exec', box, 'test', '-e', '/dev/shm/ran').code, 1, 'nothing of it ran')
    detached_too = root.ctl('exec', '-d', '--expect-plan', 'sha256:' + '0' * 64, box, 'true')
    same(detached_too.code, 125, 'a detached one as well')
    if root.ctl('pause', box).code == 0:
        paused = root.ctl('exec', box, 'true')
        check(paused.code == 125 and 'resume' in paused.err, 'in a paused sandbox: what to do', paused)
        root.ctl('resume', box)
        same(root.ctl('exec', box, 'true').code, 0, 'and again once it goes on')
    root.ctl('stop', '-t', '1', box)
    stopped = root.ctl('exec', box, 'true')
    check(stopped.code == 125 and 'does not run' in stopped.err, 'in a stopped one: that it does not run', stopped)
    listed = root.ctl('sessions', box)
    check(listed.code == 1 and 'does not run' in listed.err, 'nor has it sessions', listed)


@scenario
def ends_with_the_sandbox(root):
    box = idle(root)
    child = root.spawn('exec', box, '--', *SHELL, 'echo ready; sleep 1000')
    read_until(child.stdout, b'ready')
    name = root.ctl('exec', '-d', box, '/bin/sleep', '1000').out.strip()
    before = lookers(root)  # the daemon's own child watches folders too
    looking = root.spawn('attach', '--session', name, box)
    main_one = root.spawn('attach', box)
    until(lambda: lookers(root, looking, main_one) >= before + 2, 'the attachments to stand')
    root.ctl('kill', box)
    same(main_one.wait(PATIENCE), 137, 'who looks at the main process hears how it ended')
    check(child.wait(PATIENCE) in (125, 137), 'a session ends with its sandbox', child.returncode)
    check(looking.wait(PATIENCE) in (125, 137), 'an attachment as well', looking.returncode)


@scenario
def attach_to_the_main_process(root):
    script = ('echo before; while [ ! -e /dev/shm/go ]; do sleep 0.02; done; echo after; echo wrong >&2; '
              'while [ ! -e /dev/shm/end ]; do sleep 0.02; done; exit 6')
    root.ctl('run', '-d', '--name', 'main', root.profile('main', (*SHELL, script)))
    whole = root.spawn('attach', '--from', '0', 'main')
    read_until(whole.stdout, b'before\n')
    now = root.spawn('attach', 'main')
    until(lambda: lookers(root, whole, now, look=is_looking) == 2, 'the attachments to stand')
    root.ctl('exec', 'main', 'touch', '/dev/shm/go')
    same(read_until(now.stdout, b'after\n'), b'after\n', 'attach shows what comes from now on')
    root.ctl('exec', 'main', 'touch', '/dev/shm/end')
    same(now.communicate(timeout=PATIENCE), (b'', b'wrong\n'), 'errors apart')
    same(now.returncode, 6, 'and ends with its status')
    same(whole.communicate(timeout=PATIENCE)[0], b'after\n', '--from 0 has it from the beginning')


@scenario
def hostile_neighbours(root):
    """The main process and a session are of one user: neither may take the other over."""
    folder, probe = root.attacker()
    box = idle(root, text=probe)
    child = root.spawn('exec', box, '--', *SHELL, 'echo $$; sleep 1000')
    inner = int(read_until(child.stdout, b'\n'))
    script = ('import ctypes, os, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n'
              'r = libc.ptrace(16, int(sys.argv[1]), 0, 0)\nprint(r, os.strerror(ctypes.get_errno()))\n'
              'try: open(f"/proc/{sys.argv[1]}/mem", "r+b").read(1); print("read")\n'
              'except OSError as e: print(e.strerror)')
    done = root.ctl('exec', box, '--', *PYTHON, script, str(inner))
    check(done.out.startswith('-1 '), 'ptrace of another session is refused', done)
    for number in (0, 1):
        done = root.ctl('exec', box, '--', *PYTHON, f'import os\nfor p in os.listdir("/proc"):\n'
                        f'  if p == "1":\n    print(sorted(os.listdir("/proc/1/fd")))')
        check(done.code != 0 and 'ermission' in done.err, 'nor are the descriptors of PID 1 to be seen', done)
    child.kill()
    child.wait()
    # What is opened behind our back: the audit log has each session, by the digest of its words.
    root.ctl('exec', box, '--', *SHELL, 'exit 9')
    root.ctl('stop', '-t', '1', box)
    words = b''.join(word.encode() + b'\0' for word in (*SHELL, 'exit 9'))
    digest = 'sha256:' + hashlib.sha256(words).hexdigest()
    same(root.ctl('audit', 'verify').code, 0, 'its chain holds')  # and has brought every line into the file
    with open(os.path.join(root.path, 'var/lib/sandbox/audit.jsonl')) as file:
        events = [json.loads(line) for line in file]
    opened = [e for e in events if e['event'] == 'session-opened' and e['body']['argv_digest'] == digest]
    check(len(opened) == 1 and opened[0]['body']['uid'] == 1000, 'the audit log has the session', opened)
    name = opened[0]['body']['session'] if opened else ''
    ended = [e for e in events if e['event'] == 'exited' and e['body']['session'] == name]
    check(len(ended) == 1 and ended[0]['body']['code'] == 9, 'and its end', ended)


def open_frame(argv):
    """OPEN of docs/protocol.md, by hand: any client may come through the door."""
    def text(word):
        return struct.pack('>I', len(word)) + word
    body = struct.pack('>HBIIHH', 3, 2, 1000, 1000, 0, len(argv)) + b''.join(text(word) for word in argv)
    body += struct.pack('>H', 0) + text(b'/') + text(b'') + struct.pack('>HHIIHBB', 0, 0, 0, 0o22, 0, 0, 1)
    return struct.pack('>IB', len(body), 0x20) + body


def knock(root, sandbox, argv):
    """A stream that came through the door, and the first frame that is its answer."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.settimeout(PATIENCE)
    folder = os.open(os.path.join(root.path, 'run/sandbox', sandbox), os.O_PATH)
    door.connect(f'/proc/self/fd/{folder}/v.sock')
    os.close(folder)
    door.sendall(b'CONNECT 5001\n')
    line = b''
    while not line.endswith(b'\n'):
        line += door.recv(1)
    null = os.open('/dev/null', os.O_RDWR)
    frame = open_frame(argv)
    socket.send_fds(door, [frame[:1]], [null, null, null])
    door.sendall(frame[1:])
    os.close(null)
    head = b''
    while len(head) < 5:
        piece = door.recv(5 - len(head))
        if not piece:
            break
        head += piece
    return door, line, head


@scenario
def the_limit(root):
    box = idle(root, text='[resources]\npids = 1000\nmemory = "1GiB"\n' + guest.machine('1536MiB'))
    sandbox = root.one(box)['id']
    doors = [knock(root, sandbox, (b'/bin/sleep', b'1000')) for _ in range(255)]
    check(all(head[4:] == b'\x2a' for _, _, head in doors), 'with the main process, 256 sessions run at once',
          {head for _, _, head in doors})
    check(all(int(line.split()[1]) & 1 << 30 for _, line, _ in doors), 'each is told which it is')
    over = root.ctl('exec', box, 'true')
    check(over.code == 125 and 'busy' in over.err, 'the next one is refused by name', over)
    more = root.ctl('exec', '-d', box, 'true')
    check(more.code == 125 and 'busy' in more.err, 'a detached one too', more)
    same(len(sessions(root)), 255, 'all of them are listed')
    for door, _, _ in doors:
        door.close()
    until(lambda: not leaves(root, sandbox), 'the leaves to be gone')
    same(root.ctl('exec', box, 'true').code, 0, 'when they are gone there is room again')


@scenario
def nothing_but_sessions(root):
    same(root.ctl('run', '-d', '--name', 'quiet', root.profile('quiet', None, process='[process]\nidle = true\n')).code,
         0, 'a sandbox without a main process')
    same(root.ctl('exec', 'quiet', 'echo', 'alive').out, 'alive\n', 'runs sessions')
    looked = root.ctl('attach', 'quiet')
    check(looked.code == 125 and 'idle' in looked.err, 'and has nothing to attach to', looked)


@scenario
def out_of_memory(root):
    box = idle(root, text='[resources]\nmemory = "64MiB"\n')
    name = root.ctl('exec', '-d', box, '--', *PYTHON, 'x = b"x" * (256 << 20)').out.strip()
    same(root.ctl('attach', '--session', name, box).code, 137, 'a session that wants too much memory is killed')
    row = sessions(root)[name]
    check(row['exit']['reason'] == 'oom' and row['exit']['oom_kills'] >= 1, 'and that is told as what it is', row)
    same(root.ctl('exec', box, 'true').code, 0, 'the sandbox lives on')


if __name__ == '__main__':
    main()
