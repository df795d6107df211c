#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules a reader would otherwise have to check line by line."""
import re

from lintlib import CPP, INCLUDE, below, code_only, line_of, run

CLOSE_HOME = 'src/sys/fd.cpp'
CALL = re.compile(r'\bclose\s*\(\s*(?!\))')
STATEMENT_WORDS = ('return', 'co_return', 'else', 'do', 'throw', 'case')
SHELLS = re.compile(r'(?<![\w.>])(?:std::|::)?(system|popen|execlp|execvp)\s*\(')
RESULT = re.compile(
    r'(?P<mark>\[\[nodiscard\]\]\s*)?(?P<words>(?:\b(?:static|virtual|inline|constexpr|friend|explicit)\s+)*)'
    r'(?P<type>\b(?:sandbox::)?(?:Result<[^;{}()]*>|Status|std::expected<[^;{}()]*>))\s+'
    r'(?P<name>[A-Za-z_]\w*)\s*\(')
CLOCKS = re.compile(
    r'\b(\w+_clock::now|clock_gettime|gettimeofday|getenv|std::rand|getrandom|time(?=\s*\(\s*(?:nullptr|NULL|0|&)))\s*\(')
# Who may read the clock that people and time servers set, and what for. Deadlines, intervals and claims
# are on CLOCK_BOOTTIME or CLOCK_MONOTONIC: they neither fire nor hang when it jumps.
WALL = re.compile(r'\bCLOCK_(?:REALTIME|TAI)\w*|\bsystem_clock\b|\bgettimeofday\s*\(|'
                  r'\btime\s*\(\s*(?:nullptr|NULL|0)\s*\)')
WALL_READERS = {
    'src/ledger/ledger.cpp': 'the time of a record, for people',
    'src/shim/log_worker.cpp': 'the time of a log line',
    'src/shim/guest_link.cpp': 'tells a guest what time it is',
    'guest/control.cpp': 'sets the clock of a guest',
    'src/ctl/logs.cpp': '--since DURATION', 'src/ctl/verbs_lifecycle.cpp': '--since DURATION',
    'src/ctl/verbs_apply.cpp': 'prune --filter until=DURATION',
}
# Compiled only into crash-sweep builds (release.py).
IMPURE = ('src/base/failpoint',)
PURE = ('src/base/', 'src/canon/', 'src/wire/', 'src/facts/', 'src/profile/', 'src/plan/', 'src/policy/',
        'src/audit/', 'src/resolve/', 'src/driver/oci/compile',
        'src/driver/microvm/compile', 'src/driver/microvm/shares')


def is_call(code, at):
    """Whether the word at this offset is a call of the C library's function of that name."""
    before = code[:at].rstrip()
    if before.endswith(('.', '->')):
        return False
    if before.endswith('::'):
        # ::close is the C library's, Fd::close and fd<T>::close are not.
        return not re.search(r'[\w>]::$', before)
    word = re.search(r'([A-Za-z_]\w*|[>&*])$', before)
    if word is None or word[1] in STATEMENT_WORDS:
        return True
    # 'Status close(int)' declares; 'a & close(b)' would be odd enough to be reported elsewhere.
    return False


def raw_close(tree):
    bad = []
    for path, text in below(tree, 'src', 'guest').items():
        # base may not use sys, and its failpoints are in crash-sweep builds only.
        if path in (CLOSE_HOME, 'src/base/failpoint.cpp'):
            continue
        code = code_only(text)
        # A class with a close of its own means that one, unless it says ::close.
        own = any(not is_call(c, m.start()) and re.search(r'\w\s+$', c[:m.start()])
                  for c in (code, code_only(tree.get(re.sub(r'cpp$', 'hpp', path), '')))
                  for m in re.finditer(r'\bclose\s*\(', c))
        bad += [f'{path}:{line_of(code, m.start())}: descriptors are closed by {CLOSE_HOME} alone'
                for m in CALL.finditer(code)
                if is_call(code, m.start()) and not (own and not code[:m.start()].rstrip().endswith('::'))]
    return bad


def heavy_headers(tree):
    bad = []
    for path, text in below(tree, 'src', 'guest').items():
        for match in INCLUDE.finditer(text):
            if match[1] in ('regex', 'iostream'):
                bad.append(f'{path}:{line_of(text, match.start())}: <{match[1]}> costs start-up and size')
    return bad


def no_shell(tree):
    bad = []
    for path, text in below(tree, 'src', 'guest').items():
        code = code_only(text)
        bad += [f'{path}:{line_of(code, m.start())}: {m[1]} searches a path or asks a shell; give a descriptor'
                for m in SHELLS.finditer(code)]
    return bad


def pure_calls(tree):
    bad = []
    for path, text in below(tree, 'src').items():
        if not path.startswith(PURE) or path.startswith(IMPURE):
            continue
        code = code_only(text)
        bad += [f'{path}:{line_of(code, m.start())}: a pure folder asks no clock, environment or dice ({m[1]})'
                for m in CLOCKS.finditer(code)
                if not code[:m.start()].rstrip().endswith(('.', '->'))]
    return bad


def nodiscard(tree):
    bad = []
    for path, text in below(tree, 'src', 'guest').items():
        if not path.endswith('.hpp'):
            continue
        code = code_only(text)
        for match in RESULT.finditer(code):
            before = code[:match.start()].rstrip()
            if match['mark'] or before.endswith((',', '(', '<', 'operator', '[[nodiscard]]', '=')):
                continue
            # The interface says it for those who override it.
            if re.match(r'[^;{}]*\boverride\b', code[match.end():]):
                continue
            bad.append(f"{path}:{line_of(code, match.start('type'))}: {match['name']} returns "
                       f"{match['type']} and is not [[nodiscard]]")
    return bad


def spdx(tree):
    bad = []
    wanted = 'SPDX-License-Identifier: Apache-2.0'
    for path, text in tree.items():
        lines = text.split('\n')
        script = lines[0].startswith('#!')
        if not (CPP.search(path) or path.endswith(('.py', '.sh')) or script):
            continue
        line = lines[1] if script and len(lines) > 1 else lines[0]
        if line not in ('// ' + wanted, '# ' + wanted):
            bad.append(f"{path}: line {2 if script else 1} is not the licence line '{wanted}'")
    return bad


def pragma_once(tree):
    return [f'{path}: no #pragma once' for path, text in below(tree, 'src', 'guest', 'tests').items()
            if path.endswith('.hpp') and '#pragma once' not in text]


def wall_clock(tree):
    bad = []
    for path, text in below(tree, 'src', 'guest').items():
        if path in WALL_READERS:
            continue
        code = code_only(text)
        bad += [f'{path}:{line_of(code, m.start())}: {m[0].strip()} jumps; what waits or expires asks sys/deadline.hpp'
                for m in WALL.finditer(code)]
    return bad


def no_sleep(tree):
    bad = []
    for path, text in below(tree, 'tests').items():
        # A benchmark spaces its runs: the pause is what it measures under.
        if path.startswith('tests/bench/'):
            continue
        code = code_only(text)
        for match in re.finditer(r'\b(sleep_for|usleep|nanosleep|(?<![\w:.])sleep)\s*\(', code):
            bad.append(f'{path}:{line_of(code, match.start())}: a test waits for what it waits for, not for a while')
    return bad


run(
    (raw_close, 'no raw close() outside src/sys/fd.cpp', [
        {'src/shim/a.cpp': 'void f(int fd) { close(fd); }\n'},
        {'src/shim/b.cpp': 'int f(int fd) { return ::close(fd); }\n'},
        {'src/shim/d.cpp': 'struct S { void close(int x); };\nvoid f(int fd) { ::close(fd); }\n'},
        {'guest/c.cpp': 'void f(int fd) { if (close (fd) != 0) g(); }\n'}]),
    (heavy_headers, 'no std::regex and no iostream in programs', [
        {'src/ctl/a.cpp': '#include <regex>\n'}, {'src/ctl/b.cpp': '#include <iostream>\n'}]),
    (no_shell, 'no shell and no search of PATH', [
        {'src/ctl/a.cpp': 'int f() { return std::system("ls"); }\n'},
        {'src/probe/b.cpp': 'auto* f() { return popen("ls", "r"); }\n'}]),
    (pure_calls, 'pure folders ask no clock, environment or dice', [
        {'src/plan/a.cpp': 'auto f() { return std::chrono::system_clock::now(); }\n'},
        {'src/resolve/a.cpp': 'auto f() { return std::getenv("HOME"); }\n'}]),
    (wall_clock, 'nothing waits or expires by a clock that jumps', [
        {'src/shim/a.cpp': 'auto f() { return std::chrono::system_clock::now(); }\n'},
        {'src/supervisor/b.cpp': 'void f() { timespec t; clock_gettime(CLOCK_REALTIME, &t); }\n'},
        {'src/shim/c.cpp': 'auto f() { return time(nullptr); }\n'}]),
    (nodiscard, 'whatever returns a Result in a header is [[nodiscard]]', [
        {'src/sys/a.hpp': 'Result<int> open_it(int x);\n'},
        {'src/sys/b.hpp': 'struct S {\n    static Status go();\n};\n'}]),
    (spdx, 'each source says its licence on its first line', [
        {'src/sys/a.cpp': '#include "sys/a.hpp"\n'}, {'dev/x': '#!/bin/sh\necho\n'}]),
    (pragma_once, 'each header has #pragma once', [{'src/sys/a.hpp': 'int x;\n'}]),
    (no_sleep, 'no test sleeps to wait', [
        {'tests/unit/a.cpp': 'TEST(A, B) { std::this_thread::sleep_for(1s); }\n'}]),
)
