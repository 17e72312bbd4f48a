/** Every place where what a tenant, a node or a process was named may be printed: it reaches no terminal as anything but text. */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { parsePolicy } from '@weir/policy';
import { Registry } from 'prom-client';
import { HealthServer as AgentHealthServer } from '../node-agent/api/health-server.ts';
import { ApiServer } from '../node-agent/api/server.ts';
import { InterruptedError } from '../node-agent/cli/errors.ts';
import { runCli } from '../node-agent/cli/program.ts';
import { failureAnswer } from '../node-agent/cni/answers.ts';
import { CNI_CODE, CniError } from '../node-agent/cni/errors.ts';
import type { FlowEvent } from '../node-agent/flows/types.ts';
import { eventObject as podEventObject } from '../node-agent/kubernetes/pod-event-writer.ts';
import type { EndpointRow, PolicyRow } from '../node-agent/tables.ts';
import { agentView } from '../node-agent/testing/agent-view.ts';
import { FakeCore, quiet, recordingLogger } from '../node-agent/testing/fake-core.ts';
import { call } from '../node-agent/testing/request.ts';
import { HealthServer } from '../operator/health.ts';
import { eventObject } from '../operator/kubernetes/objects.ts';
import { newsOf } from '../operator/model/events.ts';
import { foldStatus, type StatusInput } from '../operator/model/status.ts';

/** What does something to a terminal or to its reader: C0, DEL, C1, directions, zero width, other lines, tags, and half a character. */
const HOSTILE = [
  '\u0000',
  '\u0007',
  '\b',
  '\t',
  '\n',
  '\r',
  '\u001b[2J',
  '\u007f',
  '\u0085',
  '\u009b2J',
  '\u00ad',
  '\u034f',
  '\u061c',
  '\u200b',
  '\u200d',
  '\u200e',
  '\u2028',
  '\u2029',
  '\u202e',
  '\u2060',
  '\u2066',
  '\u3164',
  '\ufeff',
  '\ufff9',
  '\u{e0041}',
  '\ud800',
].join('x');
const EVIL = `a${HOSTILE}z`;
/** As an argument, or in a path: neither has what is left out. */
const ARGUMENT = EVIL.replaceAll('\u0000', '').replaceAll('\ud800', '');
const DANGEROUS = /[^\x20-\x7e\u00a1-\u00ac\u00ae-\u024f…]/u;

/** Text of one line, or of a message. */
function expectLine(text: string | undefined): void {
  expect(text).not.toBe('');
  expect(text?.match(DANGEROUS) ?? null).toBeNull();
}

/** Lines of ours. Nothing in them begins another one. */
function expectLines(text: string): void {
  expect(text.length).toBeGreaterThan(0);
  for (const line of text.split('\n')) expect(line.match(DANGEROUS)).toBeNull();
}

const status = (more: Partial<StatusInput>) =>
  foldStatus({
    generation: 2,
    problems: [],
    enforcedGeneration: 1,
    rules: 1,
    nodes: [],
    down: [],
    written: true,
    lagging: [],
    endpoints: 1,
    missingServices: [],
    missingGroups: [],
    missingNames: { first: [], ambiguous: [], more: false },
    reported: () => ({ state: 'reached', failures: [], unlisted: 0 }),
    previous: undefined,
    now: '2026-01-01T00:00:00Z',
    ...more,
  });

const cnp = (spec: unknown, metadata: object = {}) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'p', namespace: 'a', ...metadata },
  spec,
});
const HOSTILE_POLICIES: readonly (readonly [string, object])[] = [
  ['a field', cnp({ endpointSelector: {}, [EVIL]: 1 })],
  ['a field of a peer', cnp({ endpointSelector: {}, ingress: [{ fromCIDRSet: [{ [EVIL]: 1 }] }] })],
  ['a label key', cnp({ endpointSelector: { matchLabels: { [EVIL]: 'x' } } })],
  ['a label value', cnp({ endpointSelector: { matchLabels: { app: EVIL } } })],
  ['an operator', cnp({ endpointSelector: { matchExpressions: [{ key: EVIL, operator: EVIL, values: [EVIL] }] } })],
  ['an entity', cnp({ endpointSelector: {}, ingress: [{ fromEntities: [EVIL] }] })],
  ['a prefix', cnp({ endpointSelector: {}, ingress: [{ fromCIDR: [EVIL] }] })],
  ['a port', cnp({ endpointSelector: {}, ingress: [{ toPorts: [{ ports: [{ port: EVIL, protocol: EVIL }] }] }] })],
  ['a rule label', cnp({ endpointSelector: {}, labels: [{ key: EVIL, value: EVIL, source: EVIL }] })],
  ['a field of another type', cnp(EVIL)],
];

describe.each(HOSTILE_POLICIES)('of a policy, %s', (_, policy) => {
  const { problems } = parsePolicy(policy, 'CiliumNetworkPolicy');

  it('is in its problems as text', () => {
    expect(problems.length).toBeGreaterThan(0);
    for (const { path, message } of problems) {
      expectLine(path);
      expectLine(message);
    }
  });

  it('is in its conditions and Events as text', () => {
    const folded = status({ problems });
    for (const { message } of folded.conditions) expectLine(message);
    const kind = 'CiliumNetworkPolicy' as const;
    const news = newsOf(undefined, { kind, status: folded });
    expect(news.length).toBeGreaterThan(0);
    for (const { message } of news) expectLine(message);
  });
});

it('what a node says of itself is in conditions and failures as text', () => {
  const failures = [{ uid: EVIL, generation: 1, reason: EVIL, message: EVIL.repeat(100) }];
  for (const folded of [
    status({ nodes: [EVIL], reported: () => ({ state: 'reached', failures, unlisted: 0 }) }),
    status({ nodes: [EVIL], down: [EVIL] }),
    status({ lagging: [EVIL] }),
    status({
      missingNames: {
        first: [{ path: EVIL, name: EVIL, protocols: ['TCP'], asked: 'peers' }],
        ambiguous: [],
        more: false,
      },
    }),
  ]) {
    for (const { message, reason } of folded.conditions) {
      expectLine(message);
      expect(message.length).toBeLessThanOrEqual(1024);
      expectLine(reason);
    }
    for (const { node, reason, message } of folded.failures ?? [])
      for (const text of [node, reason, message]) expectLine(text);
  }
});

it('Events say it as text', () => {
  const at = '2026-01-01T00:00:00Z';
  const about = { key: 'cnp/a/p', kind: 'CiliumNetworkPolicy' as const, namespace: 'a', name: 'p', uid: 'u' };
  const row = { key: 'k', about, type: 'Warning' as const, reason: 'R', message: EVIL, count: 1, first: at, last: at };
  expectLine(eventObject(row).message);
  const told = { key: 'k', pod: { namespace: 'a', name: 'p', uid: 'u' }, reason: 'R', count: 1, first: 0, last: 0 };
  const { message } = podEventObject({ ...told, message: EVIL.repeat(100) }, 'n1');
  expectLine(message);
  expect(message?.length).toBeLessThanOrEqual(1024);
});

it('a CNI answer says it as text', () => {
  const { msg, details } = failureAnswer(new CniError(CNI_CODE.network, EVIL, `${EVIL}\n${EVIL}`), '1.1.0');
  expectLine(msg);
  expectLines(details);
});

describe('the programs', () => {
  const run = (main: string, args: readonly string[]): Promise<string> =>
    new Promise((resolve, reject) => {
      const child = spawn(process.execPath, [new URL(main, import.meta.url).pathname, ...args], { stdio: 'pipe' });
      let said = '';
      for (const stream of [child.stdout, child.stderr])
        stream.setEncoding('utf8').on('data', (text: string) => {
          said += text;
        });
      child.on('error', reject);
      child.on('close', () => resolve(said));
    });

  it.each([
    ['the log of the operator', '../operator/main.ts', ['--kubeconfig', `/nowhere/${ARGUMENT}`]],
    ['what the agent says of its options', '../node-agent/main.ts', ['--pod-cidr', ARGUMENT]],
  ])('%s has it as text', async (_name, main, args) => {
    const said = await run(main, args);
    expect(said).toContain('202e');
    expectLines(said);
  });
});

describe('the agent', () => {
  let folder = '';
  let socket = '';
  const core = new FakeCore();
  const log = recordingLogger();
  let server: ApiServer;
  const labels = { [`k8s:${EVIL}`]: EVIL };

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'weir-printing-'));
    socket = join(folder, 'weir.sock');
    const condition = () => ({ ok: false, message: EVIL });
    server = new ApiServer({
      socket,
      core,
      flows: core,
      log,
      version: '1',
      nodeName: EVIL,
      clusterName: EVIL,
      kubernetes: true,
      agent: agentView({
        conditions: ['kubernetes', 'cni', 'routing'].map((name) => ({ name, title: EVIL, read: condition })),
      }),
      detach: () => Promise.resolve(false),
      interfaceIndex: () => Promise.resolve(1),
      podCidrs: () => ['10.1.0.0/24'],
    });
    await server.start();
    const row: EndpointRow = {
      id: 7,
      ifindex: 3,
      interfaceName: EVIL,
      addresses: ['10.1.0.7'],
      labels,
      createdAt: EVIL,
    };
    await core.upsertEndpoint(row);
    const { tables, db } = core;
    const policy: PolicyRow = {
      uid: 'a',
      kind: 'CiliumNetworkPolicy',
      namespace: EVIL,
      name: EVIL,
      generation: 1,
      rules: [],
    };
    db.write([tables.identities, tables.policies, tables.peerSets], (txn) => {
      txn.upsert(tables.identities, { id: 300, labels, labelsKey: EVIL });
      txn.upsert(tables.policies, policy);
      const requirements = [{ key: EVIL, operator: 'In' as const, values: [EVIL] }];
      txn.upsert(tables.peerSets, { hash: 'h', selector: { requirements }, identities: [300], origin: 'cluster' });
    });
    core.setRealised({
      revision: 1,
      failures: [{ uid: 'a', generation: 1, reason: EVIL, message: EVIL }],
    });
    core.failing = [EVIL];
    core.maps = () => [{ name: EVIL, type: EVIL, entries: 1, maxEntries: 1, path: EVIL }];
    core.mapEntries = () => [{ key: { [EVIL]: EVIL }, value: { name: EVIL } }];
    core.health = () => ({ ok: false, checks: [{ name: EVIL, ok: false, message: EVIL }] });
    core.importRules = () => ({
      revision: 1,
      problems: [{ code: 'InvalidSpec', path: EVIL, message: EVIL.repeat(10_000) }],
    });
  });
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true });
  });

  it.each([
    ['PUT', '/policy', [{}]],
    ['PUT', '/policy', `{"${EVIL}`],
    ['GET', `/endpoint/${encodeURIComponent(ARGUMENT)}`, undefined],
    ['GET', `/policy/status?policy=${encodeURIComponent(ARGUMENT)}`, undefined],
    ['GET', `/table/${encodeURIComponent(ARGUMENT)}`, undefined],
    ['PUT', '/endpoint/7', { state: EVIL }],
    ['PUT', '/policy', [{ labels: [EVIL, { key: EVIL, value: EVIL, source: EVIL }] }]],
    ['PUT', `/${encodeURIComponent(ARGUMENT)}`, undefined],
    ['PUT', `/endpoint/${encodeURIComponent(ARGUMENT)}`, { 'interface-name': EVIL, 'k8s-pod-name': EVIL }],
    ['DELETE', '/policy', [EVIL]],
  ])('answers request %# with an error of text, and no longer than somebody reads', async (method, path, body) => {
    const answer = await call(socket, method, path, body);
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expectLine(String(answer.body));
    expect(String(answer.body).length).toBeLessThan(100_000);
    const audited = log.lines.splice(0).filter(({ fields }) => 'audit' in fields);
    expect(audited).toHaveLength(method === 'GET' ? 0 : 1);
    for (const { fields } of audited)
      for (const value of Object.values(fields).flat()) if (typeof value === 'string') expectLine(value);
  });

  it('its probes say it as text', async () => {
    const health = { core, ready: () => ({ ok: false, message: EVIL }), idle: () => undefined };
    const own = new AgentHealthServer({ host: '127.0.0.1', port: 0, log: quiet, health });
    await own.start();
    try {
      for (const path of ['healthz', 'readyz'])
        expectLines(await (await fetch(`http://127.0.0.1:${own.port}/${path}`)).text());
    } finally {
      await own.stop();
    }
  });

  /** What the command prints; one that would go on is interrupted after so many lines. */
  async function cli(args: readonly string[], lines = Infinity): Promise<string> {
    let said = '';
    const enough = new AbortController();
    const stream = {
      write: (text: string) => {
        said += text;
        if (said.split('\n').length > lines) enough.abort(new InterruptedError('SIGINT'));
      },
    };
    await runCli({
      args: ['--socket', socket, ...args],
      version: '1',
      out: stream,
      err: stream,
      signal: enough.signal,
    });
    return said;
  }

  it.each([
    [['status']],
    [['version']],
    [['endpoint', 'list']],
    [['endpoint', 'get', '7']],
    [['endpoint', 'get', ARGUMENT]],
    [['identity', 'list']],
    [['identity', 'get', '300']],
    [['identity', 'get', ARGUMENT]],
    [['map', 'list']],
    [['map', 'get', ARGUMENT]],
    [['policy', 'status']],
    [['policy', 'selectors']],
    [['policy', 'wait', '1']],
    [['policy', 'delete', ARGUMENT]],
    [['table', 'list']],
    [['table', 'get', 'identities']],
    [['table', 'get', ARGUMENT]],
    [['help', ARGUMENT]],
    [[ARGUMENT]],
    [['monitor', '--type', ARGUMENT]],
  ])('weir: command %# prints it as text', async (args) => {
    const said = await cli(args);
    expectLines(said);
  });

  it.each([
    [['status', '-o', 'json']],
    [['endpoint', 'list', '-o', 'json']],
    [['endpoint', 'get', '7']],
    [['identity', 'list', '-o', 'json']],
    [['map', 'list', '-o', 'json']],
    [['policy', 'status', '-o', 'json']],
    [['table', 'get', 'identities', '-o', 'json']],
  ])('weir: command %# prints JSON, which says the same', async (args) => {
    const said = await cli(args);
    expectLines(said);
    const lines = args[0] === 'table' ? said.trim().split('\n').slice(1) : [said];
    const values = lines.map((line) => JSON.parse(line) as unknown);
    expect(JSON.stringify(values)).toContain(JSON.stringify(EVIL).slice(1, -1));
  });

  it('weir monitor prints a line an event', async () => {
    const peer = { address: EVIL, identity: 300, name: EVIL, service: EVIL, labels: [EVIL] };
    const event: FlowEvent = {
      time: EVIL,
      verdict: 'dropped',
      direction: 'ingress',
      endpoint: 7,
      source: peer,
      destination: peer,
      protocol: EVIL,
      reason: EVIL,
      message: EVIL,
      policies: [`cnp ${EVIL}`],
      revision: 1,
    };
    const telling = setInterval(() => core.events.next(event), 5);
    try {
      for (const more of [[], ['--json']]) {
        const said = await cli(['monitor', ...more], 3);
        const lines = said.trimEnd().split('\n').slice(0, 3);
        for (const line of lines) expect(line).toMatch(/^(a\\u0000|\{)/);
        expect(lines).toHaveLength(3);
        expectLines(said);
      }
    } finally {
      clearInterval(telling);
    }
  });

  it.each([
    ['a policy', JSON.stringify(HOSTILE_POLICIES.map(([, policy]) => policy))],
    ['a name', JSON.stringify({ ...cnp({ endpointSelector: {} }), metadata: { name: EVIL, namespace: EVIL } })],
    ['a kind', JSON.stringify({ kind: EVIL.repeat(1000), apiVersion: 'v1', metadata: {} })],
    ['what is no YAML', `a: [\n"${EVIL.replaceAll('\u0000', '')}`],
  ])('weir policy validate and import print it as text: %s', async (_, text) => {
    const file = join(folder, 'policy.yaml');
    await writeFile(file, text);
    for (const command of ['validate', 'import']) {
      const said = await cli(['policy', command, file]);
      expectLines(said);
      expect(said.length).toBeLessThan(100_000);
    }
  });
});

it('the probes of the operator say it as text', async () => {
  const server = new HealthServer({
    address: '127.0.0.1:0',
    registry: () => new Registry(),
    unhealthy: () => EVIL,
    unready: () => EVIL,
    onError: () => undefined,
  });
  const port = await server.start();
  try {
    for (const path of ['healthz', 'readyz'])
      expectLine((await (await fetch(`http://127.0.0.1:${port}/${path}`)).text()).trimEnd());
  } finally {
    await server.stop();
  }
});
