#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The project speaks only of itself: not of the machine, the people or the talk it came from."""
import os
import re

from lintlib import ROOT, line_of, run

OWN = 'tests/lint/words.py'
HOMES = re.compile(r'(?<![\w.~-])/(?:home|Users)/(?!user\b|USER\b|\$)[A-Za-z][\w.-]*|(?<![\w.~-])/root/[\w.-]+')
MARKERS = re.compile(r'\b(?:TODO|FIXME|XXX|HACK)\b')
TALK = re.compile(
    r'\b(?:as you (?:asked|requested|instructed)|as discussed|per (?:your|the) (?:request|instructions?)'
    r'|in this (?:session|conversation|chat)|(?:previous|earlier) (?:session|conversation)'
    r'|as an? (?:AI|language model|assistant))\b', re.IGNORECASE)
# Folders that hold checkouts by chance: what stands beside one there says nothing of a person.
COMMON_PARENTS = ('/', '/tmp', '/src', '/usr/src', '/var/tmp', '/opt', '/root', '/home')


def neighbours(root):
    """This checkout's own place and the names beside it: no text of ours may know them."""
    parent = os.path.dirname(root)
    if parent in COMMON_PARENTS or os.path.dirname(parent) == '/home':
        return [root] if root.count('/') > 1 else []
    return [root] + [os.path.join(parent, name) for name in os.listdir(parent)]


def find(tree, pattern, what):
    return [f"{path}:{line_of(text, m.start())}: {what}: '{m[0]}'"
            for path, text in tree.items() if path != OWN for m in pattern.finditer(text)]


def no_homes(tree):
    # Test data names homes of made-up people; no program or page does.
    return find({path: text for path, text in tree.items() if not path.startswith('tests/')},
                HOMES, "somebody's folder")


def no_neighbours(tree):
    names = tree.get('planted neighbours') or neighbours(ROOT)
    if not names:
        return []
    pattern = re.compile(r'(?<![\w.-])(?:' + '|'.join(map(re.escape, names)) + r')(?![\w-])')
    texts = {path: text for path, text in tree.items() if isinstance(text, str)}
    return find(texts, pattern, 'the place of one checkout')


def no_markers(tree):
    return find(tree, MARKERS, 'unfinished business belongs in an issue')


def no_talk(tree):
    return find(tree, TALK, 'a reader was not part of that talk')


run(
    (no_homes, "no file names somebody's home", [{'docs/a.md': 'see /home/alice/x\n'}, {'a.md': '/root/notes\n'}]),
    (no_neighbours, 'no file names the place of a checkout', [
        {'docs/a.md': 'see /place/neighbour/x\n', 'planted neighbours': ['/place/neighbour']}]),
    (no_markers, 'no file holds a reminder', [{'src/plan/a.cpp': '// TODO: later\n'}]),
    (no_talk, 'no file answers a conversation', [{'docs/a.md': 'done as you asked\n'}]),
)
