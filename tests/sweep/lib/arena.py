# SPDX-License-Identifier: Apache-2.0
"""One host folder with a healthy sandbox and innocent processes beside the victims of a sweep.

An Arena kills programs at named points (or a test kills them itself), and then holds the host
against what has to be true after `reconcile`, whatever was cut short.
"""
import collections
import glob
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), '../../integration/lib'))
import harness  # noqa: E402
from harness import Tap, bind, check, until  # noqa: E402

FAILPOINT_BIN = os.environ.get('SANDBOX_FAILPOINT_BIN_DIR') or os.path.join(
    harness.SOURCE, 'build-failpoints', 'bin')
# 'created' rests: no launch commits it alone.
ACTIVE = ('prepared', 'running', 'paused')
# Every point and syscall, or a sample of a few minutes (dev/sweep).
WHOLE = os.environ.get('SANDBOX_SWEEP') == 'whole'
# Every verdict reads the whole audit log and every record of its root.
CASES_OF_A_ROOT = 200
WORKLOAD_UID = 1000  # the profile's default user

# Blocks all signals that can be blocked and writes the number of each that comes.
WATCHER = '''
import os, signal
every = signal.valid_signals()
signal.pthread_sigmask(signal.SIG_BLOCK, every)
os.write(1, b"watching\\n")
while True:
    os.write(1, b"signal %d\\n" % signal.sigwaitinfo(every).si_signo)
'''

HEALTHY = ('/usr/bin/perl', '-e',
           '$| = 1; while (1) { print ++$i, "\\n"; select undef, undef, undef, 0.05 }')


class Innocent:
    """A process that nobody has any business with."""

    def __init__(self, name, cgroup=None):
        self.name = name
        # As a marker of ours, but of a sandbox that does not exist.
        self.process = subprocess.Popen([sys.executable, '-c', WATCHER, f'{name}:{secrets.token_hex(16)}'],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0)
        harness.read_until(self.process.stdout, b'watching\n')
        os.set_blocking(self.process.stdout.fileno(), False)
        self.start = harness.start_time(self.process.pid)
        self.cgroups = []
        for mount in cgroup_mounts() if cgroup else []:
            folder = mount + cgroup
            os.makedirs(folder, exist_ok=True)
            self.cgroups.append(folder)
            with open(folder + '/cgroup.procs', 'w') as file:
                file.write(str(self.process.pid))

    def harm(self):
        if self.process.poll() is not None:
            return f'{self.name} ended with {self.process.returncode}'
        heard = self.process.stdout.read()
        if heard:
            return f'{self.name} heard {heard!r}'
        if harness.start_time(self.process.pid) != self.start:
            return f'{self.name} is another process'
        gone = [folder for folder in self.cgroups if not os.path.isdir(folder)]
        return f'{gone} is gone' if gone else ''

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        for folder in self.cgroups:
            try:
                until(lambda f=folder: not open(f + '/cgroup.procs').read(), folder)
                os.rmdir(folder)
            except OSError:
                pass


def cgroup_mounts():
    """A v2 hierarchy or the v1 ones of the pids and memory controllers: where sandboxes live too."""
    found = []
    for line in harness.CENSUS.read('/proc/self/mountinfo').splitlines():
        head, _, tail = line.partition(' - ')
        kind, options = tail.split()[0], tail.split()[2]
        if kind == 'cgroup2' or (kind == 'cgroup' and {'pids', 'memory'} & set(options.split(','))):
            found.append(head.split()[4])
    return [mount for mount in found if os.access(mount, os.W_OK)]


def processes():
    return [int(name) for name in os.listdir('/proc') if name.isdigit()]


def arguments(pid):
    return [part for part in harness.CENSUS.read(f'/proc/{pid}/cmdline').split('\0') if part]


def with_argument(text):
    return [pid for pid in processes() if text in arguments(pid)]


def dying_shims():
    """Killed and not dead yet: the kernel takes the memory first."""
    found = []
    for pid in processes():
        text = harness.CENSUS.read(f'/proc/{pid}/stat')
        if '(sandbox-shim)' in text and not arguments(pid) and text[text.rfind(')') + 2:][:1] not in 'ZX':
            found.append(pid)
    return found


class Arena:
    def __init__(self, title):
        self.title = title
        self.cases = self.leaks = self.harmed = 0
        self.lasting = {'long'}  # profiles whose workload does not end by itself
        self.points = set()
        self.crun_files = set(glob.glob('/tmp/crun.*'))
        self.open()

    def open(self):
        """A root with all that a case needs."""
        self.cases_here = 0
        self.root = harness.Root()
        self.canary_folder = self.root.grant('canary', owner=WORKLOAD_UID)
        self.canary = os.path.join(self.canary_folder, 'ran')
        grant = bind(self.canary_folder, '/canary', read_only=False)
        hidden = '[[mask]]\npath = "/canary/hidden"\n'  # made by us for the run, and taken away again
        self.short = self.root.profile(
            'short', ('/bin/sh', '-c', 'echo ran > /canary/ran; echo out; sleep 0.05; exit 7'),
            grant + hidden)
        self.instant = self.root.profile(
            'instant', ('/bin/sh', '-c', 'echo ran > /canary/ran; exit 7'), grant + hidden)
        self.long = self.root.profile(
            'long', ('/bin/sh', '-c', 'echo ran > /canary/ran; echo out; exec sleep 1000'), grant + hidden)
        # Not in /tmp: the launching child has one of its own.
        self.trace_folder = tempfile.mkdtemp(prefix='sandbox-sweep-', dir='/var/tmp')
        self.trace = os.path.join(self.trace_folder, 'trace')
        # Beside our cgroup parent, inside it, and nowhere in particular.
        self.innocents = [Innocent('shim', self.root.parent + '-neighbour'), Innocent('log')]
        self.start_healthy()
        # crun names a keyring after each container; the kernel collects that of the probe's later.
        until(lambda: not any('sandbox-probe' in key for key in self.root.census()['keys']),
              'the end of the keyring of the probe', 60)
        self.baseline = self.root.census()

    def start_healthy(self):
        profile = self.root.profile('healthy', HEALTHY)
        done = self.root.ctl('run', '-d', '--name', 'healthy', profile)
        if done.code != 0:
            raise RuntimeError(f'no healthy sandbox: {done}')
        self.healthy = self.root.one('healthy')['id']
        self.logs = f'{self.root.path}/var/lib/sandbox/sandboxes/{self.healthy}/logs'
        until(lambda: self.lines(), 'its first line')
        self.healthy_processes = self.processes_of(self.healthy)

    def processes_of(self, sandbox):
        """pid and start time of everything in its cgroups and of its shim and log worker."""
        found = set(with_argument(f'shim:{sandbox}') + with_argument(f'log:{sandbox}'))
        for mount in cgroup_mounts():
            for folder, _, _ in os.walk(f'{mount}{self.root.parent}/{sandbox}'):
                found |= {int(pid) for pid in harness.CENSUS.read(folder + '/cgroup.procs').split()}
        return sorted((pid, harness.start_time(pid)) for pid in found)

    def lines(self):
        """What the healthy sandbox has said so far, oldest first."""
        files = sorted(glob.glob(self.logs + '/*'), key=os.path.getmtime)
        text = ''.join(harness.CENSUS.read(path) for path in files)
        return [json.loads(line)['log'] for line in text.splitlines() if line.startswith('{') and line.endswith('}')]

    # Killing at points

    def environment(self, point='', trace=True):
        env = dict(os.environ)
        if point:
            env['SANDBOX_FAILPOINT'] = point
        if trace:
            env['SANDBOX_FAILPOINT_LOG'] = self.trace
        return env

    def passed(self):
        """Names passed since fresh(), in order, each once."""
        return list(dict.fromkeys(harness.CENSUS.read(self.trace).split()))

    def must_pass(self, point):
        """The shim goes on after its client was told: its point may come a little later, but not once
        there is nobody left to pass it."""
        over = []

        def decided():
            over.append(self.nobody_at_work())
            return point in self.passed() or (len(over) > 1 and over[-2])
        try:
            until(decided, point)
        except TimeoutError:
            pass
        return [] if point in self.passed() else [f'{point} was never passed: nothing was killed']

    def nobody_at_work(self):
        """No shim, log worker or client of this root but what belongs to the healthy sandbox."""
        if self.root.daemon or dying_shims():
            return False
        own = {'shim:' + self.healthy, 'log:' + self.healthy}
        return not any(self.root.path in ' '.join(words) or words[0].startswith(('shim:', 'log:'))
                       for pid in processes() if (words := arguments(pid)[1:]) and not own & set(words))

    def ctl(self, *args, point='', trace=True):
        return self.root.ctl(*args, env=self.environment(point, trace))

    def fresh(self):
        """Before each case."""
        for name in os.listdir(self.canary_folder):  # what was left there was reported
            os.unlink(os.path.join(self.canary_folder, name))
        if os.path.exists(self.trace):
            os.unlink(self.trace)

    def fresh_root(self):
        """Before each of very many cases that keep nothing of one another."""
        if self.cases_here >= CASES_OF_A_ROOT:
            self.close_root()
            self.open()
        self.fresh()

    # What has to be true

    def records(self):
        path = f'{self.root.path}/var/lib/sandbox/audit.jsonl'
        return [json.loads(line) for line in harness.CENSUS.read(path).splitlines()]

    def victims(self):
        """Sandboxes that are there: not removed, not the healthy one."""
        return [s for s in self.root.ps('-a')
                if s['id'] != self.healthy and s['state'] != 'deleted']

    def settle(self):
        """Reconciles, ends what legitimately lives on, and returns what is wrong."""
        until(lambda: not dying_shims(), 'the death of what was killed')
        # A shim outlives its killed client for a moment: what ends under the eyes of reconcile was
        # left alone by it.
        living = {s['id'] for s in self.victims() if with_argument(f'shim:{s["id"]}')}
        done = self.root.ctl('reconcile')
        if any(not with_argument(f'shim:{sandbox}') for sandbox in living):
            done = self.root.ctl('reconcile')
        wrong = [] if done.code == 0 else [f'reconcile: {done}']
        lives_on = False
        for sandbox in self.victims():
            if not with_argument(f'shim:{sandbox["id"]}'):
                # It may have ended since ps looked: then ps knows by now.
                wrong += [f'ps says {now["state"]} of {now["id"]}, which has no shim'
                          for now in self.victims()
                          if now['id'] == sandbox['id'] and now['state'] in ACTIVE]
                continue
            lives_on = True
            if sandbox['profile'] in self.lasting:  # even while it is being launched
                ended = self.root.ctl('rm', '-f', sandbox['id'])
                wrong += [] if ended.code == 0 else [f'rm -f of what lives on: {ended}']
            try:
                until(lambda s=sandbox: not with_argument(f'shim:{s["id"]}'), 'the end of a shim')
            except TimeoutError as late:
                wrong.append(str(late))
        if lives_on:  # and had done so under the eyes of reconcile, which left it alone
            self.root.ctl('reconcile')
        return wrong

    def left_behind(self, seconds=harness.PATIENCE):
        """Census against the one before; what a resting sandbox keeps until `rm` is no leak."""
        extra = {}
        resting = {s['id'] for s in self.victims() if s['state'] not in ACTIVE}
        keeps = {f'{self.root.path}/var/lib/sandbox/sandboxes/{sandbox}' for sandbox in resting}

        def allowed(item):
            return item in keeps or os.path.dirname(item) in keeps

        def clean():
            extra.clear()
            for kind, items in self.root.census().items():
                new = set(items) - set(self.baseline[kind])
                gone = set(self.baseline[kind]) - set(items)
                if kind == 'files':
                    new = {item for item in new if not allowed(item)}
                if new or gone:
                    extra[kind] = sorted(new) + [f'(gone) {item}' for item in sorted(gone)]
            # What is hidden from a workload is made in somebody's folder: no census looks there.
            strays = sorted(set(os.listdir(self.canary_folder)) - {'ran'})
            if strays:
                extra['placeholders'] = strays
            return not extra
        try:
            # A shim that lives on cleans up after its workload ended.
            until(clean, 'a clean census', seconds)
        except TimeoutError:
            self.leaks += 1
        return [f'left behind: {json.dumps(extra)}'] if extra else []

    def second_reconcile(self):
        again = self.root.json('reconcile', '-o', 'json')
        return [f'the second reconcile found {again["found"]}'] if again['found'] else []

    def history(self):
        """Exits are kept once, starts have an end, the chain is whole."""
        wrong, exits = [], collections.Counter()
        verified = self.root.ctl('audit', 'verify')
        if verified.code != 0:
            wrong.append(f'audit verify: {verified}')
        for record in self.records():
            if record['event'] == 'exited':
                exits[tuple(record.get(key) for key in ('sandbox', 'generation')) +
                      (record['body'].get('session') or '',)] += 1
        wrong += [f'{count} exits of {sandbox}' for sandbox, count in exits.items() if count > 1]
        for sandbox in self.victims():
            told = [r['body'] for r in self.records()
                    if r['event'] == 'exited' and r['sandbox'] == sandbox['id']
                    and not r['body'].get('session')
                    and r['generation'] == sandbox.get('generation', r['generation'])]
            kept = sandbox['exit']
            if told and (not kept or kept['reason'] != told[-1]['reason']):
                wrong.append(f'audit tells {told[-1]}, the ledger {kept}')
        return wrong

    def bystanders(self):
        harm = [innocent.harm() for innocent in self.innocents]
        if self.processes_of(self.healthy) != self.healthy_processes:
            harm.append(f'the healthy sandbox: {self.healthy_processes} became '
                        f'{self.processes_of(self.healthy)}')
        states = [s['state'] for s in self.root.ps() if s['id'] == self.healthy]
        if states != ['running']:
            harm.append(f'ps says {states} of the healthy sandbox')
        harm = [text for text in harm if text]
        self.harmed += bool(harm)
        return harm

    def clear(self):
        wrong = []
        for sandbox in self.victims():
            done = self.root.ctl('rm', '-f', sandbox['id'])
            wrong += [] if done.code == 0 else [f'rm of what rests: {done}']
        return wrong

    def verdict(self, sentence, wrong=(), canary='may', more=None):
        """Everything that has to hold after a crash; one TAP line. canary: 'may' or 'never'; `more`
        is asked once the host is reconciled."""
        self.cases += 1
        self.cases_here += 1
        wrong = list(wrong)
        ran_before = os.path.exists(self.canary)
        wrong += self.settle()
        wrong += self.left_behind()
        wrong += self.second_reconcile()
        if canary == 'never' and (ran_before or os.path.exists(self.canary)):
            wrong.append('the workload has run before its controls were witnessed')
        wrong += self.history()
        wrong += self.bystanders()
        wrong += more() if more else []
        wrong += self.clear()
        return check(not wrong, f'{self.title}: {sentence}', *wrong)

    def prove(self):
        """What this looks for is found when it is there."""
        stray = f'{self.root.path}/run/sandbox/{secrets.token_hex(16)}'
        os.mkdir(stray)
        check(stray in ''.join(self.left_behind(0)), f'{self.title}: a planted folder is found')
        os.rmdir(stray)
        self.leaks = 0
        shot = Innocent('shim')
        shot.process.send_signal(signal.SIGUSR1)
        check(until(shot.harm, 'a signal that was sent'), f'{self.title}: a planted signal is heard')
        shot.close()

    # The end

    def close(self):
        self.close_root()
        new = set(glob.glob('/tmp/crun.*')) - self.crun_files
        check(not new, f'{self.title}: crun left nothing in /tmp', new)
        print(f'# sweep: {self.title}: {len(self.points)} points, {self.cases} crashes, '
              f'{self.leaks} leaks, {self.harmed} innocents harmed', flush=True)

    def close_root(self):
        lines = self.lines()
        numbers = [int(line) for line in lines]
        check(len(numbers) > 1 and numbers == list(range(1, len(numbers) + 1)),
              f'{self.title}: the healthy sandbox said every line once, in order',
              f'{len(numbers)} lines', f'{[b for a, b in zip(numbers, numbers[1:]) if b != a + 1][:5]}')
        for innocent in self.innocents:
            innocent.close()
        shutil.rmtree(self.trace_folder)
        self.root.close(self.title)


def run(title, sweep, needs_failpoints=True):
    """usage: PROGRAM [WORD...]   only points and scenarios that hold one of the words"""
    if os.geteuid() != 0:
        print('1..0 # SKIP launching sandboxes needs root')
        return
    if needs_failpoints:
        harness.SANDBOXCTL = os.path.join(FAILPOINT_BIN, 'sandboxctl')
    if not os.access(harness.SANDBOXCTL, os.X_OK):
        print(f'1..1\n# no {harness.SANDBOXCTL}: run dev/build --failpoints\nnot ok 1 - programs are built')
        sys.exit(1)
    if harness.DRIVER == 'microvm' and harness.guest.MISSING:
        print(f'1..0 # SKIP a guest needs {", ".join(harness.guest.MISSING)} (dev/guest, dev/deps --guest)')
        return
    os.umask(0o022)
    # A runner that loses patience: everything is taken away all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('ended from outside'))
    print('TAP version 13', flush=True)
    began = time.monotonic()
    arena = Arena(title)
    try:
        arena.prove()
        sweep(arena)
    except Exception:  # told as a case of its own, and what it made is taken away all the same
        check(False, f'{title}: runs to its end', traceback.format_exc())
    finally:
        arena.close()
    print(f'# {title}: {time.monotonic() - began:.1f} s')
    print(f'1..{Tap.count}')
    sys.exit(1 if Tap.bad else 0)


def wanted(name):
    return not sys.argv[1:] or any(word in name for word in sys.argv[1:])


__all__ = ['ACTIVE', 'FAILPOINT_BIN', 'WHOLE', 'Arena', 'arguments', 'check', 'processes', 'run', 'signal', 'until', 'wanted',
           'with_argument']
