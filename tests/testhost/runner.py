#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs, inside the test host, what /testhost/orders.json names; its talk is the host's TAP.

Each order is [title, argv]. Programs that speak TAP are counted by case, others by their status.
"""
import json
import os
import re
import subprocess
import sys
import time

LINE = re.compile(r'^(not ok|ok) \d+ - (?:[^#]*(# SKIP\b))?')
# GoogleTest, brief: each case that failed, then how many others there were.
GTEST = re.compile(r'^\[ +(?:(FAILED) +\] \S+ \(\d+ ms\)|(PASSED|SKIPPED) +\] (\d+) tests?[.,])')


def run(title, argv):
    """Passed, failed and skipped cases."""
    counts = {'ok': 0, 'not ok': 0, 'skip': 0}
    print(f'# {title}: begins', flush=True)
    began, seen = time.monotonic(), False
    child = subprocess.Popen(argv, cwd='/testhost', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors='replace')
    for line in child.stdout:
        print(line, end='', flush=True)
        match, unit = LINE.match(line), GTEST.match(line)
        if match:
            seen = True
            counts['skip' if match[2] else match[1]] += 1
        elif unit:
            seen = True
            counts[{'PASSED': 'ok', 'FAILED': 'not ok', 'SKIPPED': 'skip'}[unit[1] or unit[2]]] += int(unit[3] or 1)
    status = child.wait()
    if not seen:
        counts['ok' if status == 0 else 'not ok'] += 1
    elif status != 0 and not counts['not ok']:
        counts['not ok'] += 1  # its cases were good, its end was not
    print(f'# {title}: {counts["ok"]} passed, {counts["not ok"]} failed, {counts["skip"]} skipped, '
          f'status {status}, {time.monotonic() - began:.0f} s', flush=True)
    return list(counts.values())


def main():
    with open('/testhost/orders.json') as file:
        orders = json.load(file)
    os.environ.update(orders['env'])
    totals = [0, 0, 0]
    for title, argv in orders['run']:
        totals = [a + b for a, b in zip(totals, run(title, argv))]
    print('{} passed, {} failed, {} skipped'.format(*totals), flush=True)
    sys.exit(1 if totals[1] or not totals[0] else 0)


if __name__ == '__main__':
    main()
