#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A workload from its start to its exit status: statuses, limits, signals, what it is given."""
import json
import os
import signal

from lib.harness import PATIENCE, SOURCE, bind, check, main, quick, read_until, same, scenario, tmpfs

HELLO = os.path.join(SOURCE, 'examples/01-hello.toml')
SHELL = '/bin/sh', '-c'


@scenario
def first_run(root):
    done = root.ctl('run', HELLO, '--', *SHELL, 'echo out; echo err >&2; exit 7')
    same((done.code, done.out, done.err), (7, 'out\n', 'err\n'),
         'run exits with the status of the workload and keeps its streams apart')
    done = root.ctl('run', HELLO)
    same((done.code, done.out, done.err), (0, 'hello from inside\n', ''), 'run starts the argv of the profile')


@scenario
def exit_statuses(root):
    profile = root.profile(text=tmpfs('/tmp'))
    for script, wanted in [('true', 0), ('exit 1', 1), ('exit 255', 255), ('kill -TERM $$', 143),
                           ('kill -KILL $$', 137), ('kill -USR1 $$', 138), ('kill -SEGV $$', 139)]:
        done = root.ctl('run', profile, '--', *SHELL, script)
        same(done.code, wanted, f'"{script}" gives {wanted}', done.err)
    done = root.ctl('run', profile, '--', '/usr/bin/no-such-program')
    same(done.code, 127, 'a program that is not there gives 127', done.err)
    check('no-such-program' in done.err, 'and is named', done.err)
    done = root.ctl('run', profile, '--', 'no-such-program')
    same(done.code, 127, 'a program that no PATH has gives 127', done.err)
    folder = root.grant('plain', {'data': 'not a program\n'})
    plain = root.profile('plain', text=bind(folder, '/plain'))
    same(root.ctl('run', plain, '--', '/plain/data').code, 126, 'a file that is no program gives 126')
    same(root.ctl('run', plain, '--', '/plain').code, 126, 'a folder gives 126')
    sandboxes = root.ps()
    reasons = {(s['exit']['code'], s['exit']['reason'], s['exit']['signal']) for s in sandboxes}
    for wanted in [(255, 'exited', 0), (143, 'signal', 15), (138, 'signal', 10)]:
        check(wanted in reasons, f'ps tells {wanted} of it', reasons)


@scenario
def wrong_usage_and_our_failures(root):
    profile = root.profile()
    for args in [('run',), ('run', '--no-such-option', profile), ('run', '--name', 'No Name', profile),
                 ('run', '--plan', '/nowhere', '--', 'x'), ('run', root.work + '/missing.toml'),
                 ('run', 'no-such-name'), ('run', '-e', 'NOVALUE', profile), ('run', '--plan', '/nowhere')]:
        done = root.ctl(*args)
        same(done.code, 125, f'run exits 125 for {args[1:2]}', done.err)
        check(done.err.strip() and not done.out, 'and says why on stderr only', done)
    for args, wanted in [((), 2), (('nonsense',), 2), (('ps', '--nonsense'), 2), (('stop',), 2),
                         (('kill', '-s', 'NOSUCH', 'x'), 2), (('inspect', 'nobody'), 1), (('stop', 'nobody'), 1),
                         (('wait', 'nobody'), 1), (('logs', 'nobody'), 1), (('rm', 'nobody'), 1),
                         (('kill', 'nobody'), 1), (('--help',), 0), (('run', '--help'), 0), (('version',), 0)]:
        done = root.ctl(*args)
        same(done.code, wanted, f'{" ".join(args) or "no verb"} exits {wanted}', done.err)
    same(root.ps(), [], 'nothing of it is a sandbox')


@scenario
def memory_limit(root):
    profile = root.profile('hog', text='[resources]\nmemory = "64MiB"\npids = 32\n')
    done = root.ctl('run', '--name', 'hog', profile, '--', '/usr/bin/tail', '/dev/zero')
    same(done.code, 137, 'a memory hog is killed', done.err)
    exit = root.one('hog')['exit']
    check(exit['reason'] == 'oom' and exit['oom_kills'] >= 1, 'inspect says it was out of memory', exit)
    check('out of memory' in done.err, 'run says so too', done.err)
    done = root.ctl('run', '--name', 'parent', profile, '--', *SHELL, '/usr/bin/tail /dev/zero; exit 3')
    same(done.code, 3, 'a parent outlives its child that was too big', done.err)
    exit = root.one('parent')['exit']
    check(exit['reason'] == 'exited' and exit['oom_kills'] >= 1, 'and the count tells of the child', exit)


@scenario
def fork_bomb(root):
    profile = root.profile('bomb', text='[resources]\npids = 32\nmemory = "256MiB"\n', process='timeout = "10m"\n')
    bomb = ('n=0; while [ $n -lt 200 ]; do n=$((n+1)); (sleep 60) & done 2>/dev/null; echo survived; wait')
    child = root.spawn('run', '--name', 'bomb', profile, '--', *SHELL, f'echo ready; {bomb}')
    read_until(child.stdout, b'ready')

    def forks():
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
    quick(forks, 5, 'the host forks as ever')
    same(root.ctl('ps', '-q').code, 0, 'and the product answers')
    same(root.ctl('rm', '-f', 'bomb').code, 0, 'rm -f ends it')
    child.wait(PATIENCE)
    python = ('import os\nn=0\ntry:\n  while n<500:\n    if os.fork()==0:\n      import signal; signal.pause()\n'
              '    n+=1\nexcept OSError as e: print(n, e.errno)')
    done = root.ctl('run', profile, '--', '/usr/bin/python3', '-c', python)
    same(done.out, '31 11\n', 'the 32nd process is refused with EAGAIN', done)


@scenario
def time_limit(root):
    def run(name, timeout, script):
        profile = root.profile('slow', process=f'timeout = "{timeout}"\n')
        return root.ctl('run', '--name', name, profile, '--', *SHELL, script)

    ended = []
    quick(lambda: ended.append(run(f'slow{len(ended)}', '1s', 'trap "" TERM; sleep 1000; sleep 1000')), 15,
          'it ends after its second', least=1)
    for number, done in enumerate(ended):
        same((done.code, root.one(f'slow{number}')['exit']['reason']), (124, 'timeout'),
             'a workload that takes too long gives 124, and inspect says why', done.err)
    done = run('quick', '1h', 'true')
    same(done.code, 0, 'one that is in time is left alone', done.err)


@scenario
def signals_at_the_prompt(root):
    profile = root.profile()
    for number, name in [(signal.SIGINT, 'INT'), (signal.SIGTERM, 'TERM'), (signal.SIGQUIT, 'QUIT')]:
        script = f'trap "echo got {name}; exit 9" {name}; echo ready; while :; do sleep 0.05; done'
        child = root.spawn('run', profile, '--', *SHELL, script)
        read_until(child.stdout, b'ready\n')
        child.send_signal(number)
        out = read_until(child.stdout, b'got')
        same((child.wait(PATIENCE), out[:3]), (9, b'got'), f'SIG{name} reaches the workload, which decides')
    child = root.spawn('run', profile, '--', '/usr/bin/python3', '-c',
                       'import time; print("ready", flush=True); time.sleep(60)')
    read_until(child.stdout, b'ready\n')
    child.send_signal(signal.SIGTERM)
    same(child.wait(PATIENCE), 143, 'SIGTERM ends a workload that does not catch it')


@scenario
def standard_input(root):
    profile = root.profile()
    data = os.urandom(3 << 20) + bytes(range(256))
    ended = root.spawn('run', '-i', profile, '--', '/bin/cat')
    out, err = ended.communicate(data, PATIENCE)
    check(out == data and ended.returncode == 0, '-i passes every byte on, and the end of it',
          len(out), len(data), err, ended.returncode)
    done = root.ctl('run', profile, '--', *SHELL, 'cat; echo end', stdin=b'secret of the caller')
    same((done.code, done.out), (0, 'end\n'), 'without -i there is nothing to read')
    child = root.spawn('run', '-i', profile, '--', '/bin/cat')
    for line in (b'one\n', b'two\n'):
        child.stdin.write(line)
        same(read_until(child.stdout, line), line, f'{line!r} comes back before the input ends')
    child.stdin.close()
    same(child.wait(PATIENCE), 0, 'the end of the input ends cat')
    child = root.spawn('run', '-i', profile, '--', *SHELL, 'exit 5')
    same(child.wait(PATIENCE), 5, 'a workload that reads nothing ends while the input is open')
    folder = os.open(root.work, os.O_RDONLY)
    for options in ((), ('-i',)):
        child = root.spawn('run', *options, profile, '--', *SHELL,
                           'ls -l /proc/self/fd/; ls /proc/self/fd/0/ 2>&1; cat /proc/self/fd/0/t.toml 2>&1',
                           stdin=folder)
        out, _ = child.communicate(timeout=PATIENCE)
        check(b'isolation' not in out and root.work.encode() not in out,
              f'a folder as standard input {options} is no door', out)
    os.close(folder)


@scenario
def environment(root):
    canary = 'canary-' + os.urandom(8).hex()
    profile = root.profile(process='env = { GIVEN = "yes", LANG = "C.UTF-8" }\ncwd = "/tmp"\n'
                           'umask = "0027"\nuser = "1234:2345"\nrlimits = { nofile = 77, core = 0 }\n', text=tmpfs('/tmp'))
    variables = {**os.environ, 'CANARY': canary, 'LD_PRELOAD': '', 'GIVEN': canary}
    os.umask(0o077)
    script = 'env; pwd; umask; id -u; id -g; id -G; ulimit -n; cat /proc/1/environ 2>/dev/null; cat /proc/self/environ'
    done = root.ctl('run', '-e', 'MORE=a=b c', profile, '--', *SHELL, script, env=variables, cwd=root.base)
    os.umask(0o022)
    lines = done.out.splitlines()
    check(canary not in done.out, 'nothing of the environment of the caller is inside', done.out)
    for wanted in ('GIVEN=yes', 'MORE=a=b c', 'LANG=C.UTF-8'):
        check(wanted in lines, f'{wanted} is', lines)
    same([line for line in lines if '=' not in line][:6], ['/tmp', '0027', '1234', '2345', '2345', '77'],
         'cwd, umask, user, group, groups and limits are those of the profile', done)
    done = root.ctl('run', '-e', 'GIVEN=no', profile, '--', *SHELL, 'echo $GIVEN')
    same(done.out, 'no\n', '-e goes over the profile')
    done = root.ctl('run', profile, '--', '/usr/bin/python3', '-c',
                    'import signal, json; print(json.dumps([signal.pthread_sigmask(0, []) == set(), '
                    'signal.getsignal(2) == signal.default_int_handler, signal.getsignal(15) == signal.SIG_DFL]))',
                    env={**variables})
    same(json.loads(done.out or 'null'), [True, True, True], 'no signal is blocked or ignored', done)


@scenario
def leftovers_of_a_workload(root):
    profile = root.profile()
    done = root.ctl('run', '--name', 'daemon', profile, '--', *SHELL,
                    'trap "" TERM HUP INT; (setsid sleep 1000 >/dev/null 2>&1 </dev/null &); (sleep 1000 &) ; exit 4')
    same(done.code, 4, 'what a workload leaves running does not hold its status', done)
    root.census_clean('and is gone', but=['files'])


if __name__ == '__main__':
    main()
