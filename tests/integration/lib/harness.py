# SPDX-License-Identifier: Apache-2.0
"""Drives the real programs as a user would, and reports in TAP.

Each scenario gets a Root of its own: a --root, a cgroup parent and a folder for grants that no
other test shares. When it ends, everything is removed by the product's own verbs and the census
must be what it was.
"""
import collections
import importlib.machinery
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

try:
    from lib import guest
except ImportError:  # a sweep: this folder itself is on its path
    import guest

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), '../../..'))
BIN = os.environ.get('SANDBOX_BIN_DIR') or os.path.join(SOURCE, 'build', 'bin')
SANDBOXCTL = os.path.join(BIN, 'sandboxctl')
SANDBOXD = os.path.join(BIN, 'sandboxd')
# 'daemon': every root has a sandboxd of its own, and sandboxctl does its work through that.
SERVICE = os.environ.get('SANDBOX_TEST_SERVICE', 'embedded')
# The driver of every profile that pins none: the same cases, whatever isolates.
DRIVER = os.environ.get('SANDBOX_TEST_DRIVER', '')
ISOLATION = 'microvm' if DRIVER == 'microvm' else 'sandbox'
CLASS = guest.CLASS if DRIVER == 'microvm' else 'shared-kernel'
# What its launch is called in timings, audit and failpoints.
LAUNCH_STEP = {'native': 'box', 'microvm': 'launch'}.get(DRIVER, 'crun')
ATTACKER = os.environ.get('SANDBOX_ATTACKER', '')
# How much longer than on an idle machine everything may take: a test host without acceleration
# needs more, and so does an emulated guest. What the product itself promises to do in a time is not
# stretched by it.
SLOWNESS = float(os.environ.get('SANDBOX_TEST_PATIENCE') or 1) * (3 if DRIVER == 'microvm' else 1)
PATIENCE = 30 * SLOWNESS  # seconds that anything here may take on a busy machine

Done = collections.namedtuple('Done', 'code out err')


def load_program(name, path):
    """A program of the tree that is no module by its name."""
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
CENSUS = load_program('census', os.environ.get('SANDBOX_CENSUS') or os.path.join(SOURCE, 'dev', 'census'))


class Tap:
    count, bad = 0, 0
    # Scenarios may run side by side: the lines of one case are written at once, and numbered in order.
    lock = threading.Lock()

    @classmethod
    def _say(cls, word, sentence, lines=()):
        with cls.lock:
            cls.count += 1
            cls.bad += word == 'not ok'
            text = ''.join(f'# {line[:400]}\n' for line in lines) + f'{word} {cls.count} - {sentence}\n'
            sys.stdout.write(text)
            sys.stdout.flush()

    @classmethod
    def check(cls, condition, sentence, *facts):
        lines = [] if condition else [line for fact in facts for line in str(fact).splitlines()[:30]]
        # '#' starts a directive.
        cls._say('ok' if condition else 'not ok', sentence.replace('#', 'no. '), lines)
        return bool(condition)

    @classmethod
    def skip(cls, sentence, why):
        cls._say('ok', f'{sentence} # SKIP {why}')

    @classmethod
    def same(cls, found, wanted, sentence, *facts):
        return cls.check(found == wanted, sentence, f'wanted {wanted!r}', f'found  {found!r}', *facts)


check, same, skip = Tap.check, Tap.same, Tap.skip


def quick(act, bound, sentence, least=0, tries=5):
    """`act` takes less than `bound` seconds unless the machine is at fault: what waits for something
    it should not wait for does so every time, and a busy machine is given another chance. It may never
    take less than `least`."""
    took = []
    for _ in range(tries):
        began = time.monotonic()
        act()
        took.append(time.monotonic() - began)
        if took[-1] < bound * SLOWNESS:
            break
    return check(least <= min(took) and took[-1] < bound * SLOWNESS, sentence,
                 f'{least} to {bound * SLOWNESS} s, took {took}')


def until(predicate, what, seconds=PATIENCE):
    """Waits for something that announces itself to nobody: a deadline for what would never come, no
    promise how soon it comes."""
    end = time.monotonic() + seconds
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f'{what}: not within {seconds} s')
        select.select([], [], [], 0.01)


def read_until(stream, mark, seconds=PATIENCE):
    """Reads an unbuffered pipe or terminal until `mark` has come; returns what was read."""
    fd = stream if isinstance(stream, int) else stream.fileno()
    end, data = time.monotonic() + seconds, b''
    while mark not in data:
        ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
        if not ready:
            raise TimeoutError(f'{mark!r} did not come, only {data[-300:]!r}')
        try:
            piece = os.read(fd, 65536)
        except OSError:  # a terminal whose other side closed
            piece = b''
        if not piece:
            raise EOFError(f'{mark!r} did not come, only {data[-300:]!r}')
        data += piece
    return data


def stat_of(pid):
    """Fields of /proc/PID/stat behind the name, state first; [] of a process that is gone."""
    text = CENSUS.read(f'/proc/{pid}/stat')
    return text[text.rfind(')') + 2:].split()


def start_time(pid):
    """Since when there is a process of this number; '' where there is none."""
    return (stat_of(pid) + [''] * 20)[19]


def gone(pid, start):
    """Not that process any more, whoever may have its number now."""
    return start_time(pid) != start


def leader(pids):
    """Of the processes of one session the one that the others come from; None while that is not to
    be said."""
    pids = set(pids)
    heads = [pid for pid in pids if (stat_of(pid) + ['', str(pid)])[1] not in map(str, pids)]
    return heads[0] if len(heads) == 1 else None


class Root:
    number = 0

    def __init__(self, config=''):
        Root.number += 1
        self.base = tempfile.mkdtemp(prefix='sandbox-it-', dir='/tmp')
        os.chmod(self.base, 0o755)  # what is granted is looked up by users of the sandbox
        self.path = os.path.join(self.base, 'root')
        self.work = os.path.join(self.base, 'work')
        self.parent = f'/sandbox-it-{os.getpid()}-{Root.number}'
        self.children = []
        os.makedirs(os.path.join(self.path, 'etc/sandbox/org.d'))
        os.mkdir(self.work, 0o755)
        self.write(os.path.join(self.path, 'etc/sandbox/config.toml'), self.config(config))
        self.daemon = None
        self.socket = os.path.join(self.path, 'run/sandbox/sandboxd.sock')
        if SERVICE == 'daemon':
            self.start_daemon()
        self.before = self.census()

    def config(self, more='', parent=None):
        """The operator config of a root; `more` is keys, then tables."""
        text = f'version = 1\ncgroup_parent = "{parent or self.parent}"\n'
        if DRIVER == 'native' and 'default_driver' not in more:
            text += 'default_driver = "native"\n'
        if DRIVER != 'microvm':
            return text + more
        return text + guest.keys() + more + '\n' + guest.tables() + '[microvm]\nmemory = "512MiB"\ncpus = 1\n'

    def start_daemon(self, *args, env=None, wait=True):
        """Starts a sandboxd on this root; returns once it answers."""
        with open(os.path.join(self.base, 'sandboxd.log'), 'ab') as log:
            self.daemon = subprocess.Popen([SANDBOXD, '--root', self.path, *map(str, args)], stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log, env=env)
        if wait:
            until(lambda: self.daemon.poll() is not None or self.daemon_answers(), 'sandboxd answers')
            assert self.daemon.poll() is None, self.daemon_log()
        return self.daemon

    def daemon_answers(self):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(self.socket)
                client.sendall(b'GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
                return client.recv(12) == b'HTTP/1.1 200'
            except OSError:
                return False

    def daemon_log(self):
        with open(os.path.join(self.base, 'sandboxd.log'), errors='replace') as log:
            return log.read()

    def stop_daemon(self, number=signal.SIGTERM):
        """Ends the daemon and returns its exit status; sandboxes go on."""
        daemon, self.daemon = self.daemon, None
        daemon.send_signal(number)
        try:
            return daemon.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            raise

    @staticmethod
    def write(path, text, mode=0o644):
        with open(path, 'wb') as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(path, mode)
        return path

    def command(self, *args):
        return [SANDBOXCTL, '--root', self.path, *map(str, args)]

    def ctl(self, *args, stdin=b'', env=None, cwd=None, timeout=PATIENCE * 2):
        ended = subprocess.run(self.command(*args), input=stdin, capture_output=True, env=env, cwd=cwd,
                               timeout=timeout)
        return Done(ended.returncode, ended.stdout.decode(errors='surrogateescape'),
                    guest.without_warning(ended.stderr).decode(errors='surrogateescape'))

    def spawn(self, *args, **options):
        options = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE,
                   'bufsize': 0, **options}
        child = subprocess.Popen(self.command(*args), **options)
        self.children.append(child)
        return child

    def json(self, *args):
        done = self.ctl(*args)
        try:
            return json.loads(done.out)
        except ValueError:
            raise AssertionError(f'{args}: no JSON: {done}') from None

    def profile(self, name='t', argv=('/bin/true',), text='', process='', isolation=ISOLATION):
        """Writes a profile; `process` adds to [process], `text` is what follows."""
        body = f'version = 1\nname = "{name}"\n'
        if isolation:
            body += f'isolation = "{isolation}"\n'
        if argv is not None:
            body += f'[process]\nargv = {json.dumps(list(argv))}\n'
        return self.write(os.path.join(self.work, name + '.toml'), body + process + '\n' + text)

    def bundle(self, text, name='10-test.toml', mode=0o644):
        return self.write(os.path.join(self.path, 'etc/sandbox/org.d', name), text, mode)

    def grant(self, name, files=(), mode=0o755, owner=0):
        folder = os.path.join(self.work, name)
        os.makedirs(folder)
        for file, text in dict(files).items():
            os.chown(self.write(os.path.join(folder, file), text), owner, owner)
        os.chown(folder, owner, owner)
        os.chmod(folder, mode)
        return folder

    def attacker(self):
        """A folder with the attacker in it, and the mount that shows it inside as /probe."""
        folder = self.grant('attacker')
        shutil.copy(ATTACKER, folder)
        return folder, bind(folder, '/probe')

    def ps(self, *args):
        return self.json('ps', '-o', 'json', *args)

    def one(self, reference):
        return self.json('inspect', reference)

    def census(self):
        host = CENSUS.Host([self.path], [self.parent], 'sb')
        # Anything else of this machine is not for a test that runs beside others.
        own = host.count()
        own.pop('ipc')
        own['files'] = [path for path in own['files'] if not path.startswith('/tmp/crun.')]
        # crun names a keyring after the container of a probe; the kernel collects it when it likes.
        own['keys'] = [key for key in own['keys'] if 'sandbox-probe' not in key]
        return own

    def census_clean(self, sentence, seconds=PATIENCE, but=()):
        """`but` names kinds that may differ, such as files where a sandbox rests."""
        found = {}

        def clean():
            now = self.census()
            found.clear()
            for kind, items in now.items():
                extra = sorted(set(items) - set(self.before[kind]))
                if extra and kind not in but:
                    found[kind] = extra
            return not found
        try:
            # The clean-up goes on after the exit status has been told.
            until(clean, 'a clean census', seconds)
        except TimeoutError:
            pass
        return check(not found, sentence, json.dumps(found, indent=1))

    def census_clean_of(self, sandbox, seconds=PATIENCE):
        """Nothing but the records of this sandbox is left, whatever else lives in the root."""
        found = {}

        def clean():
            found.clear()
            for kind, items in self.census().items():
                rest = [item for item in items if sandbox in item and '/var/lib/sandbox/sandboxes/' not in item]
                if rest:
                    found[kind] = rest
            return not found
        try:
            until(clean, 'a clean census', seconds)
        except TimeoutError:
            pass
        return check(not found, 'the census has nothing of it', json.dumps(found, indent=1))

    def close(self, scenario):
        try:
            for sandbox in self.ps():
                self.ctl('rm', '-f', sandbox['id'])
            if self.daemon:
                same(self.stop_daemon(), 0, f'{scenario}: the daemon ends when it is asked to', self.daemon_log()[-2000:])
            self.census_clean(f'{scenario}: nothing is left behind')
        finally:
            if self.daemon:
                self.daemon.kill()
                self.daemon.wait()
            for child in self.children:
                if child.poll() is None:
                    child.kill()
                child.wait()
                for stream in (child.stdin, child.stdout, child.stderr):
                    if stream and not stream.closed:
                        stream.close()
            self.sweep()
            shutil.rmtree(self.base, ignore_errors=True)

    def sweep(self):
        """What a failed clean-up left must not disturb the next run."""
        for folder in reversed(self.census()['cgroups']):
            try:
                with open(folder + '/cgroup.procs') as file:
                    for pid in file.read().split():
                        os.kill(int(pid), signal.SIGKILL)
                until(lambda: not CENSUS.read(folder + '/cgroup.procs'), folder)
                os.rmdir(folder)
            except (OSError, TimeoutError):
                pass


def bind(source, target, read_only=True):
    return (f'[[mount]]\ntype = "bind"\nsource = "{source}"\ntarget = "{target}"\n'
            f'read_only = {str(read_only).lower()}\n')


def tmpfs(target, size='16MiB'):
    return f'[[mount]]\ntype = "tmpfs"\ntarget = "{target}"\nsize = "{size}"\nmode = "1777"\n'


def mask(path):
    return f'[[mask]]\npath = "{path}"\n'


SCENARIOS = []


def scenario(function=None, config=''):
    """Registers `function(root)`; its name, with spaces, heads its TAP lines."""
    if function is None:
        return lambda f: scenario(f, config)
    SCENARIOS.append((function, config))
    return function


def main():
    """usage: PROGRAM [WORD...]   runs the scenarios whose name holds one of the words"""
    if os.geteuid() != 0:
        print('1..0 # SKIP launching sandboxes with these drivers needs root')
        return
    if not os.access(SANDBOXCTL, os.X_OK):
        print(f'1..1\n# no {SANDBOXCTL}: set SANDBOX_BIN_DIR\nnot ok 1 - programs are built')
        sys.exit(1)
    if DRIVER == 'microvm' and guest.MISSING:
        print(f'1..0 # SKIP a guest needs {", ".join(guest.MISSING)} (dev/guest, dev/deps --guest)')
        return
    os.umask(0o022)
    # A runner that loses patience: everything is taken away all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('ended from outside'))
    print('TAP version 13')
    for function, config in SCENARIOS:
        title = re.sub('_', ' ', function.__name__)
        if sys.argv[1:] and not any(word in function.__name__ for word in sys.argv[1:]):
            continue
        root, began = Root(config), time.monotonic()
        try:
            function(root)
        except Exception:  # a scenario that breaks must not take the others with it
            check(False, f'{title}: runs to its end', traceback.format_exc())
        finally:
            root.close(title)
        print(f'# {title}: {time.monotonic() - began:.1f} s')
    print(f'1..{Tap.count}')
    sys.exit(1 if Tap.bad else 0)
