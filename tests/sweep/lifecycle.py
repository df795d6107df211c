#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at every named point of create, start, exec, pause, resume, restart and of a restart
policy: in sandboxctl, and in the shim that does what it was asked."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib'))
import arena as lib  # noqa: E402
from arena import harness, until  # noqa: E402

NAME = 'victim'
TRUE = '/bin/true'

# verb: arguments, what has to be there before, points of sandboxctl, points of the shim.
VERBS = {
    'create': (('create', '--name', NAME, '{long}'), 'nothing',
               ('create.before-intent', 'create.after-intent', 'effect.created-folders',
                'effect.created-plan', 'create.before-commit', 'create.after-commit'), ()),
    'start': (('start', NAME), 'created', ('intent.before', 'intent.after', 'submit.after', 'told.running'),
              ('effect.state-dir', f'effect.{harness.LAUNCH_STEP}', 'gate.before', 'gate.after', 'running.after-commit',
               'open-for-business')),
    'exec': (('exec', NAME, '--', TRUE), 'running', ('exec.connected', 'exec.before-go'),
             ('effect.session-leaf', 'session.passed')),
    'exec -d': (('exec', '-d', NAME, '--', TRUE), 'running', (), ('session.opened',)),
    'pause': (('pause', NAME), 'running', ('pause.before-request',),
              ('pause.before', 'effect.frozen', 'pause.before-commit', 'pause.after-commit')),
    'resume': (('resume', NAME), 'paused', ('resume.before-request',),
               ('resume.before', 'effect.thawed', 'resume.before-commit', 'resume.after-commit')),
    'restart': (('restart', NAME), 'running', ('stop.accepted', 'restart.stopped', 'intent.after'),
                ('stop.signalled', 'ended.after-commit', 'cleaned.after-commit')),
}
# Of a launch that `launch` sweeps whole: where a second generation differs.
AGAIN = ('intent.', 'submit.', 'told.', 'shim.', 'effect.state', 'effect.cgroup', f'effect.{harness.LAUNCH_STEP}',
         'effect.plan-file', 'gate.', 'running.', 'open-for-business')


def stage(arena, before, point='', trace=False):
    """What a verb finds, with a shim that dies at `point`."""
    env = arena.environment(point, trace)
    if before == 'nothing':
        return []
    steps = {'created': [('create', '--name', NAME, arena.long)],
             'running': [('run', '-d', '--name', NAME, arena.long)]}
    steps['paused'] = steps['running'] + [('pause', NAME)]
    for step in steps[before]:
        done = arena.root.ctl(*step, env=env)
        if done.code != 0:
            return [f'the stage: {done}']
    return []


def usable(arena):
    """Before anything is taken away: what ps says is so, and the next verbs work."""
    arena.root.ctl('reconcile')
    wrong = []
    for sandbox in arena.victims():
        state = sandbox['state']
        if state == 'paused':
            done = arena.root.ctl('resume', sandbox['id'])
            wrong += [] if done.code == 0 else [f'resume of what is paused: {done}']
            state = 'running'
        if state == 'created':
            done = arena.root.ctl('start', sandbox['id'])
            wrong += [] if done.code == 0 else [f'start of what is created: {done}']
        if state in ('running', 'created'):
            done = arena.root.ctl('exec', sandbox['id'], '--', TRUE)
            wrong += [] if done.code == 0 else [f'exec in what ps called {state}: {done}']
    return wrong


def told_wrong(arena, verb, done):
    """What was acknowledged is so."""
    if done.code != 0:
        return []
    wanted = {'create': ('created',), 'pause': ('paused',)}.get(verb)
    listed = [s for s in arena.victims() if s['name'] == NAME]
    if not listed:
        return [f'{verb} was told to be done; ps knows of nothing']
    if wanted and listed[0]['state'] not in wanted + ('dead',):
        return [f'{verb} was told to be done; ps says {listed[0]["state"]}']
    return []


def arguments_of(arena, verb):
    return [arena.long if word == '{long}' else word for word in VERBS[verb][0]]


def chosen(verb, points):
    if verb not in ('start', 'restart'):
        return list(filter(lib.wanted, points))
    return [name for name in points if lib.wanted(name) and (lib.WHOLE or name.startswith(AGAIN))]


def after_crash(arena, sentence, wrong, verb, done):
    wrong = wrong + told_wrong(arena, verb, done)
    # A shim that was killed is dying: what it did is judged once it is gone.
    until(lambda: not lib.dying_shims(), 'the death of what was killed')
    wrong += usable(arena)
    arena.verdict(sentence, wrong)


def sweep_client(arena, verb):
    """sandboxctl, and a shim that it starts itself."""
    before, required = VERBS[verb][1:3]
    arena.fresh()
    wrong = stage(arena, before)
    done = arena.ctl(*arguments_of(arena, verb))
    wrong += [] if done.code == 0 else [f'{done}']
    if verb in ('start', 'restart'):
        wrong += arena.must_pass('open-for-business')
    points = arena.passed()
    wrong += [f'{name} was not passed' for name in required if name not in points]
    arena.verdict(f'{verb}, untouched, passes {len(points)} points in sandboxctl', wrong)
    arena.points |= set(points)
    for point in chosen(verb, points):
        arena.fresh()
        wrong = stage(arena, before)
        done = arena.ctl(*arguments_of(arena, verb), point=point)
        wrong += arena.must_pass(point)
        after_crash(arena, f'{verb}, SIGKILL at {point}', wrong, verb, done)


def sweep_shim(arena, verb):
    """The shim that was there before."""
    before, required = VERBS[verb][1], VERBS[verb][3]
    if before not in ('running', 'paused'):
        return
    arena.fresh()
    wrong = stage(arena, before, trace=True)
    launching = set(arena.passed())
    done = arena.root.ctl(*arguments_of(arena, verb))
    wrong += [] if done.code == 0 else [f'{done}']
    wrong += arena.must_pass(required[-1])
    points = [name for name in arena.passed() if name not in launching]
    wrong += [f'{name} was not passed' for name in required if name not in points]
    arena.verdict(f'{verb}, untouched, passes {len(points)} points in the shim', wrong)
    arena.points |= set(points)
    for point in chosen(verb, points) if verb != 'restart' else filter(lib.wanted, points):
        arena.fresh()
        wrong = stage(arena, before, point, trace=True)
        done = arena.root.ctl(*arguments_of(arena, verb))
        wrong += arena.must_pass(point)
        after_crash(arena, f'{verb}, SIGKILL of the shim at {point}', wrong, verb, done)


def sweep_policy(arena):
    """A workload that fails and is started again by its shim, twice."""
    profile = arena.root.profile(
        'failing', ('/bin/sh', '-c', 'exit 3'),
        '[lifecycle]\nrestart = "on-failure"\nbackoff = "10ms"\nmax_restarts = 2\n')
    required = ('between.before-unwind', 'between.unwound', 'between.before-commit', 'between.after-commit',
                'restart.waiting', 'restart.waited', 'restart.before-commit', 'restart.after-commit')
    arena.fresh()
    arena.ctl('run', '-d', '--name', NAME, profile)
    wrong = arena.must_pass('settled')
    points = arena.passed()
    wrong += [f'{name} was not passed' for name in required if name not in points]
    arena.verdict('restart policy, untouched', wrong)
    arena.points |= set(points)
    sweep_points = [name for name in points if lib.wanted(name) and
                    name.startswith(('between.', 'restart.') if not lib.WHOLE else '')]
    for point in sweep_points:
        arena.fresh()
        arena.ctl('run', '-d', '--name', NAME, profile, point=point)
        wrong = arena.must_pass(point)
        until(lambda: not lib.dying_shims(), 'the death of what was killed')
        # What waits for its next start when its sandboxctl alone was killed goes on to its end.
        try:
            until(lambda: not any(lib.with_argument(f'shim:{s["id"]}') for s in arena.victims()),
                  'the end of the shim')
        except TimeoutError as late:
            wrong.append(str(late))
        arena.verdict(f'restart policy, SIGKILL at {point}', wrong)


def sweep(arena):
    for verb in VERBS:
        sweep_client(arena, verb)
        sweep_shim(arena, verb)
    sweep_policy(arena)


if __name__ == '__main__':
    lib.run('lifecycle', sweep)
