#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: install.py BUILD_DIR [WORD...]

Installs the build into an empty folder and uses it from there: what a package would ship is whole, has
the owners and modes it should, finds its helpers beside itself, and goes without a trace.
"""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv.pop(1))


def introspect(what):
    done = subprocess.run(['meson', 'introspect', what, BUILD], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


OPTIONS = {option['name']: option['value'] for option in introspect('--buildoptions')}
PREFIX = OPTIONS['prefix']
STAGE = tempfile.mkdtemp(prefix='sandbox-install-', dir='/tmp')
os.chmod(STAGE, 0o755)
os.environ['SANDBOX_BIN_DIR'] = f"{STAGE}{PREFIX}/{OPTIONS['bindir']}"

from lib.harness import PATIENCE, SANDBOXCTL, SOURCE, Tap, check, main, same, scenario, skip  # noqa: E402


def install():
    # The log of an earlier installation is not ours to lose.
    return subprocess.run(['meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet'], capture_output=True,
                          text=True, check=False, env={**os.environ, 'DESTDIR': STAGE}, umask=0o022)


def installed(stage=STAGE):
    paths = []
    for folder, folders, files in os.walk(stage):
        paths += [os.path.join(folder, name) for name in folders + files]
    return sorted(paths)


def below(path):
    return f'{STAGE}{PREFIX}/{path}'


def direct(*words, **options):
    return subprocess.run([SANDBOXCTL, *words], capture_output=True, text=True, check=False, timeout=PATIENCE * 2, **options)


@scenario
def everything_is_in_its_place(root):
    have = {os.path.relpath(path, STAGE + PREFIX) for path in installed() if os.path.isfile(path)}
    share, man = OPTIONS['datadir'], OPTIONS['mandir']
    wanted = {f"{OPTIONS['bindir']}/sandboxctl", f"{OPTIONS['libexecdir']}/sandbox/sandbox-shim",
              f"{OPTIONS['libexecdir']}/sandbox/sandbox-init", f"{OPTIONS['sbindir']}/sandbox-mkguest",
              f'{share}/bash-completion/completions/sandboxctl', f'{share}/zsh/site-functions/_sandboxctl',
              f'{share}/fish/vendor_completions.d/sandboxctl.fish',
              f'{share}/doc/sandboxd/LICENSE', f'{share}/doc/sandboxd/README.md',
              f'{share}/doc/sandboxd/CHANGELOG.md'}
    for name in os.listdir(os.path.join(SOURCE, 'profiles')):
        wanted.add(f'{share}/sandbox/profiles.d/{name}')
    for name in os.listdir(os.path.join(SOURCE, 'schemas')):
        if name.endswith('.yaml'):
            wanted.add(f'{share}/sandbox/schemas/{name[:-5]}.schema.json')
    for folder, target in (('docs', f'{share}/doc/sandboxd/docs'), ('examples', f'{share}/doc/sandboxd/examples')):
        for base, _, names in os.walk(os.path.join(SOURCE, folder)):
            where = os.path.relpath(base, os.path.join(SOURCE, folder))
            wanted |= {os.path.normpath(f'{target}/{where}/{name}') for name in names}
    for name in os.listdir(os.path.join(SOURCE, 'man')):
        if name.endswith('.scd') and shutil.which('scdoc'):
            wanted.add(f'{man}/man{name[-5]}/{name[:-4]}')
    same(sorted(wanted - have), [], 'programs, pages, completions, profiles, schemas and documents are installed')
    strange = [path for path in have - wanted if not re.match(r'^(lib/(systemd/system|sysusers\.d|tmpfiles\.d)/'
                                                              r'|s?bin/sandboxd$)', path)]
    same(strange, [], 'nothing else is installed')


@scenario
def owners_and_modes_are_what_a_package_has(root):
    bad, programs = [], 0
    for path in installed():
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode)
        program = os.path.isfile(path) and re.search(r'/(s?bin|libexec)/', path[len(STAGE):])
        programs += bool(program)
        wanted = 0o755 if stat.S_ISDIR(status.st_mode) or program else 0o644
        if mode != wanted or (status.st_uid, status.st_gid) != (0, 0):
            bad.append(f'{path}: mode {mode:04o}, wanted {wanted:04o}, owner {status.st_uid}:{status.st_gid}')
        if mode & (stat.S_ISUID | stat.S_ISGID):
            bad.append(f'{path}: has a set-id bit')
        if os.path.isfile(path) and os.listxattr(path):
            bad.append(f'{path}: has extended attributes {os.listxattr(path)}')
    same(bad, [], 'everything is of root, 0755 or 0644, without set-id bits and file capabilities')
    check(programs >= 3, 'the programs are among what was looked at', programs)


@scenario
def a_sandbox_runs_from_there(root):
    done = root.ctl('run', '--rm', root.profile(argv=['/bin/echo', 'from an installation']))
    same((done.code, done.out), (0, 'from an installation\n'), 'a sandbox runs', done.err)
    plan = root.json('plan', '-o', 'json', root.profile())
    for program in ('sandbox-init', 'sandbox-shim'):
        found = subprocess.run(['sha256sum', below(f"{OPTIONS['libexecdir']}/sandbox/{program}")],
                               capture_output=True, text=True, check=True).stdout.split()[0]
        same(plan['plan']['artifacts'][program], f'sha256:{found}', f'{program} is the one of this installation')
    done = root.ctl('config', 'init', '--force')
    check(done.code == 0 and below(f"{OPTIONS['libexecdir']}/sandbox/sandbox-shim") in done.out,
          'config init pins the helpers of this installation', done)


@scenario
def units_start_this_installation(root):
    with open(below('lib/systemd/system/sandboxd.service'), encoding='utf-8') as file:
        unit = file.read()
    command, = re.findall(r'^ExecStart=(.*)$', unit, re.M)
    same(command, f"{PREFIX}/{OPTIONS['bindir']}/sandboxd", 'the unit starts the daemon of its prefix')
    check(os.access(STAGE + command, os.X_OK), 'which is there')
    check('@' not in re.sub(r'SystemCallFilter=.*', '', unit), 'nothing was left to be filled in')
    if not shutil.which('systemd-analyze'):
        skip('systemd takes the units', 'systemd-analyze is not installed')
        return
    done = subprocess.run(['systemd-analyze', 'verify', '--man=no', '--root', STAGE, 'sandboxd.service', 'sandboxd.socket'],
                          capture_output=True, text=True, check=False, timeout=PATIENCE * 2)
    # Of the units of a whole system this root has none.
    # Nor need this host have what only a reload calls: procps, which every Debian with systemd has.
    said = [line for line in done.stderr.splitlines()
            if 'sandboxd' in line and 'not found' not in line and 'Command /bin/kill' not in line]
    same(said, [], 'systemd takes the units', done.stderr)


@scenario
def profiles_are_found_by_name(root):
    for name in sorted(os.listdir(os.path.join(SOURCE, 'profiles'))):
        done = direct('validate', name[:-5])
        check(done.returncode == 0 and below(f"{OPTIONS['datadir']}/sandbox/profiles.d/{name}") in done.stderr,
              f'the profile {name[:-5]} is found', done)
    words = direct('__complete', 'profile', 'python').stdout.split()
    check('python-tool' in words, 'completion knows it', words)


@scenario
def pages_and_completions_are_readable(root):
    page = below(f"{OPTIONS['mandir']}/man1/sandboxctl.1")
    if not shutil.which('man'):
        skip('man finds the page', 'man is not installed')
    elif not os.path.exists(page):
        skip('man finds the page', 'scdoc is not installed: no page was built')
    else:
        done = subprocess.run(['man', '-M', below(OPTIONS['mandir']), '-w', 'sandboxctl'], capture_output=True,
                              text=True, check=False)
        same(done.stdout.strip(), page, 'man finds the page', done.stderr)
    script = below(f"{OPTIONS['datadir']}/bash-completion/completions/sandboxctl")
    same(direct('completion', 'bash').stdout, open(script, encoding='utf-8').read(),
         'the completion is the one this program makes')


@scenario
def uninstalling_leaves_nothing(root):
    log = os.path.join(BUILD, 'meson-logs', 'install-log.txt')
    with open(log, encoding='utf-8') as file:
        listed = [line.strip() for line in file if line.startswith('/')]
    check(len(listed) > 20 and all(path.startswith(STAGE) for path in listed), 'the list is of this installation',
          listed[:3])
    # From a copy: the programs are needed to the end of this test.
    copy = os.path.join(root.base, 'copy')
    shutil.copytree(STAGE, copy, symlinks=True)
    folders = []
    for path in (copy + path[len(STAGE):] for path in listed):
        if os.path.isdir(path) and not os.path.islink(path):
            folders.append(path)
        elif os.path.lexists(path):
            os.unlink(path)
    left = [path for path in installed(copy) if not os.path.isdir(path)]
    same(left, [], 'without the files of the list no file is left')
    for path in sorted(folders, key=len, reverse=True):
        os.rmdir(path)
    above = {os.path.join(copy, *PREFIX.strip('/').split('/')[:n + 1]) for n in range(len(PREFIX.split('/')))}
    left = [path for path in installed(copy) if path not in above]
    same(left, [], 'without its folders nothing is left')


if __name__ == '__main__':
    if os.geteuid() != 0:
        print('1..0 # SKIP launching sandboxes with these drivers needs root')
        sys.exit(0)
    try:
        done = install()
        if done.returncode != 0:
            print(f'1..1\nnot ok 1 - meson install\n# {done.stdout}\n# {done.stderr}')
            sys.exit(1)
        main()
    finally:
        shutil.rmtree(STAGE, ignore_errors=True)
