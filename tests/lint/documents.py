#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Documents, profiles and examples say what the tree says."""
import re
import tomllib

from lintlib import run

DEPENDENCY = re.compile(r"\bdependency\(\s*'([^']+)'")
FIND_LIBRARY = re.compile(r"\bfind_library\(\s*'([^']+)'")


def dependencies(tree):
    page = tree.get('docs/dependencies.md', '')
    bad = []
    for path, text in tree.items():
        if not path.endswith('meson.build'):
            continue
        for name in DEPENDENCY.findall(text) + FIND_LIBRARY.findall(text):
            if f'`{name}`' not in page:
                bad.append(f'{path}: docs/dependencies.md does not say why `{name}` is needed')
    return bad


def packages(tree):
    match = re.search(r'^packages=\((.*?)^\)', tree.get('dev/deps', ''), re.DOTALL | re.MULTILINE)
    more = re.findall(r'packages\+=\(([^)]*)\)', tree.get('dev/deps', ''))
    words = (match[1].split() if match else []) + ' '.join(more).split()
    page = tree.get('docs/dependencies.md', '')
    return [f'dev/deps: docs/dependencies.md does not say why `{word}` is installed'
            for word in words if f'`{word}`' not in page]


def first_lines(tree):
    bad = []
    for path, text in tree.items():
        if not re.match(r'^(profiles|examples)/.*\.toml$', path):
            continue
        line = text.split('\n', 1)[0]
        if not re.match(r'^# [A-Z].{10,}[.:]$', line) or len(line) > 100:
            bad.append(f"{path}:1: the first line says in a sentence what this is for, not '{line[:40]}'")
    return bad


def well_formed(tree):
    bad = []
    for path, text in tree.items():
        if not re.match(r'^(profiles|examples)/.*\.toml$', path):
            continue
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            bad.append(f'{path}: {error}')
            continue
        if table.get('version') != 1:
            bad.append(f'{path}: version = 1 is missing')
    return bad


def numbered(tree):
    names = sorted({path.split('/')[1] for path in tree if path.startswith('examples/')} - {'README.md'})
    bad = []
    for position, name in enumerate(names, 1):
        if not re.match(r'^\d\d-[a-z0-9-]+(\.toml)?$', name):
            bad.append(f'examples/{name}: named NN-what-it-shows')
        elif int(name[:2]) != position:
            bad.append(f'examples/{name}: number {position:02d} is missing or given twice')
    return bad


def links(tree):
    """Links between our pages lead somewhere."""
    import os
    bad = []
    for path, text in tree.items():
        if not path.endswith('.md'):
            continue
        for target in re.findall(r'\]\(([^)#\s]+)[^)]*\)', text):
            if '://' in target or target.startswith('mailto:'):
                continue
            wanted = os.path.normpath(os.path.join(os.path.dirname(path), target))
            if wanted not in tree and not any(p.startswith(wanted + '/') for p in tree):
                bad.append(f'{path}: the link to {target} leads nowhere')
    return bad


def verbs(tree):
    """Every verb of the command line is in the README and in the manual page."""
    code = tree.get('src/ctl/command_line.cpp', '')
    pages = {'README.md': tree.get('README.md', '')}
    pages.update({path: text for path, text in tree.items() if re.match(r'^man/sandboxctl\.1', path)})
    bad = []
    for verb in re.findall(r'\bverb\(\*?\w+, "([a-z]+)"', code) + re.findall(r'add_subcommand\("([a-z]+)"', code):
        bad += [f'{path}: says nothing of the verb {verb}' for path, text in pages.items()
                if not re.search(r'\b' + verb + r'\b', text)]
    return bad


def placeholders(tree):
    return [f'{path}: the placeholder {name} waits for real output'
            for path, text in tree.items() if path.endswith('.md') for name in re.findall(r'<<[A-Z_]+>>', text)]


def entry_points(tree):
    return [f'{path}: no --help' for path, text in tree.items()
            if re.match(r'^dev/[a-z-]+$', path) and not re.search(r'--help|argparse', text)]


run(
    (dependencies, 'docs/dependencies.md explains every library', [
        {'src/x/meson.build': "dep = dependency('leftpad')\n", 'docs/dependencies.md': ''}]),
    (packages, 'docs/dependencies.md explains every package of dev/deps', [
        {'dev/deps': 'packages=(\n    cowsay\n)\n', 'docs/dependencies.md': ''},
        {'dev/deps': 'packages=(\n)\n--x) packages+=(cowsay) ;;\n', 'docs/dependencies.md': ''}]),
    (first_lines, 'every profile and example says in its first line what it is for', [
        {'profiles/a.toml': 'version = 1\n'}, {'examples/01-a.toml': '# bad\n'}]),
    (well_formed, 'profiles and examples are TOML of version 1', [
        {'examples/01-a.toml': 'name = "a"\n'}, {'profiles/a.toml': 'version = \n'}]),
    (numbered, 'examples are numbered without a gap', [
        {'examples/02-a.toml': ''}, {'examples/01-a.toml': '', 'examples/01-b.toml': ''}, {'examples/first.toml': ''}]),
    (links, 'links between pages lead somewhere', [{'README.md': '[x](docs/none.md)\n'}]),
    (placeholders, 'no page holds a placeholder', [{'README.md': '<<OUTPUT>>\n'}]),
    (verbs, 'every verb of sandboxctl is documented', [
        {'src/ctl/command_line.cpp': 'verb(app_, "dance", "Dance", x);\n', 'README.md': '# sandboxd\n'}]),
    (entry_points, 'every command of dev/ has --help', [{'dev/thing': '#!/bin/sh\necho\n'}]),
)
