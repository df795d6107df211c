#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures sandboxes in guests beside a bare QEMU with the same kernel, initrd and devices, in one run."""
import argparse
import concurrent.futures
import contextlib
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), '../integration'))
from lib import guest  # noqa: E402
from lib.harness import CENSUS, Root  # noqa: E402

MEMORY = 256  # MiB, of each guest
BOOT = 120  # seconds; docs/protocol.md: a guest boots within 90 s under emulation
MIB = 1 << 20
STREAM = 64 * MIB
PIECE = 32 << 10  # as much as a frame of ours carries
RTTS = 300


def kernel_words():
    """As the driver has them (src/driver/microvm): without the clock's rate the kernel may wait for ever."""
    with open('/proc/cpuinfo') as file:
        rate = int(float(re.search(r'^cpu MHz\s*: ([\d.]+)', file.read(), re.M)[1]) * 1000)
    words = f'console=ttyS0 quiet reboot=t panic=-1 cryptomgr.notests noreplace-smp tsc_early_khz={rate}'
    return words if guest.EMULATED else words.replace('cryptomgr.notests ', '')


class Bare:
    """QEMU with what the driver gives it, and neither jail nor supervisor."""

    def __init__(self, initrd, shares=(), work='/tmp'):
        self.channel, theirs = socket.socketpair()
        self.servers, sockets, words = [], [], []
        for number, folder in enumerate(shares):
            path = os.path.join(work, f'virtiofsd-{number}')
            listening, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
            listening.bind(path)
            listening.listen(1)
            client.connect(path)
            os.unlink(path)
            sockets += [listening, client]
            words += ['-chardev', f'socket,id=s{number},fd={client.fileno()}',
                      '-device', f'vhost-user-fs-device,queue-size=1024,chardev=s{number},tag=s{number}']
            self.servers.append(subprocess.Popen(
                [guest.SERVER, f'--fd={listening.fileno()}', '-o', f'source={folder}', '-o', 'sandbox=chroot'],
                pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL))
        accelerator = ['-accel', 'tcg,thread=multi,tb-size=128', '-cpu',
                       'qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2,+fsgsbase,+popcnt,+smep']
        if not guest.EMULATED:
            accelerator = ['-accel', 'kvm', '-cpu', 'host']
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [guest.VMM, '-nodefaults', '-no-user-config', '-no-reboot', '-display', 'none',
             '-global', 'virtio-mmio.force-legacy=false',
             '-machine', 'microvm,acpi=on,rtc=on,isa-serial=on,auto-kernel-cmdline=off,memory-backend=memory',
             *accelerator, '-m', f'{MEMORY}M', '-smp', '1',
             '-object', f'memory-backend-memfd,id=memory,size={MEMORY}M,share=on', '-serial', 'null',
             '-object', 'rng-builtin,id=random', '-device', 'virtio-rng-device,rng=random',
             '-chardev', f'socket,id=channel,fd={theirs.fileno()}', '-device', 'virtio-serial-device,max_ports=2',
             '-device', 'virtserialport,chardev=channel,nr=1,name=org.sandbox.0', *words,
             '-kernel', guest.GUEST + '/vmlinux', '-initrd', initrd, '-append', kernel_words()],
            pass_fds=[theirs.fileno(), *(one.fileno() for one in sockets)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        theirs.close()
        for one in sockets:
            one.close()

    def first_word(self):
        """Waits for what PID 1 says first; seconds since the start of QEMU."""
        self.channel.settimeout(BOOT)
        if not self.channel.recv(1):
            raise RuntimeError('the bare guest ended before it spoke')
        return time.monotonic() - self.began

    def order(self, letter, count):
        self.channel.sendall(letter.encode() + struct.pack('<Q', count))

    def close(self):
        for process in (self.process, *self.servers):
            process.kill()
            process.wait()
        self.channel.close()


def receive(stream, count):
    left = count
    while left:
        got = len(stream.recv(min(left, MIB)))
        if not got:
            raise RuntimeError('the stream ended early')
        left -= got


def percentile(values, fraction):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * fraction))]


def profile(root, name='bench', argv=('/bin/true',)):
    text = f'[microvm]\nmemory = "{MEMORY}MiB"\ncpus = 1\n'
    return root.profile(name, argv, text, isolation='microvm')


def run(root, path):
    began = time.monotonic()
    done = root.ctl('run', '--rm', path, timeout=BOOT)
    if done.code != 0:
        raise RuntimeError(f'run ended with {done.code}: {done.err}')
    return time.monotonic() - began


def boots(root, runs, table):
    path, ours, bare = profile(root), [], []
    for number in range(runs + 1):
        machine = Bare(guest.GUEST + '/initrd')
        with contextlib.closing(machine):
            spoke = machine.first_word()
        took = run(root, path)
        if number:  # the first warms the page cache
            bare.append(spoke)
            ours.append(took)
    table.row('sandboxctl run --rm /bin/true', ours, 's')
    table.row('bare QEMU to the first word of PID 1', bare, 's')
    table.target('run / bare boot', statistics.median(ours) / statistics.median(bare), 1.25, 'x')


def crowd(root, table, count=40, at_once=4):
    path = profile(root)

    def one(_):
        try:
            return run(root, path)
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f'bench: {error}', file=sys.stderr)
            return None
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        times = [took for took in pool.map(one, range(count)) if took is not None]
    table.row(f'run, {at_once} at once', times, 's')
    table.target(f'boots of {count} that failed', count - len(times), 0, '')


def bytes_there_and_back(write, read):
    times = []
    for _ in range(RTTS):
        began = time.perf_counter()
        write(b'x')
        read()
        times.append((time.perf_counter() - began) * 1000)
    return times[RTTS // 10:]


def sessions(root, port_initrd, table):
    bare = Bare(port_initrd)
    with contextlib.closing(bare):
        bare.first_word()
        bare.order('e', RTTS)
        raw = bytes_there_and_back(bare.channel.sendall, lambda: receive(bare.channel, 1))
        began = time.monotonic()
        bare.order('t', STREAM)
        piece = bytes(MIB)
        for _ in range(STREAM // MIB):
            bare.channel.sendall(piece)
        receive(bare.channel, 1)
        raw_in = STREAM / MIB / (time.monotonic() - began)
        began = time.monotonic()
        bare.order('g', STREAM)
        receive(bare.channel, STREAM)
        raw_out = STREAM / MIB / (time.monotonic() - began)

    child = root.spawn('exec', '-i', 'g', '--', '/bin/cat')
    ours = bytes_there_and_back(lambda byte: os.write(child.stdin.fileno(), byte),
                                lambda: os.read(child.stdout.fileno(), 1))
    child.stdin.close()
    child.wait(BOOT)
    spawns = []
    for _ in range(20):
        began = time.perf_counter()
        root.ctl('exec', 'g', '/bin/true')
        spawns.append((time.perf_counter() - began) * 1000)
    into = root.spawn('exec', '-i', 'g', '--', '/bin/sh', '-c', 'echo; exec cat >/dev/null')
    into.stdout.read(1)
    began = time.monotonic()
    for _ in range(STREAM // MIB):
        into.stdin.write(bytes(MIB))
    into.stdin.close()
    into.wait(BOOT)
    ours_in = STREAM / MIB / (time.monotonic() - began)
    out = root.spawn('exec', 'g', '--', '/bin/sh', '-c', f'echo; exec head -c {STREAM} /dev/zero')
    out.stdout.read(1)
    began, left = time.monotonic(), STREAM
    while left:
        left -= len(os.read(out.stdout.fileno(), MIB)) or left
    ours_out = STREAM / MIB / (time.monotonic() - began)
    out.wait(BOOT)
    table.row('a byte through cat in a session', ours, 'ms')
    table.row('a byte on a bare port', raw, 'ms')
    table.row('sandboxctl exec /bin/true', spawns, 'ms')
    table.target('byte in a session / on a bare port', statistics.median(ours) / statistics.median(raw), 3, 'x')
    table.note(f'into a guest: {ours_in:.0f} MiB/s, bare port {raw_in:.0f}; out of it: {ours_out:.0f}, '
               f'bare port {raw_out:.0f}')
    table.target('bare / our stream, into a guest', raw_in / ours_in, 2, 'x')
    table.target('bare / our stream, out of it', raw_out / ours_out, 2, 'x')


def pss(pid):
    """KiB of one process but for the guest's own memory, which both have."""
    total, counts = 0, True
    for line in CENSUS.read(f'/proc/{pid}/smaps').splitlines():
        if re.match(r'[0-9a-f]+-[0-9a-f]+ ', line):
            counts = 'memory-backend-memfd' not in line
        elif counts and line.startswith('Pss:'):
            total += int(line.split()[1])
    return total


def memory(root, table):
    """Of an idle guest that nothing was done in, beside a bare QEMU and its file server."""
    parts = {'VMM': 0, 'virtiofsd': 0, 'shim and the rest': 0}
    for pid in CENSUS.pids():
        words = CENSUS.read(f'/proc/{pid}/cmdline').split('\0')
        if not any(root.one('g')['id'] in CENSUS.read(f'/proc/{pid}/{file}') for file in ('cgroup', 'cmdline')):
            continue
        name = os.path.basename(words[0])
        part = 'VMM' if name.startswith('qemu') else 'virtiofsd' if name.startswith('virtiofsd') else 'shim and the rest'
        parts[part] += pss(pid)
    bare = Bare(guest.GUEST + '/initrd', ['/usr'], root.work)
    with contextlib.closing(bare):
        bare.first_word()
        theirs = pss(bare.process.pid) + sum(pss(server.pid) for server in bare.servers)
    ours = sum(parts.values())
    table.note('idle, PSS beyond guest memory in MiB: ' + ', '.join(f'{name} {kib / 1024:.1f}' for name, kib in parts.items())
               + f'; together {ours / 1024:.1f}, bare QEMU with a file server {theirs / 1024:.1f}')
    table.target('idle guest beyond a bare one', (ours - theirs) / 1024, 8, 'MiB')


class Table:
    def __init__(self):
        self.targets = []
        print(f'{"":<38} {"p50":>8} {"p95":>8} {"min":>8} {"n":>5}')

    def row(self, name, values, unit):
        print(f'  {name:<36} {statistics.median(values):>8.3f} {percentile(values, 0.95):>8.3f} {min(values):>8.3f} '
              f'{len(values):>5}  {unit}', flush=True)

    def note(self, text):
        print('  ' + text, flush=True)

    def target(self, name, value, most, unit):
        self.targets.append((name, value, most, unit))

    def close(self):
        print(f'\n{"target":<38} {"is":>8}   at most')
        for name, value, most, unit in self.targets:
            print(f'  {name:<36} {value:>8.2f}   {most:<6} {unit:<4} {"ok" if value <= most else "MISS"}')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--runs', type=int, default=10, help='boots of each kind, after one to warm up')
    parser.add_argument('--port-initrd', required=True, help='of an image whose PID 1 is bench-port')
    parser.add_argument('--part', action='append', choices=('boots', 'crowd', 'sessions'))
    options = parser.parse_args()
    if guest.MISSING:
        sys.exit(f'bench: no guests: {", ".join(guest.MISSING)} missing')
    parts = options.part or ('boots', 'crowd', 'sessions')
    accelerator = 'emulated by TCG' if guest.EMULATED else 'KVM'
    print(f'Linux {os.uname().release}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}; guests: '
          f'{guest.release()}, {MEMORY} MiB, {accelerator}')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table, root = Table(), Root()
    try:
        guest.configure(root)
        if 'boots' in parts:
            boots(root, options.runs, table)
        if 'crowd' in parts:
            crowd(root, table)
        if 'sessions' in parts:
            root.ctl('run', '-d', '--name', 'g', profile(root, 'g', ('/bin/sleep', '100000')), timeout=BOOT)
            memory(root, table)
            sessions(root, options.port_initrd, table)
        table.close()
    finally:
        root.close('guests')



if __name__ == '__main__':
    main()
