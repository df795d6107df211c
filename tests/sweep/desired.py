#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at every named point of `apply`, in sandboxctl and in the shim, while it makes, changes,
replaces and removes: applied again, everything is as the file says."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402

NAME = 'long'  # what the arena may end once a case is judged
PIDS = {'first': 40, 'second': 30}
# what: points of sandboxctl that are passed at least, points of the shim.
DEEDS = {
    'create': (('apply.before-create', 'apply.created', 'submit.after'), ()),
    'update': (('apply.plan-written',), ('update.before-write', 'update.one-written', 'update.written',
                                         'update.before-commit', 'update.committed', 'update.done')),
    'replace': (('apply.before-replace', 'stop.accepted', 'apply.stopped', 'rm.after-commit',
                 'apply.replaced-is-gone', 'apply.before-create', 'apply.created'), ()),
    'remove': (('stop.accepted', 'apply.stopped', 'rm.after-commit'), ()),
}


# Of a launch itself launch.py has every point.
OWN = ('apply.', 'intent.', 'submit.', 'told.', 'stop.', 'rm.', 'undo.', 'audit.')


class Folder:
    def __init__(self, arena):
        self.arena, self.path = arena, arena.root.grant('desired')
        self.file = self.path + '/long.toml'

    def write(self, which, env=''):
        text = (f'version = 1\nname = "{NAME}"\nisolation = "sandbox"\n'
                f'[process]\nargv = ["/bin/sleep", "1000"]\n{env}\n'
                f'[resources]\npids = {PIDS[which]}\nmemory = "{PIDS[which]}MiB"\n[lifecycle]\nstop_timeout = "1s"\n')
        self.arena.root.write(self.file, text)

    def stage(self, deed, point='', trace=False):
        """What is there before the deed; the file then asks for the deed."""
        wrong = []
        if deed != 'create':
            self.write('first')
            done = self.arena.root.ctl('apply', self.path, env=self.arena.environment(point, trace))
            wrong = [] if done.code == 0 else [f'the stage: {done}']
        if deed == 'remove':
            os.unlink(self.file)
        else:
            self.write('second', 'env = { A = "1" }' if deed == 'replace' else '')
        return wrong

    def applied_again(self, deed):
        done = self.arena.root.ctl('apply', self.path)
        wrong = [] if done.code == 0 else [f'applied again: {done}']
        there = self.arena.victims()
        if deed == 'remove':
            return wrong + ([f'removed: {there}'] if there else [])
        if [(s['name'], s['state']) for s in there] != [(NAME, 'running')]:
            return wrong + [f'one that runs is wanted: {there}']
        controls = {c['name']: c['observed'] for c in self.arena.root.one(NAME)['controls']}
        if controls.get('limit.pids') != str(PIDS['second']):
            wrong.append(f'pids: {controls}')
        same = self.arena.root.json('apply', '-n', '-o', 'json', self.path)['items']
        return wrong + ([f'a third time: {json.dumps(same)}'] if [i['action'] for i in same] != ['nothing'] else [])


def sweep_client(arena, folder, deed):
    required, _ = DEEDS[deed]
    wrong = folder.stage(deed)
    arena.fresh()
    done = arena.ctl('apply', folder.path)
    points = [point for point in arena.passed() if point.startswith(OWN)]
    wrong += [] if done.code == 0 else [f'{done}']
    wrong += [f'{name} was not passed' for name in required if name not in points]
    arena.verdict(f'{deed}, untouched, passes {len(points)} points', wrong + folder.applied_again(deed))
    arena.points |= set(points)
    for point in filter(lib.wanted, points):
        wrong = folder.stage(deed)
        arena.fresh()
        arena.ctl('apply', folder.path, point=point)
        wrong += arena.must_pass(point)
        arena.verdict(f'{deed}, SIGKILL at {point}', wrong + folder.applied_again(deed))


def sweep_shim(arena, folder, deed):
    _, required = DEEDS[deed]
    for point in filter(lib.wanted, required):
        arena.fresh()
        wrong = folder.stage(deed, point, trace=True)
        arena.root.ctl('apply', folder.path)
        wrong += arena.must_pass(point)
        arena.verdict(f'{deed}, SIGKILL of the shim at {point}', wrong + folder.applied_again(deed))
        arena.points.add(point)


def sweep(arena):
    folder = Folder(arena)
    for deed in DEEDS:
        sweep_client(arena, folder, deed)
        sweep_shim(arena, folder, deed)


if __name__ == '__main__':
    lib.run('desired', sweep)
