/** What status says of endpoints: whose they are, which identity they have, and what becomes of their packets until that is known. */
import { beforeEach, describe, expect, it } from '@jest/globals';
import type { CoreOptions } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import { basic } from '../derive/testing/model-world.ts';
import type { EndpointRow, EndpointStateRow, KernelEndpoint } from '../tables.ts';
import { FakeCore } from '../testing/fake-core.ts';
import { connectionsCheck, endpointsCheck, labelsCheck } from './endpoint-checks.ts';

const STARTED = Date.parse('2026-01-02T00:00:00Z');
const WEB = { namespace: 'ns', name: 'web', uid: 'u1' };
const ROW: EndpointRow = {
  id: 1,
  ifindex: 7,
  interfaceName: 'weir1',
  addresses: ['10.0.0.1'],
  createdAt: new Date(STARTED).toISOString(),
};

it('names endpoints that have as many connections as they may, as long as there are such endpoints', () => {
  const core = new FakeCore();
  core.db.write([core.tables.endpoints], (txn) => txn.upsert(core.tables.endpoints, { ...ROW, pod: WEB }));
  expect(connectionsCheck(core, { endpoints: [], peers: [] })).toMatchObject({
    ok: true,
    message: 'every endpoint has room in the table of connections',
  });
  expect(connectionsCheck(core, { endpoints: [2], peers: [] }).warning).toBeUndefined();
  const spent = connectionsCheck(core, { endpoints: [2, 1], peers: [Uint8Array.of(192, 0, 2, 1)] });
  expect([spent.ok, spent.warning]).toEqual([true, true]);
  expect(spent.message).toMatch(
    /^endpoint 1 \(weir1, pod ns\/web\), 192\.0\.2\.1: as many connections as one may have; /,
  );
});

describe('whose endpoints are', () => {
  let core: FakeCore;
  beforeEach(() => {
    core = new FakeCore();
  });
  const put = (row: EndpointRow): void => {
    core.db.write([core.tables.endpoints], (txn) => txn.upsert(core.tables.endpoints, row));
  };
  const said = (seconds = 0, policyMode: CoreOptions['policyMode'] = 'default'): readonly unknown[] => {
    const { db, tables } = core;
    const wallClock = (): number => STARTED + seconds * 1000;
    const { ok, warning = false, message } = endpointsCheck({ db, tables, policyMode, wallClock });
    return [ok, warning, message];
  };
  const acknowledge = (of: Partial<EndpointStateRow>): void =>
    core.acknowledge({
      ...{ id: 1, ifindex: 7, addresses: ['10.0.0.1'], identity: 0, labels: {}, slot: 1, revision: 1, policies: {} },
      ...{ enforced: { ingress: true, egress: true }, state: 'waiting-for-identity', ...of },
    });
  const adopt = (of: Partial<KernelEndpoint> = {}): void =>
    core.adopt({
      ...{ id: 1, ifindex: 7, addresses: ['10.0.0.1'], identity: 300, slot: 1, revision: 1 },
      ...{ enforced: { ingress: true, egress: false }, ...of },
    } as KernelEndpoint);

  it('is said with what the kernel acknowledged, not with what it should be', () => {
    put({ ...ROW, found: { identity: 0 } });
    const unknown = 'the pod of endpoint 1 (weir1) is not known: ';
    const tail = (policyMode?: CoreOptions['policyMode']): unknown => String(said(0, policyMode)[2]).split(unknown)[1];
    expect(tail()).toBe('the kernel enforces nothing of it yet');
    adopt();
    expect(tail()).toBe('it stays as the kernel had it until the inputs are complete');
    expect(tail('never')).toBe('it stays as the kernel had it until the inputs are complete');
    acknowledge({});
    expect(tail()).toBe('without an identity it is closed in both directions');
    acknowledge({ identity: 300, state: 'ready' });
    expect(tail()).toBe('it is judged as identity 300, which it had before');
    acknowledge({ slot: 0, enforced: { ingress: false, egress: false } });
    expect(tail('never')).toBe('it is open, as policy enforcement is `never`');
    expect(said().slice(0, 2)).toEqual([true, true]);
  });

  it('is no matter of an endpoint whose pod the cluster has; of another one once it has lasted', () => {
    const { db, tables } = core;
    put({ ...ROW, pod: WEB });
    acknowledge({});
    expect(said(4.9)).toEqual([true, false, 'every endpoint is known']);
    const unknown =
      'the pod of endpoint 1 (weir1, pod ns/web) is not known: without an identity it is closed in both directions';
    expect(said(5)).toEqual([true, true, unknown]);
    // The clock was set back.
    expect(said(-3600)).toEqual([true, true, unknown]);
    const pod = { ...WEB, labels: {}, serviceAccount: '', namedPorts: [], addresses: [] };
    db.write([tables.localPods], (txn) => txn.upsert(tables.localPods, pod));
    expect(said(5)).toEqual([true, false, 'every endpoint is known']);
    db.write([tables.localPods], (txn) => txn.upsert(tables.localPods, { ...pod, uid: 'u2' }));
    expect(said(5)).toEqual([true, true, unknown]);
    db.write([tables.localPods], (txn) => txn.delete(tables.localPods, tableKey.pod('ns', 'web')));
    const listed = db.initialiser(tables.localPods, 'pods');
    const unlisted = 'whether the pod of endpoint 1 (weir1, pod ns/web) is still there is not known yet';
    expect(said(5)).toEqual([true, true, unlisted]);
    db.write([tables.localPods], (txn) => listed(txn));
    expect(said(5)).toEqual([true, true, unknown]);
  });
});

describe('endpoints without an identity', () => {
  const none = 'the labels of every endpoint have an identity';

  it('are said after 5 s, with the reason, and not while nothing is computed', async () => {
    const world = basic();
    const said = (now: number, computing = true): readonly unknown[] => {
      const { ok, warning, message } = labelsCheck({ waiting: world.model.unidentified(), now, computing });
      return [ok, warning, message];
    };
    await world.plan();
    world.pass(1_000);
    world.endpoint(2, { pod: { namespace: 'ns', name: 'late', uid: 'u-late' } });
    await world.plan();
    const fresh =
      'waiting for an identity, for less than 5 s so far: endpoint 2 (pod ns/late is not known on this node yet)';
    expect(said(5_999)).toEqual([true, undefined, fresh]);
    const late = 'without an identity: endpoint 2 (for 5 s: pod ns/late is not known on this node yet)';
    expect(said(6_000)).toEqual([true, true, late]);
    // What is computed again is since when it was.
    world.pass(4_000);
    world.endpoint(2, { pod: { namespace: 'ns', name: 'late', uid: 'u-late' }, hostMac: '02:00:00:00:00:01' });
    await world.plan();
    expect(said(6_000)).toEqual([true, true, late]);
    world.pod('late', 'a');
    await world.plan();
    expect(said(6_000)).toEqual([true, undefined, none]);
    const later = 'endpoints get their identities when the inputs are complete';
    expect(said(6_000, false)).toEqual([true, true, later]);
  });
});

describe('labels that the operator gives no identity', () => {
  it('are said after 5 s, with pod, endpoint and how it is judged meanwhile', async () => {
    const world = basic();
    const { model } = world;
    const said = (now: number): string => labelsCheck({ waiting: model.unidentified(), now, computing: true }).message;
    const none = 'the labels of every endpoint have an identity';
    await world.plan();
    world.pass(1_000);
    world.pod('web', 'a', [], 'next');
    await world.plan();
    expect([said(5_999), said(6_000)]).toEqual([
      'waiting for an identity, for less than 5 s so far: endpoint 1 (the operator has not given its labels an identity yet)',
      'no identity has been given to the labels of pod ns/web (endpoint 1, for 5 s, judged by its former labels): ' +
        "Event NoIdentity of a pod says why, such as that its namespace's identities are all in use or that it has too many labels; where there is none, see that the operator runs",
    ]);
    expect(world.states.get(1)).toMatchObject({ state: 'ready', identity: 256, reason: expect.any(String) });
    world.pass(1_000);
    for (const id of [2, 3, 4]) {
      world.pod(`p${id}`, 'a', [], 'next');
      world.endpoint(id, { pod: { namespace: 'ns', name: `p${id}`, uid: `u-p${id}` } });
    }
    await world.plan();
    expect(said(8_000)).toContain('for 7 s');
    expect(said(8_000)).toContain('(endpoint 2, for 6 s, closed)');
    expect(said(8_000)).toContain('and 1 more: Event NoIdentity');
    world.identity(300, 'a', 'next');
    await world.plan();
    expect(said(60_000)).toBe(none);
  });
});
