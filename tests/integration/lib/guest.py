# SPDX-License-Identifier: Apache-2.0
"""What a root needs for guests: an operator config with what dev/guest made pinned."""
import hashlib
import json
import os

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), '../../..'))
GUEST = os.environ.get('SANDBOX_GUEST') or os.path.join(SOURCE, 'build-guest/new')
VMM, SERVER = '/usr/bin/qemu-system-x86_64', '/usr/lib/qemu/virtiofsd'
MISSING = [path for path in (GUEST + '/vmlinux', GUEST + '/initrd', VMM, SERVER) if not os.path.exists(path)]


def digest(path):
    with open(path, 'rb') as file:
        return 'sha256:' + hashlib.file_digest(file, 'sha256').hexdigest()


def release():
    with open(os.path.join(GUEST, 'manifest.json')) as file:
        return json.load(file).get('release', 'unknown')


def keys():
    """The keys of config.toml that stand before its tables."""
    return 'drivers = ["oci", "microvm"]\naccelerator = "tcg"\naccept_emulated = true\n'


def tables(folder=GUEST):
    """The pins of what a guest boots."""
    lines = []
    for name, file in (('kernel', 'vmlinux'), ('initrd', 'initrd')):
        path = os.path.join(folder, file)
        lines += [f'[artifacts.{name}]', f'path = "{path}"', f'version = "{release()}"', f'sha256 = "{digest(path)}"']
    return '\n'.join(lines) + '\n'
