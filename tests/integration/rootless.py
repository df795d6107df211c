#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An ordinary user launches: with ids of /etc/subuid and a cgroup that was given away, and not without."""
import json
import os
import pty
import re
import shutil
import signal
import subprocess

from lib.harness import BIN, CENSUS, PATIENCE, bind, check, main, read_until, same, scenario, skip, start_time, until

UID = 61234  # of nobody here: the test's own passwd gives it a name
LOGIN = 'sandbox-it'
FIRST = 1500000000  # beyond what useradd hands out
RANGE = 65536
CONTROLLERS = ('memory', 'pids', 'freezer', 'cpu', 'cpuacct', 'cpuset')
HELPERS = ('newuidmap', 'newgidmap', 'setpriv', 'unshare')


def v2():
    return os.path.exists('/sys/fs/cgroup/cgroup.controllers')


def write(path, text):
    with open(path, 'w') as file:
        file.write(text)


class User:
    """A login for the time of one scenario: nothing of the machine's /etc is changed for others, since
    every command has a mount namespace of its own."""

    def __init__(self, root, ranges=4):
        self.root = root
        self.base = os.path.join(root.base, 'user')
        self.bin, self.home, self.run = (os.path.join(self.base, name) for name in ('bin', 'home', 'run'))
        self.state = os.path.join(self.home, '.local/state/sandbox')
        os.makedirs(self.bin)
        for folder in (self.home, self.run):
            os.makedirs(folder, mode=0o700)
            os.chown(folder, UID, UID)
        for program in ('sandboxctl', 'sandboxd', 'sandbox-shim', 'sandbox-init'):
            if os.path.exists(os.path.join(BIN, program)):
                shutil.copy(os.path.join(BIN, program), self.bin)
        self.parent = root.parent + '/user'
        self.folders = self.delegate()
        with open('/etc/passwd') as file:
            self.passwd = root.write(os.path.join(self.base, 'passwd'),
                                     f'{file.read()}\n{LOGIN}:x:{UID}:{UID}::{self.home}:/bin/sh\n')
        self.ranges = root.write(os.path.join(self.base, 'ranges'), f'{LOGIN}:{FIRST}:{ranges * RANGE}\n')
        self.empty = root.write(os.path.join(self.base, 'empty'), '', 0o755)

    def delegate(self):
        """What `chown` gives away (cgroups(7), delegation); returns the folders, parents first."""
        made = []
        for name in ('.',) if v2() else CONTROLLERS:
            mount = os.path.normpath(os.path.join('/sys/fs/cgroup', name))
            if not os.path.isdir(mount):
                continue
            if v2():
                write(mount + '/cgroup.subtree_control', '+memory +pids +cpu +cpuset')
            for path in (self.root.parent, self.parent) + ((self.parent + '/caller',) if v2() else ()):
                folder = mount + path
                os.makedirs(folder, exist_ok=True)
                made.append(folder)
                if v2() and path == self.root.parent:
                    write(folder + '/cgroup.subtree_control', '+memory +pids +cpu +cpuset')
                if name == 'cpuset':
                    for file in ('cpuset.cpus', 'cpuset.mems'):
                        write(os.path.join(folder, file), CENSUS.read(os.path.join(mount, file)))
            for path in made[-2:] if v2() else made[-1:]:
                for file in ('', '/cgroup.procs', '/tasks', '/cgroup.subtree_control'):
                    if os.path.exists(path + file):
                        os.chown(path + file, UID, UID)
        return made

    def command(self, *words, delegated=True, hide=(), program='sandboxctl', ranges=None):
        joins = [folder + ('/cgroup.procs' if v2() else '/tasks') for folder in self.folders
                 if delegated and folder.endswith('/caller' if v2() else '/user')]
        binds = [(self.passwd, '/etc/passwd'), (ranges or self.ranges, '/etc/subuid'),
                 (ranges or self.ranges, '/etc/subgid'), *((self.empty, path) for path in hide)]
        shell = ''.join(f'mount --bind {source} {target} && ' for source, target in binds)
        shell += ''.join(f'echo $$ > {file} && ' for file in joins) + 'exec "$@"'
        return ['unshare', '-m', '/bin/sh', '-c', shell, 'sh', 'setpriv', '--reuid', str(UID), '--regid', str(UID),
                '--clear-groups', '--inh-caps=-all', os.path.join(self.bin, program), *map(str, words)]

    def environment(self):
        return {'HOME': self.home, 'XDG_RUNTIME_DIR': self.run, 'PATH': '/usr/bin:/bin', 'TERM': 'xterm'}

    def ctl(self, *words, stdin='', **where):
        return subprocess.run(self.command(*words, **where), input=stdin, capture_output=True, text=True, check=False,
                              env=self.environment(), timeout=PATIENCE * 2, cwd='/')

    def json(self, *words, **where):
        return json.loads(self.ctl(*words, **where).stdout)

    def profile(self, name, argv, text='', process=''):
        return self.root.profile(name, argv, text, process)

    def processes(self):
        """Numbers of what has this user's ids or those of its ranges, zombies apart."""
        found = []
        for pid in CENSUS.pids():
            status = CENSUS.read(f'/proc/{pid}/status')
            uids = re.search(r'^Uid:\s+(\d+)', status, re.M)
            if uids and '\nState:\tZ' not in status and (
                    int(uids[1]) == UID or FIRST <= int(uids[1]) < FIRST + 64 * RANGE):
                found.append(pid)
        return found

    def below(self):
        """Cgroups that are there below what was given away."""
        found = []
        for folder in self.folders:
            if folder.endswith('/user'):
                found += [os.path.join(above, name) for above, names, _ in os.walk(folder) for name in names
                          if name != 'caller']
        return found

    def leaves_nothing(self, sentence):
        try:
            until(lambda: not self.below() and not self.processes(), 'nothing is left')
        except TimeoutError:
            pass
        same((self.below(), self.processes()), ([], []), sentence)
        same([name for name in os.listdir(os.path.join(self.run, 'sandbox')) if re.fullmatch('[0-9a-f]{32}', name)], [],
             'no runtime folder either')

    def close(self):
        for sandbox in self.json('ps', '-o', 'json'):
            self.ctl('rm', '-f', sandbox['id'])
        self.leaves_nothing('nothing of the user is left: no process, no cgroup')
        for folder in reversed(self.folders):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # shared parents, named more than once; the census of the root tells


def user_scenario(function):
    """As @scenario, for a function that is given a user; skipped where no user could launch at all."""
    def body(root):
        missing = [name for name in HELPERS if not shutil.which(name)]
        if missing:
            skip(function.__name__.replace('_', ' '), f'{", ".join(missing)} not installed')
            return
        user = User(root)
        try:
            function(user)
        finally:
            user.close()
    body.__name__ = function.__name__
    return scenario(body)


IDLE = 'idle = true\n'
HOG = ('/usr/bin/python3', '-c', 'x = bytearray(200 << 20)')
LIMITS = '[resources]\nmemory = "64MiB"\npids = 32\n'


def idle(user, name='idle', text=LIMITS):
    return user.root.write(os.path.join(user.root.work, name + '.toml'),
                           f'version = 1\nname = "{name}"\nisolation = "sandbox"\n[process]\n{IDLE}{text}')


@user_scenario
def what_a_user_has_is_found(user):
    done = user.ctl('doctor', '-o', 'json')
    needs = {need['name']: need for need in json.loads(done.stdout)['user']}
    same({name: need['severity'] for name, need in needs.items()},
         dict.fromkeys(('delegated cgroup', 'driver', 'newuidmap', 'subordinate ids', 'user namespace'), 'ok'),
         'doctor finds each need met', done.stdout)
    same(done.returncode, 0, 'and nothing serious', done.stderr)
    same(needs['subordinate ids']['value'], f'{FIRST}:{4 * RANGE}', 'the ids are those of /etc/subuid, all of them')
    same(needs['delegated cgroup']['value'], user.parent + '/sandbox', 'the cgroup is below the one it is in')
    hello = user.profile('hello', ['/bin/echo', 'hello'])
    same(user.ctl('validate', hello).returncode, 0, 'validate')
    plan = user.json('plan', '-o', 'json', hello)['plan']
    same((plan['driver'], plan['isolation_class']), ('native', 'shared-kernel'), 'the driver is native')
    same(plan['facts']['host.privilege'], {'status': 'ok', 'value': 'user'}, 'the plan says for whom')
    limits = [control['name'] for control in plan['controls'] if control['name'].startswith('limit.')]
    check('limit.pids' in limits, 'limits are planned as for root', limits)


@user_scenario
def a_run_ends_as_it_ended(user):
    for argv, status in ((['/bin/sh', '-c', 'exit 7'], 7), (['/nonexistent'], 127),
                         (['/bin/sh', '-c', 'kill -9 $$'], 137), (['/etc/passwd'], 126)):
        done = user.ctl('run', '--rm', user.profile('exits', argv))
        same(done.returncode, status, f'{argv[-1]}: {status}', done.stderr)
    done = user.ctl('run', '--rm', user.profile('late', ['/bin/sleep', '60'], process='timeout = "1s"\n'))
    same(done.returncode, 124, 'a time-out is 124', done.stderr)
    done = user.ctl('run', '-i', '--rm', user.profile('streams', ['/bin/sh', '-c', 'cat; echo err >&2']), stdin='in')
    same((done.stdout, done.stderr), ('in', 'err\n'), 'streams are apart, standard input is read')
    user.leaves_nothing('after the runs nothing is left')


@user_scenario
def a_sandbox_lives_and_is_used(user):
    same(user.ctl('run', '-d', '--name', 'a', idle(user)).returncode, 0, 'run -d')
    same(user.ctl('run', '-d', '--name', 'says', user.profile('says', ['/bin/sh', '-c', 'echo said; exit 4'])).returncode,
         0, 'a second one beside it')
    same(user.ctl('wait', 'says').stdout.strip(), '4', 'wait tells its status')
    same(user.ctl('logs', 'says').stdout, 'said\n', 'logs')
    same([(one['name'], one['state'], one['driver']) for one in user.json('ps', '-o', 'json')],
         [('a', 'running', 'native'), ('says', 'stopped', 'native')], 'ps')
    done = user.ctl('exec', '-i', 'a', '--', '/bin/sh', '-c', 'cat; echo err >&2; exit 3', stdin='in')
    same((done.returncode, done.stdout, done.stderr), (3, 'in', 'err\n'), 'exec: status and streams')
    source = user.root.write(os.path.join(user.base, 'sent'), 'sent\n')
    same(user.ctl('cp', source, 'a:/tmp/there').returncode, 0, 'cp into it')
    same(user.ctl('exec', 'a', '--', 'cat', '/tmp/there').stdout, 'sent\n', 'what was copied is there')
    back = os.path.join(user.home, 'back')
    same(user.ctl('cp', 'a:/tmp/there', back).returncode, 0, 'cp out of it')
    same((CENSUS.read(back), os.stat(back).st_uid), ('sent\n', UID), 'what came back is the user\'s')
    done = user.ctl('exec', '-d', 'a', '--', '/bin/sleep', '600')
    same(done.returncode, 0, 'exec -d', done.stderr)
    same(user.ctl('stats', 'a').returncode, 0, 'stats')
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe('unshare', user.command('exec', '-it', 'a', '--', '/bin/sh', '-c', 'tty; echo d""one'),
                   user.environment())
    seen = read_until(terminal, b'done')
    check(b'/dev/pts/' in seen, 'exec -it has a terminal', seen)
    os.waitpid(pid, 0)
    os.close(terminal)
    for verb in ('pause', 'resume', 'restart'):
        done = user.ctl(verb, 'a')
        same(done.returncode, 0, verb, done.stderr)
    same(user.ctl('exec', 'a', '--', '/bin/true').returncode, 0, 'it works after all that')
    same(user.ctl('kill', 'a').returncode, 0, 'kill')
    same(user.ctl('wait', 'a').stdout.strip(), '137', 'and is told so')
    same(user.ctl('start', 'a').returncode, 0, 'start again')
    same(user.ctl('stop', '-t', '1', 'a').returncode, 0, 'stop')
    same(user.ctl('rm', 'a', 'says').returncode, 0, 'rm')
    same(user.ctl('audit', 'verify').returncode, 0, 'the audit log is whole')


@user_scenario
def limits_hold(user):
    user.ctl('run', '-d', '--name', 'a', idle(user))
    done = user.ctl('exec', 'a', '--', '/bin/sh', '-c', 'for i in $(seq 64); do sleep 5 & done; wait')
    check('fork' in done.stderr.lower(), 'the limit on processes holds', done.stderr)
    done = user.ctl('exec', 'a', '--', *HOG)
    same(done.returncode, 137, 'the limit on memory ends who is above it', done.stderr)
    hog = user.profile('hog', HOG, LIMITS)
    same(user.ctl('run', '--name', 'hog', hog).returncode, 137, 'a service above its memory is killed')
    found = user.json('inspect', 'hog')['exit']
    check(found['reason'] == 'oom' and found['oom_kills'] >= 1, 'and the reason is told', found)
    controls = user.json('inspect', 'a')['controls']
    memory = [one for one in controls if one['name'] == 'limit.memory']
    check(memory and memory[0]['planned'] == memory[0]['observed'] == str(64 << 20), 'the limit was read back', memory)


@user_scenario
def nobody_inside_is_the_user(user):
    secret = os.path.join(user.home, 'mine')
    write(secret, 'mine')
    os.chown(secret, UID, UID)
    os.chmod(secret, 0o600)
    granted = user.root.grant('granted', {'mine': 'mine'}, owner=UID)
    os.chmod(os.path.join(granted, 'mine'), 0o600)
    for number in (1000, 0):
        text = bind(granted, '/granted') if number == 0 else ''
        profile = user.profile(f'as{number}', ['/bin/sleep', '600'], text, f'user = "{number}:{number}"\n')
        done = user.ctl('run', '-d', '--name', f'as{number}', profile)
        same(done.returncode, 0, f'as {number}: it runs', done.stderr)
        inside = [pid for pid in user.processes() if CENSUS.read(f'/proc/{pid}/cmdline').startswith('/bin/sleep\x00600')]
        uids = {int(re.search(r'^Uid:\s+(\d+)', CENSUS.read(f'/proc/{pid}/status'), re.M)[1]) for pid in inside}
        check(uids and all(FIRST <= uid < FIRST + 4 * RANGE for uid in uids), f'as {number}: its ids are of the range', uids)
        for command, why in ((f'cat {secret}', 'a file of the user that was not granted'),
                             ('cat /granted/mine', 'a file that only its owner, the user, may read'),
                             ('cat /etc/shadow', 'the host\'s shadow'),
                             ('mount -t tmpfs none /tmp', 'a mount'),
                             ('unshare -U true', 'a user namespace'),
                             ('chmod 600 /dev/null', 'a node of the host'),
                             ('mknod /tmp/disk b 254 0', 'a device'),
                             ('echo 1 > /proc/sys/kernel/panic', 'a switch of the kernel'),
                             ('ls /sys/fs/cgroup/* >/dev/null && ls /sys/fs/cgroup | grep .', 'cgroups')):
            done = user.ctl('exec', f'as{number}', '--', '/bin/sh', '-c', command)
            check(done.returncode != 0, f'as {number}: {why} is out of reach', done.stdout, done.stderr)
        seen = user.ctl('exec', f'as{number}', '--', '/bin/sh', '-c', 'ls -d /proc/[0-9]* | wc -l').stdout.strip()
        check(0 < int(seen) < 12, f'as {number}: it sees its own processes only', seen)
        maps = user.ctl('exec', f'as{number}', '--', 'cat', '/proc/self/uid_map').stdout.split()
        check(maps[0] == '0' and maps[2] == str(RANGE) and len(maps) == 3, f'as {number}: one map, all of it', maps)
        same(user.ctl('exec', f'as{number}', '--', '/bin/sh', '-c',
                      'echo x > /dev/null && head -c 8 /dev/urandom | wc -c').stdout.strip(), '8',
             f'as {number}: nodes work')
        held = [one['name'] for one in user.json('inspect', f'as{number}')['controls'] if one['observed'] in ('', None)
                and not one['name'].startswith(('admission.', 'lifecycle.', 'process.timeout'))]
        same(held, [], f'as {number}: every control was witnessed')
    stranger = subprocess.run(['setpriv', '--reuid', str(UID + 1), '--regid', str(UID + 1), '--clear-groups',
                               'ls', user.run], capture_output=True, check=False)
    check(stranger.returncode != 0, 'another user does not reach its sockets')


@user_scenario
def who_is_killed_is_cleaned_up_after(user):
    user.ctl('run', '-d', '--name', 'a', idle(user))
    user.ctl('run', '-d', '--name', 'b', idle(user))
    shim = next(pid for pid in user.processes()
                if 'shim:' + user.json('inspect', 'a')['id'] in CENSUS.read(f'/proc/{pid}/cmdline'))
    began = start_time(shim)
    os.kill(shim, signal.SIGKILL)
    until(lambda: start_time(shim) != began or '\nState:\tZ' in CENSUS.read(f'/proc/{shim}/status'), 'the shim ends')
    # From elsewhere: whoever cleans up may not be where the sandbox was launched.
    done = user.ctl('reconcile', delegated=False)
    same(done.returncode, 0, 'reconcile', done.stderr)
    same({one['name']: one['state'] for one in user.json('ps', '-a', '-o', 'json')}, {'a': 'dead', 'b': 'running'},
         'one is dead, the other was not harmed')
    done = user.ctl('exec', 'b', '--', '/bin/echo', 'alive', delegated=False)
    same(done.stdout, 'alive\n', 'which is used from outside its cgroup too', done.stderr)
    user.ctl('rm', '-f', 'a', 'b')


def denied(user, profile, **where):
    done = user.ctl('run', '--rm', '-o', 'json', profile, **where)
    denials = json.loads(done.stdout)['denials'] if done.stdout.startswith('{') else []
    return done, {denial['reason']: denial for denial in denials}


@user_scenario
def what_is_missing_is_said(user):
    hello = user.profile('hello', ['/bin/true'])
    short = user.root.write(os.path.join(user.base, 'short'), f'{LOGIN}:{FIRST}:{RANGE - 1}\n')
    for where, reason, need, words in (
            ({'delegated': False}, 'cgroup-not-delegated', 'delegated cgroup', 'Delegate=yes'),
            ({'ranges': user.empty}, 'subordinate-ids-missing', 'subordinate ids', 'usermod --add-subuids'),
            ({'ranges': short}, 'subordinate-ids-missing', 'subordinate ids', 'usermod --add-subuids'),
            ({'hide': ['/usr/bin/newuidmap']}, 'id-helpers-missing', 'newuidmap', 'install uidmap')):
        done, reasons = denied(user, hello, **where)
        same(done.returncode, 125, f'{reason}: refused', done.stderr)
        check(reason in reasons and words in reasons[reason]['mend'] and reasons[reason]['fact'],
              f'{reason}: with the fact and the mend', done.stdout)
        found = {one['name']: one for one in user.json('doctor', '-o', 'json', **where)['user']}
        check(found[need]['severity'] != 'ok' and found[need]['evidence'] and words in found[need]['mend'],
              f'{reason}: doctor says the same', found[need])
        same(found['driver']['severity'], 'serious', f'{reason}: so the driver cannot be had')
    same(user.json('ps', '-a', '-o', 'json'), [], 'nothing was made')


@user_scenario
def what_needs_root_is_refused(user):
    granted = user.root.grant('granted', owner=UID)
    for name, text, reason in (
            ('bound', bind(granted, '/work'), 'idmapped-mounts-unavailable'),
            ('writable', '[rootfs]\nread_only = false\n', 'idmapped-mounts-unavailable'),
            ('tree', f'[rootfs]\nsource = "dir:{granted}"\n', 'idmapped-mounts-unavailable'),
            ('caps', '[network]\nmode = "host"\n[security]\ncapabilities = ["CAP_NET_BIND_SERVICE"]\n',
             'capabilities-without-own-network')):
        done, reasons = denied(user, user.profile(name, ['/bin/true'], text))
        check(done.returncode == 125 and reason in reasons, f'{name}: {reason}', done.stdout, done.stderr)
    # A guest is refused for the first thing that is missing; root comes after the accelerator.
    for driver, wanted in (('oci', {'root-required'}), ('microvm', {'root-required', 'kvm-guest-unavailable'})):
        profile = user.root.write(os.path.join(user.root.work, driver + '.toml'),
                                  f'version = 1\nname = "t"\nisolation = "sandbox"\ndriver = "{driver}"\n'
                                  '[process]\nargv = ["/bin/true"]\n')
        done, reasons = denied(user, profile)
        check(done.returncode == 125 and wanted & set(reasons), f'{driver}: needs root', done.stdout)
    profile = user.profile('shares', ['/bin/sh', '-c', 'cat /proc/net/dev'], '[network]\nmode = "host"\n')
    done = user.ctl('run', '--rm', profile)
    same((done.returncode, len(done.stdout.splitlines())), (0, len(CENSUS.read('/proc/net/dev').splitlines())),
         'the host\'s network is shared where it is asked for', done.stderr)


@user_scenario
def so_many_run_as_there_are_ids(user):
    one = user.root.write(os.path.join(user.base, 'one'), f'{LOGIN}:{FIRST}:{RANGE}\n')
    same(user.ctl('run', '-d', '--name', 'a', idle(user), ranges=one).returncode, 0, 'the first has the ids')
    done = user.ctl('run', '-d', '--name', 'b', idle(user), ranges=one)
    check(done.returncode == 125 and 'id' in done.stderr, 'the second has none, and is told', done.stderr)
    user.ctl('rm', '-f', 'a', ranges=one)
    same(user.ctl('run', '--rm', user.profile('c', ['/bin/true']), ranges=one).returncode, 0, 'they come back')


@user_scenario
def a_cgroup_may_be_named(user):
    config = os.path.join(user.home, '.config/sandbox')
    os.makedirs(config)
    user.root.write(os.path.join(config, 'config.toml'), f'version = 1\ncgroup_parent = "{user.parent}/named"\n')
    for folder in (config, config + '/config.toml', os.path.dirname(config)):
        os.chown(folder, UID, UID)
    done = user.ctl('run', '--rm', user.profile('named', ['/bin/echo', 'ran']), delegated=v2())
    same((done.returncode, done.stdout), (0, 'ran\n'), 'below the one of the user\'s config', done.stderr)
    user.leaves_nothing('and it is gone again')


if __name__ == '__main__':
    main()
