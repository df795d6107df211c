#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sandboxes over time: detached, stopped, killed, waited for, removed, named, many at once."""
import json
import os
import re
import time

from lib.harness import CLASS, DRIVER, PATIENCE, check, main, quick, read_until, same, scenario, until

SHELL = '/bin/sh', '-c'
LOOP = 'echo ready; while :; do sleep 0.02; done'
PS_KEYS = {'id', 'name', 'profile', 'driver', 'isolation_class', 'state', 'generation', 'created', 'exit'}
EXIT_KEYS = {'code', 'signal', 'reason', 'oom_kills'}


def start(root, name, script=LOOP, **profile):
    """Starts detached and returns when the script has said "ready"."""
    path = root.profile(**profile)
    done = root.ctl('run', '-d', '--name', name, path, '--', *SHELL, script)
    assert done.code == 0, done
    follower = root.spawn('logs', '-f', name)
    read_until(follower.stdout, b'ready\n')
    follower.kill()
    return done


@scenario
def detached(root):
    done = start(root, 'back', 'echo ready; trap "exit 5" TERM; while :; do sleep 0.02; done')
    same((done.code, done.out), (0, 'back\n'), 'and prints the name')
    [sandbox] = root.ps()
    same((sandbox['state'], sandbox['exit']), ('running', None), 'ps says running')
    waiter = root.spawn('wait', 'back')
    same(root.ctl('stop', 'back').code, 0, 'stop')
    out, _ = waiter.communicate(timeout=PATIENCE)
    same((waiter.returncode, out), (0, b'5\n'), 'wait prints the status and exits 0')
    [sandbox] = root.ps()
    same((sandbox['state'], sandbox['exit']['code']), ('stopped', 5), 'ps says stopped, with the status')
    same(root.ctl('wait', 'back').out, '5\n', 'wait afterwards too')
    same(root.ctl('stop', 'back').code, 0, 'stop of what is stopped is no error')
    check(root.ctl('kill', 'back').code == 1, 'kill of what is stopped is one')
    done = root.ctl('run', '-d', root.profile(), '--', '/no/such')
    check(done.code in (0, 127), 'a detached start that cannot be', done)


@scenario
def stop_and_kill(root):
    def stop_deaf():
        root.ctl('rm', '-f', 'deaf')
        start(root, 'deaf', 'trap "echo heard" TERM; ' + LOOP, text='[lifecycle]\nstop_timeout = "1s"\n')
        same(root.ctl('stop', 'deaf').code, 0, 'stop of a workload that ignores TERM')
    quick(stop_deaf, 10, 'kills it after stop_timeout, not after the 10 s of a profile without one', least=1)
    exit = root.one('deaf')['exit']
    same((exit['code'], exit['signal'], exit['reason']), (137, 9, 'killed'), 'and inspect says killed')
    check('heard' in root.ctl('logs', 'deaf').out, 'TERM came first')
    # Not to be waited for.
    start(root, 'patient', 'trap "" TERM; ' + LOOP, text='[lifecycle]\nstop_timeout = "1h"\n')
    same(root.ctl('stop', '-t', '300ms', 'patient').code, 0, 'stop -t overrides the profile')
    start(root, 'shot')
    same(root.ctl('kill', 'shot').code, 0, 'kill')
    same(root.ctl('wait', 'shot').out, '137\n', 'is SIGKILL')
    start(root, 'hup', 'trap "exit 21" HUP; trap "exit 22" USR2; ' + LOOP)
    same(root.ctl('kill', '-s', 'SIGUSR2', 'hup').code, 0, 'kill -s SIGUSR2')
    same(root.ctl('wait', 'hup').out, '22\n', 'sends that')
    start(root, 'number', 'trap "exit 21" HUP; ' + LOOP)
    root.ctl('kill', '-s', '1', 'number')
    same(root.ctl('wait', 'number').out, '21\n', 'kill -s 1 too')


@scenario
def removing(root):
    start(root, 'busy')
    done = root.ctl('rm', 'busy')
    check(done.code == 1 and 'stop it first' in done.err, 'rm refuses what runs', done)
    same(root.ps()[0]['state'], 'running', 'which goes on')
    same(root.ctl('rm', '-f', 'busy').code, 0, 'rm -f does not')
    same(root.ps(), [], 'and it is gone')
    root.census_clean('with everything')
    done = root.ctl('rm', 'busy')
    same(done.code, 1, 'twice is an error')
    for _ in range(2):
        done = root.ctl('run', '--name', 'again', root.profile())
        same(done.code, 0, 'a name is free after rm', done.err)
        root.ctl('rm', 'again')
    root.ctl('run', '--name', 'taken', root.profile())
    done = root.ctl('run', '--name', 'taken', root.profile())
    check(done.code == 125 and 'taken' in done.err, 'a name that is taken is refused', done)
    same(len(root.ps()), 1, 'and nothing of the second try stays')
    done = root.ctl('rm', 'nobody', 'taken')
    check(done.code == 1 and root.ps() == [], 'rm of several does what it can', done)


@scenario
def several_at_the_same_time(root):
    start(root, 'contested')
    stops = [root.spawn('stop', '-t', '200ms', 'contested') for _ in range(5)]
    same([(s.wait(PATIENCE), s.stderr.read()) for s in stops], [(0, b'')] * 5, 'five stops at once all succeed')
    start(root, 'unwanted')
    removers = [root.spawn('rm', '-f', 'unwanted') for _ in range(5)]
    ends = [(r.wait(PATIENCE), r.stderr.read()) for r in removers]
    # One that looks after the removal finds nobody of that name; one that looks during it is told.
    check(all(code == 0 or b'no sandbox' in err or b'does rm' in err for code, err in ends) and any(code == 0 for code, _ in ends),
          'five rm -f at once leave it removed', ends)
    start(root, 'awaited', 'echo ready; sleep 0.3; exit 4')
    waiters = [root.spawn('wait', 'awaited') for _ in range(5)]
    same([w.communicate(timeout=PATIENCE)[0] for w in waiters], [b'4\n'] * 5, 'five that wait all learn the status')
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')


@scenario
def odd_roots(root):
    place = os.path.join(root.base, *['a long name with spaces ' + 'x' * 60] * 3)
    os.makedirs(place)
    parent = root.parent + '-long'
    os.makedirs(place + '/etc/sandbox')
    root.write(place + '/etc/sandbox/config.toml', root.config(parent=parent))
    profile = root.profile()
    done = root.ctl('run', '--root', place, '-d', '--name', 'far', profile, '--', '/bin/sleep', '100')
    same((done.code, done.out), (0, 'far\n'), 'a root with a long path, given after the verb', done.err)
    same(root.ctl('stop', '-t', '100ms', '--root', '.', 'far', cwd=place).code, 0, 'or a relative one')
    done = root.ctl('rm', '--root', place + '/', 'far')
    same(done.code, 0, 'or with a slash at its end', done.err)
    same(root.ps(), [], 'another root knows nothing of it')
    until(lambda: not os.path.exists('/sys/fs/cgroup/pids' + parent), 'its cgroups are gone')


@scenario
def shapes(root):
    profile = root.profile('shaped').replace('.toml', '') + '.toml'
    with open(profile) as file:
        text = file.read().replace('[process]', 'labels = { team = "ml", "a.b/c" = "x y" }\n[process]')
    root.write(profile, text)
    root.ctl('run', '--name', 'one', profile)
    start(root, 'two')
    listed = root.ps()
    check(all(set(s) == PS_KEYS for s in listed), 'ps -o json has the keys it promises', listed)
    by_name = {s['name']: s for s in listed}
    same(set(by_name['one']['exit']), EXIT_KEYS, 'exit has its four')
    same(by_name['two']['exit'], None, 'or is null')
    one = root.one('one')
    check(PS_KEYS | {'plan_digest', 'labels', 'controls'} <= set(one), 'inspect adds its own', sorted(one))
    same(one['labels'], {'team': 'ml', 'a.b/c': 'x y'}, 'labels are there')
    check(one['controls'] and all({'name', 'mechanism', 'planned', 'observed'} <= set(c) and c['observed']
                                  for c in one['controls']), 'each control has what was planned and observed',
          one['controls'])
    check(all(c['held'] for c in one['controls']), 'and was held')
    check(re.match(r'sha256:[0-9a-f]{64}$', one['plan_digest']), 'the plan digest is one', one['plan_digest'])
    check(re.match(r'[0-9a-f]{32}$', one['id']), 'the id is one', one['id'])
    same((one['driver'], one['isolation_class'], one['state'], one['profile'], one['generation']),
         (DRIVER or 'oci', CLASS, 'stopped', 'shaped', 1), 'values are what they should be')
    same(root.one(one['id'][:8])['name'], 'one', 'an id prefix names it')
    prefix = one['id'][:6]
    root.ctl('run', '--name', prefix, root.profile())
    same(root.one(prefix)['name'], prefix, 'an exact name beats an id prefix')
    same(root.ctl('inspect', '').code, 1, 'an empty name is nobody')
    done = root.ctl('inspect', 'one', 'two', '-o', 'table')
    check(done.code == 0 and ('vmm.namespaces' if DRIVER == 'microvm' else 'namespace.user') in done.out, 'inspect -o table is for people', done.out[:300])
    done = root.ctl('ps')
    check(done.out.startswith('ID ') and CLASS in done.out, 'ps is a table', done.out)
    same(root.ctl('ps', '-q').out.split(), [s['id'] for s in root.ps()], 'ps -q gives ids')
    same(root.ctl('ps', '-o', 'yaml').code, 0, 'ps -o yaml')
    done = root.ctl('run', root.profile('auto'))
    names = [s['name'] for s in root.ps() if s['profile'] == 'auto']
    check(len(names) == 1 and re.match(r'auto-[0-9a-f]{6}$', names[0]), 'run without --name makes one', names)


@scenario
def many_at_once(root):
    profile = root.profile()
    root.ctl('probe')
    began = time.monotonic()
    children = [root.spawn('run', '--rm', profile, '--', *SHELL, f'echo {i}; exit 0') for i in range(20)]
    ends = [(child.communicate(timeout=PATIENCE * 4), child.returncode) for child in children]
    same([code for _, code in ends], [0] * 20, 'twenty runs at once all exit 0', [e for e in ends if e[1]])
    same([out for (out, _), _ in ends], [f'{i}\n'.encode() for i in range(20)], 'each with its own output')
    print(f'# in {time.monotonic() - began:.1f} s')
    until(lambda: root.ps() == [], 'removal of all')
    root.census_clean('and leave nothing')
    same(root.ctl('audit', 'verify').code, 0, 'their audit log is whole')
    ids = {}
    for i in range(4):
        start(root, f'live{i}')
    audited = [json.loads(line) for line in open(root.path + '/var/lib/sandbox/audit.jsonl')]
    check(len(audited) >= 40, 'and tells of each', len(audited))
    for sandbox in root.ps():
        [control] = [c for c in root.one(sandbox['id'])['controls'] if c['name'] == ('vmm.user' if DRIVER == 'microvm' else 'id_map')]
        ids[control['observed']] = sandbox['name']
    same(len(ids), 4, 'four that live have four id ranges', ids)


@scenario
def audit_log(root):
    root.ctl('run', '--name', 'told', root.profile(), '--', '/bin/true')
    root.ctl('rm', 'told')
    done = root.ctl('audit', 'verify')
    check(done.code == 0 and 'whole' in done.out, 'audit verify finds it whole', done)
    done = root.ctl('audit', 'show', 'told')
    check(done.code == 0 and 'told' in done.out, 'audit show tells of one', done)
    path = root.path + '/var/lib/sandbox/audit.jsonl'
    with open(path, 'rb') as file:
        whole = file.read()
    lines = whole.splitlines(keepends=True)
    for what, changed in [('a cut', b''.join(lines[:-1])), ('a missing line', b''.join(lines[:1] + lines[2:])),
                          ('an edit', whole.replace(CLASS.encode(), b'hardware-vm', 1)), ('an empty file', b'')]:
        with open(path, 'wb') as file:
            file.write(changed)
        done = root.ctl('audit', 'verify')
        same(done.code, 1, f'{what} shows', done)
    with open(path, 'wb') as file:
        file.write(whole)
    same(root.ctl('audit', 'verify').code, 0, 'put back, it is whole again')


@scenario
def capacity(root):
    root.write(root.path + '/etc/sandbox/config.toml',
               root.config('max_sandboxes = 1\n'))
    start(root, 'only')
    done = root.ctl('run', root.profile())
    check(done.code == 125 and 'at most 1' in done.err, 'more than max_sandboxes do not start', done)
    root.ctl('rm', '-f', 'only')
    same(root.ctl('run', root.profile()).code, 0, 'one that ended makes room')


@scenario
def a_full_disk(root):
    import subprocess
    with open('/dev/full', 'w') as full:
        done = subprocess.run(root.command('version'),
                              stdout=full, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 1 and 'could not be written' in done.stderr,
          'output that was lost is no success', done)


if __name__ == '__main__':
    main()
