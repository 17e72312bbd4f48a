import { mkdtemp, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { eventually } from '../../test/eventually.ts';
import { MapTooLargeError } from '../errors.ts';
import type { FlowEvent } from '../flows/types.ts';
import type { ServiceRow } from '../tables.ts';
import { apiServer } from '../testing/api-server.ts';
import { FakeCore, recordingLogger } from '../testing/fake-core.ts';
import { call } from '../testing/request.ts';
import type { ApiServer } from './server.ts';

const CHANGE = {
  state: 'waiting-for-identity',
  'interface-name': 'lxc1',
  'interface-index': 7,
  'container-id': 'c0ffee',
  labels: ['k8s:id=app1'],
  addressing: { ipv4: '10.1.0.5' },
};
const RULE = { labels: [{ key: 'name', value: 'l3-rule' }], endpointSelector: { matchLabels: { id: 'app1' } } };

const EVENT: FlowEvent = {
  time: '2025-01-01T00:00:00Z',
  verdict: 'dropped',
  direction: 'ingress',
  endpoint: 1,
  source: { address: '10.1.0.6', identity: 1002 },
  destination: { address: '10.1.0.5', identity: 1001 },
  protocol: 'TCP',
  sourcePort: 4000,
  destinationPort: 80,
  reason: 'policy',
  message: 'no rule allows it',
  policies: ['cnp default/l3-rule'],
  revision: 1,
};

let folder: string;
let socket: string;
let core: FakeCore;
let server: ApiServer;
let log: ReturnType<typeof recordingLogger>;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'weir-api-'));
  socket = join(folder, 'weir.sock');
  core = new FakeCore();
  log = recordingLogger();
  server = apiServer({ socket, core, log });
  await server.start();
});
afterEach(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

describe('endpoints', () => {
  it('show the names of their ports', async () => {
    const pod = { namespace: 'default', name: 'web' };
    await core.upsertEndpoint({ id: 7, ifindex: 3, interfaceName: 'x', addresses: ['10.1.0.7'], pod, createdAt: '' });
    core.db.write([core.tables.localPods], (txn) =>
      txn.upsert(core.tables.localPods, {
        ...pod,
        uid: 'u',
        labels: {},
        serviceAccount: 'default',
        namedPorts: [{ name: 'http', port: 8080, protocol: 'TCP' }],
        addresses: [],
      }),
    );
    expect((await call(socket, 'GET', '/endpoint/7')).body).toMatchObject({
      status: { namedPorts: [{ name: 'http', port: 8080, protocol: 'TCP' }] },
    });
  });
});

describe('an endpoint of which nothing has been computed since the start', () => {
  it('is shown as the kernel has it', async () => {
    const row = { id: 7, ifindex: 3, interfaceName: 'x', addresses: ['10.1.0.7'], createdAt: '' };
    core.db.write([core.tables.endpoints], (txn) => txn.insert(core.tables.endpoints, row));
    const enforced = { ingress: true, egress: false };
    core.adopt({ id: 7, ifindex: 3, addresses: ['10.1.0.7'], identity: 256, slot: 1, revision: 4, enforced });
    expect((await call(socket, 'GET', '/endpoint/7')).body).toMatchObject({
      status: {
        identity: { id: 256 },
        policy: { realized: { 'policy-enabled': 'ingress' } },
        state: 'restoring',
        log: [{ message: expect.stringContaining("found in the kernel at the agent's start") }],
      },
    });
  });
});

describe('endpoints', () => {
  it('answers 201 only once the endpoint is enforced', async () => {
    const order: string[] = [];
    let release = (): void => undefined;
    core.beforeEnforce = () =>
      new Promise<void>((resolve) => {
        release = resolve;
        order.push('enforcing');
      });
    const put = call(socket, 'PUT', '/endpoint/cilium-local:0', CHANGE).then((answer) => {
      order.push('answered');
      return answer;
    });
    while (order.length === 0) await new Promise((resolve) => setImmediate(resolve));
    order.push('released');
    release();
    const answer = await put;
    expect(order).toEqual(['enforcing', 'released', 'answered']);
    expect(answer.status).toBe(201);
    expect(answer.body).toMatchObject({
      id: 1,
      status: {
        state: 'ready',
        identity: { id: 1001, labels: ['k8s:id=app1'] },
        networking: { addressing: [{ ipv4: '10.1.0.5' }], 'interface-index': 7 },
        policy: { realized: { 'policy-enabled': 'ingress' } },
        health: { overallHealth: 'OK' },
      },
    });
  });
  it('removes an endpoint that cannot be enforced', async () => {
    core.beforeEnforce = () => {
      throw new Error('tcx: no such device');
    };
    const answer = await call(socket, 'PUT', '/endpoint/0', CHANGE);
    expect(answer.status).toBe(500);
    expect(answer.body).toBe('endpoint 1 could not be enforced and was removed again: tcx: no such device');
    expect((await call(socket, 'GET', '/endpoint')).body).toEqual([]);
  });
  it('is found by each kind of id', async () => {
    const addressing = { ipv4: '10.1.0.5', ipv6: 'fd00:1::0:5' };
    await call(socket, 'PUT', '/endpoint/0', {
      ...CHANGE,
      id: 9,
      addressing,
      'k8s-namespace': 'default',
      'k8s-pod-name': 'app1',
    });
    for (const id of [
      '9',
      'cilium-local:9',
      'container-id:c0ffee',
      'container-name:app1',
      'pod-name:default%2Fapp1',
      'cep-name:default%2Fapp1',
      'ipv4:10.1.0.5',
      'ipv6:fd00:1:0::5',
    ]) {
      expect(await call(socket, 'GET', `/endpoint/${id}`)).toMatchObject({ status: 200, body: { id: 9 } });
    }
    expect((await call(socket, 'GET', '/endpoint/9/healthz')).body).toMatchObject({
      overallHealth: 'OK',
      connected: true,
    });
    expect((await call(socket, 'GET', '/endpoint/9/labels')).body).toMatchObject({
      status: { 'security-relevant': ['k8s:id=app1'] },
    });
  });
  it('refuses bad requests and says where', async () => {
    const cases: [string, unknown, string][] = [
      ['/endpoint/70000', CHANGE, '"70000" is neither a number from 0 to 65535 nor PREFIX:VALUE'],
      ['/endpoint/nope:1', CHANGE, 'unknown prefix "nope"'],
      ['/endpoint/0', { ...CHANGE, state: undefined }, '"state"'],
      ['/endpoint/0', { ...CHANGE, addressing: { ipv4: '10.1.0.05' } }, '"addressing.ipv4"'],
      ['/endpoint/0', { ...CHANGE, addressing: { ipv4: '10.1.0.5', ipv6: '10.1.0.6' } }, '"addressing.ipv6"'],
      ['/endpoint/0', { ...CHANGE, addressing: {} }, '"addressing" needs "ipv4", "ipv6" or both'],
      ['/endpoint/ipv6:10.1.0.5', CHANGE, '"10.1.0.5" is no IPv6 address'],
      ['/endpoint/0', { ...CHANGE, labels: ['any:x=1'] }, 'any'],
      ['/endpoint/0', { ...CHANGE, 'interface-name': '../etc' }, '"interface-name"'],
      ['/endpoint/0', '{"state"', 'not JSON'],
      ['/endpoint/0', [], 'must be a JSON object'],
    ];
    for (const [path, body, message] of cases) {
      const answer = await call(socket, 'PUT', path, body);
      expect([path, answer.status, typeof answer.body]).toEqual([path, 400, 'string']);
      expect(answer.body).toContain(message);
    }
    expect(core.calls).toEqual([]);
  });
  it('does not overwrite, filters by labels, deletes', async () => {
    await call(socket, 'PUT', '/endpoint/0', CHANGE);
    expect((await call(socket, 'PUT', '/endpoint/0', CHANGE)).status).toBe(409);
    expect((await call(socket, 'GET', '/endpoint?labels=id=app1')).body).toHaveLength(1);
    expect((await call(socket, 'GET', '/endpoint', ['k8s:id=app2'])).status).toBe(404);
    expect((await call(socket, 'DELETE', '/endpoint', { 'container-id': 'other' })).status).toBe(404);
    expect((await call(socket, 'DELETE', '/endpoint', { 'container-id': 'c0ffee' })).body).toBe(1);
    expect((await call(socket, 'DELETE', '/endpoint/1')).status).toBe(404);
  });
});

describe('policy', () => {
  it('imports, shows, replaces and deletes rules', async () => {
    const put = await call(socket, 'PUT', '/policy', [RULE]);
    expect(put).toMatchObject({ status: 200, body: { revision: 2 } });
    expect(JSON.parse((put.body as { policy: string }).policy)).toEqual([RULE]);
    expect((await call(socket, 'PUT', '/policy?replace=true', RULE)).body).toMatchObject({ revision: 3 });
    expect(core.importedRules()).toHaveLength(1);
    expect((await call(socket, 'GET', '/policy?labels=unspec:name=other')).status).toBe(404);
    expect((await call(socket, 'DELETE', '/policy', ['name=l3-rule'])).body).toMatchObject({
      revision: 4,
      deleted: 1,
    });
    expect((await call(socket, 'DELETE', '/policy', ['unspec:name=l3-rule'])).status).toBe(404);
  });
  it('rejects an import as a whole, with the path', async () => {
    const answer = await call(socket, 'PUT', '/policy', [RULE, {}]);
    expect(answer).toMatchObject({
      status: 400,
      body: 'nothing was imported: [1].endpointSelector: is missing: give the pods that the rule is for',
    });
    expect(core.importedRules()).toEqual([]);
    expect((await call(socket, 'PUT', '/policy')).status).toBe(400);
  });
  it('does not tell rules that are not known, nor takes some of them away', async () => {
    core.waitingRules = {
      reason: 'ImportedRulesUnknown',
      message: 'nobody knows; `weir policy import` says',
    };
    const { revision } = core.importRules([RULE]);
    try {
      for (const path of ['/policy', '/policy?labels=unspec:name=l3-rule'])
        expect(await call(socket, 'GET', path)).toMatchObject({ status: 503, body: core.waitingRules.message });
      expect(await call(socket, 'DELETE', '/policy', ['unspec:name=l3-rule'])).toMatchObject({
        status: 503,
        body: core.waitingRules.message,
      });
      expect(core.policyRevision()).toBe(revision);
      expect((await call(socket, 'DELETE', '/policy', [])).body).toMatchObject({ deleted: 1 });
    } finally {
      core.waitingRules = undefined;
    }
  });
  it('waits for a revision and names what failed', async () => {
    core.failing = ['3'];
    expect((await call(socket, 'GET', '/policy/wait?revision=1')).body).toEqual({ revision: 1, failing: ['3'] });
    expect((await call(socket, 'GET', '/policy/wait?revision=-1')).status).toBe(400);
  });
  it('takes a client that goes away for no fault, whatever it waited for or was sending', async () => {
    const aborted = Promise.withResolvers<void>();
    core.waitPolicyRevision = (_revision, signal) =>
      new Promise((_resolve, reject) => {
        signal?.addEventListener('abort', () => {
          reject(signal.reason as Error);
          aborted.resolve();
        });
        asked.resolve();
      });
    const asked = Promise.withResolvers<void>();
    const waiting = httpRequest({ socketPath: socket, path: '/v1/policy/wait?revision=99', agent: false });
    waiting.on('error', () => undefined).end();
    await asked.promise;
    waiting.destroy();
    await aborted.promise;
    const sending = httpRequest({
      socketPath: socket,
      path: '/v1/policy',
      method: 'PUT',
      agent: false,
      headers: { 'content-length': 1000 },
    });
    sending.on('error', () => undefined).write('[');
    await new Promise((resolve) => sending.once('socket', (under) => under.once('connect', resolve)));
    sending.destroy();
    // The next answer comes after both have been dealt with.
    expect((await call(socket, 'GET', '/policy')).status).toBe(200);
    expect(log.lines.filter(({ level, fields }) => level !== 'debug' && !('audit' in fields))).toEqual([]);
  });
  it('sends those away who wait when the agent ends', async () => {
    let waiting: () => void = () => undefined;
    const asked = new Promise<void>((resolve) => {
      waiting = resolve;
    });
    const wait = core.waitPolicyRevision.bind(core);
    core.waitPolicyRevision = (revision, signal) => {
      waiting();
      return wait(revision, signal);
    };
    const answer = call(socket, 'GET', '/policy/wait?revision=99');
    await asked;
    await server.stop();
    expect(await answer).toMatchObject({ status: 503, body: expect.stringContaining('the agent is ending') });
    expect(log.lines.filter(({ level }) => level === 'warn' || level === 'error')).toEqual([]);
  });
});

describe('the rest', () => {
  it('reports status, maps, identities, prefixes, nodes, config, metrics', async () => {
    core.db.write([core.tables.identities, core.tables.ipcache], (txn) => {
      txn.upsert(core.tables.identities, { id: 1001, labels: { 'k8s:id': 'app1' }, labelsKey: 'x' });
      txn.upsert(core.tables.ipcache, { prefix: '10.1.0.5/32', identity: 1001, source: 'endpoint' });
      txn.upsert(core.tables.ipcache, { prefix: '0.0.0.0/0', identity: 2, source: 'world' });
    });
    expect((await call(socket, 'GET', '/healthz')).body).toMatchObject({
      cilium: { state: 'Ok' },
      kubernetes: { state: 'Disabled' },
      weir: { node: 'n1', policyRevision: 1 },
    });
    core.healthy = false;
    expect(await call(socket, 'GET', '/healthz')).toMatchObject({
      status: 503,
      body: { cilium: { state: 'Failure', msg: 'datapath: no datapath' } },
    });
    expect((await call(socket, 'GET', '/identity/1001')).body).toMatchObject({ id: 1001, labels: ['k8s:id=app1'] });
    expect((await call(socket, 'GET', '/identity/1002')).status).toBe(404);
    // As flow events name them.
    expect((await call(socket, 'GET', '/identity/2')).body).toMatchObject({ id: 2, labels: ['reserved:world='] });
    expect((await call(socket, 'GET', '/ip?cidr=10.0.0.0/8')).body).toEqual([
      { cidr: '10.1.0.5/32', identity: 1001, encryptKey: 0, metadata: { source: 'endpoint' } },
    ]);
    expect((await call(socket, 'GET', '/ip?cidr=10.0.0')).status).toBe(400);
    expect((await call(socket, 'GET', '/map/endpoints')).body).toEqual({
      path: '/sys/fs/bpf/fake/endpoints',
      cache: [{ key: { ifindex: 7 }, value: { id: 1, identity: 1001 } }],
    });
    expect((await call(socket, 'GET', '/map/none')).body).toBe('no map "none"; there are: endpoints');
    expect((await call(socket, 'GET', '/metrics')).body).toContainEqual({
      name: 'weir_datapath_bytes_total',
      value: 222,
      labels: { reason: 'policy', direction: 'ingress' },
    });
    expect((await call(socket, 'GET', '/cluster/nodes')).body).toMatchObject({ self: 'n1' });
    expect((await call(socket, 'GET', '/config')).body).toMatchObject({ spec: { 'policy-enforcement': 'default' } });
    expect(await call(socket, 'GET', '/nothing')).toMatchObject({ status: 404, body: 'no such path: GET /v1/nothing' });
  });

  it('names the identities that this node numbers itself', async () => {
    core.own = [
      { id: 0x01000001, labels: { 'cidr:192.0.2.0/24': '', 'reserved:world': '' } },
      { id: 0x03000001, labels: { 'k8s:id': 'app9' } },
    ];
    const list = (await call(socket, 'GET', '/identity')).body as readonly object[];
    expect(list).toMatchObject([
      { id: 0x01000001, labels: ['cidr:192.0.2.0/24=', 'reserved:world='] },
      { id: 0x03000001, labels: ['k8s:id=app9'] },
    ]);
    for (const one of list as readonly { id: number }[])
      expect((await call(socket, 'GET', `/identity/${one.id}`)).body).toEqual(one);
    expect((await call(socket, 'GET', `/identity/${0x01000002}`)).status).toBe(404);
  });

  it('says of the monitor what condition "events" says', async () => {
    const monitor = async (): Promise<unknown> => (await call(socket, 'GET', '/healthz')).body;
    expect(await monitor()).toMatchObject({ nodeMonitor: { state: 'Disabled' } });
    let events = { ok: false, message: 'the ring of events cannot be read' };
    await server.stop();
    const agent = { conditions: [{ name: 'events', title: 'Flow events', read: () => events }] };
    server = apiServer({ socket, core, log, agent });
    await server.start();
    expect(await monitor()).toMatchObject({ nodeMonitor: { state: 'Warning', msg: events.message } });
    events = { ok: true, message: 'read' };
    expect(await monitor()).toMatchObject({ nodeMonitor: { state: 'Ok', msg: 'read' } });
  });

  it('gives a request that fails by its own fault the id that the log has', async () => {
    core.maps = () => {
      throw new Error('the kernel does not answer');
    };
    const answers = [await call(socket, 'GET', '/map'), await call(socket, 'GET', '/map')];
    const ids = answers.map(({ requestId }) => requestId);
    expect(answers).toMatchObject([{ status: 500, body: 'the kernel does not answer' }, { status: 500 }]);
    expect(new Set(ids).size).toBe(2);
    expect(log.lines.filter(({ level }) => level === 'error').map(({ fields }) => fields)).toMatchObject(
      ids.map((request) => ({ request, url: '/v1/map' })),
    );
    // What is not logged has no id to look for.
    expect((await call(socket, 'GET', '/nothing')).requestId).toBeUndefined();
  });

  it('refuses a map that is too large for an answer as no fault of its own', async () => {
    core.mapEntries = () => {
      throw new MapTooLargeError(20_000, 'it otherwise');
    };
    const { status, body } = await call(socket, 'GET', '/map/endpoints');
    expect([status, body]).toEqual([422, expect.stringContaining('read it otherwise')]);
    expect(log.lines.filter(({ level }) => level === 'error')).toEqual([]);
  });

  it('streams flow events, verbose only while somebody wants allowed flows', async () => {
    const lines: string[] = [];
    const wake: (() => void)[] = [];
    const request = httpRequest({ socketPath: socket, path: '/v1/monitor?endpoint=1', agent: false });
    request.end();
    const response = await new Promise<import('node:http').IncomingMessage>((resolve) =>
      request.on('response', resolve),
    );
    expect(core.verbose).toBe(true);
    response.setEncoding('utf8').on('data', (text: string) => {
      lines.push(...text.split('\n').filter((line) => line !== ''));
      for (const resolve of wake.splice(0)) resolve();
    });
    core.events.next({ ...EVENT, endpoint: 2 });
    core.events.next(EVENT);
    await new Promise<void>((resolve) => {
      if (lines.length > 0) resolve();
      else wake.push(resolve);
    });
    expect(lines.map((line): unknown => JSON.parse(line))).toEqual([EVENT]);
    const ended = new Promise((resolve) => response.on('end', resolve));
    await server.stop();
    await ended;
    expect(core.verbose).toBe(false);
    expect(core.events.observed).toBe(false);
  });
});

describe('a follower of a table', () => {
  const follow = async (): Promise<import('node:http').IncomingMessage> => {
    const request = httpRequest({ socketPath: socket, path: '/v1/table/services/changes', agent: false });
    request.end();
    return await new Promise((resolve) => request.on('response', resolve));
  };
  const linesUntil = async (response: AsyncIterable<unknown>, end: (text: string) => boolean): Promise<object[]> => {
    let text = '';
    for await (const chunk of response) {
      text += String(chunk);
      if (end(text)) break;
    }
    return text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
  };
  const service = (name: string, namespace = 'a'): ServiceRow => ({ namespace, name, addresses: [] });
  const put = (row: ServiceRow): unknown =>
    core.db.write([core.tables.services], (txn) => txn.upsert(core.tables.services, row));

  it('is given the rows, then what changes and goes, until the agent ends', async () => {
    put(service('web'));
    const response = await follow();
    const all = linesUntil(response.setEncoding('utf8'), () => false);
    await eventually(
      async () => core.db.tables().flatMap(({ streams }) => streams),
      (streams) => streams[0]?.lag === 0,
    );
    core.db.write([core.tables.services], (txn) => txn.delete(core.tables.services, 'a/web'));
    await eventually(
      async () => core.db.tables().flatMap(({ streams }) => streams),
      (streams) => streams[0]?.lag === 0,
    );
    await server.stop();
    expect(await all).toEqual([
      { revision: 1, row: service('web') },
      { revision: 2, deleted: true, row: service('web') },
    ]);
    expect(core.db.stats().streams).toBe(0);
  });

  it('that takes nothing is let go, and told why', async () => {
    await server.stop();
    server = apiServer({ socket, core, log, followPatienceMs: 50 });
    await server.start();
    for (let n = 0; n < 4_000; n += 1) put(service(`s${n}`, 'x'.repeat(1_000)));
    const response = await follow();
    await eventually(
      async () => core.db.stats().streams,
      (streams) => streams === 0,
    );
    const lines = await linesUntil(response.setEncoding('utf8'), () => false);
    expect(lines.at(-1)).toEqual({ error: expect.stringContaining('has read nothing for 0.05 s') });
    expect(lines.length).toBeLessThan(2_000);
    expect(log.lines).toContainEqual(
      expect.objectContaining({ level: 'warn', message: 'the stream of a table ended' }),
    );
  });
});

describe('a follower that does not read', () => {
  it('is told how many events were left out, costs no more than they may wait for it, and ends as any other', async () => {
    const request = httpRequest({ socketPath: socket, path: '/v1/monitor?type=drop', agent: false });
    request.end();
    const response = await new Promise<import('node:http').IncomingMessage>((resolve) =>
      request.on('response', resolve),
    );
    const sent = 6_000;
    for (let n = 0; n < sent; n += 1) core.events.next({ ...EVENT, message: 'x'.repeat(1_000) });
    const told = log.lines.filter(({ level, message }) => level === 'warn' && message.includes('too slow'));
    expect(told).toMatchObject([{ fields: { follower: expect.any(String) } }]);
    let text = '';
    // No event comes that could bring the count with it.
    for await (const chunk of response.setEncoding('utf8')) {
      text += String(chunk);
      if (text.endsWith('\n') && text.includes('"lost"')) break;
    }
    const lines = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { lost?: number });
    const lost = lines.at(-1)?.lost ?? 0;
    expect(lost).toBeGreaterThan(0);
    expect(lines.length - 1 + lost).toBe(sent);
    expect(lines.length * 1_000).toBeLessThan(3 << 20);
    await eventually(
      async () => core.events.observed,
      (observed) => !observed,
    );
  });
});
