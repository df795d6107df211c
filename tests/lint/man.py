#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: man.py SANDBOXCTL SANDBOXD SCHEMA_DIR PAGE_DIR

Holds the manual pages against what they describe: the parser and its help, the schemas, the reasons
and exit statuses in the code. Each comparison first proves that it finds a planted difference.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from lintlib import ROOT, read_tree

SANDBOXCTL, SANDBOXD, SCHEMAS, PAGES = (os.path.abspath(word) for word in sys.argv[1:5])
COMMON = {'-h', '--help', '--root'}


def run(*words, stdin=''):
    return subprocess.run([SANDBOXCTL, *words], input=stdin, capture_output=True, text=True, check=False)


def sections(page, mark='# '):
    found, title = {}, ''
    for line in page.splitlines():
        if line.startswith(mark):
            title = line[len(mark):].strip()
        found.setdefault(title, []).append(line)
    return found


# The parser

def verb_sections(page):
    """{'audit show': {'heading': …, 'options': {…}, 'text': …}} of the second-level headings."""
    verbs, current = {}, None
    for line in page.splitlines():
        if line.startswith('## '):
            words = line[3:].split()
            path = [w for w in words if re.fullmatch('[a-z]+', w)]
            current = verbs.setdefault(' '.join(path), {'heading': line[3:], 'options': {}, 'text': ''})
        elif line.startswith('# '):
            current = None
        elif current is not None:
            current['text'] += line + '\n'
            if line.startswith('*-'):
                for names in re.findall(r'\*(-[^*]+)\*', line):
                    current['options'][names] = line
    return verbs


def help_options(text):
    options = set()
    for line in text.splitlines():
        match = re.match(r'^ {2,6}(-[^\s,]+(?:, -[^\s,]+)*)', line)
        if match:
            options |= set(match[1].split(', '))
    return options


def compare_parser(tree, page, helps):
    bad = []
    verbs = verb_sections(page)
    known = {verb['path']: verb for verb in tree['verbs']}
    bad += [f'the page lacks the verb {path}' for path in known.keys() - verbs.keys()]
    bad += [f'the page has {path}, the parser has not' for path in verbs.keys() - known.keys()]
    for path in known.keys() & verbs.keys():
        wanted = {name: option for option in known[path]['options'] for name in option['names']}
        written = verbs[path]['options']
        bad += [f'{path}: the page lacks {name}' for name in wanted.keys() - written.keys() - COMMON]
        bad += [f'{path}: the page has {name}, the parser has not' for name in written.keys() - wanted.keys()]
        shown = help_options(helps[path])
        if shown != set(wanted):
            bad.append(f'{path}: --help shows {sorted(shown ^ set(wanted))} otherwise than the parser')
        for name in wanted.keys() & written.keys():
            option, line = wanted[name], written[name]
            if option['value'] and f"_{option['value']}_" not in line:
                bad.append(f"{path}: {name} takes {option['value']}, the page has: {line}")
            if not option['value'] and line.startswith(f'*{name}*') and '_' in line.split('*, *')[0]:
                bad.append(f'{path}: {name} takes no value, the page has: {line}')
        for name in wanted.keys() & written.keys() - {'-o', '--output'}:
            entry = verbs[path]['text'].split(written[name], 1)[1].split('\n*-')[0]
            missing = [c for c in wanted[name]['choices'] if c not in entry]
            if missing:
                bad.append(f'{path}: {name}: the page does not name {missing}')
            if wanted[name]['default'] and wanted[name]['default'] not in entry:
                bad.append(f"{path}: {name}: the page does not say the default {wanted[name]['default']}")
        arguments = known[path]['arguments']
        for argument in arguments:
            mark = argument['value'] + ('...' if argument['repeatable'] else '')
            if mark not in verbs[path]['heading']:
                bad.append(f"{path}: the heading lacks {mark}: {verbs[path]['heading']}")
            optional = re.search(r'\[(-- )?' + re.escape(mark) + r'\]', verbs[path]['heading']) is not None
            if argument['required'] == optional:
                bad.append(f"{path}: {mark} is {'' if argument['required'] else 'not '}required: "
                           + verbs[path]['heading'])
    return bad


def compare_overview(tree, overview):
    return [f'--help has no line for {verb["path"]}' for verb in tree['verbs']
            if not re.search(r'^  ' + verb['path'] + r' {2,}\S', overview, re.MULTILINE)]


def compare_groups(tree):
    return [f'{verb["path"]} is in the group Other: give it a place in command_tree.cpp'
            for verb in tree['verbs'] if verb['group'] == 'Other' and verb['path'] not in ('completion', 'version')]


STATUSES = {'0', '1', '2', '124', '125', '126', '127', '128+n', "the workload's"}


def compare_statuses(page, overview, code):
    bad = []
    listed = set(re.findall(r'^\*([^*]+)\*$', '\n'.join(sections(page)['EXIT STATUS']), re.MULTILINE))
    if listed != STATUSES:
        bad.append(f'EXIT STATUS lists {sorted(listed ^ STATUSES)} otherwise')
    tail = overview.split('Exit status:')[-1]
    bad += [f'--help does not name the exit status {s}' for s in STATUSES if s[0].isdigit() and s not in tail]
    for name, status in (('kFailed', 1), ('kUsage', 2), ('kOurFailure', 125)):
        if not re.search(rf'\b{name} = {status};', code):
            bad.append(f'command_line.hpp has no {name} = {status}')
    return bad


def compare_daemon(page, shown):
    written = set()
    for line in sections(page)['OPTIONS']:
        if line.startswith('*-'):
            written |= set(re.findall(r'\*(-[^*]+)\*', line))
    offered = set(re.findall(r'(?<![\w-])(--?[a-z][a-z-]*)', shown.split('Options:')[-1].split('\n\n')[0]))
    return [f'OPTIONS and sandboxd --help differ in {name}' for name in written ^ offered]


def compare_examples(tree, page):
    """Every example line is one the parser knows: verb and options."""
    bad = []
    known = {verb['path']: {n for o in verb['options'] for n in o['names']} for verb in tree['verbs']}
    for block in re.findall(r'^```\n(.*?)^```', page, re.MULTILINE | re.DOTALL):
        for line in re.findall(r'sandboxctl ([^|><\n)]+)', block):
            words = line.split()
            if words[0] == '--root':
                words = words[2:]
            path = next((p for p in (' '.join(words[:2]), words[0]) if p in known), None)
            if path is None:
                bad.append(f'the example has no verb of ours: {line}')
                continue
            for word in words[1:words.index('--')] if '--' in words else words[1:]:
                if word.startswith('-') and word != '-' and word.split('=')[0] not in known[path]:
                    bad.append(f'the example has an option that {path} does not take: {word}')
    return bad


# Schemas

def kind(node):
    if 'enum' in node:
        return ' | '.join(json.dumps(value) for value in node['enum'])
    if 'const' in node:
        return json.dumps(node['const'])
    if node['type'] == 'array':
        item = node['items']
        return 'list of tables' if item.get('type') == 'object' else f'list of {kind(item)}'
    if node['type'] == 'object':
        inner = node.get('additionalProperties')
        if not isinstance(inner, dict):
            return 'table'
        return f"table of {'tables' if inner['type'] == 'object' else kind(inner)}"
    pattern = node.get('pattern', '')
    if node['type'] == 'string':
        for mark, name in (('KiB', 'SIZE'), ('ms)', 'DURATION'), ('a-z0-9-', 'LABEL')):
            if mark in pattern:
                return f'_{name}_'
        if pattern == '^/':
            return '_PATH_'
        if pattern == '^[0-7]{1,4}$':
            return '_MODE_'
    return '_' + node['type'].upper() + '_'


def walk(node, path=''):
    """(key, node, required) of everything below a schema that has a change class."""
    for name, child in node.get('properties', {}).items():
        here = f'{path}.{name}' if path else name
        if path == 'artifacts':
            here = 'artifacts.PROGRAM'
        yield from visit(here, child, name in node.get('required', ()))
    inner = node.get('additionalProperties')
    if isinstance(inner, dict):
        yield from visit(path + '.NAME', inner, False)


def visit(path, node, required):
    if 'x-change-class' in node:
        yield path, node, required
    if node.get('type') == 'array':
        yield from walk(node['items'], path + '[]')
    elif node.get('type') == 'object':
        yield from walk(node, path)


def keys_of_page(page):
    found = {}
    lines = page.splitlines()
    for at, line in enumerate(lines):
        match = re.match(r'^\*([a-zA-Z0-9_.\[\]]+)\* = (.+)$', line)
        if match:
            found[match[1]] = (match[2], lines[at + 1].strip(), ' '.join(lines[at + 2:at + 4]).strip())
    return found


def compare_keys(schema, page, classes):
    bad = []
    written = keys_of_page(page)
    wanted = {path: (node, required) for path, node, required in walk(schema)}
    bad += [f'the page lacks the key {key}' for key in wanted.keys() - written.keys()]
    bad += [f'the page has the key {key}, the schema has not' for key in written.keys() - wanted.keys()]
    for key in wanted.keys() & written.keys():
        node, required = wanted[key]
        type_, line, meaning = written[key]
        if type_ != kind(node):
            bad.append(f'{key}: the page says {type_}, the schema {kind(node)}')
        default = json.dumps(node['default']) if 'default' in node else 'none'
        line_wanted = 'Required.' if required else f'Default: {default}.'
        if classes:
            line_wanted += f" Change: {node['x-change-class']}."
        if line != line_wanted:
            bad.append(f'{key}: the page says "{line}", the schema "{line_wanted}"')
        if not re.search(r'[A-Za-z]{2}', meaning):
            bad.append(f'{key}: no meaning is given')
    return bad


def compare_overlay(schema, page):
    text = '\n'.join(sections(page).get('OVERLAYS', []))
    written = set(re.findall(r'\*([a-z_.\[\]]+)\*', ' '.join(
        line for line in text.splitlines() if line.startswith('*'))))
    wanted = {path for path, node, _ in walk(schema)
              if node.get('type') not in ('array', 'object') or not (
                  node.get('items', {}).get('type') == 'object' or node.get('properties'))}
    wanted = {re.sub(r'\.NAME$', '', path) for path in wanted} - {'version'}
    return [f'OVERLAYS and the schema differ in {key}' for key in written ^ wanted]


# Denials, events, plans

REASON = re.compile(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"')
# Literals of src/resolve that have the shape of a reason and are none.
NO_REASON = {'sandbox-init', 'sandbox-shim', 'read-only', 'shared-kernel', 'on-failure', 'next-start'}
MADE = {  # what is put together at run time, and its parts in the code
    r'^(user|mount|pid|ipc|uts|net|cgroup)-namespace-unavailable$': '"-namespace-unavailable"',
    r'^(pids|memory|cpu|cpuset|io|freezer)-controller-unavailable$': '"-controller-unavailable"',
    r'^(memory|cpus|pids|ttl)-above-maximum$': '"-above-maximum"',
    r'^(memory|cpus|timeout)-unlimited$': '"-unlimited"',
}


def denial_reasons(page):
    text = '\n'.join(sections(page)['DENIALS'])
    return set(re.findall(r'\*([a-z0-9]+(?:-[a-z0-9]+)*)\*', ' '.join(
        line for line in text.splitlines() if line.startswith('*'))))


def compare_denials(page, tree):
    bad = []
    resolve = '\n'.join(t for p, t in sorted(tree.items()) if re.match(r'^src/resolve/.*\.cpp$', p))
    check = tree.get('src/profile/check.cpp', '') + tree.get('src/profile/text.cpp', '') + tree.get(
        'src/profile/names.cpp', '') + tree.get('src/profile/host.cpp', '') + tree.get('src/profile/normal.cpp', '')
    code = set(REASON.findall(resolve)) - NO_REASON
    listed = denial_reasons(page)
    bad += [f'DENIALS lacks {reason}' for reason in code - listed]
    for reason in listed - code:
        made = [part for pattern, part in MADE.items() if re.match(pattern, reason) and part in resolve]
        if not made and f'"{reason}"' not in check:
            bad.append(f'DENIALS has {reason}, the code has not')
    wanted = set(re.findall(r'refuse\("([a-z]+-[a-z-]+|repeated|contradiction)"',
                            tree.get('src/profile/check.cpp', '')))
    bad += [f'DENIALS lacks the diagnostic {code}' for code in wanted - listed]
    classes = set(re.findall(r'"([A-Z]+_[A-Z_]+)"', tree.get('src/resolve/denials.cpp', '')))
    shown = {line[3:] for line in page.splitlines() if line.startswith('## ')}
    return bad + [f'DENIALS and the code differ in the class {name}' for name in classes ^ shown]


def compare_events(page, schema):
    listed = set(re.findall(r'^\*([a-z-]+)\*$', '\n'.join(sections(page)['EVENTS']), re.MULTILINE))
    wanted = set(schema['properties']['event']['enum'])
    return [f'EVENTS and the schema differ in {name}' for name in listed ^ wanted]


def compare_plan_keys(page, schema):
    text = '\n'.join(sections(page)['KEYS'])
    listed = set(re.findall(r'\*([a-z_]+)\*', ' '.join(l for l in text.splitlines() if l.startswith('*'))))
    wanted = set(schema['properties']['plan']['properties'])
    return [f'KEYS and the schema differ in {name}' for name in listed ^ wanted]


# Pages among themselves

def compare_references(pages):
    ours = set(pages)
    bad = []
    for name, text in pages.items():
        for word, section in re.findall(r'\*(sandbox[a-z-]*)\*\((\d)\)', text):
            if f'{word}.{section}' not in ours:
                bad.append(f'{name} refers to {word}({section}), which is not there')
        title = text.split('\n', 1)[0]
        if not title.startswith(name.replace('.', '(') + ')'):
            bad.append(f'{name}: the title is {title}')
        for wanted in ('NAME', 'DESCRIPTION', 'SEE ALSO'):
            if wanted not in sections(text):
                bad.append(f'{name} has no section {wanted}')
    return bad


def mandoc_complaints(folder, pages):
    bad = []
    for name in pages:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            bad.append(f'{name} was not built')
            continue
        done = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', path], capture_output=True, text=True,
                              check=False)
        bad += done.stdout.splitlines() + done.stderr.splitlines()
    return bad


def toml_blocks(page):
    return [block for block in re.findall(r'^```\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
            if block.startswith('version = ')]


def refused_profiles(page):
    blocks = toml_blocks(page)
    bad = [] if blocks else ['there is no example']
    for block in blocks:
        done = run('validate', '-', stdin=block)
        if done.returncode != 0:
            bad.append(done.stderr.strip())
    return bad


def refused_bundles(page):
    return refused_files(page, 'etc/sandbox/org.d/10-example.toml', ('policy', 'explain'))


def refused_configs(page):
    bad = []
    for problem in refused_files(page, 'etc/sandbox/config.toml', ('config', 'check', '-o', 'json')):
        if problem.startswith('{'):
            bad += json.loads(problem)['problems']  # pins of an example match nothing here
        else:
            bad.append(problem)
    return bad


def refused_files(page, place, verb):
    blocks = toml_blocks(page)
    bad = [] if blocks else ['there is no example']
    for block in blocks:
        with tempfile.TemporaryDirectory(prefix='sandbox-man-') as root:
            path = os.path.join(root, place)
            os.makedirs(os.path.dirname(path))
            with open(path, 'w', encoding='utf-8') as file:
                file.write(block)
            done = run('--root', root, *verb)
            if done.returncode != 0:
                bad.append(done.stdout.strip() + done.stderr.strip())
    return bad


NUMBER = 0
FAILED = 0


def report(sentence, violations):
    global NUMBER, FAILED
    NUMBER += 1
    for violation in violations:
        print('#', violation)
    print(f"{'not ok' if violations else 'ok'} {NUMBER} - {sentence}")
    FAILED += bool(violations)


def finds(sentence, violations):
    report(f'a planted difference is found: {sentence}', [] if violations else ['nothing was found'])


def without(text, line):
    assert line in text, f'the plant {line!r} is not in the page'
    return text.replace(line, '', 1)


def schema_of(name):
    with open(os.path.join(SCHEMAS, name + '.schema.json'), encoding='utf-8') as file:
        return json.load(file)


def check_parser(pages):
    tree = json.loads(run('__commands').stdout)
    overview = run('--help').stdout
    helps = {verb['path']: run(*verb['path'].split(), '--help').stdout for verb in tree['verbs']}
    page = pages['sandboxctl.1']
    code = read_tree()['src/ctl/command_line.hpp']
    report('sandboxctl(1), --help and parser agree on verbs, options, values and defaults',
           compare_parser(tree, page, helps))
    finds('a verb', compare_parser(tree, without(page, '## ps\n'), helps))
    finds('an option', compare_parser(tree, without(page, '*--rm*'), helps))
    finds('a value', compare_parser(tree, page.replace('*--name* _NAME_', '*--name*'), helps))
    finds('a default', compare_parser(tree, without(page, '(default: KILL)'), helps))
    finds('help', compare_parser(tree, page, {**helps, 'run': helps['run'].replace('--rm ', '--xx ')}))
    report('the overview has a line for every verb', compare_overview(tree, overview))
    finds('a line', compare_overview(tree, overview.replace('  wait ', '  weit ')))
    report('every verb has its place in the overview', compare_groups(tree))
    report('exit statuses of page, overview and code agree', compare_statuses(page, overview, code))
    finds('a status', compare_statuses(without(page, '*126*\n'), overview, code))
    for name in ('sandboxctl.1', 'sandbox-plan.5', 'sandbox-audit.5'):
        report(f'the commands in the examples of {name} are taken', compare_examples(tree, pages[name]))
    shown = subprocess.run([SANDBOXD, '--help'], capture_output=True, text=True, check=False).stdout
    report('sandboxd(8) and --help agree on options', compare_daemon(pages['sandboxd.8'], shown))
    finds('an option', compare_daemon(without(pages['sandboxd.8'], '*--routes*'), shown))
    finds('an example', compare_examples(tree, '```\nsandboxctl run --quiet x\n```\n'))


def check_schemas(pages):
    for name, classes in (('profile', True), ('bundle', False), ('config', False)):
        page = pages[f'sandbox-{name}.5']
        report(f'sandbox-{name}(5) has every key of the schema, as it is there',
               compare_keys(schema_of(name), page, classes))
        finds('a key', compare_keys(schema_of(name), without(page, '*version* = 1\n'), classes))
    page = pages['sandbox-profile.5']
    finds('a default', compare_keys(schema_of('profile'), page.replace('"10s"', '"11s"', 1), True))
    finds('a class', compare_keys(schema_of('profile'), page.replace('Change: live', 'Change: replace', 1), True))
    report('sandbox-profile(5) has every key of overlays', compare_overlay(schema_of('overlay'), page))
    finds('a key', compare_overlay(schema_of('overlay'), page.replace('*mask[].path*\n\tMore', '\tMore')))
    plan, audit, tree = pages['sandbox-plan.5'], pages['sandbox-audit.5'], read_tree()
    report('sandbox-plan(5) has every class and reason of a denial', compare_denials(plan, tree))
    finds('a reason', compare_denials(without(plan, '*root-required*'), tree))
    finds('a reason too many', compare_denials(plan.replace('*root-required*', '*root-required*, *moon-phase*'), tree))
    report('sandbox-plan(5) has every key of a plan', compare_plan_keys(plan, schema_of('plan')))
    finds('a key', compare_plan_keys(plan.replace('*warnings*', '*warning*'), schema_of('plan')))
    report('sandbox-audit(5) has every event', compare_events(audit, schema_of('audit')))
    finds('an event', compare_events(without(audit, '*denied*'), schema_of('audit')))


def check_pages(pages):
    report('pages refer to pages that are there, and have their sections', compare_references(pages))
    finds('a page', compare_references({'x.1': 'x(1)\n# NAME\n# DESCRIPTION\n# SEE ALSO\n*sandboxes*(9)\n'}))
    report('the profiles of the examples are valid', refused_profiles(pages['sandbox-profile.5']))
    finds('a profile', refused_profiles('```\nversion = 1\nnam = "x"\n```\n'))
    report('the bundles of the examples are valid', refused_bundles(pages['sandbox-bundle.5']))
    finds('a bundle', refused_bundles('```\nversion = 1\nname = "x"\nusers = ["root"]\n```\n'))
    report('the configurations of the examples are valid', refused_configs(pages['sandbox-config.5']))
    finds('a configuration', refused_configs('```\nversion = 1\ndriver = "oci"\n```\n'))
    if not shutil.which('mandoc'):
        print(f'ok {NUMBER + 1} - mandoc has nothing to say # SKIP mandoc is not installed')
    elif not os.path.isdir(PAGES) or not os.listdir(PAGES):
        print(f'ok {NUMBER + 1} - mandoc has nothing to say # SKIP no page is built in {PAGES}: scdoc is missing')
    else:
        report('mandoc has nothing to say of any page', mandoc_complaints(PAGES, pages))
        with tempfile.TemporaryDirectory(prefix='sandbox-man-') as folder:
            with open(os.path.join(folder, 'x.1'), 'w', encoding='utf-8') as file:
                file.write('.TH x 1\n.SH NAME\n.P\nx\n')
            finds('mandoc', mandoc_complaints(folder, ['x.1']))
        return
    globals()['NUMBER'] += 1


def main():
    folder = os.path.join(ROOT, 'man')
    pages = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith('.scd'):
            with open(os.path.join(folder, name), encoding='utf-8') as file:
                pages[name[:-4]] = file.read()
    check_parser(pages)
    check_schemas(pages)
    check_pages(pages)
    print(f'1..{NUMBER}')
    sys.exit(1 if FAILED else 0)


if __name__ == '__main__':
    main()
