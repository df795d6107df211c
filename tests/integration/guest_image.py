#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sandbox-mkguest: what it makes of kernel packages, from kernels small enough to be written here."""
import gzip
import hashlib
import json
import lzma
import os
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from lib.harness import SOURCE, Tap, check, same, skip  # noqa: E402

TOOL = os.path.join(SOURCE, 'guest', 'image', 'sandbox-mkguest')
RELEASE = '6.12.0-test'


def note(kind=18):
    return struct.pack('<III', 4, 8, kind) + b'Xen\0' + b'\0' * 8


def elf(machine=62, interpreter=False, body=b'', pvh=True):
    """An ELF file with a note, and an interpreter where wanted."""
    parts = [(4, note(18 if pvh else 17))] + ([(3, b'/lib/ld.so\0')] if interpreter else [])
    at = 64 + 56 * len(parts)
    headers, data = b'', b''
    for kind, content in parts:
        headers += struct.pack('<IIQQQQQQ', kind, 4, at + len(data), 0, 0, len(content), len(content), 4)
        data += content + b'\0' * (-len(content) % 4)
    head = b'\x7fELF\x02\x01\x01' + b'\0' * 9 + struct.pack(
        '<HHIQQQIHHHHHH', 2, machine, 1, 0, 64, 0, 0, 64, 56, len(parts), 64, 0, 0)
    return head + headers + data + body


def module(depends, body=b''):
    """A module that says what it needs, as the kernel's build writes it."""
    names = b'\0.modinfo\0.shstrtab\0'
    info = b'license=GPL\0depends=' + ','.join(depends).encode() + b'\0' + body
    table = 64 + len(names) + len(info)

    def section(name, kind, at, size):
        return struct.pack('<IIQQQQIIQQ', name, kind, 0, 0, at, size, 0, 0, 1, 0)
    sections = section(0, 0, 0, 0) + section(1, 1, 64 + len(names), len(info)) + section(10, 3, 64, len(names))
    head = b'\x7fELF\x02\x01\x01' + b'\0' * 9 + struct.pack(
        '<HHIQQQIHHHHHH', 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    return head + names + info + sections


def bzimage(payload):
    head = bytearray(0x1000)
    head[0x1f1] = 3
    head[0x202:0x206] = b'HdrS'
    struct.pack_into('<II', head, 0x248, 0x1000 - 4 * 512, len(payload))
    return bytes(head) + payload


class Package:
    """An extracted kernel package in a folder of its own."""

    def __init__(self, work, kernel=None, modules=None, builtin=('fuse',), dep=None):
        self.tree = tempfile.mkdtemp(prefix='tree.', dir=work)
        self.folder = f'{self.tree}/lib/modules/{RELEASE}'
        os.makedirs(f'{self.tree}/boot')
        os.makedirs(f'{self.folder}/kernel')
        self.put(f'{self.tree}/boot/vmlinuz-{RELEASE}', kernel or bzimage(gzip.compress(elf())))
        for name, data in (modules or {'a.ko': module(['b', 'c-d']), 'b.ko': module(['c_d']),
                                       'c-d.ko.xz': lzma.compress(module([]))}).items():
            self.put(f'{self.folder}/kernel/{name}', data)
        self.put(f'{self.folder}/modules.builtin', ''.join(f'kernel/x/{n}.ko\n' for n in builtin).encode())
        if dep is not None:
            self.put(f'{self.folder}/modules.dep', dep.encode())

    @staticmethod
    def put(path, data):
        with open(path, 'wb') as file:
            file.write(data)


class Maker:
    def __init__(self, work):
        self.work, self.init, self.count = work, f'{work}/init', 0
        Package.put(self.init, elf(body=b'init'))

    def make(self, package, *words, modules=('a', 'fuse'), init=None):
        self.count += 1
        out = f'{self.work}/out{self.count}'
        done = subprocess.run(
            [TOOL, '--tree', package.tree, '--init', init or self.init, '--output', out,
             *(w for m in modules for w in ('--module', m)), *words],
            capture_output=True, text=True, check=False, timeout=120)
        return done, out


def bytes_of(path):
    with open(path, 'rb') as file:
        return file.read()


def manifest_of(out):
    return json.loads(bytes_of(f'{out}/manifest.json'))


def entries(cpio):
    """[(name, mode, owner, time, data)] of a newc archive."""
    at, found = 0, []
    while True:
        fields = [int(cpio[at + 6 + 8 * n:at + 14 + 8 * n], 16) for n in range(13)]
        name = cpio[at + 110:at + 110 + fields[11] - 1].decode()
        start = at + 110 + fields[11] + -(110 + fields[11]) % 4
        if name == 'TRAILER!!!':
            return found
        found.append((name, fields[1], (fields[2], fields[3]), fields[5], cpio[start:start + fields[6]]))
        at = start + fields[6] + -fields[6] % 4


def contents(maker):
    done, out = maker.make(Package(maker.work))
    if not check(done.returncode == 0, 'an image is made of an extracted package', done):
        return
    same(bytes_of(f'{out}/vmlinux'), elf(), 'the kernel is the one inside the bzImage, unpacked')
    found = entries(bytes_of(f'{out}/initrd'))
    same([(name, oct(mode)) for name, mode, *_ in found],
         [('init', '0o100755'), ('modules', '0o40755'), ('modules/00-c_d.ko', '0o100644'),
          ('modules/01-b.ko', '0o100644'), ('modules/02-a.ko', '0o100644')],
         'the initrd holds init and the modules in load order, and nothing else')
    same({(owner, time) for _, _, owner, time, _ in found}, {((0, 0), 0)}, 'owners and times are 0')
    same(found[2][4], module([]), 'a packed module is unpacked')
    manifest = manifest_of(out)
    same((manifest['arch'], manifest['console'], manifest['release'], manifest['builtin']),
         ('x86_64', 'ttyS0', RELEASE, ['fuse']), 'the manifest says what it is for')
    for part in ('kernel', 'initrd'):
        data = bytes_of(f"{out}/{manifest[part]['file']}")
        same((manifest[part]['size'], manifest[part]['sha256']),
             (len(data), 'sha256:' + hashlib.sha256(data).hexdigest()), f'the manifest has the digest of the {part}')


def reproducible(maker):
    package = Package(maker.work)
    first, again = maker.make(package)[1], maker.make(package)[1]
    same([bytes_of(f'{first}/{name}') for name in sorted(os.listdir(first))],
         [bytes_of(f'{again}/{name}') for name in sorted(os.listdir(again))], 'two images are equal byte for byte')
    other = maker.make(Package(maker.work, modules={'a.ko': module([], b'x')}))[1]
    check(bytes_of(f'{other}/initrd') != bytes_of(f'{first}/initrd'), 'another module gives another image')


def orders(maker):
    dep = ('kernel/a.ko: kernel/b.ko kernel/c-d.ko.xz\nkernel/b.ko: kernel/c-d.ko.xz\n'
           'kernel/c-d.ko.xz:\n')
    done, out = maker.make(Package(maker.work, dep=dep))
    same([m['name'] for m in manifest_of(out)['modules']], ['c_d', 'b', 'a'], 'modules.dep gives the order', done)
    # What the modules say of themselves is not asked where depmod has run.
    done, out = maker.make(Package(maker.work, dep='kernel/a.ko:\n'))
    same([m['name'] for m in manifest_of(out)['modules']], ['a'], 'modules.dep alone counts where it is', done)


def refusals(maker):
    plain, work = Package(maker.work), maker.work
    dynamic, foreign = f'{work}/dynamic', f'{work}/foreign'
    Package.put(dynamic, elf(interpreter=True))
    Package.put(foreign, elf(machine=183))
    loop = {'a.ko': module(['b']), 'b.ko': module(['a'])}
    rows = [
        ('a name that is neither a module nor built in', plain, {'modules': ('a', 'virtiofsd')}, 'nor built in'),
        ('a dependency that is nowhere', Package(work, modules={'a.ko': module(['gone'])}), {}, 'gone needed by a'),
        ('a circle of dependencies', Package(work, modules=loop), {}, 'circle'),
        ('a dynamic init', plain, {'init': dynamic}, 'dynamic linker'),
        ('an init of another architecture', plain, {'init': foreign}, 'no program for x86_64'),
        ('a kernel of an unknown architecture', Package(work, kernel=gzip.compress(elf(machine=243))), {},
         'known are x86_64 and aarch64'),
        ('a kernel without a PVH entry', Package(work, kernel=bzimage(gzip.compress(elf(pvh=False)))), {}, 'PVH'),
        ('a damaged kernel', Package(work, kernel=bzimage(b'\x1f\x8b' + b'\0' * 40)), {}, 'sandbox-mkguest'),
        ('what is no kernel', Package(work, kernel=b'#!/bin/sh\n' * 99), {}, 'neither a bzImage'),
    ]
    for sentence, package, options, wanted in rows:
        done, out = maker.make(package, **options)
        check(done.returncode == 1 and wanted in done.stderr and 'Traceback' not in done.stderr,
              f'{sentence} is refused', done)
        check(not os.path.exists(f'{out}/manifest.json'), f'{sentence} leaves no manifest')
    done, _ = maker.make(plain, '--arch', 'sparc')
    check(done.returncode == 2 and 'unknown architecture' in done.stderr, 'an unknown architecture is refused', done)
    done, _ = maker.make(plain, '--arch', 'arm64')
    check(done.returncode == 1 and 'wanted arm64' in done.stderr, 'a kernel for another one is refused', done)
    done, _ = maker.make(plain, '--release', '1.2')
    check(done.returncode == 1 and RELEASE in done.stderr, 'an unknown release is refused, the known one named', done)


def arm(maker):
    image = b'MZ' + b'\0' * 54 + b'ARM\x64' + b'\0' * 64
    init = f'{maker.work}/init-arm'
    Package.put(init, elf(machine=183))
    package = Package(maker.work, kernel=gzip.compress(image), modules={'a.ko': module([])})
    done, out = maker.make(package, init=init)
    manifest = manifest_of(out)
    same((manifest['arch'], manifest['console'], manifest['kernel']['file'], bytes_of(f'{out}/Image')),
         ('aarch64', 'ttyAMA0', 'Image', image), 'an arm64 kernel has its own name and console', done)


def debian(maker):
    """The real thing, where a kernel was fetched for the test host or a guest."""
    folders = [os.path.join(SOURCE, name, 'debs') for name in ('build-guest', 'build-testhost')]
    debs = sorted(os.path.join(f, n) for f in folders if os.path.isdir(f) for n in os.listdir(f) if 'linux-image' in n)
    if not debs:
        skip('an image is made of a package of Debian', 'no kernel package was fetched (dev/guest)')
        return
    out = f'{maker.work}/debian'
    done = subprocess.run([TOOL, '--package', debs[0], '--init', maker.init, '--output', out],
                          capture_output=True, text=True, check=False, timeout=300)
    if not check(done.returncode == 0, f'an image is made of {os.path.basename(debs[0])}', done):
        return
    manifest = manifest_of(out)
    names = {m['name'] for m in manifest['modules']} | set(manifest['builtin'])
    check({'virtio_mmio', 'virtio_console', 'virtio_rng', 'virtiofs', 'overlay'} <= names,
          'it has what a guest needs, loaded or built in', manifest)


def main():
    with tempfile.TemporaryDirectory(prefix='sandbox-guest-image-', dir='/tmp') as work:
        maker = Maker(work)
        for part in (contents, reproducible, orders, refusals, arm, debian):
            part(maker)
    print(f'1..{Tap.count}')
    sys.exit(1 if Tap.bad else 0)


if __name__ == '__main__':
    main()
