# SPDX-License-Identifier: Apache-2.0
"""Waits for what happens by following the events, never by the clock."""
import json
import os
import select
import signal
import time

from lib.harness import CENSUS, DRIVER, PATIENCE, gone, leader, start_time, stat_of, until


class Follower:
    """`events -f` of one root, read as it comes."""

    def __init__(self, root, *args):
        self.child = root.spawn('events', '-f', *args)
        self.text = b''
        self.seen = []

    def next(self, end):
        while b'\n' not in self.text:
            ready, _, _ = select.select([self.child.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                return None
            piece = os.read(self.child.stdout.fileno(), 65536)
            if not piece:
                raise EOFError('the stream of events ended')
            self.text += piece
        line, self.text = self.text.split(b'\n', 1)
        event = json.loads(line)
        self.seen.append(event)
        return event

    def until(self, kind, name=None, seconds=PATIENCE, **wanted):
        """The next event of this kind; what comes before it is kept in `seen`."""
        end = time.monotonic() + seconds
        while True:
            event = self.next(end)
            if event is None:
                raise TimeoutError(f'no {kind} {wanted}, only {[(e["event"], e["generation"]) for e in self.seen]}')
            if event['event'] != kind or (name and event['name'] != name):
                continue
            if all(event.get(key) == value for key, value in wanted.items()):
                return event

    def close(self):
        self.child.kill()
        self.child.wait()


def events(root, *args):
    done = root.ctl('events', *args)
    assert done.code == 0, done
    return [json.loads(line) for line in done.out.splitlines()]


def kinds(root, *args):
    return [(event['generation'], event['event']) for event in events(root, *args)]


def state(root, name):
    return root.one(name)['state']


def pid_of(root, name):
    """The workload's first process on this host, by its own cgroup; of a guest its VMM."""
    leaf = 'machine' if DRIVER == 'microvm' else 's1'
    inside = f'{root.parent}/{root.one(name)["id"]}/workload/{leaf}/cgroup.procs'
    both = (f'/sys/fs/cgroup/pids{inside}', f'/sys/fs/cgroup{inside}')
    if DRIVER == 'microvm':
        return until(lambda: next((int(pid) for path in both for pid in CENSUS.read(path).split()
                                   if '\0microvm,' in CENSUS.read(f'/proc/{pid}/cmdline')), 0), f'the VMM of {name}')
    return until(lambda: leader(int(pid) for path in both for pid in CENSUS.read(path).split()), f'the process of {name}')


def shim_of(sandbox):
    # A child that it just forked has its words too.
    pid = leader(by_argument(f'shim:{sandbox}'))
    if pid is None:
        raise AssertionError(f'no shim of {sandbox}')
    return pid


def by_argument(word):
    return [int(pid) for pid in os.listdir('/proc')
            if pid.isdigit() and word in CENSUS.read(f'/proc/{pid}/cmdline').split('\0')]


def kill_shim(root, sandbox):
    """As the kernel's OOM killer would: nothing of its own is left to clean up."""
    pid = shim_of(sandbox)
    start, handle = start_time(pid), os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    until(lambda: gone(pid, start) or stat_of(pid)[:1] == ['Z'], 'the end of the shim')
    os.close(handle)
    return pid, start


def lines(root, name):
    return [json.loads(line)['log'] for line in root.ctl('logs', '--json', name).out.splitlines()]


def shim_alive(root, name):
    return bool(by_argument('shim:' + root.one(name)['id']))
