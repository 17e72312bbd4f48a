/** The CLI as a user runs it: a process, against the API with a fake core. */

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { COMPILE_CACHE } from '../../test/compile-cache.ts';
import { eventually } from '../../test/eventually.ts';
import { ApiServer } from '../api/server.ts';
import type { Realised } from '../core.ts';
import { VerifyLaterError } from '../errors.ts';
import type { FlowEvent } from '../flows/types.ts';
import type { EndpointStateRow, EnforcementFault, PolicyRow } from '../tables.ts';
import { agentView } from '../testing/agent-view.ts';
import { FakeCore, quiet } from '../testing/fake-core.ts';
import { InterruptedError } from './errors.ts';
import { runCli } from './program.ts';

const WEIR = join(dirname(fileURLToPath(import.meta.url)), '..', '..', 'bin', 'weir');

let folder = '';
let socket = '';
let core: FakeCore;
let server: ApiServer;
let resting: string | undefined;
let routing = { ok: true, message: '2 routes to other nodes' };

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-cli-'));
  socket = join(folder, 'weir.sock');
  core = new FakeCore();
  server = new ApiServer({
    socket,
    core,
    flows: core,
    log: quiet,
    version: '9.9.9',
    nodeName: 'n1',
    clusterName: 'c',
    kubernetes: false,
    agent: agentView({
      conditions: [
        { name: 'cni', title: 'CNI', read: () => ({ ok: true, message: 'installed' }) },
        { name: 'routing', title: 'Routing', read: () => routing },
      ],
    }),
    detach: () => Promise.resolve(false),
    interfaceIndex: () => Promise.resolve(1),
    podCidrs: () => ['10.1.0.0/24'],
    resting: () => resting,
  });
  await server.start();
  await core.upsertEndpoint({
    id: 7,
    ifindex: 3,
    interfaceName: 'lxc7',
    addresses: ['10.1.0.7'],
    pod: { namespace: 'default', name: 'app1' },
    labels: { 'k8s:id': 'app1' },
    createdAt: '2025-01-01T00:00:00Z',
  });
});
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});
beforeEach(() => {
  core.healthy = true;
  core.failing = [];
});

interface Result {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}
function weir(args: readonly string[], stdin = '', env: Readonly<Record<string, string>> = {}): Promise<Result> {
  return new Promise((resolve, reject) => {
    const child = spawn(WEIR, args, { env: { ...process.env, ...COMPILE_CACHE, WEIR_SOCKET: socket, ...env } });
    let out = '';
    let err = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text;
      if (out.includes('STOP')) child.kill('SIGINT');
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, out, err }));
    child.stdin.on('error', () => undefined);
    child.stdin.end(stdin);
  });
}

/** Another process that listens, tells each request, and answers with an empty stream that it ends on SIGTERM. */
async function fakeAgent(path: string): Promise<{ child: ChildProcess; said(text: string): Promise<void> }> {
  const program = `
    require('node:fs').rmSync(process.argv[1], { force: true });
    const answers = [];
    const server = require('node:http').createServer((request, answer) => {
      answer.writeHead(200).flushHeaders();
      answers.push(answer);
      console.log(request.method, request.url);
    });
    server.listen(process.argv[1], () => console.log('listening'));
    process.on('SIGTERM', () => { for (const each of answers) each.end(); server.close(); server.closeIdleConnections(); });`;
  const child = spawn(process.execPath, ['-e', program, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  const heard: (() => void)[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
    for (const look of heard) look();
  });
  const said = (text: string): Promise<void> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (out.includes(text)) resolve();
      };
      heard.push(look);
      look();
    });
  await said('listening');
  return { child, said };
}

const RULES = JSON.stringify([
  { labels: [{ key: 'name', value: 'l3-rule' }], endpointSelector: { matchLabels: { id: 'app1' } }, ingress: [{}] },
]);

function states(): readonly EndpointStateRow[] {
  using snapshot = core.db.read();
  return [...snapshot.all(core.tables.endpointStates)];
}

describe('weir', () => {
  it('shows status, and exits with 1 when the agent is not healthy', async () => {
    const good = await weir(['status']);
    expect([good.code, good.err]).toEqual([0, '']);
    expect(good.out).toMatch(/^Agent: +Ok +it does its work$/m);
    expect(good.out).toMatch(/^Endpoints: +1\/1 ready$/m);
    expect(good.out).toMatch(/^CNI: +Ok +installed$/m);
    expect(good.out).toMatch(/^Routing: +Ok +2 routes to other nodes$/m);
    expect(good.out).toMatch(/^IPAM: +IPv4: 1 allocated from 10\.1\.0\.0\/24$/m);
    resting = 'all others rest';
    expect((await weir(['status'])).out).toMatch(/^IPAM: +IPv4: 1 allocated from 10\.1\.0\.0\/24; all others rest$/m);
    resting = undefined;
    await core.upsertEndpoint({ id: 8, ifindex: 4, interfaceName: 'lxc8', addresses: ['192.0.2.8'], createdAt: '' });
    expect((await weir(['status'])).out).toMatch(/^IPAM: +IPv4: 1 allocated from 10\.1\.0\.0\/24; 1 from elsewhere$/m);
    await core.deleteEndpoint(8);
    // Another node's pods cannot be reached: said, but no reason to take this one out.
    routing = { ok: false, message: 'no route to the pods of node n2' };
    const apart = await weir(['status']);
    routing = { ok: true, message: '2 routes to other nodes' };
    expect(apart.code).toBe(0);
    expect(apart.out).toMatch(/^Agent: +Warning +no route to the pods of node n2$/m);
    expect(apart.out).toMatch(/^Routing: +Warning +no route to the pods of node n2$/m);
    const put = (state: EndpointStateRow): void => core.acknowledge(state);
    const [state] = states();
    if (state === undefined) throw new Error('there is no endpoint');
    put({ ...state, state: 'waiting-for-identity', reason: 'pod a/b was deleted' });
    expect((await weir(['status'])).out).toMatch(/^Endpoints: +0\/1 ready; endpoint 7: pod a\/b was deleted$/m);
    put(state);
    const fault = (row: EnforcementFault): void =>
      core.db.write([core.tables.enforcementFaults], (txn) => {
        txn.deleteAll(core.tables.enforcementFaults);
        txn.insert(core.tables.enforcementFaults, row);
      });
    const unready = async (): Promise<string | undefined> =>
      /; (endpoint .*)$/m.exec((await weir(['status'])).out)?.[1];
    fault({ part: 'endpoint', of: '7', problem: 'its programs are gone' });
    expect(await unready()).toBe('endpoint 7: its programs are gone');
    fault({ part: 'slot', of: '0', problem: 'it is gone' });
    expect(await unready()).toBe('endpoint 7: policy slot 0: it is gone');
    core.db.write([core.tables.enforcementFaults], (txn) => txn.deleteAll(core.tables.enforcementFaults));
    put({ ...state, reason: 'its labels wait' });
    expect((await weir(['endpoint', 'list'])).out).toMatch(/waiting-to-regenerate +default\/app1/);
    put(state);
    core.healthy = false;
    const bad = await weir(['status']);
    expect(bad.code).toBe(1);
    expect(bad.out).toMatch(/^Agent: +Failure +datapath: see below$/m);
  });

  it('marks a check that is to be looked at, though the agent is healthy', async () => {
    const health = core.health.bind(core);
    core.health = () => ({
      ok: true,
      checks: [{ name: 'labels', ok: true, warning: true, message: 'some have none' }],
    });
    try {
      const status = await weir(['status']);
      expect([status.code, status.out]).toEqual([0, expect.stringMatching(/^ {2}labels: +warning +some have none$/m)]);
    } finally {
      core.health = health;
    }
  });

  it('does not take rules or policies that are not known for none', async () => {
    core.waitingRules = { reason: 'ImportedRulesUnknown', message: 'nobody knows which' };
    try {
      for (const args of [[], ['rule/any']]) {
        const { code, out } = await weir(['policy', 'status', ...args]);
        expect([code, out]).toEqual([1, expect.stringMatching(/BareRules +- +\(unknown\) .*Failing/)]);
        expect(out).toContain('  ImportedRulesUnknown (generation 0): nobody knows which\n');
      }
      expect((await weir(['policy', 'status', 'cnp/default/absent'])).err).toContain('has reached this node');
    } finally {
      core.waitingRules = undefined;
    }
    expect((await weir(['policy', 'status'])).code).toBe(0);
    const { policies } = core.tables;
    const listed = core.db.initialiser(policies, 'ciliumnetworkpolicies');
    const early = await weir(['policy', 'status']);
    const asked = await weir(['policy', 'status', 'cnp/default/absent']);
    core.waitingRules = { reason: 'ImportedRulesUnknown', message: 'nobody knows which' };
    const both = await weir(['policy', 'status']);
    core.waitingRules = undefined;
    core.db.write([policies], (txn) => listed(txn));
    expect(asked).toMatchObject({ code: 1, err: expect.stringContaining('is not known yet') });
    expect([both.code, both.out]).toEqual([
      1,
      expect.stringMatching(/BareRules.*\n.*\n?.*CiliumNetworkPolicy +- +\(unknown\)/s),
    ]);
    expect(early).toMatchObject({
      code: 1,
      err: expect.stringContaining('which policies there are is not known yet: ciliumnetworkpolicies is not listed'),
    });
    expect((await weir(['policy', 'status'])).code).toBe(0);
  });

  it('prints aligned tables and JSON', async () => {
    const list = await weir(['endpoint', 'list']);
    expect(list.out).toBe(
      'ENDPOINT  INGRESS   EGRESS  IDENTITY  IPV4      IPV6  STATE  NAME          LABELS\n' +
        '7         enforced  open    1007      10.1.0.7  -     ready  default/app1  k8s:id=app1\n',
    );
    expect(JSON.parse((await weir(['endpoint', 'list', '-o', 'json'])).out)).toMatchObject([{ id: 7 }]);
    expect(JSON.parse((await weir(['endpoint', 'get', 'pod-name:default/app1'])).out)).toMatchObject({ id: 7 });
    expect(await weir(['endpoint', 'get', '8'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('no endpoint 8 on this node'),
    });
    expect((await weir(['map', 'list'])).out).toContain('endpoints  hash  1        4096  /sys/fs/bpf/fake/endpoints');
    expect((await weir(['map', 'get', 'endpoints'])).out).toBe('KEY        VALUE\nifindex=7  id=1 identity=1001\n');
  });

  it('says what a comparison of the maps found, and ends with 1 where something differed', async () => {
    const compared = 'Compared programs, links, pins and map contents in 0.5 s';
    expect(await weir(['map', 'verify'])).toEqual({ code: 0, out: `Nothing differs. ${compared}\n`, err: '' });
    core.verification = {
      seconds: 0.5,
      mended: [{ part: 'slot', count: 2, last: 'policy slot 3: lost an element' }],
      faults: ['pins: not pinned: ct4'],
      left: 7,
    };
    expect(await weir(['map', 'verify'])).toEqual({
      code: 1,
      out:
        'restored: slot, 2 times, the last: policy slot 3: lost an element\n' +
        'DIFFERS: pins: not pinned: ct4\n' +
        `${compared}, except 7 entries that the kernel refused\n`,
      err: '',
    });
    const json = await weir(['map', 'verify', '-o', 'json']);
    expect([json.code, JSON.parse(json.out)]).toEqual([1, core.verification]);
    core.verify = () => Promise.reject(new VerifyLaterError());
    expect(await weir(['map', 'verify'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('the agent has enforced nothing since it started'),
    });
  });

  it('shows the tables of the agent', async () => {
    const { out } = await weir(['table', 'list']);
    expect(out).toMatch(/^NAME +ROWS +REVISION +INDEXES +WAITS FOR +STREAMS \(LAG\)$/m);
    expect(out).toMatch(/^endpoints +1 +\d+ +ifindex,address,pod,found/m);
    expect(JSON.parse((await weir(['table', 'list', '-o', 'json'])).out)).toContainEqual(
      expect.objectContaining({ name: 'endpoints', rows: 1, pending: [], streams: [], deleteMarkers: 0, watches: 0 }),
    );
    const endpoints = await weir(['table', 'get', 'endpoints']);
    expect(endpoints).toMatchObject({ code: 0, err: '' });
    expect(endpoints.out).toMatch(/^id +ifindex +interfaceName +addresses /);
    expect(endpoints.out).toMatch(/^7 +3 +lxc7 +10\.1\.0\.7 +namespace=default,name=app1 /m);
    expect((await weir(['table', 'get', 'endpoints', '--limit', '0'])).out).toMatch(/and 1 more\n$/);
    const dumped = await weir(['table', 'get', 'endpoints', '-o', 'json']);
    expect(dumped).toMatchObject({ code: 0, err: '' });
    const [head, row] = dumped.out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect(head).toMatchObject({ statedb: 1, table: 'endpoints', rows: 1 });
    expect(row).toMatchObject({ row: { id: 7, addresses: ['10.1.0.7'] } });
    const cut = await weir(['table', 'get', 'endpoints', '-o', 'json', '--limit', '0']);
    expect([cut.code, cut.out.trim().split('\n')]).toEqual([0, [expect.stringContaining('"table":"endpoints"')]]);
    expect(core.db.stats().snapshots).toBe(0);
  });

  it.each([
    [['table', 'get', 'nodez'], 1, 'no table "nodez"; there are: policies, '],
    [['table', 'get', 'endpoints', '-n', 'all'], 2, '--limit "all" is not a number of rows'],
  ])('%j says what is wrong', async (args, code, problem) => {
    expect(await weir(args)).toMatchObject({ code, err: expect.stringContaining(problem) });
  });

  it('imports, shows, waits for and deletes rules', async () => {
    expect(await weir(['policy', 'import', '-'], RULES)).toEqual({ code: 0, out: 'Revision: 2\n', err: '' });
    expect((await weir(['policy', 'get', 'unspec:name=l3-rule'])).out).toContain('"value": "l3-rule"');
    expect(await weir(['policy', 'wait', '2'])).toEqual({ code: 0, out: 'Revision: 2\n', err: '' });
    core.failing = ['endpoint 7: no slot'];
    expect(await weir(['policy', 'wait', '2'])).toMatchObject({
      code: 1,
      err: 'weir: not in the kernel for: endpoint 7: no slot\n',
    });
    const { files } = core;
    core.files = { ...files, unsaved: () => '/state/rules.json cannot be written (EROFS: read-only file system)' };
    expect(await weir(['policy', 'import', '-'], RULES)).toEqual({
      code: 0,
      out: 'Revision: 3\n',
      err: 'weir: warning: the change will not outlive a restart of the agent: /state/rules.json cannot be written (EROFS: read-only file system)\n',
    });
    core.files = files;
    expect(await weir(['policy', 'import', '-'], '[{}]')).toMatchObject({
      code: 1,
      err: expect.stringContaining('[0].endpointSelector: is missing'),
    });
    core.waitingRules = { reason: 'ImportedRulesUnknown', message: 'nobody knows which' };
    for (const args of [['get'], ['get', '-o', 'json'], ['delete', 'unspec:name=l3-rule'], ['wait', '1']])
      expect(await weir(['policy', ...args])).toEqual({ code: 1, out: '', err: 'weir: nobody knows which\n' });
    core.waitingRules = undefined;
    expect(await weir(['policy', 'delete', 'unspec:name=l3-rule'])).toEqual({ code: 0, out: 'Revision: 4\n', err: '' });
    expect(await weir(['policy', 'delete', 'unspec:name=l3-rule'])).toMatchObject({ code: 1 });
    expect(await weir(['policy', 'delete'])).toMatchObject({ code: 2, err: expect.stringContaining('--all') });
  });

  it("shows policies as this node's kernel has them", async () => {
    const policy = (uid: string, kind: PolicyRow['kind'], name: string, generation: number): PolicyRow => ({
      uid,
      kind,
      ...(kind === 'CiliumClusterwideNetworkPolicy' ? {} : { namespace: 'default' }),
      name,
      generation,
      rules: [],
    });
    core.db.write([core.tables.policies, core.tables.policyStatuses], (txn) => {
      txn.upsert(core.tables.policies, policy('a', 'CiliumNetworkPolicy', 'good', 3));
      txn.upsert(core.tables.policies, policy('b', 'CiliumClusterwideNetworkPolicy', 'none', 1));
      txn.upsert(core.tables.policies, policy('c', 'NetworkPolicy', 'web', 2));
      txn.upsert(core.tables.policyStatuses, {
        uid: 'c',
        status: {
          observedGeneration: 2,
          summary: { nodes: '0/1', endpoints: 1, rules: 1 },
          conditions: [
            {
              type: 'Programmed',
              status: 'False',
              reason: 'NodesPending',
              message: 'waiting for n1',
              observedGeneration: 2,
              lastTransitionTime: '2026-01-01T00:00:00Z',
            },
          ],
        },
      });
    });
    const realised = (generation: number, failures: Realised['failures'] = []): void => {
      core.inKernel = new Map([
        ['a', { generation: 3, endpoints: 2 }],
        ['c', { generation, endpoints: 1 }],
      ]);
      core.setRealised({ revision: core.policyRevision(), failures });
    };
    try {
      realised(1);
      const pending = await weir(['policy', 'status']);
      expect(pending).toEqual({
        code: 1,
        err: '',
        out:
          'KIND                            NAMESPACE  NAME  WANTED  KERNEL  ENDPOINTS  STATE\n' +
          'CiliumClusterwideNetworkPolicy  -          none  1       -       0          NoEndpoints\n' +
          'CiliumNetworkPolicy             default    good  3       3       2          Programmed\n' +
          'NetworkPolicy                   default    web   2       1       1          Pending\n' +
          '\nNetworkPolicy/default/web:\n  cluster: Programmed=False (NodesPending) waiting for n1\n',
      });
      realised(2);
      expect((await weir(['policy', 'status'])).code).toBe(0);
      realised(2, [{ uid: 'c', generation: 2, reason: 'KernelRefused', message: 'E2BIG' }]);
      const failing = await weir(['policy', 'status', 'netpol/default/web']);
      expect(failing.code).toBe(1);
      expect(failing.out).toContain('  KernelRefused (generation 2): E2BIG\n');
      const json = await weir(['policy', 'status', '--json', 'cnp/default/good']);
      expect([json.code, JSON.parse(json.out)]).toEqual([
        0,
        [expect.objectContaining({ name: 'good', wanted: 3, kernel: 3, state: 'Programmed', failures: [] })],
      ]);
      // What the agent has been told and not yet looked at may select anything.
      core.importRules(JSON.parse(RULES));
      expect((await weir(['policy', 'status', 'ccnp/none'])).out).toContain('Pending');
      for (const [ref, code, message] of [
        ['cnp/default/absent', 1, 'no CiliumNetworkPolicy default/absent has reached this node'],
        [
          'pod/default/x',
          2,
          '"pod" is no kind; KIND is one of CiliumNetworkPolicy (cnp), CiliumClusterwideNetworkPolicy (ccnp), NetworkPolicy (netpol or knp), ',
        ],
        [
          'default/good',
          2,
          '"default" is no kind; write KIND/default/good, such as cnp/default/good; KIND is one of CiliumNetworkPolicy',
        ],
        ['good', 2, '"good" is no kind; write KIND/NAMESPACE/good, such as cnp/default/good; KIND is one of'],
        ['ccnp/default/none', 2, 'is named CiliumClusterwideNetworkPolicy/NAME'],
      ] as const)
        expect(await weir(['policy', 'status', ref])).toMatchObject({ code, err: expect.stringContaining(message) });
    } finally {
      core.deleteRules([]);
      core.db.write([core.tables.policies, core.tables.policyStatuses], (txn) => {
        txn.deleteAll(core.tables.policies);
        txn.deleteAll(core.tables.policyStatuses);
      });
    }
  });

  it('validates by the limits that the operator has of one policy', async () => {
    const validated = async (spec: object, kind = 'CiliumNetworkPolicy') => {
      const object = { apiVersion: 'cilium.io/v2', kind, metadata: { name: 'p' }, spec };
      const { code, out } = await weir(['policy', 'validate', '-'], JSON.stringify(object));
      return [code, out.replaceAll('\n', '|')];
    };
    const list = <T>(length: number, of: (at: number) => T): T[] => Array.from({ length }, (_, at) => of(at));
    const app = (at: number) => ({ matchLabels: { app: `a${at}` } });
    const beyond = (needs: string) => [
      1,
      expect.stringMatching(`Beyond the limits, .*BudgetExceeded \\$: the policy needs ${needs}`),
    ];
    const endpointSelector = {};
    expect(await validated({ endpointSelector, ingress: list(5_001, () => ({})) })).toEqual(
      beyond('5001 rules, and one may need 5000'),
    );
    expect(await validated({ endpointSelector, ingress: [{ fromEndpoints: list(1_000, app) }] })).toEqual(
      beyond('1001 selectors, and one may need 1000: .*--selectors-per-policy'),
    );
    expect(await validated({ endpointSelector, ingress: [{ fromEndpoints: list(999, app) }] })).toEqual([
      0,
      'CiliumNetworkPolicy default/p: Valid, 1 rule|',
    ]);
    const ports = (most: number) => [{ ports: list(most, (at) => ({ port: `${10_000 + 2 * at}`, protocol: 'TCP' })) }];
    expect(await validated({ endpointSelector, ingress: list(2_000, () => ({ toPorts: ports(30) })) })).toEqual(
      beyond('.* entries in its lists .*: split it'),
    );
    expect(await validated({ endpointSelector, ingress: list(4_000, () => ({ toPorts: ports(10) })) })).toEqual(
      beyond('.* bytes once it is resolved, .*: split it'),
    );
    const long = {
      matchExpressions: [{ key: 'a', operator: 'In', values: list(25_000, (at) => `${at}`.padEnd(60, 'v')) }],
    };
    expect(await validated({ endpointSelector, egress: [{}, { toEndpoints: [long] }] })).toEqual([
      1,
      expect.stringMatching('BudgetExceeded \\$: a selector of spec.egress\\[1\\] needs .* bytes, .*with fewer values'),
    ]);
  });

  it('validates files without an agent', async () => {
    const file = join(folder, 'policies.yaml');
    await writeFile(
      file,
      `apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: good, namespace: default}
spec: {endpointSelector: {matchLabels: {id: app1}}, ingress: [{fromEndpoints: [{}]}]}
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: bad, namespace: default}
spec: {endpointSelector: {}, ingress: [{bogus: 1}]}
`,
    );
    const both = await weir(['policy', 'validate', file], '', { WEIR_SOCKET: '/nowhere' });
    expect(both.code).toBe(1);
    expect(both.out).toMatch(/^CiliumNetworkPolicy default\/good: Valid, 1 rule$/m);
    expect(both.out).toMatch(
      /^CiliumNetworkPolicy default\/bad: Invalid\n {2}InvalidSpec spec\.ingress\[0\]\.bogus: /m,
    );
    const short = JSON.stringify([
      { endpointSelector: {}, egress: [{ toPorts: [{ ports: [{ port: '80', endPort: 70 }] }] }] },
    ]);
    expect(await weir(['policy', 'validate', '-'], short)).toMatchObject({
      code: 0,
      out: expect.stringMatching(
        /^standard input: Valid, 1 rule\n {2}Warning \[0\]\.egress\[0\]\.\S+\.endPort: 70 is less /,
      ),
    });
    expect(await weir(['policy', 'validate', '-'], RULES)).toMatchObject({
      code: 0,
      out: 'standard input: Valid, 1 rule\n',
    });
    // As RULES of the policy's status counts them: elements.
    const two = JSON.stringify([{ endpointSelector: {}, ingress: [{}, { fromEntities: ['world'] }] }]);
    expect((await weir(['policy', 'validate', '-'], two)).out).toBe('standard input: Valid, 2 rules\n');
    const l7 = { endpointSelector: {}, egress: [{ toFQDNs: [{ matchName: 'example.org' }] }] };
    expect(await weir(['policy', 'validate', '-'], JSON.stringify([l7]))).toMatchObject({
      code: 1,
      out: expect.stringMatching(
        /^standard input: Unsupported, 1 rule\n {2}UnsupportedField \[0\]\.egress\[0\]\.toFQDNs/,
      ),
    });
    expect(JSON.parse((await weir(['policy', 'validate', '-', '-o', 'json'], JSON.stringify([l7]))).out)).toMatchObject(
      [{ valid: false, reason: 'UnsupportedField' }],
    );
    expect((await weir(['policy', 'validate', '-'], '{')).err).toMatch(
      /^weir: standard input cannot be read as YAML or JSON: /,
    );
    const knp = {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'web' },
      spec: { podSelector: {} },
    };
    expect(await weir(['policy', 'validate', '-'], JSON.stringify(knp))).toMatchObject({
      code: 0,
      out: 'NetworkPolicy default/web: Valid, 1 rule\n',
    });
    expect(await weir(['policy', 'import', '-'], JSON.stringify(knp))).toEqual({
      code: 1,
      out: '',
      err: 'weir: standard input holds a NetworkPolicy, and nothing was imported: apply it to the cluster (`kubectl apply -f`); bare rules have no kind\n',
    });
    expect(await weir(['policy', 'validate', '-'], '{ [')).toMatchObject({
      code: 1,
      err: expect.stringContaining('cannot be read as YAML or JSON'),
    });
    expect(await weir(['policy', 'validate', join(folder, 'none')])).toMatchObject({
      code: 1,
      err: expect.stringContaining('cannot read'),
    });
  });

  it('follows flow events and ends on a signal', async () => {
    const event = (message: string): FlowEvent => ({
      time: 'T',
      verdict: 'dropped',
      direction: 'ingress',
      endpoint: 7,
      source: { address: '10.1.0.8', identity: 1008, name: 'default/app3' },
      destination: { address: '10.1.0.7', identity: 1007 },
      protocol: 'TCP',
      sourcePort: 1234,
      destinationPort: 80,
      reason: 'policy',
      message,
      policies: ['cnp default/l3-rule'],
      revision: 1,
    });
    const running = weir(['monitor', '--type', 'drop']);
    while (!core.events.observed) await new Promise((resolve) => setTimeout(resolve, 5));
    core.events.next(event('first'));
    const frontend = { address: '10.96.0.2', identity: 2, name: 'world', service: 'default/db' };
    core.events.next({ ...event('second'), destination: frontend });
    core.events.next(event('STOP'));
    const { code, out } = await running;
    expect(code).toBe(130);
    expect(out.split('\n').slice(0, 2)).toEqual([
      'T DROPPED ingress TCP 10.1.0.8:1234 (default/app3, identity 1008) -> 10.1.0.7:80 (identity 1007) endpoint 7: policy: first [cnp default/l3-rule]',
      'T DROPPED ingress TCP 10.1.0.8:1234 (default/app3, identity 1008) -> 10.96.0.2:80 (world, service default/db, identity 2) endpoint 7: policy: second [cnp default/l3-rule]',
    ]);
  });

  it.each([
    [['nope'], 'unknown command'],
    [['-o', 'xml', 'status'], 'Allowed choices are text, json'],
    [['policy', 'wait', 'x'], 'not a whole number'],
    [['endpoint', 'get'], "missing required argument 'id'"],
    [['help', 'policy', 'weight'], 'there is no command "policy weight"'],
  ])('exits with 2 for wrong arguments: %j', async (args, message) => {
    let err = '';
    const sink = { write: () => undefined };
    const write = (text: string): void => {
      err += text;
    };
    const code = await runCli({ args, version: '0', out: sink, err: { write }, signal: new AbortController().signal });
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });
  it.each([
    [['help'], /^Usage: weir \[options\] \[command\]/],
    [['help', 'policy'], /^Usage: weir policy \[options\] \[command\]/],
    [['help', 'policy', 'wait'], /^Usage: weir policy wait \[options\] <revision>/],
  ])('helps with the command that is named: %j', async (args, usage) => {
    let out = '';
    const write = (text: string): void => {
      out += text;
    };
    const sink = { write: () => undefined };
    const code = await runCli({ args, version: '0', out: { write }, err: sink, signal: new AbortController().signal });
    expect([code, out]).toEqual([0, expect.stringMatching(usage)]);
  });
  it('passes the exit code on, of arguments that the agent refuses, too', async () => {
    expect((await weir(['nope'])).code).toBe(2);
    expect(await weir(['endpoint', 'get', 'default/app1'])).toMatchObject({
      code: 2,
      err: 'weir: endpoint id "default/app1" is neither a number from 0 to 65535 nor PREFIX:VALUE, as pod-name:NAMESPACE/NAME\n',
    });
    expect((await weir(['policy', 'status', 'nope'])).code).toBe(2);
  });

  it('says when the agent cannot be reached', async () => {
    const { code, err, out } = await weir(['--socket', '/nowhere/weir.sock', 'status']);
    expect([code, out]).toEqual([1, '']);
    expect(err).toContain(
      'cannot reach the Weir agent at /nowhere/weir.sock: there is no such socket: is the agent running',
    );
    expect((await weir(['version', '--socket', '/nowhere'])).out).toContain('not known');
    expect(await weir(['--version', '--socket', '/nowhere'])).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    });
  });

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s ends a command that waits, at once and with exit code %i', async (signal, code) => {
    const asked = Promise.withResolvers<void>();
    const wait = core.waitPolicyRevision.bind(core);
    core.waitPolicyRevision = (revision, stop) => {
      asked.resolve();
      return wait(revision, stop);
    };
    const child = spawn(WEIR, ['policy', 'wait', '99999'], {
      env: { ...process.env, ...COMPILE_CACHE, WEIR_SOCKET: socket },
    });
    const ended = new Promise((resolve) => child.on('close', resolve));
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    await asked.promise;
    core.waitPolicyRevision = wait;
    child.kill(signal);
    expect(await ended).toBe(code);
    expect(err.split('\n')).toEqual([
      expect.stringMatching(
        /^weir: warning: the agent is at revision \d+, and 99999 comes with later changes; numbers /,
      ),
      `weir: interrupted by ${signal}`,
      '',
    ]);
  });

  it.each(['SIGTERM', 'SIGKILL'] as const)('monitor says that the agent has ended, by %s', async (signal) => {
    const path = join(folder, `ending-${signal}`);
    const agent = await fakeAgent(path);
    try {
      const following = weir(['monitor'], '', { WEIR_SOCKET: path });
      await agent.said('GET /v1/monitor?');
      agent.child.kill(signal);
      expect(await following).toMatchObject({
        code: 1,
        out: '',
        err: expect.stringContaining(`weir: the agent at ${path} has ended, and the stream with it`),
      });
    } finally {
      agent.child.kill('SIGKILL');
    }
  });

  it.each(['policy wait 1', 'policy get'])('%s says that the agent has ended before its answer', async (line) => {
    const path = join(folder, 'killed');
    const agent = await fakeAgent(path);
    try {
      const waiting = weir(line.split(' '), '', { WEIR_SOCKET: path });
      await agent.said('GET /v1/policy');
      agent.child.kill('SIGKILL');
      expect(await waiting).toEqual({
        code: 1,
        out: '',
        err: `weir: the agent at ${path} has ended before it answered; ask its successor once that runs\n`,
      });
    } finally {
      agent.child.kill('SIGKILL');
    }
  });

  it.each([
    'status',
    'monitor',
    'policy wait 1',
    // The time that was given is over before the agent's.
    'monitor --timeout 300ms',
    'monitor -e 7 --timeout 300ms',
    'policy wait 1 --timeout 300ms',
    'policy delete --all',
  ])('a frozen agent is not waited for: %s', async (line) => {
    const path = join(folder, 'frozen');
    const agent = await fakeAgent(path);
    try {
      process.kill(agent.child.pid ?? 0, 'SIGSTOP');
      let err = '';
      const code = await runCli({
        args: ['--socket', path, ...line.split(' ')],
        version: '0',
        answerMs: line.includes('--timeout') ? 60_000 : 300,
        out: { write: () => undefined },
        err: {
          write: (text) => {
            err += text;
          },
        },
        signal: new AbortController().signal,
      });
      expect([code, err]).toEqual([
        1,
        `weir: the agent at ${path} (process ${agent.child.pid}) takes connections and has not answered for 0.3 s: ` +
          `it is stopped; \`kill -CONT ${agent.child.pid}\` resumes it` +
          (line.includes('delete') ? `. The agent may still carry out the request: check before you retry\n` : '\n'),
      ]);
    } finally {
      agent.child.kill('SIGKILL');
    }
  });

  it('warns of an endpoint that there is not, and follows it all the same', async () => {
    const end = new AbortController();
    let err = '';
    const running = runCli({
      args: ['--socket', socket, 'monitor', '-e', '77'],
      version: '0',
      out: { write: () => undefined },
      err: {
        write: (text) => {
          err += text;
        },
      },
      signal: end.signal,
    });
    while (!core.events.observed) await new Promise((resolve) => setTimeout(resolve, 5));
    end.abort(new InterruptedError('SIGTERM'));
    expect(await running).toBe(143);
    expect(err).toBe(
      'weir: warning: no endpoint 77 is on this node now; `weir endpoint list` shows those there are\nweir: interrupted by SIGTERM\n',
    );
  });

  it('follows a table, changes and deletions, and says why it cannot', async () => {
    const { services } = core.tables;
    const put = (name: string): unknown =>
      core.db.write([services], (txn) =>
        txn.upsert(services, { namespace: 'default', name, addresses: ['10.96.0.9'] }),
      );
    put('stays');
    const following = weir(['table', 'follow', 'services']);
    await eventually(
      async () => core.db.stats().streams,
      (streams) => streams === 1,
    );
    put('web');
    core.db.write([services], (txn) => txn.delete(services, 'default/web'));
    put('STOP');
    const { code, out } = await following;
    expect(code).toBe(130);
    const rows = out
      .trim()
      .split('\n')
      .map((text) => JSON.parse(text) as object);
    expect(rows[0]).toMatchObject({ row: { name: 'stays' } });
    expect(rows.at(-1)).toMatchObject({ row: { name: 'STOP', addresses: ['10.96.0.9'] } });
    await eventually(
      async () => core.db.stats().streams,
      (streams) => streams === 0,
    );
    expect(await weir(['table', 'follow', 'nodez'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('no table "nodez"'),
    });
  });

  it('names the request that failed by the agent, as its log does', async () => {
    const maps = core.maps.bind(core);
    core.maps = () => {
      throw new Error('the kernel does not answer');
    };
    try {
      expect(await weir(['map', 'list'])).toMatchObject({
        code: 1,
        err: expect.stringMatching(/^weir: the kernel does not answer \(request [0-9a-z]{12} in the agent's log\)\n$/),
      });
    } finally {
      core.maps = maps;
    }
  });

  it('says when the socket is none', async () => {
    const path = join(folder, 'text');
    await writeFile(path, 'text');
    expect(await weir(['--socket', path, 'status'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('it is not a socket'),
    });
  });

  it('waits and follows for as long as it is told', async () => {
    let time = '';
    /** Code 1: the agent has not answered at all in this time, which was too short on this machine. */
    const answered = async (...args: readonly string[]): Promise<Result> => {
      for (let seconds = 1; ; seconds *= 2) {
        time = `${seconds}s`;
        const result = await weir([...args, '--timeout', time]);
        if (result.code !== 1 || seconds > 60) return result;
      }
    };
    const late = await answered('policy', 'wait', '99999');
    expect([late.code, late.out]).toEqual([124, '']);
    expect(late.err.trimEnd().split('\n').at(-1)).toBe(`weir: revision 99999 was not in the kernel after ${time}`);
    expect(await answered('monitor')).toEqual({ code: 0, out: '', err: '' });
    expect(await weir(['policy', 'wait', '1', '--timeout', '1m'])).toMatchObject({ code: 0, err: '' });
    for (const args of [
      ['policy', 'wait', '1', '--timeout', 'soon'],
      ['monitor', '--timeout', '0'],
    ]) {
      const wrong = await weir(args);
      expect(wrong.code).toBe(2);
      expect(wrong.err).toContain('30s, 5m');
    }
  });
});
