#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: release.py BUILD_DIR FAILPOINTS(true|false): a build to be shipped holds no failpoint."""
import os
import sys
import tempfile

MARKER = b'SANDBOX_FAILPOINT'
PROGRAMS = ('sandboxctl', 'sandboxd', 'sandbox-shim', 'sandbox-init')


def holding(paths):
    found = []
    for path in paths:
        with open(path, 'rb') as file:
            if MARKER in file.read():
                found.append(path)
    return found


def programs(build):
    return [os.path.join(folder, name) for folder, _, names in os.walk(build) for name in names
            if name in PROGRAMS and os.access(os.path.join(folder, name), os.X_OK)]


def main():
    build, failpoints = sys.argv[1], sys.argv[2] == 'true'
    print('1..2')
    with tempfile.NamedTemporaryFile() as planted:
        planted.write(b'\x7fELF\0' + MARKER + b'=\0')
        planted.flush()
        good = holding([planted.name])
        print(f"{'ok' if good else 'not ok'} 1 - a planted marker is found")
    paths = programs(build)
    if failpoints:
        print('ok 2 - no program holds a failpoint # SKIP this build asked for failpoints')
    elif not paths:
        print('ok 2 - no program holds a failpoint # SKIP no program is built in ' + build)
    else:
        bad = holding(paths)
        for path in bad:
            print(f'# {path} holds {MARKER.decode()}')
        print(f"{'not ok' if bad else 'ok'} 2 - none of {len(paths)} programs holds a failpoint")
    sys.exit(0)


if __name__ == '__main__':
    main()
