#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Desired state of the host: profiles.d, with a daemon and without one."""
import json
import os
import shutil

from lib.follow import by_argument, kill_shim
from lib.harness import SERVICE, SOURCE, bind, check, leader, main, same, scenario, start_time, until

SERVE = ['/bin/sh', '-c', 'trap "exit 0" TERM; while :; do sleep 0.05; done']
AUTOSTART = '[lifecycle]\nautostart = true\nstop_timeout = "1s"\n'
RESTARTS = 5  # of the daemon under running services


class Folders:
    """profiles.d of the operator and of the vendor, below a root."""

    def __init__(self, root):
        self.root = root
        self.own = root.path + '/etc/sandbox/profiles.d'
        self.vendor = root.path + '/usr/share/sandbox/profiles.d'
        os.makedirs(self.vendor, mode=0o755)
        os.makedirs(self.own, mode=0o755)

    def put(self, name, text='', folder=None, profile=None, argv=None, process=''):
        path = self.root.profile(profile or name, argv or SERVE, AUTOSTART + text, process)
        # As editors and package managers do: whole or not at all.
        os.rename(path, f'{folder or self.own}/{name}.toml')
        return f'{folder or self.own}/{name}.toml'

    def settle(self, predicate, sentence):
        """One pass by hand where no daemon makes it; then what was asked for has to be."""
        done = None
        if SERVICE != 'daemon':
            done = self.root.ctl('apply', self.own)
        try:
            until(predicate, sentence)
            check(True, sentence)
        except TimeoutError as late:
            check(False, sentence, late, done, self.root.ps(), self.root.daemon_log()[-1500:] if self.root.daemon else '')
        return done

    def running(self):
        return sorted(s['name'] for s in self.root.ps() if s['state'] == 'running')

    def settle_running(self, names, sentence):
        return self.settle(lambda: self.running() == sorted(names) and len(self.root.ps()) == len(names), sentence)


def shim_of(root, name):
    """Its shim and since when that lives; None where there is none."""
    pid = leader(by_argument('shim:' + root.one(name)['id']))
    return (pid, start_time(pid)) if pid else None


def events(root):
    root.ctl('audit', 'verify')
    with open(root.path + '/var/lib/sandbox/audit.jsonl') as file:
        lines = [json.loads(line) for line in file]
    return [(e['name'], e['body']['action'], e['body']['source']) for e in lines if e['event'] == 'applied']


@scenario
def a_service_from_its_file_to_its_end(root):
    """Show 1: apply, edit, dry run, replace, delete; all of it in the audit log."""
    folders = Folders(root)
    example = SOURCE + '/examples/09-web.toml'
    web = folders.own + '/web.toml'
    with open(example) as file:
        text = file.read()
    root.write(web + '.new', text)
    os.rename(web + '.new', web)
    same(root.ctl('apply', web).code, 0, 'the example is applied')
    until(lambda: folders.running() == ['web'], 'web runs')
    first = root.one('web')
    staged = os.path.join(root.work, 'web.toml')
    root.write(staged, text.replace('"8080"', '"8081"'))
    if SERVICE != 'daemon':  # with one it would be quicker than we are
        os.rename(staged, web)
        done = root.ctl('apply', '--dry-run', '--detailed-exitcode', web)
        check(done.code == 2 and 'process.argv' in done.out and 'next-start' in done.out,
              'a dry run shows the difference', done)
        same(root.one('web')['id'], first['id'], 'and changes nothing')
        same(root.ctl('apply', web).code, 0, 'then it is replaced')
    else:
        os.rename(staged, web)
    until(lambda: folders.running() == ['web'] and root.one('web')['id'] != first['id'], 'another web runs')
    check(True, 'a new sandbox of the same name runs')
    os.unlink(web)
    folders.settle_running([], 'without its file it is stopped and removed')
    steps = [('web', 'create'), ('web', 'replace'), ('web', 'remove')]
    try:
        until(lambda: [(name, action) for name, action, source in events(root) if source == web] == steps, 'events')
    finally:
        same([(name, action) for name, action, source in events(root) if source == web], steps,
             'the audit log has each step with its file')
    root.census_clean_of(first['id'])


@scenario
def only_autostart_is_desired(root):
    folders = Folders(root)
    folders.put('up')
    os.rename(root.profile('down', SERVE), folders.own + '/down.toml')
    os.rename(root.profile('vm', SERVE, isolation=''), folders.own + '/vm.toml')  # no such driver here
    done = folders.settle_running(['up'], 'what asks for autostart runs, what does not lies there')
    check(done is None or done.code == 0, 'whether it could run or not', done)
    os.rename(root.profile('up', SERVE), folders.own + '/up.toml')
    folders.settle_running([], 'without autostart it goes')
    same(root.ctl('apply', 'down').code, 0, 'a person applies one by its name')
    folders.settle_running(['down'], 'it runs')
    folders.put('up')
    folders.settle_running(['down', 'up'], 'and stays while others come')
    os.unlink(folders.own + '/down.toml')
    folders.settle_running(['up'], 'until its file is gone')


@scenario
def order_and_masks(root):
    folders = Folders(root)
    for name in ('a', 'b', 'c', 'd'):
        folders.put(name, '[resources]\npids = 20\n', folders.vendor)
    folders.put('b', '[resources]\npids = 30\n')
    os.symlink('/dev/null', folders.own + '/c.toml')
    root.write(folders.own + '/d.toml', '')
    for name in ('.a.toml', 'e.toml~', '#f#', 'g.toml.swp', '.#h.toml', 'README'):
        root.write(f'{folders.own}/{name}', 'nonsense = [')
    folders.settle_running(['a', 'b'], 'the vendor\'s, the operator\'s in its place, and none that is masked')
    planned = {c['name']: c['planned'] for c in root.one('b')['controls']}
    same(planned['limit.pids'], '30', 'the operator\'s file stands for the vendor\'s of its name')
    first = shim_of(root, 'b')
    os.unlink(folders.own + '/b.toml')

    def twenty():
        controls = {c['name']: c['planned'] for c in root.one('b')['controls']}
        return controls.get('limit.pids') == '20'
    folders.settle(twenty, 'without it the vendor\'s holds, live')
    same(shim_of(root, 'b'), first, 'in the same sandbox')
    os.unlink(folders.own + '/c.toml')
    os.symlink('/dev/null', folders.own + '/a.toml')
    folders.settle_running(['b', 'c'], 'a mask ends, another begins')
    shutil.rmtree(folders.vendor)
    folders.settle_running([], 'without the vendor\'s folder nothing is wanted')


@scenario
def a_wrong_file_keeps_its_last_good_state(root):
    folders = Folders(root)
    folders.put('web')
    folders.put('shop')
    folders.settle_running(['shop', 'web'], 'two services')
    first = shim_of(root, 'web')
    root.write(root.work + '/x', 'version = 1\nname = "web"\n[process]\nargv = 5\n')
    os.rename(root.work + '/x', folders.own + '/web.toml')
    folders.put('shop', '[resources]\npids = 9\n')

    def nine():
        return {c['name']: c['planned'] for c in root.one('shop')['controls']}.get('limit.pids') == '9'
    done = folders.settle(nine, 'the other one is changed')
    if done:
        check(done.code == 1 and 'web.toml:4:1: process.argv' in done.err, 'the wrong one is said with its place', done)
    until(lambda: ('web', 'keep', folders.own + '/web.toml') in events(root), 'an event of it')
    same(shim_of(root, 'web'), first, 'and its sandbox goes on')
    folders.put('web')
    os.chmod(folders.own + '/web.toml', 0o666)
    os.chmod(folders.own + '/shop.toml', 0o644)
    if SERVICE != 'daemon':
        done = root.ctl('apply', folders.own)
        check(done.code == 1 and 'chmod go-w' in done.err, 'a file that others may write starts nothing', done)
    same(shim_of(root, 'web'), first, 'nor ends anything')
    os.chmod(folders.own + '/web.toml', 0o644)
    folders.settle_running(['shop', 'web'], 'mended, both go on')
    same(shim_of(root, 'web'), first, 'the same sandbox')


@scenario
def what_died_is_started_again_and_what_was_stopped_is_not(root):
    folders = Folders(root)
    folders.put('web')
    folders.put('shop')
    folders.settle_running(['shop', 'web'], 'two services')
    kill_shim(root, root.one('web')['id'])
    root.ctl('stop', 'shop')
    if SERVICE == 'daemon':
        folders.put('third')  # anything that makes a pass
        until(lambda: {'web', 'third'} <= set(folders.running()), 'the dead one runs again')
        check(True, 'a sandbox whose shim was killed runs again')
        same('shop' in folders.running(), False, 'one that a person stopped rests')
    else:
        same(root.ctl('apply', folders.own).code, 0, 'a pass by a person')
        same(folders.running(), ['shop', 'web'], 'starts both: it is a person\'s word')
    same(root.ctl('reconcile').code, 0, 'the state is well')


@scenario
def a_replacement_that_cannot_start_is_tried_once(root):
    if SERVICE != 'daemon':
        return check(True, 'only with a daemon: a person may try as often as they like')
    folders = Folders(root)
    folders.put('web')
    folders.settle_running(['web'], 'a service')
    digest = root.one('web')['plan_digest']
    missing = root.work + '/missing'
    path = folders.put('web', bind(missing, '/data'))
    until(lambda: ('web', 'replace', path) in events(root), 'the try')
    until(lambda: folders.running() == ['web'], 'the one before runs again')
    back = root.one('web')
    same(back['plan_digest'], digest, 'the one before runs again, by its own plan')
    for name in ('x', 'y'):  # anything that makes a pass
        folders.put(name)
        until(lambda n=name: n in folders.running(), 'another pass')
    same(root.one('web')['id'], back['id'], 'no pass takes it down again for what is known to fail')
    os.mkdir(missing)
    folders.put('web', bind(missing, '/data') + '[resources]\npids = 50\n')
    until(lambda: root.one('web')['plan_digest'] != digest and folders.running() == ['web', 'x', 'y'], 'another plan')
    return check(True, 'a changed file is tried')


@scenario
def names_with_and_without_files(root):
    folders = Folders(root)
    path = folders.put('web')
    folders.settle_running(['web'], 'a service')
    other = root.profile('web', SERVE, '[resources]\npids = 9\n')
    done = root.ctl('apply', other)
    check(done.code == 1 and path in done.err, 'another file of this name is refused and told of the one that is', done)
    folders.put('web', profile='shop')
    folders.settle_running(['shop'], 'a file that names another sandbox: the new one comes, the old one goes')


@scenario
def a_restarted_daemon_touches_nothing(root):
    if SERVICE != 'daemon':
        return check(True, 'only with a daemon')
    folders = Folders(root)
    folders.put('web')
    folders.settle_running(['web'], 'a service')
    first = shim_of(root, 'web')
    for _ in range(RESTARTS):
        root.stop_daemon()
        root.start_daemon()
    folders.put('shop')
    folders.settle_running(['shop', 'web'], 'after restarts the folder is watched')
    return same(shim_of(root, 'web'), first, 'and the service is the same')


if __name__ == '__main__':
    main()
