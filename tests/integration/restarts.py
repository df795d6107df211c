# SPDX-License-Identifier: Apache-2.0
"""What starts and ends a sandbox without a person: restart policies, health, ttl, idle_timeout."""
import json
import os
import random
import time

from lib.follow import Follower, by_argument, events, kill_shim, kinds, lines, shim_alive, state
from lib.harness import CENSUS, DRIVER, PATIENCE, check, main, read_until, same, scenario, until


def lifecycle(**keys):
    return '[lifecycle]\n' + ''.join(f'{key} = {json.dumps(value) if not key == "health" else value}\n'
                                     for key, value in keys.items())


@scenario
def a_failing_one_is_restarted_up_to_its_cap_with_growing_pauses(root):
    done = root.ctl('run', '--name', 'crash', root.profile(
        argv=['/bin/sh', '-c', 'echo up; exit 3'],
        text=lifecycle(restart='on-failure', backoff='20ms', max_restarts=3)))
    same((done.code, done.out), (3, 'up\n'), 'the client has the first run and its status')
    follow = Follower(root, 'crash')
    follow.until('exited', generation=4)
    follow.until('cleaned', generation=4)
    restarts = [e for e in follow.seen if e['event'] == 'restarting']
    same([(e['attempt'], e['most'], e['delay_ms'], e['why']) for e in restarts],
         [(1, 3, 20, 'exit status 3'), (2, 3, 40, 'exit status 3'), (3, 3, 80, 'exit status 3')],
         'three restarts, each pause twice the one before')
    exits = [e['generation'] for e in follow.seen if e['event'] == 'exited']
    same(exits, [1, 2, 3, 4], 'each exit is told exactly once')
    until(lambda: not shim_alive(root, 'crash'), 'the end of its shim')
    one = root.one('crash')
    same((one['state'], one['generation'], one['exit']['code']), ('stopped', 4, 3), 'then it stays down')
    same(lines(root, 'crash'), ['up'] * 4, 'the log has every run')
    same(root.ctl('wait', 'crash').out, '3\n', 'its status can be had')
    root.census_clean_of(one['id'])
    follow.close()


# A run ten times as long counts as a good one; under emulation /bin/true takes a tenth of a second.
SHORT = '200ms' if DRIVER == 'microvm' else '10ms'


@scenario
def what_ends_well_is_restarted_only_by_always(root):
    root.ctl('run', '--name', 'once', root.profile(
        argv=['/bin/true'], text=lifecycle(restart='on-failure', backoff='10ms')))
    until(lambda: not shim_alive(root, 'once'), 'the end of its shim')
    same(root.one('once')['generation'], 1, 'on-failure leaves a good end alone')
    root.ctl('run', '-d', '--name', 'ever', root.profile(
        argv=['/bin/true'], text=lifecycle(restart='always', backoff=SHORT, max_restarts=2)))
    follow = Follower(root, 'ever')
    follow.until('exited', generation=3)
    follow.close()
    until(lambda: not shim_alive(root, 'ever'), 'the end of its shim')
    same(root.one('ever')['generation'], 3, 'always does not, and has its cap')


@scenario
def between_two_attempts_it_is_seen_and_can_be_stopped(root):
    profile = root.profile(argv=['/bin/false'], text=lifecycle(restart='always', backoff='1h'))
    for end in (('stop',), ('kill',), ('kill', '-s', 'TERM')):
        root.ctl('run', '-d', '--name', 'waits', profile)
        until(lambda: state(root, 'waits') == 'restarting', 'the pause')
        one = root.one('waits')
        check(0 < one['restart']['due_in_ms'] <= 3600_000, 'inspect says when it goes on', one['restart'])
        check('restarting in ' in root.ctl('ps').out, 'and ps does')
        same(root.ctl('wait', 'waits').out, '1\n', 'wait tells the last status')
        check('next start' in root.ctl('kill', '-s', 'USR1', 'waits').err, 'there is nobody to signal')
        check('does not run' in root.ctl('pause', 'waits').err, 'nor to pause')
        check('by itself' in root.ctl('start', 'waits').err, 'nor to start')
        same(root.ctl('rm', 'waits').code, 1, 'rm without -f is refused')
        same(root.ctl(*end, 'waits').code, 0, f'{" ".join(end)} ends the cycle')
        until(lambda: state(root, 'waits') == 'stopped', 'its rest')
        until(lambda: not shim_alive(root, 'waits'), 'the end of its shim')
        same(root.one('waits')['generation'], 1, 'it was not started again')
        same(root.ctl('start', 'waits').code, 0, 'a person can start it all the same')
        same(root.ctl('rm', '-f', 'waits').code, 0, 'rm -f')


@scenario
def after_a_persons_stop_no_policy_starts_it(root):
    profile = root.profile(argv=['/bin/sh', '-c', 'while :; do sleep 0.02; done'],
                           text=lifecycle(restart='always', backoff='1ms', stop_timeout='50ms'))
    for end in (('stop',), ('kill',), ('kill', '-s', 'TERM')):
        root.ctl('run', '-d', '--name', 'stays', profile)
        same(root.ctl(*end, 'stays').code, 0, ' '.join(end))
        until(lambda: not shim_alive(root, 'stays'), 'the end of its shim')
        one = root.one('stays')
        same((one['state'], one['generation'], one['ended_by']), ('stopped', 1, 'asked'), 'it stays down')
        same(root.ctl('rm', 'stays').code, 0, 'rm')


@scenario
def a_time_out_and_a_full_memory_are_failures(root):
    root.ctl('run', '-d', '--name', 'slow', root.profile(
        argv=['/bin/sleep', '1000'], process='timeout = "50ms"\n',
        text=lifecycle(restart='on-failure', backoff='10ms', max_restarts=1)))
    follow = Follower(root, 'slow')
    follow.until('timeout', generation=1)
    same(follow.until('exited', generation=1)['reason'], 'timeout', 'the time-out is told')
    same(follow.until('restarting')['why'], 'timeout', 'and is why it is restarted')
    follow.until('exited', generation=2)
    follow.close()
    if not os.access('/usr/bin/python3', os.X_OK):
        return
    root.ctl('run', '-d', '--name', 'hog', root.profile(
        argv=['/usr/bin/python3', '-c', 'x = bytearray(200 << 20)'],
        text='[resources]\nmemory = "32MiB"\n' +
        lifecycle(restart='on-failure', backoff='10ms', max_restarts=1)))
    follow = Follower(root, 'hog')
    check(follow.until('oom', generation=1)['count'] >= 1, 'out of memory is an event')
    same(follow.until('exited', generation=1)['reason'], 'oom', 'and the reason of the end')
    same(follow.until('restarting')['why'], 'out of memory', 'and of the restart')
    follow.until('exited', generation=2)
    follow.close()


@scenario
def out_of_memory_is_told_while_the_workload_goes_on(root):
    if not os.access('/usr/bin/python3', os.X_OK):
        return
    script = '/usr/bin/python3 -c "x = bytearray(200 << 20)"; echo survived; read x'
    root.ctl('run', '-d', '--name', 'parent', root.profile(
        argv=['/bin/sh', '-c', script + '; sleep 1000'], text='[resources]\nmemory = "32MiB"\n'))
    follow = Follower(root, 'parent')
    same(follow.until('oom')['count'], 1, 'the kill of a child is told at once')
    same(state(root, 'parent'), 'running', 'while the sandbox runs')
    until(lambda: 'survived' in lines(root, 'parent'), 'its next line')
    root.ctl('kill', 'parent')
    follow.until('exited')
    same([e['event'] for e in follow.seen].count('oom'), 1, 'and not told again')
    follow.close()


@scenario
def a_shim_killed_between_two_attempts_leaves_nothing(root):
    root.ctl('run', '-d', '--name', 'orphan', root.profile(
        argv=['/bin/false'], text=lifecycle(restart='always', backoff='1h')))
    until(lambda: state(root, 'orphan') == 'restarting', 'the pause')
    sandbox = root.one('orphan')['id']
    kill_shim(root, sandbox)
    same(state(root, 'orphan'), 'stopped', 'it rests')
    same(root.ctl('reconcile').code, 0, 'reconcile')
    root.census_clean_of(sandbox)
    same(root.ctl('reconcile', '-o', 'json').code, 0, 'reconcile again')
    same(root.ctl('start', 'orphan').code, 0, 'it starts again')
    until(lambda: state(root, 'orphan') == 'restarting', 'the next pause')
    same(root.one('orphan')['generation'], 2, 'in generation 2')


def at_some_moment():
    """Of a cycle whose generations take some 40 ms."""
    end = time.monotonic() + random.random() * 0.2
    until(lambda: time.monotonic() > end, 'a moment')


@scenario
def whatever_moment_of_the_cycle_a_kill_or_a_stop_hits(root):
    seed = int(os.environ.get('SANDBOX_TEST_SEED') or random.randrange(1 << 30))
    random.seed(seed)
    print(f'# SANDBOX_TEST_SEED={seed}')
    profile = root.profile(argv=['/bin/false'], text=lifecycle(restart='always', backoff='1ms'))
    for number in range(8):
        root.ctl('run', '-d', '--name', 'killed', profile)
        sandbox = root.one('killed')['id']
        at_some_moment()
        kill_shim(root, sandbox)
        same(root.ctl('reconcile').code, 0, f'{number}: reconcile after the shim was killed')
        check(state(root, 'killed') in ('dead', 'stopped'), 'it rests', root.one('killed'))
        root.census_clean_of(sandbox)
        same(root.ctl('rm', 'killed').code, 0, 'rm')
    for number, verb in enumerate((('stop',), ('kill',), ('rm', '-f')) * 3):
        root.ctl('run', '-d', '--name', 'ended', profile)
        at_some_moment()
        same(root.ctl(*verb, 'ended'), (0, '', ''), f'{number}: {" ".join(verb)} at some moment')
        if verb[0] != 'rm':
            until(lambda: not shim_alive(root, 'ended'), 'the end of its shim')
            same(state(root, 'ended'), 'stopped', 'it stays down')
            same(root.ctl('rm', 'ended').code, 0, 'rm')
    exits = [(e['id'], e['generation']) for e in events(root) if e['event'] == 'exited']
    same(len(exits), len(set(exits)), 'no exit was told twice')
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')


@scenario
def health_is_seen_told_and_acted_upon(root):
    grant = root.grant('flag', {'well': ''})
    mount = f'[[mount]]\ntype = "bind"\nsource = "{grant}"\ntarget = "/flag"\nread_only = true\n'
    health = '{ argv = ["/bin/sh", "-c", "test -e /flag/well"], interval = "20ms", timeout = "10m", retries = 2 }'
    root.ctl('run', '-d', '--name', 'svc', root.profile(
        argv=['/bin/sh', '-c', 'while :; do sleep 0.02; done'],
        text=mount + lifecycle(restart='on-failure', backoff='10ms', stop_timeout='50ms',
                               health=health)))
    follow = Follower(root, 'svc')
    check(root.one('svc')['health']['health'] in ('starting', 'healthy'), 'it begins as starting')
    same(follow.until('health')['health'], 'healthy', 'the first good check is told')
    same(root.one('svc')['health']['health'], 'healthy', 'inspect has it')
    os.remove(os.path.join(grant, 'well'))
    event = follow.until('health')
    same((event['health'], event['failures'], event['detail']), ('unhealthy', 2, 'exit status 1'),
         'unhealthy after two failures in a row')
    same(follow.until('restarting')['why'], 'unhealthy', 'it is restarted for that')
    root.write(os.path.join(grant, 'well'), '')
    # Until the file is back it may be found unhealthy once more.
    event = follow.until('health', health='healthy')
    check(event['generation'] >= 2, 'and is well again', event)
    opened = [e for e in follow.seen if e['event'] == 'session-opened']
    same(opened, [], 'checks are no sessions of anybody')
    same(root.ctl('pause', 'svc').code, 0, 'pause')
    same(root.ctl('resume', 'svc').code, 0, 'a pause makes no check fail')
    same(root.one('svc')['health']['failures'], 0, 'none did')
    follow.close()


@scenario
def without_a_policy_an_unhealthy_one_runs_on(root):
    cases = {'fails': ('["/bin/false"]', '10m'), 'hangs': ('["/bin/sleep", "1000"]', '50ms'),
             'missing': ('["/none"]', '10m')}
    for name, (argv, timeout) in cases.items():
        root.ctl('run', '-d', '--name', name, root.profile(
            name, argv=['/bin/sleep', '1000'],
            text=lifecycle(health=f'{{ argv = {argv}, interval = "20ms", timeout = "{timeout}", retries = 2 }}')))
    wanted = {'fails': 'exit status 1', 'hangs': 'no end within 50ms', 'missing': 'cannot execute /none'}
    for name, detail in wanted.items():
        follow = Follower(root, name)
        event = follow.until('health')
        check(event['health'] == 'unhealthy' and event['detail'].startswith(detail), f'{name}: unhealthy', event)
        follow.close()
        same(state(root, name), 'running', 'it runs on')
        same(root.one(name)['health']['health'], 'unhealthy', 'and inspect says it')
        leaf = f'/sys/fs/cgroup/pids{root.parent}/{root.one(name)["id"]}/workload/health/cgroup.procs'
        until(lambda path=leaf: len(CENSUS.read(path).split()) <= 1, 'no more than one check at a time')


# What has to be done within a time that ends a sandbox is tried with longer and longer ones: milliseconds.
TIMES = (15000, 60000) if DRIVER == 'microvm' else (600, 3000, 15000, 60000)  # a boot takes longer


@scenario
def its_time_to_live_ends_it_whatever_the_policy(root):
    for ttl in TIMES:
        began = time.monotonic()
        root.ctl('run', '-d', '--name', 'ttl', root.profile(
            argv=['/bin/sh', '-c', 'sleep 0.05; exit 1'],
            text=lifecycle(restart='always', backoff='10ms', ttl=f'{ttl}ms', stop_timeout='50ms')))
        follow = Follower(root, 'ttl')
        follow.until('ttl', seconds=PATIENCE + ttl / 1000)
        took = time.monotonic() - began
        follow.close()
        until(lambda: not shim_alive(root, 'ttl'), 'the end of its shim')
        one = root.one('ttl')
        if one['generation'] > 1:
            break
        root.ctl('rm', 'ttl')  # too short a life here to be restarted in it
    check(took >= ttl / 1000, 'not before its time', took, ttl)
    same(one['state'], 'stopped', 'it stays down')
    check(one['generation'] > 1, 'restarts did not put it off', one['generation'])
    done = root.ctl('run', '--name', 'front', root.profile(
        argv=['/bin/sleep', '1000'], text=lifecycle(ttl='100ms', stop_timeout='50ms')))
    check('ttl of 100ms' in done.err, 'a client is told why', done)
    same(root.one('front')['ended_by'], 'ttl', 'and inspect says it')


def kept_busy(root, idle):
    """A session in a sandbox that was touched for longer than its idle time; None where we came too
    late for one of the touches, and cannot blame it for having ended."""
    made = time.monotonic()
    root.ctl('run', '-d', '--name', 'idle', root.profile(
        argv=None, process='[process]\nidle = true\n', text=lifecycle(idle_timeout=f'{int(idle * 1000)}ms')))
    before, began, gaps = made, time.monotonic(), []
    while time.monotonic() - began < 2 * idle:
        asked = time.monotonic()
        touched = root.ctl('touch', 'idle').code == 0
        # Between two touches that it saw lies no more than this.
        gaps.append(time.monotonic() - before)
        before = asked
        if max(gaps) < idle and not check(touched, f'touched within {idle} s it is there'):
            return None
        if not touched:
            return None
        until(lambda at=asked: time.monotonic() - at > idle / 5, 'the next touch', PATIENCE + idle)
    session = root.spawn('exec', '-i', 'idle', '--', '/bin/cat')
    session.stdin.write(b'hello\n')
    try:
        read_until(session.stdout, b'hello\n', PATIENCE + idle)
    except EOFError:
        check(time.monotonic() - before >= idle, f'a session opened within {idle} s is one', gaps)
        return None
    return session


@scenario
def idle_it_ends_unless_somebody_is_there(root):
    for idle in TIMES:
        session = kept_busy(root, idle / 1000)
        if session:
            break
        root.ctl('rm', '-f', 'idle')
    if not check(session, 'touched, it lives on'):
        return
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 2 * idle / 1000, 'more than its idle time', PATIENCE + 2 * idle / 1000)
    same(state(root, 'idle'), 'running', 'a session keeps it')
    session.stdin.close()
    same(session.wait(), 0, 'the session ends')
    same(root.ctl('wait', 'idle', timeout=PATIENCE * 2 + idle / 1000).out, '0\n', 'without one it ends')
    same(root.one('idle')['ended_by'], 'idle', 'inspect says why')
    check((1, 'idle') in kinds(root, 'idle'), 'and so do the events')
    check('does not run' in root.ctl('touch', 'idle').err, 'then there is nothing to touch')
    for idle in TIMES:
        root.ctl('run', '-d', '--name', 'frozen', root.profile(
            'frozen', argv=None, process='[process]\nidle = true\n', text=lifecycle(idle_timeout=f'{idle}ms')))
        if root.ctl('pause', 'frozen').code == 0:
            break
        root.ctl('rm', '-f', 'frozen')  # it had ended before we came
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 2 * idle / 1000, 'more than its idle time', PATIENCE + 2 * idle / 1000)
    same(state(root, 'frozen'), 'paused', 'paused, its idle clock stands still')
    root.ctl('resume', 'frozen')
    same(root.ctl('wait', 'frozen', timeout=PATIENCE * 2 + idle / 1000).out, '0\n', 'then it goes on')


@scenario
def events_can_be_taken_up_again_where_they_were_left(root):
    root.ctl('run', '--rm', '--name', 'one', root.profile(argv=['/bin/true']))
    root.ctl('run', '--name', 'two', root.profile(argv=['/bin/false']))
    until(lambda: (1, 'cleaned') in kinds(root, 'two') and (1, 'removed') in kinds(root, 'one'), 'their clean-up')
    until(lambda: not any(by_argument('shim:' + e['id']) for e in events(root)), 'the end of their shims')
    everything = events(root)
    numbers = [e['seq'] for e in everything]
    same(numbers, list(range(1, len(numbers) + 1)), 'numbered without a gap')
    middle = numbers[len(numbers) // 2]
    same(events(root, '--since', middle), everything[middle:], '--since NUMBER goes on behind it')
    moment = everything[middle]['time']
    same(events(root, '--since', moment), [e for e in everything if e['time'] >= moment],
         '--since TIME begins there')
    same(events(root, '--since', '1h'), everything, 'and a duration is so long ago')
    same({e['name'] for e in events(root, 'two')}, {'two'}, 'those of one sandbox')
    sandbox = root.one('two')['id']
    same(events(root, sandbox[:12]), events(root, 'two'), 'by its id too')
    same(root.ctl('events', '--since', 'yesterday').code, 2, 'a time that is none')
    check((1, 'removed') in kinds(root, 'one'), 'a removal by --rm is told')
    follow = Follower(root, '--since', str(numbers[-1]))
    root.ctl('run', '--name', 'three', root.profile(argv=['/bin/true']))
    same(follow.until('exited')['name'], 'three', '-f tells what comes')
    same([e['seq'] for e in follow.seen], list(range(numbers[-1] + 1, follow.seen[-1]['seq'] + 1)), 'each once')
    same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole')
    follow.close()


if __name__ == '__main__':
    main()
