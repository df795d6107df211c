#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: render.py SCDOC SOURCE.scd PAGE: renders a manual page.

scdoc puts paragraph macros where roff has a paragraph anyway; mandoc warns of each. They are taken
out, so that a warning that is left means something.
"""
import os
import re
import subprocess
import sys

SOURCE_DATE = '1767225600'  # 2026-01-01: a page changes when its source does, not with the day it is built


def tidy(lines):
    # The space after an indented block belongs behind it.
    text = re.sub(r'\.P\n((?:\.RE\n)+)', r'\1.P\n', '\n'.join(lines) + '\n')
    kept = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        following = lines[at + 1] if at + 1 < len(lines) else '.SH'
        if line in ('.P', '.PP'):
            if kept and re.match(r'\.(SH|SS|TH|P|PP)\b', kept[-1]):
                continue
            if re.match(r'\.(SH|SS|P|PP|RE)\b', following):
                continue
        kept.append(line)
    return kept


def main():
    scdoc, source, page = sys.argv[1:]
    with open(source, encoding='utf-8') as file:
        made = subprocess.run([scdoc], stdin=file, capture_output=True, text=True, check=False,
                              env={**os.environ, 'SOURCE_DATE_EPOCH': SOURCE_DATE})
    if made.returncode != 0:
        sys.exit(f'{source}: {made.stderr.strip()}')
    with open(page, 'w', encoding='utf-8') as file:
        file.write('\n'.join(tidy(made.stdout.splitlines())) + '\n')


if __name__ == '__main__':
    main()
