#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a workload may read and write: grants and their owners, masks, protected sources, bounds,
and roots made by somebody hostile."""
import hashlib
import os
import shutil
import stat
import subprocess

from lib.harness import ATTACKER, PATIENCE, bind, check, main, mask, same, scenario, skip, tmpfs

SHELL = '/bin/sh', '-c'


def denied(root, profile, sentence, *words):
    done = root.ctl('run', profile)
    return check(done.code == 125 and all(word in done.err for word in words), sentence, done)


def tree(folder):
    """A digest of a folder's names, owners, modes, times and contents."""
    found = []
    for at, folders, files in os.walk(folder):
        for name in sorted(folders + files):
            path = os.path.join(at, name)
            s = os.lstat(path)
            text = open(path, 'rb').read() if stat.S_ISREG(s.st_mode) else b''
            found.append((path, s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, s.st_nlink,
                          hashlib.sha256(text).hexdigest()))
    return sorted(found)


@scenario
def host_files(root):
    canary = 'canary-' + os.urandom(16).hex()
    beside = root.write(root.work + '/secret', canary)
    with open('/etc/sandbox-it-canary', 'w') as file:
        file.write(canary)
    try:
        grant = root.grant('data', {'seen': 'granted\n'})
        os.symlink(beside, grant + '/link')
        os.symlink('../secret', grant + '/up')
        profile = root.profile(text=bind(grant, '/data') + tmpfs('/tmp'))
        script = ('cat /data/seen; for p in /data/link /data/up /data/../secret /proc/self/root/etc/sandbox-it-canary '
                  f'/proc/1/root/etc/sandbox-it-canary /etc/sandbox-it-canary {beside} /proc/self/cwd/{beside}; do '
                  'cat $p 2>/dev/null; done; grep -rl canary- /etc /home /root /srv /var /opt /mnt /run /dev/shm 2>/dev/null; '
                  'ls /home /root /srv /opt /mnt')
        done = root.ctl('run', profile, '--', *SHELL, script)
        check(done.out.startswith('granted\n') and canary not in done.out, 'a grant shows its files and no other', done)
        same(done.out.count('canary'), 0, 'the canary is nowhere')
    finally:
        os.unlink('/etc/sandbox-it-canary')
    script = ('for d in "" /usr /etc /bin /lib /dev /root /home /srv /opt /var; do '
              'touch $d/x 2>/dev/null && echo "made $d/x"; done; rm -rf /usr/share/doc 2>/dev/null; '
              'echo x 2>/dev/null >/etc/passwd && echo wrote; echo end')
    for user in ('1000:1000', '0:0'):
        done = root.ctl('run', root.profile('ro', process=f'user = "{user}"\n'), '--', *SHELL, script)
        same(done.out, 'end\n', f'the root is read-only for user {user}', done.err)


@scenario
def read_only_grants(root):
    grant = root.grant('fixed', {'file': 'text', 'mine': 'text'}, owner=1000)
    root.write(grant + '/mine', 'text')
    os.chown(grant + '/mine', 1000, 1000)
    os.mkdir(grant + '/folder')
    before = tree(grant)
    profile = root.profile(text=bind(grant, '/fixed'))
    python = ('import os\nd = "/fixed/"\nt = [lambda: open(d+"mine","a"), lambda: os.truncate(d+"mine",0), '
              'lambda: os.rename(d+"mine",d+"n"), lambda: os.link(d+"mine",d+"l"), lambda: os.unlink(d+"mine"), '
              'lambda: os.chmod(d+"mine",0o777), lambda: os.utime(d+"mine",(1,1)), lambda: os.mkdir(d+"d"), '
              'lambda: os.symlink("x",d+"s"), lambda: os.mkfifo(d+"p"), lambda: os.setxattr(d+"mine","user.a",b"x"), '
              'lambda: os.rmdir(d+"folder"), lambda: os.chown(d+"mine",1000,1000), lambda: open(d+"new","w")]\n'
              'for i, f in enumerate(t):\n  try: f(); print("DONE", i)\n  except OSError as e: print("refused", e.errno)')
    done = root.ctl('run', profile, '--', '/usr/bin/python3', '-c', python)
    same(set(done.out.split('\n')[:-1]) - {'refused 30', 'refused 1', 'refused 13', 'refused 95'}, set(),
         'fourteen ways to change a read-only grant are refused', done)
    same(done.out.count('refused'), 14, 'each of them')
    same(tree(grant), before, 'and it is what it was')


@scenario
def submounts_of_grants(root):
    grant = root.grant('upper')
    os.mkdir(grant + '/sub')
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'mode=1777', 'none', grant + '/sub'], check=True)
    try:
        done = root.ctl('run', root.profile(text=bind(grant, '/upper')), '--', *SHELL,
                        'touch /upper/sub/x 2>/dev/null && echo made; echo end')
        same(done.out, 'end\n', 'a mount below a read-only grant is read-only too', done.err)
    finally:
        subprocess.run(['umount', grant + '/sub'], check=True)


@scenario
def ownership(root):
    grant = root.grant('mixed', {'owned': 'a', 'foreign': 'b'}, owner=1000)
    os.chown(grant + '/foreign', 0, 0)
    os.chown(grant + '/owned', 1000, 1000)
    os.chmod(grant + '/foreign', 0o666)
    os.chown(root.write(grant + '/other', 'c', 0o600), 1001, 1001)
    profile = root.profile(text=bind(grant, '/mixed', read_only=False))
    script = ('stat -c "%n %u" /mixed/owned /mixed/foreign /mixed/other; echo changed > /mixed/owned; '
              'cat /mixed/other 2>/dev/null && echo READ; (echo x > /mixed/foreign) 2>/dev/null && echo FOREIGN; echo x > /mixed/new; mkdir /mixed/newdir; '
              'chown 0 /mixed/new 2>/dev/null && echo CHOWNED; chmod 4755 /mixed/new 2>/dev/null && echo SETUID; ls /mixed')
    done = root.ctl('run', profile, '--', *SHELL, script)
    owners = dict(line.split() for line in done.out.splitlines() if line.startswith('/mixed/') and ' ' in line)
    same(owners, {'/mixed/owned': '1000', '/mixed/foreign': '65534', '/mixed/other': '65534'},
         'the user owns what it owned, every other owner is overflow', done)
    same(open(grant + '/owned').read(), 'changed\n', 'what it owns it writes')
    for word in ('READ', 'FOREIGN', 'CHOWNED', 'SETUID'):
        check(word not in done.out, f'no {word.lower()} of what is not its', done.out)
    made = os.stat(grant + '/new')
    same((made.st_uid, made.st_gid, made.st_mode & 0o7000), (1000, 1000, 0), 'what it makes is its own on the host')
    same(os.stat(grant + '/newdir').st_uid, 1000, 'folders too')
    check(not any(s[3] == 0 and 'new' in s[0] for s in tree(grant)), 'nothing made belongs to root')
    denied(root, root.profile('zero', process='user = "0:0"\n', text=bind(grant, '/mixed', read_only=False)),
           'a writable grant for user 0 is denied', 'user')
    closed = root.grant('closed', {'x': 'y'}, mode=0o755)
    done = root.ctl('run', root.profile('c', text=bind(closed, '/closed', read_only=False)), '--', *SHELL,
                    'touch /closed/n 2>/dev/null && echo MADE; rm -f /closed/x 2>/dev/null && echo GONE; echo end')
    same(done.out, 'end\n', 'a writable grant of a folder of root writes nothing')
    setid = root.grant('setid')
    shutil.copy(ATTACKER, setid + '/attacker')
    os.chmod(setid + '/attacker', 0o6755)
    outside = subprocess.run(['setpriv', '--reuid=1000', '--clear-groups', '--regid=1000', setid + '/attacker',
                              'euid-is-root'], capture_output=True, text=True, check=False).stdout
    done = root.ctl('run', root.profile('s', text=bind(setid, '/setid')), '--', '/setid/attacker', 'euid-is-root')
    if outside == 'euid-is-root: done 0\n':
        same(done.out, 'euid-is-root: refused 1\n', 'a set-user-id program of a grant has no effect', done)
    else:
        skip('a set-user-id program of a grant has no effect', f'VACUOUS: nor has it outside: {outside!r}')


@scenario
def masks(root):
    grant = root.grant('repo', {'.env': 'secret', 'plain': 'text'}, owner=1000)
    os.makedirs(grant + '/deep/inner')
    root.write(grant + '/deep/inner/key', 'secret')
    os.makedirs(grant + '/hidden')
    root.write(grant + '/hidden/key', 'secret')
    for at, folders, files in os.walk(grant):
        for name in folders + files:
            os.chown(os.path.join(at, name), 1000, 1000)
    before = tree(grant)
    profile = root.profile(text=bind(grant, '/repo', read_only=False) + mask('/repo/.env') + mask('/repo/deep/inner/key')
                           + mask('/repo/hidden') + mask('/repo/not-yet') + mask('/repo/deep/not-yet') + mask('/usr/share/doc'))
    script = ('cat /repo/.env /repo/deep/inner/key /repo/hidden/key 2>/dev/null; ls -A /repo/hidden /usr/share/doc; '
              'for c in "mv /repo/deep /repo/moved" "mv /repo/deep/inner /repo/deep/out" "rm -rf /repo/deep/inner" '
              '"rm -f /repo/.env" "mv /repo/.env /repo/e" "ln /repo/.env /repo/e" "ln -sf /etc /repo/not-yet" "mkdir /repo/not-yet/x" '
              '"mv /repo/plain /repo/not-yet" "rm -f /repo/not-yet" "rmdir /repo/hidden" "mv /repo/hidden /repo/h"; do '
              '$c 2>/dev/null && echo "DONE: $c"; done; for f in .env not-yet deep/not-yet hidden/x; do '
              '(echo bad > /repo/$f) 2>/dev/null && echo "WROTE $f"; done; '
              'cat /repo/deep/inner/key /repo/moved/inner/key /repo/deep/out/key /repo/.env 2>/dev/null; echo end')
    done = root.ctl('run', '--name', 'masked', profile, '--', *SHELL, script)
    check('secret' not in done.out, 'nothing masked can be read', done)
    lines = [line for line in done.out.splitlines() if not line.endswith(':') and line]
    same([line for line in lines if line.startswith('DONE') and 'mkdir' not in line], [],
         'no mask can be moved away, replaced or removed', done.out)
    same([line for line in lines if line.startswith('WROTE')], [], 'nor written', done.out)
    same([line for line in lines if not line.startswith(('DONE', 'WROTE'))], ['end'], 'masked folders are empty', done.out)
    root.census_clean('the placeholders', but=['files'])
    same([s[:5] + s[7:] for s in tree(grant)], [s[:5] + s[7:] for s in before], 'placeholders of missing paths are gone afterwards')
    orphan = root.profile('orphan', text=bind(grant, '/repo', read_only=False) + mask('/repo/no/such/parent'))
    denied(root, orphan, 'a mask whose parent is missing is denied', 'parent')
    same([s[:5] + s[7:] for s in tree(grant)], [s[:5] + s[7:] for s in before], 'and nothing was made for it')


@scenario
def protected_sources(root):
    state = root.path + '/var/lib/sandbox'
    os.makedirs(state, exist_ok=True)
    os.makedirs(root.path + '/run/sandbox', exist_ok=True)
    for source in ('/', '/proc', '/sys', '/dev', '/proc/1', '/dev/shm', '/run', state, root.path + '/run/sandbox',
                   root.path + '/etc/sandbox', root.path, root.base, '/var/run', '/proc/self/root'):
        denied(root, root.profile(text=bind(source, '/x')), f'{source.replace(root.base, "BASE")} as a source is denied')
    for name, target in [('to-root', '/'), ('to-proc', '/proc'), ('to-state', state), ('to-dev', '/dev/../dev')]:
        os.symlink(target, f'{root.work}/{name}')
        denied(root, root.profile(text=bind(f'{root.work}/{name}', '/x')), f'through the symlink {name} too')
    os.makedirs(root.work + '/inner')
    os.symlink('/', root.work + '/inner/up')
    denied(root, root.profile(text=bind(root.work + '/inner/up/proc', '/x')), 'and through a link in the middle')
    denied(root, root.profile(text=bind(root.work + '/no-such', '/x')), 'a source that is not there is denied', 'no-such')
    for target in ('/proc', '/proc/x', '/dev', '/sys', '/', '/dev/null', '/etc/passwd'):
        done = root.ctl('run', root.profile(text=bind(root.work + '/inner', target)), '--', '/bin/true')
        check(done.code == 125, f'a mount over {target} is refused', done)


@scenario
def bounds(root):
    profile = root.profile(text=tmpfs('/small', '1MiB') + '[resources]\nmemory = "128MiB"\n')
    done = root.ctl('run', profile, '--', *SHELL, 'head -c 3000000 /dev/zero > /small/x; echo $?; stat -c %s /small/x; '
                    'touch /small/y; echo $?; df /dev/shm /tmp 2>/dev/null | tail -1 | wc -l')
    lines = done.out.split()
    check(lines[:1] != ['0'] and int(lines[1]) <= 1 << 20, 'a tmpfs holds no more than its size', done)
    done = root.ctl('run', root.profile('w', text='[rootfs]\nread_only = false\n'), '--', *SHELL, 'id -u; touch /tmp/x && echo tmp')
    check(done.code in (0, 125) and (done.code == 125 or 'tmp' in done.out), 'a writable root is there or denied', done)


def tiny_root(root, name):
    folder = root.grant(name)
    for sub in ('bin', 'tmp', 'proc', 'dev', 'etc', 'sys'):
        os.makedirs(f'{folder}/{sub}')
    shutil.copy(ATTACKER, folder + '/bin/attacker')
    return folder


def in_dir(root, name, folder, *args, text=''):
    profile = root.profile(name, ['/bin/attacker', *args], text=f'[rootfs]\nsource = "dir:{folder}"\n' + text)
    return root.ctl('run', profile)


@scenario
def roots_of_ones_own(root):
    folder = tiny_root(root, 'tiny')
    root.write(folder + '/etc/marker', 'x')
    before = tree(folder)
    done = in_dir(root, 'tiny', folder, 'getpid', 'read=/etc/marker', 'read=/usr/bin/env', 'make=/bin/x', 'read=/dev/null',
                  'descriptors')
    lines = done.out.splitlines()
    same((done.code, lines[:5]), (0, ['getpid: done 0', 'read=/etc/marker: done 0', 'read=/usr/bin/env: refused 2',
                                      lines[3] if len(lines) > 3 else '', 'read=/dev/null: done 0']),
         'a folder serves as the root', done)
    check(len(lines) > 3 and 'refused' in lines[3], 'read-only', lines)
    same(tree(folder), before, 'and is not changed by it')


@scenario
def hostile_roots(root):
    victim = root.grant('victim', {'file': 'untouched'})
    before = tree(victim)
    etc = {name: os.stat(name) for name in ('/etc/resolv.conf', '/etc/hostname', '/etc/hosts', '/etc/passwd') if os.path.exists(name)}
    reached = []
    for place in ('dev', 'proc', 'sys', 'etc', 'tmp', 'etc/resolv.conf', 'etc/hosts', 'etc/passwd', 'dev/null', 'run', 'mnt'):
        for kind, target in [('absolute', victim), ('climbing', '../' * 20 + victim[1:]), ('dangling', victim + '/new'),
                             ('looping', '/' + place), ('climbing to a file', '../' * 20 + victim[1:] + '/file')]:
            name = f'h{len(reached)}'
            folder = tiny_root(root, name)
            path = f'{folder}/{place}'
            if os.path.isdir(path):
                shutil.rmtree(path)
            os.symlink(target, path)
            done = in_dir(root, name, folder, 'getpid', f'write={victim}/file', 'write=/proc/sys/kernel/hostname',
                          f'make=/{place}/made', text=tmpfs('/mnt') if place == 'mnt' else '')
            reached.append((place, kind, done.code))
            whole = done.code == 125 or (done.code == 0 and 'getpid: done' in done.out and 'sys/kernel/hostname: done' not in done.out
                                         and 'victim/file: done' not in done.out)
            if not whole or tree(victim) != before:
                check(False, f'a root whose {place} is a link ({kind}) is refused or confined', done, tree(victim))
            shutil.rmtree(folder)
            os.unlink(f'{root.work}/{name}.toml')
    check(len(reached) == 55, 'fifty-five roots with links in bad places are refused or confined', reached)
    same(tree(victim), before, 'and the folder they point at is untouched')
    same({n: (os.stat(n).st_ino, os.stat(n).st_mtime_ns) for n in etc}, {n: (s.st_ino, s.st_mtime_ns) for n, s in etc.items()},
         'as is /etc of the host')
    print(f'# {sum(code == 0 for _, _, code in reached)} ran, {sum(code == 125 for _, _, code in reached)} were refused')


if __name__ == '__main__':
    main()
