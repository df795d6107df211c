#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every shipped profile and example is valid, planned and run as its own comments say."""
import glob
import json
import os
import re
import shutil

from lib.harness import SOURCE, check, main, same, scenario, until

EXAMPLES = os.path.join(SOURCE, 'examples')
# What each example prints: its first comment promises it.
OUTPUTS = {
    '01-hello.toml': r'hello from inside\n$',
    '02-limits.toml': r'at most 64 MiB.*\n256\n$',
    '03-bind.toml': r'\s+Apache License\s.*the folder is read-only\n$',
    '04-masks.toml': r'0\n0\n$',
    '05-scratch.toml': r'the root is read-only\ndata\n$',
}
COMMANDS = {
    'ci-job.toml': ['/bin/sh', '-eu', '-c', 'echo $CI; cd /work; touch x; ls'],
    'node-build.toml': ['/bin/sh', '-c', 'echo $npm_config_offline; cd /work; touch x; ls'],
    'python-tool.toml': ['/usr/bin/python3', '-I', '-c', 'print(6 * 7)'],
    'shell.toml': ['/bin/sh', '-c', 'echo $LANG; pwd; touch x; ls'],
}
WANTED = {'ci-job.toml': 'true\nx\n', 'node-build.toml': 'true\nx\n', 'python-tool.toml': '42\n',
          'shell.toml': 'C.UTF-8\n/tmp\nx\n'}


def run_idle(root, path):
    name = os.path.basename(path).removesuffix('.toml')
    done = root.ctl('run', '-d', '--name', name, path)
    same((done.code, done.out), (0, name + '\n'), f'{name} starts without a program of its own', done.err)
    same({s['name']: s['state'] for s in root.ps()}.get(name), 'running', 'and runs')
    same(root.ctl('stop', name).code, 0, 'until it is stopped')
    until(lambda: root.one(name)['state'] == 'stopped', 'rest')
    same(root.one(name)['exit']['code'], 0, 'which is its ordinary end', root.one(name)['exit'])
    same(root.ctl('rm', name).code, 0, 'and removed')


def run_service(root, path):
    name = os.path.basename(path)
    done = root.ctl('apply', '-o', 'json', path)
    [item] = json.loads(done.out)['items']
    same((done.code, item['action']), (0, 'create'), f'{name} is applied', done)
    audit = root.path + '/var/lib/sandbox/audit.jsonl'

    def healthy():
        root.ctl('audit', 'verify')
        with open(audit) as file:
            return any(e['event'] == 'health' and e['name'] == item['name'] and e['body']['health'] == 'healthy'
                       for e in map(json.loads, file))
    until(healthy, 'health')
    check(True, 'and is healthy')
    same(root.ctl('rm', '-f', item['name']).code, 0, 'until it is removed')


@scenario
def each_file(root):
    paths = sorted(glob.glob(SOURCE + '/profiles/*.toml') + glob.glob(EXAMPLES + '/*.toml') + glob.glob(EXAMPLES + '/*/profile.toml'))
    check(len(paths) >= 13, 'there are profiles and examples', paths)
    for path in paths:
        short = path.removeprefix(SOURCE + '/')
        done = root.ctl('validate', path)
        same(done.code, 0, f'{short} is valid', done.err)
        with open(path) as file:
            check(re.match(r'# \S.{20,}', file.readline()), 'and its first line says what it is for')
        done = root.ctl('plan', '-o', 'json', path)
        check(done.code == 0 or 'UNSUPPORTED' in done.out or '07-' in short, 'it can be planned', done)


@scenario
def each_example(root):
    for path in sorted(glob.glob(EXAMPLES + '/*.toml')):
        name = os.path.basename(path)
        with open(path) as file:
            text = file.read()
        if re.search(r'^idle = true', text, re.M):
            run_idle(root, path)
            continue
        if re.search(r'^autostart = true', text, re.M):
            run_service(root, path)
            continue
        done = root.ctl('run', '--rm', path)
        check(done.code == 0 and re.match(OUTPUTS[name], done.out, re.S) and not done.err.replace(
            "touch: cannot touch 'new': Read-only file system\n", '').replace(
            "touch: cannot touch '/usr/x': Read-only file system\n", ''), f'{name} does what it says', done)
    limits = EXAMPLES + '/02-limits.toml'
    done = root.ctl('run', '--name', 'big', limits, '--', '/usr/bin/tail', '/dev/zero')
    same((done.code, root.one('big')['exit']['reason']), (137, 'oom'), '02 says what a hog gets')


@scenario
def example_7_as_its_comment_says(root):
    org = root.path + '/etc/sandbox/org.d'
    for path in glob.glob(EXAMPLES + '/07-org-bundle/org.d/*'):
        shutil.copy(path, org)
    profile = EXAMPLES + '/07-org-bundle/profile.toml'
    done = root.ctl('plan', '-o', 'json', profile)
    same(sorted((d['class'], d['key']) for d in json.loads(done.out)['denials']),
         [('POLICY_DENIED', 'network.mode'), ('POLICY_DENIED', 'resources.memory')], 'both denials at once')
    same((done.code, root.ctl('run', profile).code), (1, 125), 'plan exits 1, run 125')
    same(root.ctl('run', EXAMPLES + '/01-hello.toml').code in (0, 125), True, 'another profile is judged for itself')


@scenario
def example_8_as_its_comment_says(root):
    folder = EXAMPLES + '/08-overlay'
    done = root.ctl('run', f'{folder}/profile.toml')
    same((done.code, done.out), (0, '1024\nwithin the narrower limits\n'), 'without the overlay', done.err)
    done = root.ctl('run', '--name', 'narrow', '--overlay', f'{folder}/overlay.toml', f'{folder}/profile.toml')
    same((done.code, done.out), (0, '64\nwithin the narrower limits\n'), 'with it', done.err)


@scenario
def each_profile(root):
    folder = root.path + '/etc/sandbox/profiles.d'
    os.mkdir(folder)
    for path in sorted(glob.glob(SOURCE + '/profiles/*.toml')):
        shutil.copy(path, folder)
        name = os.path.basename(path)
        with open(path) as file:
            if re.search(r'^idle = true', file.read(), re.M):
                run_idle(root, path)
                continue
        done = root.ctl('run', '--rm', name.removesuffix('.toml'), '--', *COMMANDS[name])
        same((done.code, done.out), (0, WANTED[name]), f'{name} by its name runs what it is for', done.err)
    done = root.ctl('run', '-i', 'shell', stdin=b'echo typed\nexit 3\n')
    check(done.code == 3 and 'typed' in done.out, 'shell reads what is typed', done)
    done = root.ctl('run', 'shell', '--', '/usr/bin/python3', '-c', 'import socket; socket.socket()')
    check(done.code == 1 and 'Error' in done.err, 'shell is strict: no socket', done)


if __name__ == '__main__':
    main()
