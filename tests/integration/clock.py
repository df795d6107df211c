#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wall clock jumps, an hour back and two ahead: what waits goes on waiting as long as it has to.

Sets the clock of the machine, so it runs only where that is allowed: in dev/testhost.
"""
import os
import time

from lib.follow import Follower, state
from lib.harness import PATIENCE, check, main, same, scenario, skip, until

ALLOWED = os.environ.get('SANDBOX_TEST_MAY_SET_CLOCK') == '1'
HOUR = 3600


def jump(seconds):
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + seconds)


@scenario
def nothing_ends_or_hangs_when_the_clock_jumps(root):
    if not ALLOWED:
        return skip('deadlines under a clock that jumps', 'it would set the clock of this machine; in dev/testhost it may')
    idle = root.profile('idle', argv=None, process='[process]\nidle = true\n', text='[lifecycle]\nidle_timeout = "10m"\n')
    ttl = root.profile('ttl', ['/bin/sleep', '1000'], '[lifecycle]\nttl = "8s"\nstop_timeout = "1s"\n')
    back = root.profile('back', ['/bin/false'], '[lifecycle]\nrestart = "always"\nbackoff = "4s"\n')
    late = root.profile('late', ['/bin/sleep', '1000'], process='timeout = "10m"\n')
    jumped = 0
    try:
        for ahead in (-HOUR, 2 * HOUR):
            for name, profile in (('idle', idle), ('ttl', ttl), ('back', back), ('late', late)):
                done = root.ctl('run', '-d', '--name', name, profile)
                same(done.code, 0, f'{name} starts', done)
            until(lambda: state(root, 'back') == 'restarting', 'its pause')
            began = time.monotonic()
            jump(ahead)
            jumped += ahead
            for name in ('idle', 'late'):
                same(state(root, name), 'running', f'{name} runs on after {ahead} s')
            due = root.one('back')
            check(due['generation'] > 1 or due['restart']['due_in_ms'] <= 4000, 'the next try is as near as it was', due)
            # By its id: there was one of that name before the second jump, and its end is told again.
            follow = Follower(root, root.one('ttl')['id'])
            follow.until('exited', seconds=PATIENCE + 8)
            follow.close()
            until(lambda: root.one('back')['generation'] > 1, 'the next try')
            check(time.monotonic() - began < HOUR / 2, 'both came in their time, not in that of the clock')
            same(root.one('ttl')['ended_by'], 'ttl', 'its ttl ended it')
            same(root.ctl('reconcile', '-o', 'json').code, 0, 'reconcile')
            for name in ('idle', 'late'):
                same(state(root, name), 'running', f'{name} still does: no claim and no deadline is late')
            for name in ('idle', 'ttl', 'back', 'late'):
                same(root.ctl('rm', '-f', name).code, 0, f'rm -f {name}')
        same(root.ctl('audit', 'verify').code, 0, 'the audit log is whole, with times that go back')
    finally:
        jump(-jumped)


if __name__ == '__main__':
    main()
