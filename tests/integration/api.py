#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The API as a stranger speaks it: plain HTTP, streams, documents held against the server, hostile clients."""
import http.client
import json
import os
import re
import resource
import select
import shutil
import socket
import struct
import subprocess

from lib.harness import PATIENCE, SANDBOXD, SOURCE, check, main, quick, same, scenario, skip, until

SHELL = ['/bin/sh', '-c']
TEXT = 'version = 1\nname = "t"\nisolation = "sandbox"\n[process]\nargv = ["/bin/sh", "-c", "echo hello; exit 3"]\n'
LOOP = 'echo ready; while :; do sleep 0.02; done'
IN, IN_END, RESIZE, SIGNAL, DETACH, TAKEN, OUT, ERR, CREDIT, RESULT = 1, 2, 3, 4, 5, 6, 16, 17, 18, 19


class Http(http.client.HTTPConnection):
    def __init__(self, root):
        super().__init__('sandboxd', timeout=PATIENCE)
        self.place = root.socket

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.place)


def ask(root, method, path, body=None, headers=None):
    """(status, decoded body) of one request on a connection of its own."""
    client = Http(root)
    try:
        client.request(method, path, json.dumps(body) if body is not None else None, headers or {})
    except BrokenPipeError:  # refused by its header: the answer is there all the same
        pass
    answer = client.getresponse()
    text = answer.read().decode()
    client.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text


def raw(root, *pieces, end=False):
    """Sends bytes and returns all that comes until the server closes."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(root.socket)
        data = b''
        try:
            for piece in pieces:
                client.sendall(piece)
            if end:
                client.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass
        while select.select([client], [], [], PATIENCE)[0]:
            try:
                piece = client.recv(65536)
            except ConnectionResetError:
                break
            if not piece:
                break
            data += piece
        return data


class Stream:
    def __init__(self, root, path, body):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(root.socket)
        text = json.dumps(body).encode()
        self.socket.sendall(f'POST {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: sandbox-stream\r\n'
                            f'Content-Length: {len(text)}\r\n\r\n'.encode() + text)
        self.held = b''
        while b'\r\n\r\n' not in self.held:
            self.held += self.socket.recv(65536)
        self.head, self.held = self.held.split(b'\r\n\r\n', 1)

    def send(self, kind, payload=b''):
        self.socket.sendall(struct.pack('>IB', len(payload), kind) + payload)

    def frame(self):
        while len(self.held) < 5 or len(self.held) < 5 + struct.unpack('>I', self.held[:4])[0]:
            piece = self.socket.recv(65536)
            if not piece:
                return None, b''
            self.held += piece
        length, kind = struct.unpack('>IB', self.held[:5])
        payload, self.held = self.held[5:5 + length], self.held[5 + length:]
        if kind in (OUT, ERR):
            try:
                self.send(TAKEN, struct.pack('>I', length))
            except BrokenPipeError:
                pass  # it has said all, and waits for no more room; what it said is still to be read
        return kind, payload

    def until_result(self):
        got = {OUT: b'', ERR: b'', CREDIT: 0}
        while True:
            kind, payload = self.frame()
            if kind == CREDIT:
                got[CREDIT] += struct.unpack('>I', payload)[0]
            elif kind in (OUT, ERR):
                got[kind] += payload
            else:
                self.socket.close()
                return got, json.loads(payload) if kind == RESULT else None

    def read_until(self, mark):
        data = b''
        while mark not in data:
            kind, payload = self.frame()
            assert kind is not None, data
            data += payload if kind in (OUT, ERR) else b''
        return data


def start(root):
    if not root.daemon:
        root.start_daemon()


def body(script=None, **more):
    return {'profile': {'file': 't.toml', 'text': TEXT}, **({'argv': SHELL + [script]} if script else {}), **more}


@scenario
def resources(root):
    start(root)
    status, version = ask(root, 'GET', '/v1/version')
    same((status, version['generation']), (200, 1), 'version')
    status, plan = ask(root, 'POST', '/v1/plan', body())
    same((status, sorted(plan)), (200, ['digest', 'plan', 'version']), 'POST /v1/plan gives the plan file')
    status, made = ask(root, 'POST', '/v1/sandboxes', body(LOOP, name='one'))
    same((status, made['name'], made['exit']), (201, 'one', None), 'POST /v1/sandboxes starts one', made)
    same(ask(root, 'GET', '/v1/sandboxes')[1], root.ps(), 'GET /v1/sandboxes is ps -o json')
    same(ask(root, 'GET', '/v1/sandboxes/one')[1], root.one('one'), 'GET /v1/sandboxes/one is inspect')
    status, carried = ask(root, 'GET', '/v1/sandboxes/one/plan')
    same((status, carried['digest']), (200, root.one('one')['plan_digest']), 'its plan')
    until(lambda: ask(root, 'GET', '/v1/sandboxes/one/logs')[1], 'its first line')
    same(ask(root, 'POST', '/v1/sandboxes/one/kill?signal=TERM')[0], 200, 'kill')
    status, exit = ask(root, 'GET', '/v1/sandboxes/one/wait')
    same((status, exit['code'], exit['signal']), (200, 143, 15), 'wait')
    status, lines = ask(root, 'GET', '/v1/sandboxes/one/logs')
    same((status, lines['log']), (200, 'ready'), 'logs are records, one a line')
    same(ask(root, 'POST', '/v1/sandboxes/one/stop?timeout=1s')[0], 200, 'stop of what has ended')
    same(ask(root, 'DELETE', '/v1/sandboxes/one')[0], 200, 'delete')
    same(ask(root, 'GET', '/v1/sandboxes')[1], [], 'it is gone')
    same(len(ask(root, 'GET', '/v1/sandboxes?all=1')[1]), 1, 'but for all=1')
    status, report = ask(root, 'POST', '/v1/reconcile')
    same((status, report['found']), (200, []), 'reconcile')
    status, verdict = ask(root, 'GET', '/v1/audit/verify')
    same((status, verdict['whole']), (200, True), 'audit verify')


@scenario
def failures(root):
    start(root)
    root.bundle('version = 1\nname = "b"\ndrivers = []\n')
    status, denials = ask(root, 'POST', '/v1/sandboxes', body())
    same((status, denials['denials'][0]['class']), (422, 'POLICY_DENIED'), 'a denial')
    told = root.ctl('plan', '-o', 'json', root.write(root.work + '/t.toml', TEXT)).out
    same(denials['denials'][0]['reason'], json.loads(told)['denials'][0]['reason'], 'as plan -o json prints it')
    os.unlink(root.path + '/etc/sandbox/org.d/10-test.toml')
    status, wrong = ask(root, 'POST', '/v1/plan', {'profile': {'file': 'x', 'text': 'version = 1\nnonsense = 2\n'}})
    check(status == 422 and any(d['key'] == 'nonsense' for d in wrong['diagnostics']), 'a wrong profile', wrong)
    for method, path, sent, wanted, code in [
            ('GET', '/v1/sandboxes/nobody', None, 404, 'not_found'), ('GET', '/nowhere', None, 404, 'not_found'),
            ('PUT', '/v1/sandboxes', None, 405, 'invalid_argument'),
            ('GET', '/v1/sandboxes?nonsense=1', None, 400, 'invalid_argument'),
            ('GET', '/v1/sandboxes?all=1&all=1', None, 400, 'invalid_argument'),
            ('GET', '/v1/sandboxes/%zz', None, 400, 'invalid_argument'),
            ('POST', '/v1/plan', {'profile': 'a/b'}, 400, 'invalid_argument'),
            ('POST', '/v1/plan', {}, 400, 'invalid_argument'),
            ('POST', '/v1/plan', body(narrower='yes'), 400, 'invalid_argument'),
            ('POST', '/v1/plan', [1], 400, 'invalid_argument'),
            ('POST', '/v1/sandboxes/x/kill?signal=NOSUCH', None, 400, 'invalid_argument'),
            ('POST', '/v1/sandboxes/x/attach', {}, 426, 'invalid_argument'),
            ('POST', '/v1/sandboxes/x/exec', {'argv': ['true']}, 426, 'invalid_argument'),
            ('POST', '/v1/sandboxes', body(stdin=True), 400, 'invalid_argument'),
            ('POST', '/v1/plan', {'profile': 'nobody'}, 404, 'not_found')]:
        status, told = ask(root, method, path, sent)
        same((status, told['error']['code']), (wanted, code), f'{method} {path} gives {wanted}', told)
        check(told['error']['message'], 'and says why')
    status, told = ask(root, 'POST', '/v1/plan', {'profile': {'text': 'x' * (17 << 20)}})
    same(status, 413, 'a plan of 17 MiB is too long')
    status, told = ask(root, 'POST', '/v1/sandboxes/x/attach', {'session': 'x' * (2 << 20)})
    same(status, 413, 'and 2 MiB for what needs little')


@scenario
def operation_ids(root):
    start(root)
    key = {'Idempotency-Key': 'op-1'}
    first = ask(root, 'POST', '/v1/sandboxes', body(LOOP), key)
    same(first[0], 201, 'a run with an operation id', first)
    same(ask(root, 'POST', '/v1/sandboxes', body(LOOP), key), first, 'repeated, it gives the recorded answer')
    same(len(root.ps()), 1, 'and starts nothing')
    status, told = ask(root, 'POST', '/v1/sandboxes', body('true'), key)
    same((status, told['error']['code']), (409, 'conflict'), 'the same id for another request is refused')
    root.stop_daemon(9)
    root.start_daemon()
    same(ask(root, 'POST', '/v1/sandboxes', body(LOOP), key), first, 'the next daemon knows it too')
    clients = [Http(root) for _ in range(4)]
    for client in clients:
        client.request('POST', '/v1/sandboxes', json.dumps(body(LOOP)), {'Idempotency-Key': 'op-2'})
    statuses = sorted(client.getresponse().status for client in clients)
    check(statuses[0] == 201 and set(statuses) <= {201, 409}, 'four at once start one', statuses)
    same(len(root.ps()), 2, 'sandbox')
    # A try that was cut short: its record names a process that is gone.
    folder = root.path + '/var/lib/sandbox/operations'
    name = max(os.listdir(folder), key=lambda n: os.stat(os.path.join(folder, n)).st_mtime)
    with open(os.path.join(folder, name)) as file:
        record = json.load(file)
    record.update(done=False, body='', status=0)
    root.write(os.path.join(folder, name), json.dumps(record))
    status, again = ask(root, 'POST', '/v1/sandboxes', body(LOOP), {'Idempotency-Key': 'op-2'})
    check(status == 201 and len(root.ps()) == 2, 'made again, it finds what the first try made', again)
    shutil.rmtree(folder)


@scenario
def streams(root):
    start(root)
    stream = Stream(root, '/v1/sandboxes', body('echo out; echo err >&2; exit 4'))
    check(stream.head.startswith(b'HTTP/1.1 101 '), 'the upgrade is taken', stream.head)
    got, result = stream.until_result()
    same((got[OUT], got[ERR], result['exit_status']), (b'out\n', b'err\n', 4), 'output apart, and the status last', result)
    stream = Stream(root, '/v1/sandboxes', body('cat; exit 5', stdin=True))
    data, sent = os.urandom(3 << 20), 0
    got, credit = b'', 256 << 10
    while len(got) < len(data):
        while credit > 0 and sent < len(data):
            piece = data[sent:sent + min(credit, 32768)]
            stream.send(IN, piece)
            sent, credit = sent + len(piece), credit - len(piece)
        kind, payload = stream.frame()
        if kind == CREDIT:
            credit += struct.unpack('>I', payload)[0]
        elif kind == OUT:
            got += payload
        else:
            break
    stream.send(IN_END)
    _, result = stream.until_result()
    check(got == data and result['exit_status'] == 5, '3 MiB through cat by credit', len(got), result)
    stream = Stream(root, '/v1/sandboxes', body(f'trap "exit 6" USR1; {LOOP}'))
    stream.read_until(b'ready\n')
    stream.send(SIGNAL, bytes([10]))
    same(stream.until_result()[1]['exit_status'], 6, 'signals arrive')
    stream = Stream(root, '/v1/sandboxes', body(LOOP, name='left'))
    stream.read_until(b'ready\n')
    stream.socket.close()
    until(lambda: root.one('left')['state'] == 'running', 'a client that goes leaves its sandbox running')
    check(True, 'a client that goes leaves its sandbox running')
    stream = Stream(root, '/v1/sandboxes', body('cat; echo done', stdin=True))
    stream.send(200, b'?')
    kind, _ = stream.frame()
    while kind in (OUT, CREDIT):
        kind, _ = stream.frame()
    same(kind, None, 'a frame that is none ends the stream')
    stream = Stream(root, '/v1/sandboxes', body('sleep 1000', stdin=True))
    try:
        for _ in range(9):
            stream.send(IN, b'x' * 65536)
        kind = OUT
        while kind in (OUT, CREDIT):
            kind, _ = stream.frame()
    except (BrokenPipeError, ConnectionResetError):
        kind = None
    same(kind, None, 'more input than there is credit for does too')
    status = Stream(root, '/v1/sandboxes/nobody/attach', {}).until_result()[1]
    same(status['error']['code'], 'not_found', 'a failure behind the upgrade is a result too')


@scenario
def followers(root):
    start(root)
    ask(root, 'POST', '/v1/sandboxes', body('for i in 1 2 3; do echo $i; sleep 0.1; done', name='f'))
    client = Http(root)
    client.request('GET', '/v1/sandboxes/f/logs?follow=1')
    answer = client.getresponse()
    same(answer.getheader('Transfer-Encoding'), 'chunked', 'logs?follow=1 is chunked')
    lines = [json.loads(line)['log'] for line in answer.read().splitlines()]
    same(lines, ['1', '2', '3'], 'and ends with the sandbox')
    client.request('GET', '/v1/version')
    same(client.getresponse().read()[:1], b'{', 'the connection goes on')
    curl = shutil.which('curl')
    if curl:
        done = subprocess.run([curl, '-sS', '--unix-socket', root.socket, '-H', 'Expect: 100-continue', '-d', json.dumps(body()),
                               'http://x/v1/plan'], capture_output=True, text=True, timeout=PATIENCE)
        check(done.returncode == 0 and json.loads(done.stdout)['digest'], 'curl --unix-socket works', done)


@scenario
def metrics(root):
    start(root)
    ask(root, 'POST', '/v1/sandboxes', body(LOOP))
    root.bundle('version = 1\nname = "b"\ndrivers = []\n')
    ask(root, 'POST', '/v1/sandboxes', body())
    until(lambda: re.search(r'count [1-9]', ask(root, 'GET', '/metrics')[1]), 'the first reconcile')
    status, text = ask(root, 'GET', '/metrics')
    same(status, 200, '/metrics')
    found = parse_metrics(text)
    for name, wanted in [('sandbox_sandboxes{state="running"}', 1), ('sandbox_launches_total', 1),
                         ('sandbox_denials_total{class="POLICY_DENIED"}', 1),
                         ('sandbox_api_requests_total{operation="run",code="201"}', 1)]:
        same(found.get(name), wanted, f'{name} is {wanted}')
    promtool = shutil.which('promtool')
    if promtool:
        done = subprocess.run([promtool, 'check', 'metrics'], input=text, capture_output=True, text=True)
        check(done.returncode == 0 and not done.stderr, 'promtool has no complaint', done)
    else:
        skip('promtool has no complaint', 'no promtool here, and dev/test could not fetch it (Debian: prometheus); the parser of this test passed')


def parse_metrics(text):
    """Strict: families once, HELP and TYPE before samples, every line well-formed."""
    found, families, current = {}, set(), None
    assert text.endswith('\n')
    for line in text.splitlines():
        help_line = re.fullmatch(r'# HELP ([a-z_]+) \S.*\.', line)
        if help_line:
            assert help_line[1] not in families, line
            current = help_line[1]
            families.add(current)
            continue
        if re.fullmatch(rf'# TYPE {current} (counter|gauge|summary)', line):
            continue
        sample = re.fullmatch(r'([a-z_]+?)(_sum|_count)?(\{[a-z]+="[^"\\\n]*"(,[a-z]+="[^"\\\n]*")*\})? (\d+(\.\d+)?)', line)
        assert sample and (sample[1] == current or sample[1] + (sample[2] or '') == current), line
        key = line.rsplit(' ', 1)[0]
        assert key not in found, line
        found[key] = float(sample[5])
    return found


@scenario
def documents_and_server_agree(root):
    start(root)
    served = json.loads(subprocess.run([SANDBOXD, '--routes'], capture_output=True, text=True, check=True).stdout)
    with open(os.path.join(SOURCE, 'docs/openapi.yaml')) as file:
        text = file.read()
    documented = {}
    path = None
    for line in text[text.index('\npaths:'):].split('\n'):
        if re.fullmatch(r'  (/\S*):', line):
            path = line.strip()[:-1]
        elif re.fullmatch(r'    (get|post|delete|put):', line):
            method = line.strip()[:-1].upper()
            documented[method, path] = {'status': set(), 'query': set()}
        elif path and re.fullmatch(r"        '(\d{3})':.*", line):
            documented[method, path]['status'].add(int(line.split("'")[1]))
        elif path and re.fullmatch(r'        - \{name: (\w+), in: query.*', line):
            documented[method, path]['query'].add(re.search(r'name: (\w+)', line)[1])
    same(sorted(documented), sorted((r['method'], r['path']) for r in served), 'the same routes')
    for route in served:
        found = documented[route['method'], route['path']]
        same(found['query'], set(route['query']), f"{route['method']} {route['path']}: the same query words")
        check((101 in found['status']) == (route['upgrade'] != 'never'), 'a stream where the document says so')
        check((413 in found['status']) == (route['most_body'] > 0), 'a body where the document says so')
    with open(os.path.join(SOURCE, 'docs/api.md')) as file:
        page = file.read()
    missing = [r['path'] for r in served if f"`{r['method']} {r['path']}`" not in page]
    same(missing, [], 'docs/api.md names every route')
    for route in served:
        path = route['path'].replace('{ref}', 'nobody').replace('{session}', 's1')
        if route['upgrade'] == 'must' or path == '/v1/events':
            continue
        sent = {} if route['most_body'] else None
        status, _ = ask(root, route['method'], path, sent)
        check(status in documented[route['method'], route['path']]['status'],
              f"{route['method']} {route['path']}: its status {status} is in the document")


def answers_quickly(root, what):
    quick(lambda: same(ask(root, 'GET', '/v1/sandboxes')[0], 200, f'another client is answered: {what}'), 2, 'quickly')


@scenario
def hostile_clients(root):
    start(root)
    request = b'GET /v1/version HTTP/1.1\r\nHost: x\r\n'
    for what, pieces, wanted in [
            ('no HTTP', [b'\x16\x03\x01\x02\x00\x01' * 50 + b'\r\n\r\n'], b' 400 '),
            ('a header without end', [request + b'X: ' + b'a' * 20000], b' 431 '),
            ('many header lines', [request + b'X: y\r\n' * 5000], b' 431 '),
            ('another version', [b'GET / HTTP/3.7\r\n\r\n'], b' 505 '),
            ('two lengths', [request + b'Content-Length: 1\r\nContent-Length: 2\r\n\r\nx'], b' 400 '),
            ('length and chunks', [b'POST /v1/plan HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n'
                                   b'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n'], b' 400 '),
            ('a negative length', [request + b'Content-Length: -1\r\n\r\n'], b' 400 '),
            ('a huge length', [b'POST /v1/plan HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n'], b' 413 '),
            ('a body where there is none', [b'POST /v1/reconcile HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc'], b' 413 '),
            ('a chunk without end', [b'POST /v1/plan HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n'], b'HTTP/1.1 4'),
            ('NUL in the target', [b'GET /v1/\x00 HTTP/1.1\r\nHost: x\r\n\r\n'], b' 400 '),
            ('deep JSON', [b'POST /v1/plan HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n' + b'[' * 200000], b' 400 ')]:
        data = raw(root, *pieces)
        check(wanted in data[:40], f'{what} is refused', data[:200])
    data = raw(root, request + b'\r\n' + request + b'\r\n' + b'garbage\r\n\r\n')
    check(data.count(b'HTTP/1.1 200') == 2 and b' 400 ' in data, 'pipelined requests are answered up to the garbage', data[-200:])
    data = raw(root, request + b'\r\n', end=True)
    check(data.startswith(b'HTTP/1.1 200'), 'a half-closed client gets its answer')
    check(raw(root, b'', end=True) == b'', 'one that says nothing gets nothing')
    answers_quickly(root, 'after all that')


@scenario
def crowds(root):
    start(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    crowd = []
    try:
        for i in range(1000):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(PATIENCE)
            client.connect(root.socket)
            client.sendall([b'G', b'POST /v1/plan HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{', b''][i % 3])
            crowd.append(client)
            if i % 250 == 249:
                answers_quickly(root, f'{i + 1} connections that say half a word')
        done = root.ctl('run', root.write(root.work + '/t.toml', TEXT))
        same((done.code, done.out), (3, 'hello\n'), 'and a sandbox runs meanwhile', done)
    finally:
        for client in crowd:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    slow = socket.socket(socket.AF_UNIX)
    slow.connect(root.socket)
    ask(root, 'POST', '/v1/sandboxes', body('yes 0123456789 | head -c 30000000; sleep 1000', name='loud'))
    slow.sendall(b'GET /v1/sandboxes/loud/logs?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n')
    answers_quickly(root, 'a reader that takes nothing')
    with open(f'/proc/{root.daemon.pid}/smaps_rollup') as file:
        pss = int(re.search(r'Pss:\s+(\d+)', file.read())[1])
    check(pss < 20 << 10, 'the daemon stays small', f'{pss} KiB')
    slow.close()
    same(ask(root, 'DELETE', '/v1/sandboxes/loud?force=1')[0], 200, 'rm -f')


if __name__ == '__main__':
    main()
