/**
 * Every face of an endpoint (API, CLI, CiliumEndpoint, status, metrics, policy status) shows what was wanted and what the kernel
 * acknowledged, each for what it is. On the real kernel, which is made to refuse writes.
 */
import { isDeepStrictEqual } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import { eventually } from '../../test/eventually.ts';
import type { EndpointHealth } from '../api/models.ts';
import { ClsactLinks, EndpointMap, IpcacheStore, Links, SlotStore } from '../datapath/index.ts';
import { Lab, type LabPod } from '../datapath/testing/lab.ts';
import type { FlowEvent } from '../flows/types.ts';
import type { IpcacheRow } from '../tables.ts';
import { Faces, labelsOf, policy, type Shown } from '../testing/faces.ts';

const REFUSAL = 'E2BIG: no room for it';

let lab: Lab;
let server: LabPod;
let node: Faces;

beforeEach(async () => {
  lab = new Lab();
  server = await lab.pod('s');
});

afterEach(async () => {
  jest.restoreAllMocks();
  await node?.stop();
  lab.close();
});

const OK: EndpointHealth = { overallHealth: 'OK', bpf: 'OK', policy: 'OK', connected: true };

/** All is as wanted: with one generation of the policy, everywhere. */
async function settled(generation: number): Promise<Shown> {
  const all = await node.when(
    ({ state, ok, cep, policyStatus, lag, spec, realized }) =>
      state === 'ready' &&
      ok === 'Ok' &&
      isDeepStrictEqual(spec, realized) &&
      cep?.state === 'ready' &&
      policyStatus?.kernel === generation &&
      lag[0] === 'weir_agent_policy_revision_lag 0',
  );
  expect(all).toMatchObject({ identity: 301, health: OK, healthz: OK, ok: 'Ok', code: 'OK', check: '' });
  expect(all.realized).toEqual(all.spec);
  expect(all.realized).toMatchObject({ id: 301, policies: { p: generation } });
  expect(all.revision[1]).toBe(all.revision[0]);
  expect(all.ready).toEqual({ total: 1, ready: 1 });
  expect(all.endpoints).toEqual(['weir_endpoints{state="ready"} 1']);
  expect(all.cep).toMatchObject({ identity: { id: 301 }, state: 'ready' });
  expect(all.policyStatus).toMatchObject({ wanted: generation, state: 'Programmed', failures: [] });
  expect(all.inUse).toMatchObject([{ identity: { id: 301 }, refCount: 1 }]);
  return all;
}

const notOk = { overallHealth: 'Failure', bpf: 'Failure', policy: 'Failure', connected: true };
/** From the node itself a pod takes everything. */
const holds = { 'policy-enabled': 'ingress', 'allowed-ingress-identities': [1, 300], policies: { p: 1 } };

/** The kernel has generation 1, from clients, and refuses generation 2, from others and to nobody. */
async function refusesTheEdit(): Promise<Shown> {
  const all = await node.when(
    ({ state, cep, policyStatus }) =>
      state === 'not-ready' && cep?.state === 'not-ready' && policyStatus?.state === 'Failing',
  );
  expect(all).toMatchObject({ health: notOk, healthz: notOk, ok: 'Failure', code: 'Failure', identity: 301 });
  expect(all.realized).toMatchObject(holds);
  expect(all.realized.l4.ingress.map(({ rule }) => JSON.parse(rule))).toContainEqual({
    ...{ port: 80, 'end-port': 81, protocol: 'TCP', verdict: 'allow' },
  });
  expect(all.spec).toMatchObject({
    'policy-enabled': 'egress',
    'allowed-egress-identities': [302],
    policies: { p: 2 },
  });
  expect(all.spec['policy-revision']).toBe(all.revision[0]);
  expect(all.realized['policy-revision']).toBe(all.revision[1]);
  expect(all.realized['policy-revision']).toBeLessThan(all.spec['policy-revision']);
  // What it has goes on under a revision of its own, so that its flows are judged again.
  expect(all.realized.build).not.toBe(all.spec.build);
  expect(all.line).toMatch(/^2 +enforced +open +301 .* not-ready /);
  expect(all.statusText).toMatch(
    new RegExp(`^Revision: +${all.revision[0]} \\(in the kernel: ${all.revision[1]}\\)$`, 'm'),
  );
  expect(all.endpoints).toEqual(['weir_endpoints{state="not-ready"} 1']);
  expect(all.lag).not.toEqual(['weir_agent_policy_revision_lag 0']);
  expect(all.cep).toMatchObject({
    identity: { id: 301 },
    state: 'not-ready',
    policy: {
      ingress: { enforcing: true, state: 'not-ready' },
      egress: { enforcing: false, state: 'not-ready' },
    },
  });
  expect(all.policyStatus).toMatchObject({ wanted: 2, kernel: 1, state: 'Failing' });
  expect(all.inUse).toMatchObject([{ identity: { id: 301 }, refCount: 1 }]);
  for (const text of [all.check, all.ready.unready?.[0], all.policyStatus?.failures[0]?.message])
    expect(text).toContain('endpoint 2');
  return all;
}

/** Where each face says why. */
const toldOf = ({ log, check, ready }: Shown) => [log, check, ready.unready?.[0] ?? ''];

const refuseWord = (): (() => void) => {
  const spy = jest.spyOn(EndpointMap.prototype, 'update').mockImplementation(() => {
    throw new Error(REFUSAL);
  });
  return () => spy.mockRestore();
};
const refuseSlot = (): (() => void) => {
  const spy = jest.spyOn(SlotStore.prototype, 'apply').mockRejectedValue(new Error(REFUSAL));
  return () => spy.mockRestore();
};
const refusePrograms = (): (() => void) => {
  const spies = [Links, ClsactLinks].map((links) =>
    jest.spyOn(links.prototype, 'ensure').mockImplementation(() => {
      throw new Error(REFUSAL);
    }),
  );
  return () => {
    for (const spy of spies) spy.mockRestore();
  };
};
const refuseAddress = (): (() => void) => {
  const update = Reflect.get(IpcacheStore.prototype, 'updateAll') as IpcacheStore['updateAll'];
  const spy = jest.spyOn(IpcacheStore.prototype, 'updateAll').mockImplementation(function (
    this: IpcacheStore,
    rows: readonly IpcacheRow[],
  ) {
    if (rows.some(({ prefix }) => prefix === `${server.address}/32`)) throw new Error(REFUSAL);
    update.call(this, rows);
  });
  return () => spy.mockRestore();
};

it.each([
  ["an endpoint's word", refuseWord],
  ["an endpoint's policy slot", refuseSlot],
  ["an endpoint's programs", refusePrograms],
])('an edit of %s that the kernel refuses', async (_, refuse) => {
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await settled(1);
  const relent = refuse();
  node.edit(policy(2, 'other', 'egress'));
  const all = await refusesTheEdit();
  for (const text of toldOf(all)) expect(text).toContain(REFUSAL);
  const waited = await node.core.waitPolicyRevision(node.core.policyRevision());
  expect(waited.failing.join()).toContain(REFUSAL);
  expect((await node.weir('policy', 'wait', String(waited.revision))).text).toContain(REFUSAL);
  relent();
  await settled(2);
});

it('a new member of a peer set, whom the policy slot does not take', async () => {
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await settled(1);
  const relent = refuseSlot();
  const { db, tables } = node.core;
  const labels = { ...labelsOf('client'), 'k8s:more': 'x' };
  db.write([tables.identities, tables.peerSets], (txn) => {
    txn.upsert(tables.identities, { id: 303, labels, labelsKey: labelsKey(labels) });
    const set = txn.get(tables.peerSets, 'client');
    if (set !== undefined) txn.upsert(tables.peerSets, { ...set, identities: [300, 303] });
  });
  const all = await node.when(
    ({ state, cep, policyStatus }) =>
      state === 'not-ready' && cep?.state === 'not-ready' && policyStatus?.state === 'Failing',
  );
  expect(all.spec['allowed-ingress-identities']).toEqual([1, 300, 303]);
  expect(all.realized['allowed-ingress-identities']).toEqual([1, 300]);
  expect(all.realized['policy-revision']).toBeLessThan(all.spec['policy-revision']);
  expect(all).toMatchObject({ health: notOk, ok: 'Failure' });
  for (const text of toldOf(all)) expect(text).toContain(REFUSAL);
  relent();
  await settled(1);
});

it.each([
  ["an endpoint's word", refuseWord],
  ["an endpoint's policy slot", refuseSlot],
  ["an endpoint's programs", refusePrograms],
])('%s, of a new endpoint', async (_, refuse) => {
  node = await Faces.start(lab, server);
  const relent = refuse();
  const added = node.core.upsertEndpoint(node.endpoint(), { timeoutMs: 60_000 });
  const all = await node.when(({ state, cep }) => state === 'not-ready' && cep?.state === 'not-ready');
  expect(all).toMatchObject({ health: { ...notOk, connected: false }, identity: 0, ok: 'Failure', inUse: [] });
  expect(all.spec).toMatchObject({ id: 301, 'policy-enabled': 'ingress', policies: { p: 1 } });
  expect(all.realized).toMatchObject({ id: 0, build: 0, 'policy-revision': 0, 'policy-enabled': 'none', policies: {} });
  expect(all.line).toMatch(/^2 +- +- +- .* not-ready /);
  expect(all.revision[1]).toBe(0);
  expect(all.cep?.identity).toBeUndefined();
  expect(all.policyStatus).toMatchObject({ wanted: 1, kernel: 0, state: 'Failing' });
  for (const text of toldOf(all)) expect(text).toContain(REFUSAL);
  relent();
  await added;
  await settled(1);
});

it('the address of an endpoint, by which everybody else knows it', async () => {
  node = await Faces.start(lab, server);
  const relent = refuseAddress();
  await node.core.upsertEndpoint(node.endpoint());
  const all = await node.when(({ state, cep }) => state === 'not-ready' && cep?.state === 'not-ready');
  expect(all).toMatchObject({ health: notOk, identity: 301, ok: 'Failure' });
  expect(all.realized).toMatchObject(holds);
  expect(all.policyStatus).toMatchObject({ state: 'Failing' });
  expect(await node.get('/ip')).toContainEqual(
    expect.objectContaining({ cidr: `${server.address}/32`, refused: REFUSAL }),
  );
  for (const text of toldOf(all)) expect(text).toContain(`its address ${server.address}/32: ${REFUSAL}`);
  relent();
  await settled(1);
  expect(JSON.stringify(await node.get('/ip'))).not.toContain('refused');
});

it('programs that somebody took away, and that cannot be put back', async () => {
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await settled(1);
  const relent = refusePrograms();
  const spies = [Links, ClsactLinks].map((links) =>
    jest
      .spyOn(links.prototype, 'look')
      .mockImplementation((of) => of.map(({ id }) => ({ id, gone: false, faults: ['they are away'], behind: [] }))),
  );
  const all = await node.when(
    ({ state, cep, policyStatus }) =>
      state === 'not-ready' && cep?.state === 'not-ready' && policyStatus?.state === 'Failing',
  );
  expect(all).toMatchObject({ health: notOk, ok: 'Failure' });
  for (const text of toldOf(all)) expect(text).toContain('they are away');
  for (const spy of spies) spy.mockRestore();
  relent();
  await settled(1);
});

it('a drop is put down to what the kernel judged by, and not to a policy that it refuses', async () => {
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await settled(1);
  const drops: FlowEvent[] = [];
  const following = node.flows.events.subscribe((event) => drops.push(event));
  const relent = refuseWord();
  node.edit({ ...policy(1, 'other'), uid: 'q', name: 'q' });
  await node.when(({ state }) => state === 'not-ready');
  const stranger = await lab.pod('x');
  const drop = async (): Promise<FlowEvent | undefined> => {
    drops.length = 0;
    expect(await stranger.reaches(server)).toBe(false);
    const [first] = await eventually(
      async () => drops.filter(({ source }) => source.address === stranger.address),
      (found) => found.length > 0,
    );
    return first;
  };
  expect(await drop()).toMatchObject({ policies: ['cnp default/p'] });
  relent();
  await node.when(({ state }) => state === 'ready');
  expect(await drop()).toMatchObject({ policies: ['cnp default/p', 'cnp default/q'] });
  following.unsubscribe();
});

it('a policy that cannot be compiled', async () => {
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await settled(1);
  const bad = policy(2, 'other', 'egress');
  node.edit({ ...bad, rules: bad.rules.map((rule) => ({ ...rule, ports: [{ protocol: 'TCP', from: 9, to: 5 }] })) });
  const all = await node.when(
    ({ state, cep, policyStatus }) =>
      state === 'not-ready' && cep?.state === state && policyStatus?.state === 'Failing',
  );
  expect(all).toMatchObject({ identity: 301 });
  expect(all.realized).toMatchObject({ 'policy-enabled': 'both', policies: {} });
  expect(all.policyStatus?.failures[0]?.message).toContain(all.log);
  node.edit(policy(3, 'client'));
  await settled(3);
});

it('a round that fails as a whole', async () => {
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await settled(1);
  const spy = jest.spyOn(SlotStore.prototype, 'trim').mockRejectedValue(new Error(REFUSAL));
  node.edit(policy(2, 'other', 'egress'));
  const all = await node.when(({ ok, lag }) => ok === 'Failure' && lag[0] !== 'weir_agent_policy_revision_lag 0');
  expect(all.realized['policy-revision']).toBeLessThan(all.spec['policy-revision']);
  expect(all.statusText).toContain(REFUSAL);
  // Nobody is told that an endpoint waits for nothing.
  const added = node.core.upsertEndpoint({ ...node.endpoint(), createdAt: '2026-01-02T00:00:00Z' }, { timeoutMs: 500 });
  await expect(added).rejects.toThrow(REFUSAL);
  spy.mockRestore();
  await settled(2);
});

it('an interface that is gone', async () => {
  node = await Faces.start(lab, server);
  await node.core.upsertEndpoint(node.endpoint());
  await settled(1);
  lab.unplug(server);
  const all = await node.when(({ state, cep }) => state === 'interface-gone' && cep === undefined);
  expect(all).toMatchObject({ identity: 0, health: { overallHealth: 'Disabled', bpf: 'Disabled', connected: false } });
  expect(all.realized).toMatchObject({ 'policy-enabled': 'none', 'policy-revision': 0, policies: {} });
  expect(all.line).toMatch(/^2 +- +- +- .* interface-gone /);
  expect(all.endpoints).toEqual(['weir_endpoints{state="interface-gone"} 1']);
  expect(all.ready).toEqual({
    total: 1,
    ready: 0,
    unready: [expect.stringContaining('its interface vs has been gone')],
  });
  expect(all.check).toContain('interface-gone');
  expect(all.inUse).toEqual([]);
});

describe('after a restart', () => {
  beforeEach(async () => {
    node = await Faces.start(lab, server);
    await node.core.upsertEndpoint(node.endpoint());
    await settled(1);
    await node.stop();
  });

  it('what was found stands while inputs are not complete', async () => {
    node = await Faces.start(lab, server, { incomplete: true });
    const all = await node.when(({ state }) => state === 'restoring');
    expect(all).toMatchObject({ identity: 301, health: { overallHealth: 'Pending', bpf: 'Pending', connected: true } });
    expect(all.spec).toMatchObject({ id: 0, 'policy-enabled': 'none' });
    expect(all.realized).toMatchObject({ ...holds, 'policy-revision': 0, policies: {} });
    expect(all.log).toContain('not complete yet: peerSets (reflector)');
    expect(all.line).toMatch(/^2 +enforced +open +301 .* restoring /);
    expect(all.endpoints).toEqual(['weir_endpoints{state="restoring"} 1']);
    expect(all.ready.ready).toBe(0);
    expect(node.ceps).toEqual([]);
  });

  it('an endpoint whose pod is another now is closed', async () => {
    node = await Faces.start(lab, server, { app: 'other', incomplete: true });
    const all = await node.when(({ realized, cep }) => realized['policy-enabled'] === 'both' && cep !== undefined);
    expect(all).toMatchObject({ state: 'waiting-for-identity', identity: 0 });
    expect(all.realized).toMatchObject({ id: 0, 'allowed-ingress-identities': [], l4: { ingress: [], egress: [] } });
    expect(all.log).toContain('closed until every policy has been read');
    expect(all.line).toMatch(/^2 +enforced +enforced +0 .* waiting-for-identity /);
    expect(all.cep).toMatchObject({
      identity: { id: 0 },
      state: 'waiting-for-identity',
      policy: { ingress: { enforcing: true }, egress: { enforcing: true } },
    });
  });

  it.each([
    ['word', refuseWord],
    ['policy slot', refuseSlot],
    ['programs', refusePrograms],
  ])('what was found stands while the kernel refuses the %s of a new policy', async (_, refuse) => {
    const relent = refuse();
    node = await Faces.start(lab, server, { incomplete: true });
    node.edit(policy(2, 'other', 'egress'));
    node.complete();
    const all = await node.when(
      ({ state, cep, spec }) =>
        state === 'not-ready' && cep?.state === 'not-ready' && spec['policy-enabled'] === 'egress',
    );
    expect(all.realized).toMatchObject({ ...holds, 'policy-revision': 0, policies: {} });
    expect(all).toMatchObject({ identity: 301, health: notOk, ok: 'Failure' });
    expect(all.revision[1]).toBe(0);
    expect(all.cep).toMatchObject({ identity: { id: 301 }, policy: { ingress: { enforcing: true } } });
    for (const text of toldOf(all)) expect(text).toContain(REFUSAL);
    relent();
    await settled(2);
    // It was never taken away in between.
    expect(node.ceps).not.toContain(undefined);
  });
});
