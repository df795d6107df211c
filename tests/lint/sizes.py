#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files and functions stay small enough to be read in one go."""
import math
import re

from lintlib import CPP, below, run

MOST_FILE_LINES, MOST_FILE_LINES_P90 = 600, 400
MOST_FUNCTION_LINES = 80
SIGNATURE_END = re.compile(r'(\)|\bconst|\bnoexcept|\boverride|\bfinal|[\w>&*]|\}|,)\s*$')


def ours(tree):
    return below(tree, 'src', 'guest', 'schemas', 'tests')


def functions(text):
    """(first line, length) of every body whose opening brace has a line of its own."""
    lines, found = text.split('\n'), []
    for number, line in enumerate(lines):
        match = re.match(r'^(\s*)\{\s*$', line)
        if not match or number == 0:
            continue
        above = re.sub(r'\s*//.*$', '', lines[number - 1])
        if not SIGNATURE_END.search(above) or re.match(r'^\s*(namespace|struct|class|enum|union)\b', above):
            continue
        closing = match[1] + '}'
        for end in range(number + 1, len(lines)):
            if lines[end].rstrip().rstrip(';') == closing or re.match(re.escape(closing) + r'[;,)\s]*(//.*)?$', lines[end]):
                found.append((number, end - number + 1))
                break
    # TEST bodies open on the signature's line as little as others; a namespace-level function may.
    for number, line in enumerate(lines):
        if re.match(r'^[A-Za-z_].*\)[^;=]*\{\s*$', line) and not re.match(r'^(namespace|struct|class|enum)\b', line):
            for end in range(number + 1, len(lines)):
                if re.match(r'^\}', lines[end]):
                    found.append((number + 1, end - number + 1))
                    break
    return found


def file_sizes(tree):
    return [f'{path}: {text.count(chr(10))} lines, at most {MOST_FILE_LINES}'
            for path, text in ours(tree).items() if text.count('\n') > MOST_FILE_LINES]


def file_sizes_p90(tree):
    sizes = sorted((text.count('\n'), path) for path, text in below(tree, 'src', 'guest').items()
                   if CPP.search(path))
    if not sizes:
        return []
    at = sizes[max(0, math.ceil(len(sizes) * 0.9) - 1)]
    if at[0] <= MOST_FILE_LINES_P90:
        return []
    return [f'nine files in ten stay within {MOST_FILE_LINES_P90} lines; here it is {at[0]} ({at[1]})']


def function_sizes(tree):
    return [f'{path}:{line}: a function of {length} lines, at most {MOST_FUNCTION_LINES}'
            for path, text in ours(tree).items() for line, length in functions(text)
            if length > MOST_FUNCTION_LINES]


run(
    (file_sizes, f'no file is longer than {MOST_FILE_LINES} lines', [{'src/plan/a.cpp': '\n' * 601}]),
    (file_sizes_p90, f'nine files in ten are at most {MOST_FILE_LINES_P90} lines', [{'src/plan/a.cpp': '\n' * 401}]),
    (function_sizes, f'no function is longer than {MOST_FUNCTION_LINES} lines', [
        {'src/plan/a.cpp': 'int f(int x) noexcept\n{\n' + '    g();\n' * 79 + '}\n'},
        {'src/plan/b.cpp': 'class C {\n    int f()\n    {\n' + '        g();\n' * 79 + '    }\n};\n'},
        {'tests/unit/a.cpp': 'TEST(A, B) {\n' + '    g();\n' * 79 + '}\n'}]),
)
