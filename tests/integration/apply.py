#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Desired state by hand: apply makes, changes, replaces and removes what profiles say."""
import glob
import json
import os
import signal

from lib.follow import pid_of
from lib.harness import PATIENCE, bind, check, main, read_until, same, scenario, start_time, until

SERVE = ['/bin/sh', '-c', 'trap "exit 0" TERM; while :; do sleep 0.05; done']
MIB = 1 << 20
# Of both hierarchies: the file that holds a limit of the workload.
FILES = {'memory': ('memory.limit_in_bytes', 'memory.max'), 'pids': ('pids.max',) * 2,
         'swap': ('memory.memsw.limit_in_bytes', 'memory.swap.max'), 'weight': ('cpu.shares', 'cpu.weight'),
         'cpu': ('cpu.cfs_quota_us', 'cpu.max'), 'cpuset': ('cpuset.cpus',) * 2}


def web(root, text='', argv=None, name='web', process=''):
    return root.profile(name, argv or SERVE, text, process)


def limit(root, reference, kind):
    """What the kernel says, trimmed; None where the hierarchy has no such file."""
    sandbox = root.one(reference)['id']
    for file in FILES[kind]:
        for path in (glob.glob(f'/sys/fs/cgroup/*{root.parent}/{sandbox}/workload/{file}')
                     + glob.glob(f'/sys/fs/cgroup{root.parent}/{sandbox}/workload/{file}')):
            with open(path) as opened:
                return opened.read().strip()
    return None


def workload(root, reference):
    """The workload's first process on this host, as pid and start time."""
    pid = pid_of(root, reference)
    return pid, start_time(pid)


def actions(done):
    return [(item['name'], item['action']) for item in json.loads(done.out)['items']]


def audit(root):
    root.ctl('audit', 'verify')  # brings every line into the file
    with open(root.path + '/var/lib/sandbox/audit.jsonl') as file:
        return [json.loads(line) for line in file]


def applied(root):
    return [(e['name'], e['body']['action'], bool(e['body']['failure'])) for e in audit(root)
            if e['event'] == 'applied']


@scenario
def made_and_left_alone(root):
    path = web(root)
    done = root.ctl('apply', '-n', '--detailed-exitcode', path)
    same((done.code, root.ps()), (2, []), 'a dry run says that something would change and changes nothing', done)
    done = root.ctl('apply', path)
    same(done.code, 0, 'apply makes a sandbox', done)
    [sandbox] = root.ps('-a')
    same((sandbox['name'], sandbox['state']), ('web', 'running'), 'with the name of its profile')
    first = workload(root, 'web')
    done = root.ctl('apply', '--detailed-exitcode', '-o', 'json', path)
    same((done.code, actions(done)), (0, [('web', 'nothing')]), 'again: nothing to do')
    same(workload(root, 'web'), first, 'and the same process goes on')
    same(root.ctl('stop', 'web').code, 0, 'a person stops it')
    same(root.ctl('apply', path).code, 0, 'applies it again')
    until(lambda: root.one('web')['state'] == 'running', 'running')
    check(workload(root, 'web') != first, 'and it runs anew')
    same([action for _, action, _ in applied(root)][0], 'create', 'the audit log has it')
    same(root.ctl('apply').code, 2, 'without a file it is wrong usage')
    same(root.ctl('apply', '/no/such.toml').code, 1, 'a file that is not there is a failure')


@scenario
def changed_while_it_runs(root):
    path = web(root, '[resources]\nmemory = "64MiB"\npids = 32\ncpu_weight = 50\n')
    same(root.ctl('apply', path).code, 0, 'a sandbox with limits')
    first, before = workload(root, 'web'), root.one('web')
    same((limit(root, 'web', 'memory'), limit(root, 'web', 'pids')), (str(64 * MIB), '32'), 'which the kernel holds')
    steps = [
        ('raised', '[resources]\nmemory = "96MiB"\nswap = "32MiB"\npids = 48\ncpu_weight = 200\n',
         {'memory': 96 * MIB, 'pids': 48}),
        ('lowered', '[resources]\nmemory = "32MiB"\npids = 16\ncpus = 0.5\n', {'memory': 32 * MIB, 'pids': 16}),
        ('taken away', '', {'pids': 512}),
        ('set again', '[resources]\nmemory = "48MiB"\ncpus = 1.5\n', {'memory': 48 * MIB, 'pids': 512})]
    for what, text, wanted in steps:
        web(root, text)
        done = root.ctl('apply', '-o', 'json', path)
        same((done.code, actions(done)), (0, [('web', 'update')]), f'limits {what}: applied live', done)
        item = json.loads(done.out)['items'][0]
        same({c['class'] for c in item['changes']}, {'live'}, 'every key is of class live', item)
        same({kind: limit(root, 'web', kind) for kind in wanted}, {k: str(v) for k, v in wanted.items()},
             'the kernel has them')
        now = root.one('web')
        same((now['plan_digest'], now['plan_digest'] != before['plan_digest']), (item['plan_digest'], True),
             'inspect has the new plan')
        limits = {c['name']: c for c in now['controls'] if c['name'].startswith('limit.')}
        check(all(c['held'] and c['planned'] == c['observed'] for c in limits.values()), 'and evidence for it', limits)
        same(('limit.memory' in limits), 'memory' in wanted, 'for what is limited only')
        done = root.ctl('plan', '--diff', 'web', path)
        same((done.code, done.out), (0, ''), 'plan --diff finds no difference', done)
        before = now
    if limit(root, 'web', 'memory') is not None and not glob.glob(f'/sys/fs/cgroup{root.parent}'):
        same(limit(root, 'web', 'cpu'), '150000', 'the CPU quota too')
    same(workload(root, 'web'), first, 'all the while the same process ran')
    same([e['event'] for e in audit(root)].count('updated'), 4, 'each is an event with its evidence')
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')


@scenario
def labels_and_stop_timeout_change_live(root):
    deaf = 'trap "" TERM; echo deaf; while :; do sleep 0.02; done'
    path = root.write(os.path.join(root.work, 'web.toml'), 'version = 1\nname = "web"\nisolation = "sandbox"\n'
                      f'labels = {{ team = "a" }}\n[process]\nargv = ["/bin/sh", "-c", {json.dumps(deaf)}]\n'
                      '[lifecycle]\nstop_timeout = "1h"\n')
    root.ctl('apply', path)
    until(lambda: root.ctl('logs', 'web').out == 'deaf\n', 'its first line')
    first = workload(root, 'web')
    with open(path) as file:
        text = file.read()
    root.write(path, text.replace('team = "a"', 'team = "b", tier = "1"').replace('"1h"', '"100ms"'))
    done = root.ctl('apply', '-o', 'json', path)
    same(actions(done), [('web', 'update')], 'labels and stop_timeout', done)
    same(root.one('web')['labels'], {'team': 'b', 'tier': '1'}, 'inspect has the labels')
    same([s['name'] for s in root.ps('--filter', 'label=team=b')], ['web'], 'and ps finds it by them')
    same(workload(root, 'web'), first, 'the same process')
    same((root.ctl('stop', 'web').code, root.one('web')['exit']['code']), (0, 137), 'stop takes the new stop_timeout')


@scenario
def the_life_cycle_changes_live(root):
    path = web(root)
    root.ctl('apply', path)
    first = workload(root, 'web')
    web(root, '[lifecycle]\nttl = "1h"\nidle_timeout = "2h"\n[lifecycle.health]\nargv = ["/bin/true"]\ninterval = "100ms"\n')
    done = root.ctl('apply', '-o', 'json', path)
    same(actions(done), [('web', 'update')], 'ttl, idle_timeout and a health check come live', done)
    until(lambda: any(e['event'] == 'health' and e['body']['health'] == 'healthy' for e in audit(root)), 'healthy')
    check(True, 'the check is run')
    same(workload(root, 'web'), first, 'beside the same process')
    web(root, '[lifecycle]\nttl = "1s"\n')
    same(actions(root.ctl('apply', '-o', 'json', path)), [('web', 'update')], 'a shorter ttl')
    until(lambda: root.one('web')['state'] == 'stopped', 'the end of its time')
    check(True, 'ends it, counted from its start')


@scenario
def what_was_changed_live_holds_in_the_next_generation(root):
    flags = root.grant('flags', owner=1000)  # the profile's default user
    once = ['/bin/sh', '-c', 'while ! rm /flags/fail 2>/dev/null; do sleep 0.02; done; exit 1']
    restart = bind(flags, '/flags', read_only=False) + '[lifecycle]\nrestart = "on-failure"\nbackoff = "50ms"\n'

    def fail():
        os.chown(root.write(root.work + '/fail', ''), 1000, 1000)
        os.rename(root.work + '/fail', flags + '/fail')
    path = web(root, '[resources]\npids = 30\n' + restart, once)
    root.ctl('apply', path)
    fail()
    until(lambda: (root.one('web')['generation'], root.one('web')['state']) == (2, 'running'), 'the second generation')
    web(root, '[resources]\npids = 20\n' + restart, once)
    same(root.ctl('apply', path).code, 0, 'applied while it runs')
    same(limit(root, 'web', 'pids'), '20', 'at once')
    fail()
    until(lambda: (root.one('web')['generation'], root.one('web')['state']) == (3, 'running'), 'the next one')
    same(limit(root, 'web', 'pids'), '20', 'a restarted workload has the new limit')
    done = root.ctl('plan', '--diff', 'web', path)
    same((done.code, done.out), (0, ''), 'and runs the new plan', done)


@scenario
def memory_that_is_in_use_is_not_taken_away(root):
    hog = ['/usr/bin/python3', '-c', 'import sys, time; x = bytearray(b"x" * (40 << 20)); '
           'print("ready", flush=True); time.sleep(1000)']
    path = web(root, '[resources]\nmemory = "128MiB"\npids = 32\n', hog)
    root.ctl('apply', path)
    follower = root.spawn('logs', '-f', 'web')
    read_until(follower.stdout, b'ready\n')
    first, before = workload(root, 'web'), root.one('web')
    web(root, '[resources]\nmemory = "16MiB"\npids = 8\n', hog)
    done = root.ctl('apply', path)
    same(done.code, 1, 'a limit below what is in use is refused', done)
    check('memory' in done.err and 'nothing was changed' in done.err, 'and says why', done.err)
    same((limit(root, 'web', 'memory'), limit(root, 'web', 'pids')), (str(128 * MIB), '32'), 'nothing has changed')
    same((workload(root, 'web'), root.one('web')['plan_digest']), (first, before['plan_digest']),
         'neither process nor plan')
    web(root, '[resources]\nmemory = "64MiB"\npids = 8\n', hog)
    same(root.ctl('apply', path).code, 0, 'one above it is taken')
    same((limit(root, 'web', 'memory'), limit(root, 'web', 'pids')), (str(64 * MIB), '8'), 'and holds')


@scenario
def cpus_change_in_every_session(root):
    with open('/sys/devices/system/cpu/online') as file:
        if file.read().strip() == '0':
            return check(True, 'with one CPU there is nothing to choose')
    path = web(root, '[resources]\ncpuset = "0-1"\n')
    root.ctl('apply', path)
    pid, _ = workload(root, 'web')

    def allowed():
        with open(f'/proc/{pid}/status') as file:
            return next(line.split()[1] for line in file if line.startswith('Cpus_allowed_list'))
    same(allowed(), '0-1', 'two CPUs')
    for wanted in ('1', '0', '0-1'):
        web(root, f'[resources]\ncpuset = "{wanted}"\n')
        done = root.ctl('apply', '-o', 'json', path)
        same((actions(done), allowed()), ([('web', 'update')], wanted), f'then {wanted}', done)
    web(root)
    done = root.ctl('apply', '-o', 'json', path)
    same(actions(done), [('web', 'update')], 'and all of them', done)
    return check('0-1' in allowed() or '0,1' in allowed() or '-' in allowed(), 'again', allowed())


@scenario
def replaced_for_the_rest(root):
    path = web(root)
    root.ctl('apply', path)
    old = root.one('web')
    web(root, process='env = { A = "1" }')
    done = root.ctl('apply', '-n', '--detailed-exitcode', path)
    check(done.code == 2 and 'process.env.A' in done.out and 'next-start' in done.out, 'a dry run names the key', done)
    same(root.one('web')['id'], old['id'], 'and leaves the sandbox')
    done = root.ctl('apply', '--detailed-exitcode', '-o', 'json', path)
    same((done.code, actions(done)), (2, [('web', 'replace')]), 'then it is replaced', done)
    new = root.one('web')
    check(new['id'] != old['id'] and new['state'] == 'running', 'under the same name', new)
    root.census_clean_of(old['id'])
    # The new plan is resolved first: one that is denied ends nothing.
    web(root, '[network]\nmode = "egress"\nallow = ["example.com:443"]\n[security]\ncapabilities = ["CAP_SYS_ADMIN"]\n')
    root.bundle('version = 1\nname = "o"\ncapabilities = []\nnetwork_modes = ["none"]\n')
    done = root.ctl('apply', path)
    check(done.code == 1 and 'POLICY_DENIED' in done.err, 'a plan that is denied', done)
    same((root.one('web')['id'], root.one('web')['state']), (new['id'], 'running'), 'leaves the last good one running')
    check(('web', 'keep', False) in applied(root) or ('web', 'keep', True) in applied(root), 'and is an event', applied(root))


@scenario
def a_replacement_that_cannot_start_brings_the_old_one_back(root):
    path = web(root)
    root.ctl('apply', path)
    old = root.one('web')
    missing = root.work + '/missing'  # no plan looks for it, a launch does
    web(root, bind(missing, '/data'))
    done = root.ctl('apply', path)
    check(done.code == 1 and 'missing' in done.err and 'the one before runs again' in done.err,
          'a launch that fails is said, with what became of the old one', done)
    back = root.one('web')
    same((back['state'], back['plan_digest']), ('running', old['plan_digest']), 'by its own plan it runs again')
    same([s['name'] for s in root.ps()], ['web'], 'and nothing of the other is left')
    root.census_clean_of(old['id'])
    check(('web', 'replace', True) in applied(root), 'it is an event', applied(root))
    os.mkdir(missing)
    done = root.ctl('apply', '-o', 'json', path)
    same((done.code, actions(done)), (0, [('web', 'replace')]), 'a person may try again, and now it is replaced', done)
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')


@scenario
def a_file_that_is_wrong_stops_no_other(root):
    folder = root.grant('profiles')
    for name in ('a', 'b', 'c'):
        os.rename(web(root, name=name), f'{folder}/{name}.toml')
    same(root.ctl('apply', folder).code, 0, 'a folder')
    same(sorted(s['name'] for s in root.ps()), ['a', 'b', 'c'], 'is one sandbox a file')
    first = {name: workload(root, name) for name in 'abc'}
    root.write(folder + '/b.toml', 'version = 1\nname = "b"\nwrong = true\n')
    os.rename(web(root, '[resources]\npids = 9\n', name='c'), folder + '/c.toml')
    root.write(folder + '/.d.toml', 'nonsense')
    root.write(folder + '/d.toml~', 'nonsense')
    done = root.ctl('apply', folder)
    check(done.code == 1 and f'{folder}/b.toml:3:1: wrong' in done.err, 'a wrong file is said with its place', done)
    same({name: workload(root, name) for name in 'abc'}, first, 'and what it last said goes on')
    same(limit(root, 'c', 'pids'), '9', 'the others are applied')
    os.unlink(folder + '/a.toml')
    root.write(folder + '/c.toml', '')
    done = root.ctl('apply', '--no-prune', folder)
    same(len(root.ps()), 3, 'with --no-prune all stay')
    done = root.ctl('apply', '-o', 'json', folder)
    same(sorted(actions(done)), [('a', 'remove'), ('b', 'keep'), ('c', 'remove')],
         'files that are gone or empty take their sandboxes with them', done)
    same([s['name'] for s in root.ps()], ['b'], 'and only those')


@scenario
def names_of_others(root):
    path = web(root)
    root.ctl('run', '-d', '--name', 'web', path)
    before = root.one('web')['id']
    done = root.ctl('apply', path)
    check(done.code == 1 and 'rm web' in done.err, 'a sandbox that run made is not taken over', done)
    same(root.one('web')['id'], before, 'and stays')
    same(root.ctl('rm', '-f', 'web').code, 0, 'once it is removed')
    same(root.ctl('apply', path).code, 0, 'apply has the name')


@scenario
def a_plan_file(root):
    path = web(root)
    plan = os.path.join(root.work, 'web.plan.json')
    root.write(plan, root.ctl('plan', '-o', 'json', path).out)
    done = root.ctl('apply', '--plan', plan, '-o', 'json')
    same((done.code, actions(done)), (0, [('web', 'create')]), 'a plan file is applied', done)
    digest = root.one('web')['plan_digest']
    same(json.loads(open(plan).read())['digest'], digest, 'and that very plan runs')
    with open(plan) as file:
        root.write(plan, file.read().replace('512', '513'))
    same(root.ctl('apply', '--plan', plan).code, 1, 'an edited one is refused')
    root.write(plan, root.ctl('plan', '-o', 'json', web(root, '[resources]\nmemory = "64MiB"\n')).out)
    root.bundle('version = 1\nname = "o"\n[max]\nmemory = "32MiB"\n')
    done = root.ctl('apply', '--plan', plan)
    check(done.code == 1 and 'resources.memory' in done.err, 'one that is no longer permitted too', done)
    same(root.one('web')['plan_digest'], digest, 'the last good one runs on')


@scenario
def two_at_once(root):
    path = web(root)
    both = [root.spawn('apply', path) for _ in range(4)]
    for child in both:
        child.communicate(timeout=PATIENCE)
    same([c.returncode for c in both], [0] * 4, 'applied four times at once')
    same(len(root.ps('-a')), 1, 'it was made once')


@scenario
def killed_in_the_middle(root):
    deaf = ['/bin/sh', '-c', 'trap "" TERM; while :; do sleep 0.02; done']
    stop = '[lifecycle]\nstop_timeout = "200ms"\n'
    path = web(root, stop, deaf)
    root.ctl('apply', path)
    for round, delay in enumerate([0.005, 0.02, 0.05, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5]):
        web(root, stop + f'[resources]\npids = {20 + round}\n', deaf, process=f'env = {{ ROUND = "{round}" }}')
        child = root.spawn('apply', path, start_new_session=True)
        try:
            child.wait(delay)
        except Exception:
            os.kill(child.pid, signal.SIGKILL)
        child.wait()
        done = root.ctl('apply', path)
        same(done.code, 0, f'killed after {delay} s, applied again', done)
        [sandbox] = root.ps()
        same((sandbox['state'], limit(root, 'web', 'pids')), ('running', str(20 + round)), 'it runs as the file says')
    same(root.ctl('reconcile').code, 0, 'reconcile finds a well state')
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')


@scenario
def looking_as_with_podman(root):
    for name in ('web', 'shop'):
        root.ctl('apply', web(root, name=name))
    root.ctl('run', '--name', 'past', root.profile('past', ['/bin/sh', '-c', 'for i in 1 2 3 4 5; do echo line $i; done']))
    names = lambda *filters: sorted(s['name'] for s in root.ps('-a', *filters))
    same(names('--filter', 'state=running'), ['shop', 'web'], 'ps --filter state')
    same(names('--filter', 'name=eb'), ['web'], 'by a part of the name')
    same(names('--filter', 'profile=shop', '--filter', 'profile=past'), ['past', 'shop'], 'by profile, either')
    same(names('--filter', 'state=stopped', '--filter', 'name=web'), [], 'and both of two keys')
    same(root.ctl('ps', '--filter', 'size=1').code, 2, 'an unknown key is wrong usage')
    same(root.ctl('logs', '--tail', '2', 'past').out, 'line 4\nline 5\n', 'logs --tail')
    same(root.ctl('logs', '-n', '0', 'past').out, '', 'of nothing')
    same(root.ctl('logs', '--since', '1h', 'past').out.count('\n'), 5, 'logs --since a duration')
    same(root.ctl('logs', '--since', '2099-01-01T00:00:00Z', 'past').out, '', 'and a time')
    same(root.ctl('logs', '-f', '--tail', '1', 'past').out, 'line 5\n', 'logs -f --tail of what has ended')
    id = root.one('web')['id']
    same(root.one(id[:8])['name'], 'web', 'an id prefix')
    same(root.ctl('stop', '-t', '1000', id[:10]).code, 0, 'stop -t seconds, which are not waited for in vain')
    done = root.ctl('prune', '--filter', 'name=past')
    same((done.code, done.out), (0, 'past\n'), 'prune removes what has ended')
    same(sorted(s['name'] for s in root.ps()), ['shop', 'web'], 'that matches')


@scenario
def a_follower_misses_nothing(root):
    root.ctl('apply', web(root, argv=['/bin/sh', '-c', 'i=0; while :; do echo $((i += 1)); sleep 0.002; done']))
    until(lambda: root.ctl('logs', 'web').out.count('\n') > 50, 'lines')
    follower = root.spawn('logs', '-f', '--tail', '3', 'web')
    numbers = list(map(int, read_until(follower.stdout, b'00\n').splitlines()[:-1]))  # the last may be cut
    same(numbers, list(range(numbers[0], numbers[0] + len(numbers))), 'after the tail every line, once')


if __name__ == '__main__':
    main()
