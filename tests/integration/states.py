# SPDX-License-Identifier: Apache-2.0
"""A sandbox from state to state by its verbs: create, start, restart, pause, resume, stop, rm."""
import json
import os

from lib.follow import Follower, events, kill_shim, lines, pid_of, state
from lib.harness import DRIVER, check, main, mask, read_until, same, scenario, stat_of, until

COUNTS = ('/bin/sh', '-c', 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done')
GENTLE = '[lifecycle]\nstop_timeout = "100ms"\n'


@scenario
def created_it_rests_and_runs_only_when_started(root):
    profile = root.profile(argv=['/bin/sh', '-c', 'echo ran; exit 7'])
    same(root.ctl('create', '--name', 'later', profile), (0, 'later\n', ''), 'create prints the name')
    same(state(root, 'later'), 'created', 'it is created')
    same(lines(root, 'later'), [], 'nothing of it has run')
    own = root.census()
    same(own['cgroups'], root.before['cgroups'], 'it owns no cgroup')
    ours = [process for process in own['processes'] if 'sandbox-shim' in process or 'sandbox-init' in process]
    same(ours, [], 'it owns no process')
    check(root.ctl('reconcile', '-o', 'json').code == 0 and state(root, 'later') == 'created',
          'reconcile leaves it in peace')
    check('no exit status' in root.ctl('wait', 'later').err, 'nobody waits for what was never started')
    check('does not run' in root.ctl('kill', 'later').err, 'nothing of it can be killed')
    same(root.ctl('stop', 'later').code, 0, 'to stop it is nothing')
    done = root.ctl('start', '-a', 'later')
    same((done.code, done.out), (7, 'ran\n'), 'start -a shows its output and exits with its status')
    same(root.ctl('wait', 'later').out, '7\n', 'wait prints the status')
    same(root.one('later')['generation'], 1, 'that was generation 1')
    same(root.ctl('rm', 'later').code, 0, 'rm')


@scenario
def started_again_it_is_another_generation_with_the_same_logs(root):
    root.ctl('create', '--name', 'again', root.profile(argv=['/bin/echo', 'ran']))
    for generation in (1, 2, 3):
        same(root.ctl('start', 'again'), (0, 'again\n', ''), f'start {generation}')
        same(root.ctl('wait', 'again').out, '0\n', 'it ends well')
        same(root.one('again')['generation'], generation, f'generation {generation}')
    same(lines(root, 'again'), ['ran'] * 3, 'the log has all three')
    launched = [e['generation'] for e in events(root, 'again') if e['event'] == 'launched']
    same(launched, [1, 2, 3], 'the events tell them apart')
    exits = [e['generation'] for e in events(root, 'again') if e['event'] == 'exited']
    same(exits, [1, 2, 3], 'each exit is told exactly once')
    same(root.ctl('run', '--name', 'again', root.profile(argv=['/bin/true'])).code, 125, 'the name is taken')


@scenario
def what_no_longer_holds_is_not_started(root):
    root.ctl('create', '--name', 'refused', root.profile(argv=['/bin/echo', 'ran']))
    rule = root.bundle('version = 1\nname = "stricter"\ndrivers = []\n')
    done = root.ctl('start', 'refused')
    same(done.code, 125, 'a bundle that came since is held')
    check('may not start' in done.err or 'no longer holds' in done.err, 'the reason is told', done.err)
    os.remove(rule)
    plan = root.one('refused')['log_path'].replace('/logs', '/plan.json')
    with open(plan) as file:
        text = file.read()
    root.write(plan, text.replace('/bin/echo', '/bin/date'), 0o600)
    done = root.ctl('start', 'refused')
    check(done.code == 125 and 'digest' in done.err, 'an edited plan is refused', done.err)
    os.remove(plan)
    check(root.ctl('start', 'refused').code == 125, 'a plan that is gone is refused')
    same(state(root, 'refused'), 'created', 'it rests as before')
    root.write(plan, text, 0o600)
    same(root.ctl('start', '-a', 'refused').out, 'ran\n', 'the right plan starts')
    same(root.ctl('start', 'nobody').code, 125, 'a name that is none')


@scenario
def a_removed_one_and_one_for_one_run_do_not_come_back(root):
    root.ctl('create', '--rm', '--name', 'once', root.profile(argv=['/bin/echo', 'ran']))
    same(root.ctl('start', '-a', 'once').out, 'ran\n', 'it runs once')
    until(lambda: not root.ps(), 'its removal')
    check('removed' in root.ctl('start', 'once').err, 'it is gone')
    root.ctl('run', '-d', '--rm', '--name', 'short', root.profile(argv=COUNTS, text=GENTLE))
    check('--rm' in root.ctl('restart', 'short').err, 'restart of one that goes at its end is refused')
    same(state(root, 'short'), 'running', 'and it runs on')


@scenario
def restart_stops_and_starts(root):
    root.ctl('run', '-d', '--name', 'web', root.profile(argv=COUNTS, text=GENTLE))
    first = pid_of(root, 'web')
    done = root.ctl('restart', 'web')
    same(done.code, 0, 'restart', done)
    one = root.one('web')
    same((one['state'], one['generation']), ('running', 2), 'it runs in generation 2')
    check(pid_of(root, 'web') != first, 'with another process')
    same(root.ctl('stop', 'web').code, 0, 'stop')
    same(root.ctl('restart', 'web').code, 0, 'restart of a stopped one starts it')
    same(root.one('web')['generation'], 3, 'in generation 3')
    same(root.ctl('start', 'web'), (0, 'web\n', ''), 'start of one that runs is nothing')
    same(root.one('web')['generation'], 3, 'it is still generation 3')
    check('attach' in root.ctl('start', '-a', 'web').err, 'and -a says how to look at it')


@scenario
def paused_nothing_of_it_moves(root):
    root.ctl('run', '-d', '--name', 'still', root.profile(argv=COUNTS, text=GENTLE))
    follow = Follower(root, 'still')
    until(lambda: lines(root, 'still'), 'its first line')
    same(root.ctl('pause', 'still').code, 0, 'pause')
    follow.until('paused')
    same(state(root, 'still'), 'paused', 'it is paused')
    pid = pid_of(root, 'still')
    freezer = f'/sys/fs/cgroup/freezer{root.parent}/{root.one("still")["id"]}/workload/freezer.state'
    if os.path.exists(freezer):
        same(open(freezer).read().strip(), 'FROZEN', 'the kernel says so')
    before = stat_of(pid)[11:15]
    # What it had written waits in a pipe for the log worker: one that does not stand still has more
    # to say each time that another sandbox came and went.
    counts = [-1]

    def is_still():
        counts.append(len(lines(root, 'still')))
        return counts[-1] == counts[-2] or root.ctl('run', '--rm', root.profile('other', argv=['/bin/true'])).code != 0
    until(is_still, 'its last line')
    count = counts[-1]
    # What stands still shows against something that goes on: other sandboxes run meanwhile.
    for number in range(3):
        same(root.ctl('run', '--rm', root.profile('other', argv=['/bin/true'])).code, 0, f'another one runs ({number})')
    same(stat_of(pid)[11:15], before, 'it has used no time')
    same(len(lines(root, 'still')), count, 'it has written nothing')
    check('already' in root.ctl('pause', 'still').err, 'it cannot be paused twice')
    check('paused' in root.ctl('exec', 'still', '/bin/true').err, 'exec is refused, and says why')
    same(root.ctl('stats', '-o', 'json', 'still').code, 0, 'its use can be seen')
    same(root.ctl('resume', 'still').code, 0, 'resume')
    follow.until('resumed')
    until(lambda: len(lines(root, 'still')) > count, 'new lines')
    written = [int(line) for line in lines(root, 'still')]
    same(written, list(range(1, len(written) + 1)), 'no line is lost')
    check('not paused' in root.ctl('resume', 'still').err, 'it cannot be resumed twice')
    follow.close()


@scenario
def a_paused_one_ends_by_stop_kill_and_rm(root):
    for verb, code in ((('stop',), '143'), (('kill',), '137'), (('kill', '-s', 'TERM'), '143')):
        name = '-'.join(verb).lower().replace('--', '-')
        # In good time for what it does at a signal: then it is killed.
        root.ctl('run', '-d', '--name', name, root.profile(argv=COUNTS, text='[lifecycle]\nstop_timeout = "10m"\n'))
        same(root.ctl('pause', name).code, 0, f'{name}: pause')
        done = root.ctl(*verb, name)
        same(done.code, 0, f'{" ".join(verb)} of a paused one', done)
        done = root.ctl('wait', name)
        same(done.out, code + '\n', f'it ended with {code}', done)
        same(root.ctl('rm', name), (0, '', ''), 'rm')
    root.ctl('run', '-d', '--name', 'gone', root.profile(argv=COUNTS))
    root.ctl('pause', 'gone')
    same(root.ctl('rm', 'gone').code, 1, 'rm without -f is refused')
    same(root.ctl('rm', '-f', 'gone').code, 0, 'rm -f of a paused one')
    same(root.ps(), [], 'it is gone')
    for timeout in ('300ms', '3s', '30s'):
        root.ctl('run', '-d', '--name', 'late', root.profile(argv=COUNTS, process=f'timeout = "{timeout}"\n'))
        if root.ctl('pause', 'late').code == 0:
            break
        root.ctl('rm', '-f', 'late')  # it had ended before we came
    same(root.ctl('wait', 'late').out, '124\n', 'the clock of its time-out does not stand still')


@scenario
def a_signal_lets_a_paused_one_go_on(root):
    script = 'trap "echo got; exit 4" USR1; echo ready; while :; do sleep 0.02; done'
    root.ctl('run', '-d', '--name', 'sig', root.profile(argv=['/bin/sh', '-c', script]))
    until(lambda: lines(root, 'sig'), 'its first line')
    root.ctl('pause', 'sig')
    same(root.ctl('kill', '-s', 'USR1', 'sig').code, 0, 'a signal to a paused one')
    same(root.ctl('wait', 'sig').out, '4\n', 'it acted on it')
    check('got' in lines(root, 'sig'), 'and said so', lines(root, 'sig'))


@scenario
def a_shim_killed_while_paused_leaves_nothing(root):
    for profile in (root.profile(argv=COUNTS), root.profile('masked', argv=COUNTS, text=mask('/usr/none'))):
        done = root.ctl('run', '-d', '--name', 'orphan', profile)
        if done.code != 0:
            continue  # a host whose /usr cannot take a placeholder
        root.ctl('pause', 'orphan')
        sandbox = root.one('orphan')['id']
        kill_shim(root, sandbox)
        same(state(root, 'orphan'), 'dead', 'it is dead')
        same(root.ctl('reconcile').code, 0, 'reconcile')
        root.census_clean_of(sandbox)
        same(root.ctl('start', 'orphan'), (0, 'orphan\n', ''), 'a dead one starts again')
        same(root.one('orphan')['generation'], 2, 'as the next generation')
        same(root.ctl('rm', '-f', 'orphan').code, 0, 'rm -f')


@scenario
def rm_f_works_in_every_state(root):
    profile = root.profile(argv=COUNTS, text=GENTLE)
    root.ctl('create', '--name', 'a-created', profile)
    root.ctl('run', '-d', '--name', 'b-running', profile)
    root.ctl('run', '-d', '--name', 'c-paused', profile)
    root.ctl('pause', 'c-paused')
    root.ctl('run', '-d', '--name', 'd-stopped', profile)
    root.ctl('stop', 'd-stopped')
    root.ctl('run', '-d', '--name', 'e-dead', profile)
    kill_shim(root, root.one('e-dead')['id'])
    root.ctl('run', '-d', '--name', 'f-restarting',
             root.profile('loops', argv=['/bin/false'], text='[lifecycle]\nrestart = "always"\nbackoff = "1h"\n'))
    until(lambda: state(root, 'f-restarting') == 'restarting', 'its pause')
    found = sorted((s['name'], s['state']) for s in root.ps())
    same(found, [('a-created', 'created'), ('b-running', 'running'), ('c-paused', 'paused'),
                 ('d-stopped', 'stopped'), ('e-dead', 'dead'), ('f-restarting', 'restarting')], 'six states')
    for name, _ in found:
        same(root.ctl('rm', '-f', name), (0, '', ''), f'rm -f {name}')
    same(root.ps(), [], 'all are gone')
    root.census_clean('nothing of them is left')


@scenario
def wait_prints_one_status_a_name_in_their_order(root):
    for name, code in (('w1', 3), ('w2', 0), ('w3', 42)):
        root.ctl('run', '-d', '--name', name, root.profile(argv=['/bin/sh', '-c', f'read x; exit {code}']))
    root.ctl('run', '-d', '--name', 'long', root.profile(argv=COUNTS))
    same(root.ctl('wait', 'w3', 'w1', 'w2'), (0, '42\n3\n0\n', ''), 'wait with several names')
    waiting = root.spawn('wait', 'long', 'w1')
    root.ctl('stop', 'long')
    same(read_until(waiting.stdout, b'\n3\n'), b'143\n3\n', 'it waits for those that run')
    same(waiting.wait(), 0, 'and exits with 0')
    done = root.ctl('wait', 'w1', 'nobody', 'w2')
    same((done.code, done.out), (1, '3\n0\n'), 'a wrong name among them does not lose the others')


@scenario
def stats_are_read_from_its_own_cgroups(root):
    busy = root.profile(argv=['/bin/sh', '-c', 'while :; do :; done'],
                        text='[resources]\nmemory = "64MiB"\npids = 20\n')
    wanted = 64 << 20, 20
    if DRIVER == 'microvm':  # seen from the host: what its plan gives the VMM
        planned = {c['name']: c['planned'] for c in root.json('plan', busy, '-o', 'json')['plan']['controls']}
        wanted = int(planned['vmm.limit.memory']), int(planned['vmm.limit.pids'])
    root.ctl('run', '-d', '--name', 'busy', busy)
    one = root.json('stats', '-o', 'json', 'busy')[0]
    same((one['memory_limit'], one['pids_limit']), wanted, 'the limits')
    check(0 < one['memory_bytes'] <= one['memory_peak'], 'memory', one)
    check(one['pids'] >= 1, 'processes', one)
    same(one['cpu_millis'], None, 'one look tells no rate')
    following = root.spawn('stats', '--follow', '--interval', '20ms', '-o', 'json', 'busy')
    looks = [json.loads(line) for line in read_until(following.stdout, b'\n' * 1).splitlines()]
    while len(looks) < 4 or (looks[-1]['cpu_ns'] == looks[0]['cpu_ns'] and len(looks) < 1000):
        looks += [json.loads(line) for line in read_until(following.stdout, b'\n').splitlines()]
    following.kill()
    check(all(a['cpu_ns'] <= b['cpu_ns'] for a, b in zip(looks, looks[1:])), 'time only grows', looks)
    check(looks[-1]['cpu_ns'] > looks[0]['cpu_ns'], 'a busy loop uses it')
    check(isinstance(looks[-1]['cpu_millis'], int), 'a second look tells the rate', looks[-1])
    check('busy' in root.ctl('stats').out, 'without names: all that run')
    root.ctl('stop', '-t', '0', 'busy')
    check('does not run' in root.ctl('stats', 'busy').err, 'one that ended has none')
    same(root.json('stats', '-o', 'json'), [], 'nothing runs')


if __name__ == '__main__':
    main()
