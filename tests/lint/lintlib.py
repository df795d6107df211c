# SPDX-License-Identifier: Apache-2.0
"""What the lint tests share: reading the tree, blanking comments, reporting in TAP.

A check is a function from {path: text} to a list of violations. Each comes with plants: trees
with one violation, which it must find. A check that finds nothing in its plant tests nothing.
"""
import os
import re
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
SKIPPED_FOLDERS = re.compile(r'^(\.git|\.cache|build.*|subprojects|__pycache__)$')
CPP = re.compile(r'\.(cpp|hpp|h|c)$')

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', re.MULTILINE)


def read_tree(root=ROOT):
    tree = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not SKIPPED_FOLDERS.match(f))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) or os.path.getsize(path) > (1 << 20):
                continue
            try:
                with open(path, encoding='utf-8') as file:
                    tree[os.path.relpath(path, root)] = file.read()
            except (UnicodeDecodeError, OSError):
                continue
    return tree


def below(tree, *folders):
    return {path: text for path, text in tree.items()
            if CPP.search(path) and path.startswith(tuple(f + '/' for f in folders))}


def code_only(text):
    """The text with comments and literals blanked; lines keep their numbers."""
    def blank(match):
        token = match[0]
        lines = '\n' * token.count('\n')
        return (lines or ' ') if token.startswith('/') else '""' + lines
    return TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count('\n', 0, offset) + 1


def run(*checks):
    """Each check is (function, what it holds, plants)."""
    tree = read_tree()
    number, failed = 0, 0
    for check, rule, plants in checks:
        number += 1
        violations = check(tree)
        for violation in violations:
            print('#', violation)
        print(f"{'not ok' if violations else 'ok'} {number} - {rule}")
        failed += bool(violations)
        for plant in plants:
            number += 1
            found = bool(check(plant))
            print(f"{'ok' if found else 'not ok'} {number} - {check.__name__} finds a planted violation "
                  f"in {sorted(plant)[0]}")
            failed += not found
    print(f'1..{number}')
    sys.exit(1 if failed else 0)
