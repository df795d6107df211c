#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From a profile to a plan or a denial, and from a plan file to a launch or a refusal."""
import json
import os
import re

from lib.harness import SOURCE, bind, check, main, same, scenario, tmpfs

LIMITS = os.path.join(SOURCE, 'examples/02-limits.toml')
DENIAL_KEYS = {'class', 'reason', 'key', 'requirement', 'fact', 'mend', 'source'}


def denials(root, *args):
    return root.json('plan', '-o', 'json', *args)['denials']


@scenario
def isolation_omitted(root):
    facts = root.json('probe', '--json')['facts']
    profile = root.profile(isolation=None)
    done = root.ctl('run', profile)
    if facts.get('driver.microvm', {}).get('status') == 'ok':
        return check(done.code == 0, 'a host that can run microVMs runs one', done)
    same((done.code, done.out), (125, ''), 'isolation omitted on a host without microVMs is denied')
    check('BACKEND_UNAVAILABLE' in done.err and 'isolation = "sandbox"' in done.err and 'kvm' in done.err,
          'with class, fact and mend', done.err)
    done = root.ctl('run', '-o', 'json', profile)
    [denial] = json.loads(done.out)['denials']
    same((done.code, set(denial)), (125, DENIAL_KEYS), 'run -o json says it for programs')
    same(denials(root, profile), [denial], 'plan -o json says the same')
    check(denial['class'] == 'BACKEND_UNAVAILABLE' and denial['fact'] and denial['mend'], 'all of it', denial)
    same(root.ctl('plan', profile).code, 1, 'plan exits 1')
    same(root.ps(), [], 'no sandbox comes of it')
    check('BACKEND_UNAVAILABLE' in open(root.path + '/var/lib/sandbox/audit.jsonl').read(), 'the audit log has it')


@scenario
def mistakes_in_profiles(root):
    path = root.write(root.work + '/typo.toml', 'version = 1\nname = "t"\n  isolaton = "sandbox"\n'
                      '[process]\nargv = ["/bin/true"]\numask = "9"\n[resources]\npids = 99999999999\n')
    done = root.ctl('run', path)
    same(done.code, 125, 'a profile with mistakes does not run')
    check(re.search(r"typo\.toml:3:3: isolaton: .*did you mean 'isolation'", done.err),
          'a typo has line, column and the nearest name', done.err)
    check('umask' in done.err and 'pids' in done.err, 'all mistakes come at once', done.err)
    found = root.json('validate', '-o', 'json', path)['diagnostics']
    check(all({'file', 'line', 'column', 'key', 'message', 'hint'} <= set(d) for d in found) and len(found) >= 3,
          'validate -o json has each', found)
    same((root.ctl('validate', path).code, root.ctl('plan', path).code), (1, 1), 'validate and plan exit 1')
    hostile = root.write(root.work + '/esc.toml', 'version = 1\nname = "t"\n"\\u001b[2J" = 1\n[process]\nargv = ["x"]\n')
    check('\x1b' not in root.ctl('validate', hostile).err, 'a hostile key reaches no terminal raw')
    for line, word in [('isolation = "sandboxed"', 'isolation'), ('name = "a"\nname = "b"', 'name'),
                       ('driver = "vmware"', 'driver'), ('[network]\nmode = "open"', 'mode'),
                       ('[security]\nseccomp = "unconfined"', 'seccomp'), ('[[mask]]\npath = "../x"', 'path'),
                       ('[[mount]]\ntype = "bind"\nsource = "/srv/../etc"\ntarget = "/x"', 'source'),
                       ('[resources]\nmemory = "12 bananas"', 'memory')]:
        text = f'version = 1\nname = "t"\n{line}\n[process]\nargv = ["/bin/true"]\n'
        done = root.ctl('run', '-', stdin=text.encode())
        check(done.code == 125 and word in done.err and not done.out, f'refused: {line.splitlines()[-1]}', done)
    done = root.ctl('run', '-', stdin=b'version = 1\nname = "t"\nisolation = "sandbox"\n[process]\nargv = ["/bin/echo", "hi"]\n')
    same((done.code, done.out), (0, 'hi\n'), 'a profile from standard input runs', done.err)


@scenario
def bundles_deny(root):
    profile = root.profile()
    path = root.bundle('version = 1\nname = "org"\ndrivers = ["microvm"]\n')
    [denial] = denials(root, profile)
    same((denial['class'], denial['source']['file'], denial['source']['line']), ('POLICY_DENIED', path, 3),
         'a bundle that permits no such driver denies, named with file and line')
    done = root.ctl('run', profile)
    check(done.code == 125 and f'{path}:3' in done.err and 'POLICY_DENIED' in done.err, 'run says so', done.err)
    root.bundle('version = 1\nname = "org"\ndrivers = []\n')
    check(denials(root, profile), 'an empty list permits none')
    root.bundle('version = 1\nname = "org"\n')
    same(root.ctl('run', profile).code, 0, 'a silent one permits all')
    root.bundle('version = 1\nname = "org"\nmount_sources = ["/usr/share"]\nusers = ["1000:1000"]\n'
                '[max]\npids = 10\nmemory = "32MiB"\ncpus = 1\n')
    wide = root.profile('wide', process='user = "5:5"\n', text=bind('/usr/sharex', '/x').replace('sharex', 'lib')
                        + '[resources]\nmemory = "1GiB"\npids = 20\ncpus = 2\n')
    keys = [d['key'] for d in denials(root, wide)]
    check({'resources.memory', 'resources.pids', 'resources.cpus', 'process.user'} <= set(keys) and len(keys) >= 5,
          'all denials of a request come at once', keys)
    same(denials(root, wide), denials(root, wide), 'in a stable order')
    done = root.ctl('policy', 'explain')
    check(re.search(r'max\.memory\s+32MiB\s+.*10-test\.toml:7', done.out), 'policy explain names file and line', done.out)


@scenario
def broken_bundles_deny_all(root):
    profile = root.profile()
    good = 'version = 1\nname = "org"\n'

    def folder():
        os.unlink(root.path + '/etc/sandbox/org.d/10-test.toml')
        os.mkdir(root.path + '/etc/sandbox/org.d/10-test.toml')

    for what, make in [
            ('writable by all', lambda: root.bundle(good, mode=0o666)),
            ('writable by a group', lambda: root.bundle(good, mode=0o664)),
            ('owned by another', lambda: os.chown(root.bundle(good), 1000, 1000)),
            ('with an unknown key', lambda: root.bundle(good + 'drviers = ["oci"]\n')),
            ('that is no TOML', lambda: root.bundle('version = = 1\n')),
            ('with a bad value', lambda: root.bundle(good + '[max]\npids = "many"\n')),
            ('that is empty', lambda: root.bundle('')),
            ('that cannot be read', folder)]:
        make()
        done = root.ctl('run', profile)
        check(done.code == 125 and 'POLICY_DENIED' in done.err and '10-test.toml' in done.err,
              f'a bundle {what} denies every launch', done)
        check(root.ctl('policy', 'explain').code == 1, 'and policy explain fails')
    os.rmdir(root.path + '/etc/sandbox/org.d/10-test.toml')
    os.symlink('/nowhere', root.path + '/etc/sandbox/org.d/10-test.toml')
    same(root.ctl('run', profile).code, 125, 'a bundle that is a link to nowhere denies')
    os.unlink(root.path + '/etc/sandbox/org.d/10-test.toml')
    os.chmod(root.path + '/etc/sandbox/org.d', 0o777)
    same(root.ctl('run', profile).code, 125, 'so does a folder of bundles that all may write')
    os.chmod(root.path + '/etc/sandbox/org.d', 0o755)
    root.bundle(good + 'valid_until = "2001-01-01"\n[max]\npids = 1\n')
    check(denials(root, profile)[0]['class'] == 'POLICY_DENIED', 'a bundle past valid_until keeps binding')
    check('2001-01-01' in root.ctl('doctor').out, 'doctor says it is past')
    os.unlink(root.path + '/etc/sandbox/org.d/10-test.toml')
    same(root.ctl('run', profile).code, 0, 'once mended, launches go on')


@scenario
def plan_files(root):
    plan = root.work + '/p.json'
    done = root.ctl('plan', '-o', 'json', LIMITS, '--', '/bin/echo', 'from a plan')
    root.write(plan, done.out)
    again = root.ctl('plan', '-o', 'json', LIMITS, '--', '/bin/echo', 'from a plan',
                     env={'LC_ALL': 'tr_TR.UTF-8', 'TZ': 'Asia/Tokyo'}, cwd='/')
    same(again.out, done.out, 'the plan of the same request is the same, byte for byte')
    ran = root.ctl('run', '--name', 'planned', '--plan', plan)
    same((ran.code, ran.out), (0, 'from a plan\n'), 'plan -o json > FILE; run --plan FILE', ran.err)
    same(root.one('planned')['plan_digest'], json.loads(done.out)['digest'], 'runs that very plan')
    for what, old, new in [('a limit', '"32"', '"33"'), ('an argument', 'from a plan', 'from an edit'),
                           ('the digest', 'sha256:', 'sha256:0', ), ('its syntax', '{', '{{')]:
        assert old in done.out
        edited = root.write(root.work + '/e.json', done.out.replace(old, new, 1))
        ran = root.ctl('run', '--plan', edited)
        check(ran.code == 125 and not ran.out, f'a plan file with {what} edited is refused', ran)
    root.bundle('version = 1\nname = "org"\n[max]\nmemory = "512MiB"\n')
    ran = root.ctl('run', '--plan', plan)
    check(ran.code == 125 and 'policy_digest' in ran.err and '\\x0a' not in ran.err,
          'a policy that changed since is named', ran.err)
    root.bundle('version = 1\nname = "org"\n[max]\nmemory = "32MiB"\n')
    ran = root.ctl('run', '--plan', plan)
    check(ran.code == 125 and 'resources.memory' in ran.err and '10-test.toml' in ran.err,
          'a bundle tightened since refuses it and names the key', ran.err)
    same(len(root.ps()), 1, 'nothing of it ran')


@scenario
def plan_outputs(root):
    shown = root.ctl('plan', LIMITS)
    for word in ('shared-kernel', '64MiB', '32', 'seccomp', 'digest', 'network'):
        check(word in shown.out, f'the table tells of {word}', shown.out)
    same(root.ctl('plan', LIMITS, env={'TERM': 'xterm', 'COLUMNS': '40'}).out, shown.out, 'the same everywhere')
    done = root.ctl('plan', '-o', 'yaml', LIMITS)
    check(done.code == 0 and re.search(r'^plan:|^digest:', done.out, re.M), 'plan -o yaml', done.out[:200])
    artifact = root.json('plan', '--artifact', LIMITS)
    text = json.dumps(artifact)
    check('"32"' in text or '32' in text, 'plan --artifact shows what would be launched', text[:300])
    check('config' in artifact or 'process' in artifact or 'bootstrap' in artifact, 'as an object', sorted(artifact))
    snapshot = root.ctl('probe', '--json').out
    here = root.write(root.work + '/here.json', snapshot)
    same(root.ctl('plan', '-o', 'json', '--snapshot', here, LIMITS).out, root.ctl('plan', '-o', 'json', LIMITS).out,
         'plan --snapshot of this host plans as for this host')
    poor = json.loads(snapshot)
    poor['facts']['namespace.user']['status'] = 'gap'
    there = root.write(root.work + '/there.json', json.dumps(poor))
    found = denials(root, '--snapshot', there, LIMITS)
    check(found and any('namespace.user' in d['fact'] for d in found),
          'plan --snapshot of a host without user namespaces denies and says why', found)
    root.ctl('run', '--name', 'base', LIMITS, '--', '/bin/true')
    same(root.json('plan', '-o', 'json', '--diff', 'base', LIMITS, '--', '/bin/true')['changes'], [],
         'plan --diff of the same plan shows nothing')
    changed = root.write(root.work + '/02.toml', open(LIMITS).read().replace('pids = 32', 'pids = 16'))
    found = root.json('plan', '-o', 'json', '--diff', 'base', changed, '--', '/bin/true')['changes']
    check(any('pids' in c['key'] and c['class'] in ('live', 'next-start', 'replace') for c in found),
          'plan --diff names the key and how it is applied', found)
    check('pids' in root.ctl('plan', '--diff', 'base', changed, '--', '/bin/true').out, 'for people too')


@scenario
def overlays(root):
    profile = root.profile('wide', process='timeout = "1m"\nrlimits = { nofile = 100 }\n',
                           text=tmpfs('/work') + '[resources]\nmemory = "512MiB"\npids = 128\n')

    def overlay(text):
        return root.write(root.work + '/overlay.toml', 'version = 1\n' + text)

    narrow = overlay('[process]\nrlimits = { nofile = 50 }\n[[mount]]\ntarget = "/work"\nread_only = true\n'
                     '[[mask]]\npath = "/usr/share/doc"\n[resources]\npids = 16\n')
    done = root.ctl('run', '--overlay', narrow, profile, '--', '/bin/sh', '-c',
                    'ulimit -n; touch /work/x 2>/dev/null || echo read-only; ls -A /usr/share/doc | wc -l')
    same((done.code, done.out), (0, '50\nread-only\n0\n'), 'an overlay narrows', done.err)
    for text in ('isolation = "microvm"\n', 'driver = "oci"\n', '[process]\nrlimits = { nofile = 200 }\n',
                 '[resources]\npids = 129\n', '[resources]\nmemory = "1GiB"\n', '[network]\nmode = "host"\n',
                 '[process]\ntimeout = "2m"\n', bind('/srv', '/srv'), '[security]\ncapabilities = ["CAP_CHOWN"]\n',
                 '[process]\nuser = "0:0"\n', '[rootfs]\nread_only = false\n', '[network]\nallow = ["a.example:1"]\n'):
        done = root.ctl('run', '--overlay', overlay(text), profile)
        key = re.search(r'(\w+) = ', text.split('[[mount]]\n')[-1].splitlines()[-1])[1] if '[[' not in text else 'mount'
        check(done.code == 125 and 'overlay.toml' in done.err and key in done.err,
              f'an overlay may not say {text.splitlines()[-1]}', done)


@scenario
def unsupported_requirements(root):
    for text in ('[network]\nmode = "egress"\nallow = ["a.example:443"]\n', '[resources]\ndisk = "1GiB"\n',
                 '[[mount]]\ntype = "volume"\nsource = "data"\ntarget = "/d"\n', '[rootfs]\nsource = "image:x"\n'):
        found = denials(root, root.profile(text=text))
        check(found and all(d['class'] in ('UNSUPPORTED_REQUIREMENT', 'REQUIRED_CONTROL_UNAVAILABLE') for d in found),
              f'what is not enforced yet is refused, not ignored: {text.splitlines()[-1]}', found)
    native = root.write(root.work + '/n.toml', 'version = 1\nname = "n"\nisolation = "sandbox"\n'
                        'driver = "native"\n[process]\nargv = ["/bin/true"]\n')
    config = root.path + '/etc/sandbox/config.toml'
    text = open(config).read()
    root.write(config, text + 'drivers = ["oci"]\n')
    found = denials(root, native)
    same([d['class'] for d in found], ['BACKEND_UNAVAILABLE'], 'a driver that is not there is BACKEND_UNAVAILABLE')
    root.write(config, text)
    same(root.ctl('run', native).code, 0, 'one that is there runs where a profile pins it')


@scenario
def named_profiles_and_config(root):
    folder = root.path + '/etc/sandbox/profiles.d'
    os.mkdir(folder)
    root.write(folder + '/mine.toml', open(root.profile('mine', ['/bin/echo', 'by name'])).read())
    same(root.ctl('run', 'mine').out, 'by name\n', 'a profile of profiles.d runs by its name')
    os.symlink('/dev/null', folder + '/masked.toml')
    same(root.ctl('run', 'masked').code, 125, 'one that links to /dev/null is masked')
    os.unlink(root.path + '/etc/sandbox/config.toml')
    done = root.ctl('config', 'init')
    same(done.code, 0, 'config init', done.err)
    same(root.ctl('config', 'check').code, 0, 'config check finds what it pinned')
    text = open(root.path + '/etc/sandbox/config.toml').read()
    check('crun' in text and 'sha256' in text, 'with path, version and digest', text)
    check(root.ctl('config', 'init').code == 1, 'config init does not overwrite')
    same(root.ctl('config', 'init', '--force').code, 0, 'unless forced')
    root.write(root.path + '/etc/sandbox/config.toml', re.sub(
        r'(crun.*?sha256:)[0-9a-f]{64}', r'\g<1>' + '0' * 64, text, count=1, flags=re.S)
        .replace('version = 1', f'version = 1\ncgroup_parent = "{root.parent}"', 1))
    done = root.ctl('run', root.profile())
    check(done.code == 125 and 'BACKEND_ARTIFACT_MISMATCH' in done.err, 'a crun that is not the pinned one is refused', done)
    same(root.ctl('config', 'check').code, 1, 'and config check says so')


@scenario
def probe_and_doctor(root):
    facts = root.json('probe', '--json')['facts']
    check(all({'status', 'value', 'evidence'} <= set(f) for f in facts.values()) and len(facts) > 20,
          'probe --json gives each fact with evidence', list(facts.items())[:2])
    check({f['status'] for f in facts.values()} <= {'ok', 'gap', 'note'}, 'of three kinds')
    done = root.ctl('doctor')
    check(done.code in (0, 1) and 'kvm' in done.out, 'doctor judges', done)
    done = root.ctl('doctor', root.profile())
    same(done.code, 0, 'this host is fit for a sandbox', done.out)
    done = root.ctl('doctor', root.profile('vm', isolation='microvm'))
    check(done.code == 1 and 'mend' in done.out or done.code == 0, 'doctor of a profile says how to mend', done)
    same(root.json('version', '-o', 'json')['drivers'][:2], ['oci', 'native'], 'version -o json names the drivers of this build')
    root.census_clean('probing leaves nothing')


if __name__ == '__main__':
    main()
