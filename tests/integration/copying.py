#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cp: files into a sandbox and out of it, whatever tree or archive either side holds."""
import hashlib
import io
import os
import subprocess
import tarfile
import time

from lib.harness import PATIENCE, bind, check, main, mask, read_until, same, scenario, tmpfs

MIB = 1 << 20
READY = 'echo ready; while :; do sleep 0.05; done'


def start(root, text='', script=READY):
    """A sandbox named "box" with a writable /work, once its script has said "ready"."""
    path = root.profile(text=tmpfs('/work', '256MiB') + text)
    done = root.ctl('run', '-d', '--name', 'box', path, '--', '/bin/sh', '-c', script)
    assert done.code == 0, done
    follower = root.spawn('logs', '-f', 'box')
    read_until(follower.stdout, b'ready\n')
    follower.kill()


def digest(folder):
    """What a copy keeps: names, kinds, permission bits, times, targets and content."""
    total = hashlib.sha256()
    for at, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(at, name)
            info = os.lstat(path)
            link = os.readlink(path) if os.path.islink(path) else ''
            mode = 0 if link else info.st_mode & 0o777
            total.update(repr((os.path.relpath(path, folder), link, mode, int(info.st_mtime))).encode())
            if not link and name in files:
                with open(path, 'rb') as file:
                    total.update(hashlib.file_digest(file, 'sha256').digest())
    return total.hexdigest()


def make_tree(root):
    tree = os.path.join(root.base, 'tree')
    long = os.path.join(tree, *['n' * 200] * 5)
    os.makedirs(long)
    os.makedirs(os.path.join(tree, 'empty'))
    root.write(os.path.join(long, 'größe und\nzeile'), 'x')
    root.write(os.path.join(tree, 'run'), '#!/bin/sh\n', 0o755)
    root.write(os.path.join(tree, 'shut'), 'secret', 0o400)
    root.write(os.path.join(tree, 'big'), os.urandom(MIB) * 100)
    os.symlink('../../nowhere', os.path.join(tree, 'dangling'))
    os.symlink('/' + 'x' * 300, os.path.join(tree, 'long'))
    os.link(os.path.join(tree, 'run'), os.path.join(tree, 'twin'))
    os.chmod(os.path.join(tree, 'empty'), 0o555)
    for name in ('run', 'empty', 'big'):
        os.utime(os.path.join(tree, name), (1_000_000_000, 1_000_000_000))
    return tree


@scenario
def round_trip(root):
    start(root)
    tree, back = make_tree(root), os.path.join(root.base, 'back')
    same(root.ctl('cp', tree, 'box:/work'), (0, '', ''), 'a tree goes in')
    same(root.ctl('cp', 'box:/work/tree', back), (0, '', ''), 'and comes out')
    same(digest(back), digest(tree), 'as it was: 100 MiB, modes, times, links, long and odd names')
    same(root.ctl('cp', 'box:/work/tree/.', back + '2').code, 0, 'its content alone')
    same(digest(back + '2'), digest(tree), 'is the same')
    owners = {os.lstat(os.path.join(at, name)).st_uid for at, _, names in os.walk(back) for name in names}
    same(owners, {os.geteuid()}, 'and belongs to the caller')


@scenario
def destinations(root):
    start(root)
    file = root.write(os.path.join(root.base, 'f'), 'one')
    out = os.path.join(root.base, 'out')
    os.mkdir(out)

    def inside(path):
        done = subprocess.run(root.command('cp', f'box:{path}', '-'), capture_output=True)
        if done.returncode:
            return None
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            return archive.extractfile(archive.getmembers()[0]).read()
    same(root.ctl('cp', file, 'box:/work').code, 0, 'into a folder')
    same(inside('/work/f'), b'one', 'under its own name')
    root.write(file, 'two')
    same(root.ctl('cp', file, 'box:/work/f').code, 0, 'over a file')
    same(inside('/work/f'), b'two', 'replaces it')
    same(root.ctl('cp', file, 'box:/work/g').code, 0, 'a new name')
    same(inside('/work/g'), b'two', 'is taken')
    check(root.ctl('cp', file, 'box:/work/none/').code == 1, 'a folder that is not there')
    check(root.ctl('cp', file, 'box:/work/none/f').code == 1, 'nor a parent')
    check(root.ctl('cp', out, 'box:/work/f').code == 1, 'a folder over a file')
    done = root.ctl('cp', 'box:/work/none', out)
    check(done.code == 1 and 'No such file' in done.err, 'a source that is not there', done)
    same(root.ctl('cp', 'box:/work/f', out).code, 0, 'out into a folder')
    same(open(os.path.join(out, 'f')).read(), 'two', 'under its own name')
    same(root.ctl('cp', 'box:work/g', os.path.join(out, 'h')).code, 0, 'a path below the cwd')
    same(open(os.path.join(out, 'h')).read(), 'two', 'under a new one')
    for words in (('a', 'b'), ('box:/a', 'box:/b'), ('--max-size', '0', 'a', 'box:/b')):
        same(root.ctl('cp', *words).code, 2, f'wrong usage: {" ".join(words)}')
    done = root.ctl('cp', file, 'nobody:/work')
    check(done.code == 1 and 'nobody' in done.err, 'an unknown sandbox', done)
    same(root.ctl('stop', 'box', '-t', '0s').code, 0, 'stopped')
    done = root.ctl('cp', file, 'box:/work')
    check(done.code == 1 and 'does not run' in done.err, 'nothing is copied then', done)


@scenario
def streams(root):
    start(root)
    tree = os.path.join(root.base, 'small')
    os.makedirs(tree + '/d')
    root.write(tree + '/d/f', 'text')
    for form in ('gnu', 'pax', 'ustar'):
        made = subprocess.run(['tar', f'--format={form}', '-C', root.base, '-cf', '-', 'small'],
                              capture_output=True, check=True)
        # A folder that is there already keeps its time, which would be that of the last copy's files.
        root.ctl('exec', 'box', 'rm', '-rf', '/work/small')
        done = root.ctl('cp', '-', 'box:/work', stdin=made.stdout)
        same(done.code, 0, f'tar --format={form} goes in', done)
    out = os.path.join(root.base, 'out')
    os.mkdir(out)
    done = subprocess.run(root.command('cp', 'box:/work/small', '-'), capture_output=True)
    subprocess.run(['tar', '-C', out, '-xpf', '-'], input=done.stdout, check=True)
    same(digest(out + '/small'), digest(tree), 'and what comes out is for any tar')
    done = root.ctl('cp', '-', 'box:/work', stdin=made.stdout[:700])
    check(done.code == 1 and 'ends before its end' in done.err, 'a cut archive is an error', done)
    done = root.ctl('cp', '-', 'box:/work', stdin=b'\x1f\x8b' + b'z' * 2000)
    check(done.code == 1 and 'not a tar archive' in done.err, 'a compressed one too', done)


@scenario
def limits(root):
    start(root, script='truncate -s 1T /work/hole; mkfifo /work/fifo; ' + READY)
    big = root.write(os.path.join(root.base, 'big'), b'x' * (3 * MIB))
    done = root.ctl('cp', '--max-size', '2MiB', big, 'box:/work')
    check(done.code == 1 and 'size limit' in done.err, 'too much to go in', done)
    done = root.ctl('cp', 'box:/work/hole', root.base)
    check(done.code == 1 and 'size limit' in done.err, 'a file of nothing but hole is refused by its size', done)
    done = root.ctl('cp', 'box:/work', os.path.join(root.base, 'all'))
    check(done.code == 1, 'also within a tree', done)
    same(root.ctl('cp', 'box:/work/fifo', root.base).code, 1, 'a FIFO has nothing to copy and is not waited for')
    same(root.ctl('cp', 'box:/dev', os.path.join(root.base, 'dev')).code, 0, 'devices')
    made = [name for _, _, names in os.walk(os.path.join(root.base, 'dev')) for name in names
            if not os.path.islink(os.path.join(root.base, 'dev', name))]
    same(made, [], 'are left out')


@scenario(config='copy_limit = "1MiB"\n')
def the_operators_limit(root):
    start(root, script='head -c 2000000 /dev/zero > /work/big; echo small > /work/small; ' + READY)
    big = root.write(os.path.join(root.base, 'big'), b'x' * (2 * MIB))
    for option in ((), ('--max-size', '1GiB')):
        done = root.ctl('cp', *option, big, 'box:/work')
        check(done.code == 1 and 'size limit' in done.err, f'too much to go in {" ".join(option)}', done)
        done = root.ctl('cp', *option, 'box:/work/big', os.path.join(root.base, 'out'))
        check(done.code == 1 and 'size limit' in done.err, f'and to come out {" ".join(option)}', done)
    same(root.ctl('cp', 'box:/work/small', os.path.join(root.base, 'out')).code, 0, 'what is smaller is copied')
    done = root.ctl('cp', '--max-size', '2', 'box:/work/small', os.path.join(root.base, 'out2'))
    check(done.code == 1 and 'size limit' in done.err, 'who wants less gets less', done)


HOSTILE = r'''
cd /work; mkdir d; echo harmless > d/canary; echo harmless > plain
ln -s /etc/canary absolute; ln -s ../../../../../../etc/canary up; ln -s /proc/1/root magic
ln -s /proc/self/root/etc/canary magic2; ln -s loop loop; ln -s ../../../.. top
echo ready
while :; do mv -T d e; ln -s $CANARY d; rm d; mv -T e d; done
'''


@scenario
def hostile_trees(root):
    canary = os.path.join(root.base, 'canary')
    os.mkdir(canary)
    root.write(os.path.join(canary, 'canary'), 'HOST SECRET')
    frozen = root.grant('frozen', {'canary': 'frozen'})
    start(root, bind(frozen, '/frozen'), HOSTILE.replace('$CANARY', canary))
    for number, path in enumerate(('absolute', 'up', 'magic', 'magic2', 'loop', 'magic/etc/passwd')):
        to = os.path.join(root.base, f'got{number}')
        done = root.ctl('cp', f'box:/work/{path}', to)
        check(done.code == 1 and not os.path.exists(to), f'{path} leads nowhere', done)
    mine = root.write(os.path.join(root.base, 'mine'), 'mine')
    for path in ('/frozen/canary', '/frozen/new', '/work/up', '/usr/bin/new', '/proc/1/root/new',
                 '/work/top/../../' + root.base.lstrip('/') + '/new'):
        done = root.ctl('cp', mine, f'box:{path}')
        # A link in last place is replaced, not followed.
        check(done.code == (0 if path == '/work/up' else 1), f'nothing of the host is written at {path}', done)
    archives = tries = 0
    end = time.monotonic() + 2 * PATIENCE
    # Most copies meet a tree that changes; how soon one does not is the scheduler's to say.
    while tries < 30 or (not archives and time.monotonic() < end):
        tries += 1
        done = subprocess.run(root.command('cp', 'box:/work', '-'), capture_output=True)
        archives += done.returncode == 0
        check(b'HOST SECRET' not in done.stdout, 'a swap race reads nothing of the host') \
            if b'HOST SECRET' in done.stdout else None
        root.ctl('cp', mine, 'box:/work/d/canary')
    check(archives > 0, 'while trees swap under it, a copy still gets through', archives)
    same(open(os.path.join(canary, 'canary')).read(), 'HOST SECRET', 'the canary outside is as it was')
    same(open(os.path.join(frozen, 'canary')).read(), 'frozen', 'so is the read-only mount')
    same(sorted(os.listdir(canary)) + sorted(os.listdir(frozen)), ['canary', 'canary'], 'and nothing is new')


def archive(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.USTAR_FORMAT) as made:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o6777
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = data
                made.addfile(info)
            else:
                info.size = len(data)
                made.addfile(info, io.BytesIO(data))
    return out.getvalue()


FILE, LINK, HARD, FIFO, DEVICE = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
                                  tarfile.CHRTYPE)
BAD = {
    'a name that goes up': [('../evil', FILE, b'x')],
    'an absolute name': [('/work/evil', FILE, b'x')],
    'a link and a file behind it': [('l', LINK, '/work/keep'), ('l/evil', FILE, b'x')],
    'a hard link that goes up': [('h', HARD, '../work/keep/own')],
    'a hard link through a link': [('l', LINK, '/work/keep'), ('h', HARD, 'l/own')],
    'a FIFO': [('fifo', FIFO, b'')],
    'a device': [('null', DEVICE, b'')],
    'a folder where a file is': [('own', FILE, b'x'), ('own/evil', FILE, b'x')],
}


@scenario
def hostile_archives(root):
    start(root, script='umask 0; mkdir /work/keep /work/to; echo own > /work/keep/own; ' + READY)
    for what, members in BAD.items():
        done = root.ctl('cp', '-', 'box:/work/to', stdin=archive(*members))
        check(done.code == 1, f'{what} is refused', done)
    done = root.ctl('cp', '-', 'box:/work/to', stdin=archive(('set', FILE, b'x')))
    listed = subprocess.run(root.command('cp', 'box:/work', '-'), capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(listed)) as found:
        names = found.getnames()
        check(not [name for name in names if 'evil' in name], 'nothing came of it', names)
        same(found.extractfile('work/keep/own').read(), b'own\n', 'what was there is as it was')
        same(found.getmember('work/to/set').mode, 0o777, 'set-id bits are dropped')


if __name__ == '__main__':
    main()
