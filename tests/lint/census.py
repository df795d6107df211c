#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dev/census sees what a sandbox can leave: each kind is planted, seen, removed, and gone.

A census that sees nothing would call every leak clean.
"""
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
KINDS = ('processes', 'mounts', 'cgroups', 'namespaces', 'namespaces pinned', 'sockets', 'files', 'memfds')
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000  # linux/sched.h
MS_PRIVATE_REC = (1 << 18) | (1 << 14)              # linux/mount.h


def hierarchy():
    """A hierarchy in which this process may make a group, or nothing and why."""
    with open('/proc/self/mountinfo') as file:
        mounts = [line.split(' - ') for line in file]
    for head, tail in mounts:
        path = head.split()[4]
        if tail.split()[0] in ('cgroup', 'cgroup2') and os.access(path, os.W_OK):
            yield path


def census(place, parent):
    text = subprocess.run([os.path.join(ROOT, 'dev/census'), '--root', place, '--cgroup', parent, '--json'],
                          check=True, capture_output=True, text=True).stdout
    return json.loads(text)


def plant(place, group, ready):
    """In a child: becomes everything the census must see, says so, and stays."""
    with open(os.path.join(group, 'cgroup.procs'), 'w') as file:
        file.write('0')
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.open('/proc/self/ns/net', os.O_RDONLY)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), 'unshare')
    libc.mount(None, b'/', None, ctypes.c_ulong(MS_PRIVATE_REC), None)
    if libc.mount(b'planted', place.encode(), b'tmpfs', ctypes.c_ulong(0), None) != 0:
        raise OSError(ctypes.get_errno(), 'mount')
    memory = os.memfd_create('planted')
    door = socket.socket(socket.AF_UNIX)
    door.bind(os.path.join(place, 'door'))
    os.write(ready, b'1')
    signal.pause()
    del here, memory, door


def make_group(parent):
    for path in hierarchy():
        try:
            os.mkdir(path + parent)
            return path + parent
        except OSError:
            continue
    return None


def observe(place, parent, group):
    with open(os.path.join(place, 'left'), 'w'):
        pass
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            plant(place, group, writer)
        except OSError as error:
            print('#', error, flush=True)
        os._exit(1)
    os.close(writer)
    try:
        planted = os.read(reader, 1) == b'1'
        during = census(place, parent) if planted else {}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
    os.unlink(os.path.join(place, 'left'))
    return planted, during


def main():
    number = len(KINDS) + 1
    print(f'1..{number}')
    place, parent = tempfile.mkdtemp(prefix='census-test-'), f'/sandbox-test-census-{os.getpid()}'
    before = census(place, parent)
    group = make_group(parent) if os.geteuid() == 0 else None
    if group is None:
        shutil.rmtree(place)
        why = 'no cgroup can be made here' if os.geteuid() == 0 else 'planting mounts and cgroups needs root'
        for i in range(number):
            print(f'ok {i + 1} - census # SKIP {why}')
        return
    try:
        planted, during = observe(place, parent, group)
    finally:
        os.rmdir(group)
    after = census(place, parent)
    shutil.rmtree(place)
    for i, kind in enumerate(KINDS):
        seen = planted and len(during[kind]) > len(before[kind])
        print(f"{'ok' if seen else 'not ok'} {i + 1} - the census sees planted {kind}")
    empty = not any(after[kind] for kind in after if kind != 'ipc')
    if not empty:
        print('#', json.dumps(after))
    print(f"{'ok' if empty else 'not ok'} {number} - the census is empty again afterwards")


if __name__ == '__main__':
    main()
    sys.exit(0)
