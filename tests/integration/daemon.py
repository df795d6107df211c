#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon as a program: started, restarted, killed, activated; sandboxes never notice."""
import os
import re
import signal
import socket
import subprocess

from lib.harness import PATIENCE, SANDBOXD, check, main, read_until, same, scenario, start_time, until

SHELL = '/bin/sh', '-c'
COUNT = 'i=0; while :; do i=$((i+1)); echo line $i; sleep 0.005; done'
MANY = int(os.environ.get('SANDBOX_TEST_MANY', '12'))


def daemon_of(root):
    return root.daemon or root.start_daemon()


def pid1_of(root, name):
    """PID 1 of a sandbox on the host: who is it, and since when."""
    sandbox = root.one(name)['id']
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cgroup') as file:
                if f'{sandbox}/control' in file.read():
                    return pid, start_time(pid)
        except OSError:
            pass
    return None


def shims_of(root):
    found = set()
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                words = file.read().split(b'\0')
            if words[1].startswith(b'shim:') and root.path.encode() in b' '.join(words):
                found.add((int(pid), start_time(pid)))
        except (OSError, IndexError):
            pass
    return found


@scenario
def a_crash_of_the_daemon_harms_no_sandbox(root):
    daemon_of(root)
    profile = root.profile()
    names = [f'n{i}' for i in range(MANY)]
    for name in names:
        done = root.ctl('run', '-d', '--name', name, profile, '--', *SHELL, COUNT)
        assert done.code == 0, (done, root.daemon_log())
    before, first = shims_of(root), pid1_of(root, names[0])
    same(len(before), MANY, f'{MANY} sandboxes run, each with its shim')
    waiters = [root.spawn('wait', name) for name in names[:3]]
    until(lambda: calls_at_work(root) == 3, 'the waits arrive')
    follower = root.spawn('logs', '-f', names[0])
    read_until(follower.stdout, b'line 20\n')
    root.stop_daemon(signal.SIGKILL)
    out, err = follower.communicate(timeout=PATIENCE)
    check(follower.returncode == 1 and b'daemon' in err, 'who followed is told that the daemon went away', err)
    for waiter in waiters:
        same(waiter.wait(PATIENCE), 1, 'who waited too')
    same(root.ctl('ps', '-q').out.count('\n'), MANY, 'sandboxctl does without it')
    same(shims_of(root), before, 'the shims are the same')
    root.start_daemon()
    same(shims_of(root), before, 'also with the next daemon')
    same(pid1_of(root, names[0]), first, 'and so is PID 1')
    waiter = root.spawn('wait', names[0])
    until(lambda: calls_at_work(root) == 1, 'the wait arrives')
    for name in names:
        until(lambda n=name: root.ctl('logs', n).out.count('\n') > 20, 'its first lines')
        same(root.ctl('stop', '-t', '100ms', name).code, 0, f'{name} stops when it is asked to', root.daemon_log()[-500:])
    same(waiter.communicate(timeout=PATIENCE)[0], b'137\n' if root.one(names[0])['exit']['signal'] == 9 else b'143\n',
         'its exit status is delivered')
    for name in names:
        lines = root.ctl('logs', name).out.splitlines()
        numbers = [int(line.split()[1]) for line in lines]
        check(numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 20,
              f'{name}: every line is in the log exactly once', numbers[:3], numbers[-3:], len(numbers))
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')
    events = [line for name in names for line in root.ctl('audit', 'show', name).out.splitlines() if 'exited' in line]
    same(len(events), MANY, 'each exit is recorded once', *events[:5])


@scenario
def an_orderly_restart(root):
    daemon_of(root)
    root.ctl('run', '-d', '--name', 'stays', root.profile(), '--', *SHELL, COUNT)
    first = pid1_of(root, 'stays')
    waiter = root.spawn('wait', 'stays')
    until(lambda: calls_at_work(root) == 1, 'the wait arrives')
    same(root.stop_daemon(), 0, 'SIGTERM ends it with 0')
    same(waiter.wait(PATIENCE), 1, 'who waited is told')
    check(not os.path.exists(root.socket), 'and its socket is gone')
    root.start_daemon()
    same(pid1_of(root, 'stays'), first, 'the sandbox did not notice')
    same(root.ps()[0]['state'], 'running', 'ps says so')


@scenario
def one_daemon_a_state(root):
    daemon = daemon_of(root)
    second = subprocess.run([SANDBOXD, '--root', root.path], capture_output=True, text=True, timeout=PATIENCE)
    check(second.returncode == 1 and f'pid {daemon.pid}' in second.stderr, 'a second daemon is refused and told who serves',
          second)
    check(root.daemon_answers(), 'the first one still answers')
    root.stop_daemon(signal.SIGKILL)
    root.start_daemon()
    check(root.daemon_answers(), 'after its death another one takes the place, socket and all')


@scenario
def the_daemon_sweeps_what_died(root):
    if root.daemon:
        root.stop_daemon()
    root.ctl('run', '-d', '--name', 'orphan', root.profile(), '--', *SHELL, COUNT)
    [(shim, _)] = shims_of(root)
    os.kill(shim, signal.SIGKILL)
    root.start_daemon()
    until(lambda: root.ps() and root.ps()[0]['state'] == 'dead' and 'removed' in root.daemon_log(), 'the reconcile')
    root.census_clean('a full reconcile runs when it starts', but=['files', 'processes'])
    root.ctl('run', '-d', '--name', 'second', root.profile(), '--', *SHELL, COUNT)
    [(shim, _)] = shims_of(root)
    os.kill(shim, signal.SIGKILL)
    until(lambda: root.one('second')['state'] == 'dead', 'its end')
    root.daemon.send_signal(signal.SIGHUP)
    until(lambda: root.daemon_log().count('shim_process') >= 2, 'the second reconcile')
    check('SIGHUP' in root.daemon_log(), 'and when SIGHUP asks for one')


@scenario
def what_a_service_manager_sees(root):
    if root.daemon:
        root.stop_daemon()
    place = os.path.join(root.base, 'notify')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(place)
        manager.settimeout(PATIENCE)
        root.start_daemon(env={**os.environ, 'NOTIFY_SOCKET': place, 'WATCHDOG_USEC': '200000'}, wait=False)
        said = []
        while not any(b'READY=1' in word for word in said):
            said.append(manager.recv(4096))
        check(root.daemon_answers(), 'READY=1 comes when it serves')
        while said.count(b'WATCHDOG=1') < 3:
            said.append(manager.recv(4096))
        check(True, 'the watchdog is fed')
        same(root.stop_daemon(), 0, 'it ends')
        while not any(b'STOPPING=1' in word for word in said):
            said.append(manager.recv(4096))
        check(True, 'and says STOPPING=1')


@scenario
def socket_activation(root):
    if root.daemon:
        root.stop_daemon()
    place = os.path.join(root.base, 'activated.sock')
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(16)
        with socket.socket(socket.AF_UNIX) as early:
            early.connect(place)
            early.sendall(b'GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
            # LISTEN_PID must be the daemon's own: a shell knows it before it becomes the daemon.
            script = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
            daemon = subprocess.Popen(['/bin/sh', '-c', script, 'sh', SANDBOXD, '--root', root.path], close_fds=False,
                                      preexec_fn=lambda: (os.dup2(listener.fileno(), 3), os.set_inheritable(3, True)),
                                      stderr=subprocess.PIPE)
            try:
                early.settimeout(PATIENCE)
                same(early.recv(12), b'HTTP/1.1 200', 'a client that came before the daemon is answered')
            finally:
                daemon.terminate()
                _, err = daemon.communicate(timeout=PATIENCE)
            same(daemon.returncode, 0, 'it ends in order', err)
            check(os.path.exists(place), "and leaves the manager's socket alone")


@scenario
def a_client_without_a_daemon(root):
    if root.daemon:
        root.stop_daemon()
    os.makedirs(os.path.dirname(root.socket), exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(root.socket)
    same(root.ctl('ps', '-q').code, 0, 'a socket that nobody listens on is passed over')
    os.unlink(root.socket)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(root.socket)
        mute.listen(4)
        done = root.ctl('ps', '-q')
        check(done.code == 0 and 'ignoring the daemon' in done.err, 'so is one that never answers, and it is said', done)
    os.unlink(root.socket)


@scenario
def killed_clients(root):
    daemon_of(root)
    profile = root.profile()
    child = root.spawn('run', '--name', 'fg', profile, '--', *SHELL, COUNT)
    read_until(child.stdout, b'line 5\n')
    child.kill()
    child.wait()
    until(lambda: calls_at_work(root) == 0, 'the worker of the dead client ends')
    # Its output may be seen before the ledger's commit that it runs.
    until(lambda: root.one('fg')['state'] == 'running', 'a foreground sandbox outlives its client')
    same(root.ctl('stop', '-t', '0ms', 'fg').code, 0, 'and can be stopped')
    text = root.ctl('logs', 'fg').out
    check(text.startswith('line 1\n') and text.endswith('\n'), 'its log is whole')


def calls_at_work(root):
    """By the daemon's own count, without the call that asks."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(root.socket)
        client.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
        text = b''
        while piece := client.recv(65536):
            text += piece
    return int(re.search(rb'^sandbox_api_workers (\d+)$', text, re.M)[1]) - 1


if __name__ == '__main__':
    main()
