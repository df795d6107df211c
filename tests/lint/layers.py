#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes point only where layers.json says; third-party headers stay in their folders."""
import json
import os

from lintlib import INCLUDE, below, line_of, run

with open(os.path.join(os.path.dirname(__file__), 'layers.json')) as file:
    TABLE = json.load(file)


def folder_of(path):
    parts = path.split('/')
    return parts[1] if parts[0] == 'src' else parts[0]


def includes(tree):
    for path, text in below(tree, 'src', 'guest', 'schemas').items():
        for match in INCLUDE.finditer(text):
            quoted = '"' in match[0]
            yield path, line_of(text, match.start()), match[1], quoted


def library_of(header):
    for library, prefixes in TABLE['libraries'].items():
        if header.startswith(tuple(prefixes)):
            return library
    return None


def folders_are_known(tree):
    return [f'{path}: the folder {folder_of(path)} is not in layers.json'
            for path in below(tree, 'src') if path.count('/') > 1 and folder_of(path) not in TABLE['folders']]


def layers(tree):
    bad = []
    for path, line, header, quoted in includes(tree):
        if not quoted:
            continue
        folder, target = folder_of(path), header.split('/')[0]
        allowed = list(TABLE['folders'].get(folder, {'include': []})['include'])
        for part, more in TABLE['include_exceptions'].items():
            allowed += more if path.startswith(part) else []
        if '/' not in header:
            # Generated headers and those beside a file of guest/ carry no folder.
            if folder not in ('guest', 'schemas'):
                bad.append(f'{path}:{line}: "{header}" names no folder')
        elif target in TABLE['folders'] and target not in (folder, 'base') and '*' not in allowed \
                and target not in allowed:
            bad.append(f'{path}:{line}: {folder} may not include {target} ("{header}")')
    return bad


def third_party(tree):
    bad = []
    for path, line, header, quoted in includes(tree):
        library, folder = library_of(header), folder_of(path)
        if quoted or library is None:
            continue
        if library == 'fmt':
            allowed = folder not in TABLE['no_fmt']
        else:
            allowed = library in TABLE['folders'].get(folder, {'third_party': []})['third_party']
        if not allowed:
            bad.append(f'{path}:{line}: {folder} may not include {library} (<{header}>)')
    return bad


def is_pure(path):
    if path.startswith(tuple(TABLE['pure_exceptions'])):
        return False
    if path.startswith(tuple(TABLE['pure_parts'])):
        return True
    return path.startswith('src/') and TABLE['folders'].get(folder_of(path), {}).get('pure', False)


def pure_headers(tree):
    bad = []
    for path, line, header, quoted in includes(tree):
        if quoted or not is_pure(path):
            continue
        for forbidden in TABLE['pure_forbidden_headers']:
            if header == forbidden or (forbidden.endswith('/') and header.startswith(forbidden)):
                bad.append(f'{path}:{line}: a pure folder does not touch the host (<{header}>)')
    return bad


def cycles(tree):
    files = below(tree, 'src', 'guest')
    graph = {}
    for path, _, header, quoted in includes(tree):
        for target in ('src/' + header, os.path.dirname(path) + '/' + header):
            if quoted and target in files:
                graph.setdefault(path, set()).add(target)
    bad, state = [], {}

    def visit(path, trail):
        state[path] = 'open'
        for target in sorted(graph.get(path, ())):
            if state.get(target) == 'open':
                bad.append('cycle: ' + ' -> '.join(trail[trail.index(target):] + [target]))
            elif target not in state:
                visit(target, trail + [target])
        state[path] = 'done'

    for path in sorted(graph):
        if path not in state:
            visit(path, [path])
    return bad


def folder_cycles(tree):
    """The table itself orders the folders."""
    graph = {name: [t for t in row['include'] if t != '*'] for name, row in TABLE['folders'].items()}
    graph.update(tree.get('planted table', {}))
    bad, done = [], set()

    def visit(name, trail):
        if name in trail:
            bad.append('layers.json is circular: ' + ' -> '.join(trail[trail.index(name):] + [name]))
        elif name not in done:
            for target in graph.get(name, []):
                visit(target, trail + [name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return bad


run(
    (folders_are_known, 'every folder of src is in layers.json', [{'src/attic/old.cpp': '\n'}]),
    (layers, 'includes point only where layers.json says', [
        {'src/wire/frame.cpp': '#include "plan/plan.hpp"\n'},
        {'src/resolve/resolve.cpp': '#include "sys/fd.hpp"\n'},
        {'guest/main.cpp': '#include "ledger/ledger.hpp"\n'},
        {'src/sys/fd.cpp': '#include "fd.hpp"\n'}]),
    (third_party, 'each third-party header stays in the folders it is allowed in', [
        {'src/resolve/resolve.cpp': '#include <nlohmann/json.hpp>\n'},
        {'src/supervisor/db.cpp': '#include <sqlite3.h>\n'},
        {'src/base/text.cpp': '#include <fmt/core.h>\n'}]),
    (pure_headers, 'pure folders include no header that reaches the host', [
        {'src/plan/plan.cpp': '#include <unistd.h>\n'},
        {'src/resolve/a.cpp': '#include <filesystem>\n'},
        {'src/driver/oci/compile.cpp': '#include <sys/stat.h>\n'}]),
    (cycles, 'no file includes itself by a round trip', [
        {'src/plan/a.hpp': '#include "plan/b.hpp"\n', 'src/plan/b.hpp': '#include "plan/a.hpp"\n'}]),
    (folder_cycles, 'the table of layers has no cycle', [
        {'planted table': {'canon': ['plan']}}]),
)
