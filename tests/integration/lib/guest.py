# SPDX-License-Identifier: Apache-2.0
"""What a root needs for guests: an operator config with what dev/guest made pinned."""
import hashlib
import json
import os

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), '../../..'))
GUEST = os.environ.get('SANDBOX_GUEST') or os.path.join(SOURCE, 'build-guest/new')
VMM, SERVER = '/usr/bin/qemu-system-x86_64', '/usr/lib/qemu/virtiofsd'
# On a host whose KVM runs guests: 'kvm'.
EMULATED = os.environ.get('SANDBOX_TEST_ACCELERATOR', 'tcg') == 'tcg'
CLASS = 'emulated-vm' if EMULATED else 'hardware-vm'
HAS_GUESTS = os.environ.get('SANDBOX_TEST_DRIVER') == 'microvm'
MISSING = [path for path in (GUEST + '/vmlinux', GUEST + '/initrd', VMM, SERVER) if not os.path.exists(path)]


def digest(path):
    with open(path, 'rb') as file:
        return 'sha256:' + hashlib.file_digest(file, 'sha256').hexdigest()


def release():
    with open(os.path.join(GUEST, 'manifest.json')) as file:
        return json.load(file).get('release', 'unknown')


def keys():
    """The keys of config.toml that stand before its tables."""
    emulated = 'accelerator = "tcg"\naccept_emulated = true\n'
    return 'drivers = ["oci", "microvm"]\n' + (emulated if EMULATED else 'accelerator = "kvm"\n')


def tables(folder=GUEST):
    """The pins of what a guest boots."""
    lines = []
    for name, file in (('kernel', 'vmlinux'), ('initrd', 'initrd')):
        path = os.path.join(folder, file)
        lines += [f'[artifacts.{name}]', f'path = "{path}"', f'version = "{release()}"', f'sha256 = "{digest(path)}"']
    return '\n'.join(lines) + '\n'


def configure(root, folder=GUEST):
    """Adds the driver to the operator config of a root that was made without, and pins what lies there."""
    with open(os.path.join(root.path, 'etc/sandbox/config.toml'), 'a') as file:
        file.write(keys() + tables(folder))


def without_warning(err):
    """Standard error of a `run` without the line that says that its guest is emulated."""
    head, mark, rest = err.partition(b'sandboxctl: warning: EMULATED: ')
    return head + rest.partition(b'\n')[2] if mark and HAS_GUESTS else err


def machine(memory):
    """What a profile adds that wants more memory than the guests of a root have."""
    return f'[microvm]\nmemory = "{memory}"\n' if HAS_GUESTS else ''
