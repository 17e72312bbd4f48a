/** Terms of leadership: each is one run of the parts of a term, and may be stopped at any point. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { createKubeClient, type KubeObject, type Resource, resources } from '@weir/kube';
import { pino } from 'pino';
import { inputsPart } from '../../operator/kubernetes/inputs-part.ts';
import { targetsPart } from '../../operator/kubernetes/targets-part.ts';
import { createOperator, type Operator } from '../../operator/operator.ts';
import { OPERATOR_PARTS } from '../../operator/part-list.ts';
import { type AnyOperatorPart, definePart } from '../../operator/parts/contract.ts';
import { cnp } from '../../operator/testing.ts';
import { createWorld, eventually, partsOf, type World } from './world.ts';

const RULE = { endpointSelector: {}, ingress: [{}] };

let world: World;
beforeEach(async () => {
  world = await createWorld();
});
afterEach(() => world.stop());

const electing = (identity: string) => ({
  healthAddress: '127.0.0.1:0',
  leaderElect: true,
  leaderNamespace: 'default',
  identity,
  leaseDurationMs: 60_000,
  renewDeadlineMs: 40_000,
  retryPeriodMs: 50,
});

const lease = () => world.client.get(resources.Lease, 'weir-operator', 'default');
const holder = async (): Promise<string | undefined> => (await lease()).spec?.holderIdentity;
const ready = async ({ healthPort }: Operator): Promise<string> =>
  (await fetch(`http://127.0.0.1:${healthPort}/readyz`)).text();
const states = (operator: Operator) =>
  Object.fromEntries(partsOf(operator).map(({ name, state }): [string, string] => [name, state]));

const PROCESS = [
  'totals',
  'failures',
  'health',
  'limits',
  'policy-webhook',
  'webhooks',
  'identity-gc',
  'election',
  'preflight',
];
const TERM = [
  ...['tables', 'lease', 'writers', 'targets', 'tenant-log', 'policies', 'workloads', 'services'],
  ...['cidr-groups', 'reports'],
  ...['model', 'sync-loop', 'garbage', 'inputs', 'heartbeat'],
];
const all = (names: readonly string[], state: string) => Object.fromEntries(names.map((name) => [name, state]));

describe('a term', () => {
  it('stops reading, then computing, then writing, and gives the lease back last: table parts has the order', async () => {
    expect(OPERATOR_PARTS.map(({ name }) => name)).toEqual([...PROCESS, ...TERM]);
    const operator = await world.operator();
    await world.settle(operator);
    expect(partsOf(operator).map(({ name }) => name)).toEqual([...PROCESS, ...TERM]);
    expect(states(operator)).toEqual(all([...PROCESS, ...TERM], 'running'));
    await operator.stop();
    expect(states(operator)).toEqual(all([...PROCESS, ...TERM], 'stopped'));
  });

  it('that waits for the lease is stopped, and takes nothing from who holds it', async () => {
    const leader = await world.operator(electing('one'));
    await leader.ready();
    const standby = await world.operator(electing('two'));
    await eventually(async () => expect(await ready(standby)).toBe('ok\n'));
    expect(states(standby)).toMatchObject({ preflight: 'running', lease: 'starting', writers: 'waiting' });
    expect(partsOf(standby).find(({ name }) => name === 'writers')?.waitsFor).toEqual(['lease']);
    await standby.stop();
    expect(states(standby)).toMatchObject({ lease: 'stopped', writers: 'waiting', inputs: 'waiting' });
    expect(await holder()).toBe('one');
  });

  it('that waits for lists which do not come says for which, is stopped, and gives the lease back', async () => {
    world.api.faults.fail(503, { userAgent: 'weir-operator', resource: 'pods', verb: 'list' });
    const operator = await world.operator(electing('one'));
    await eventually(async () => expect(await ready(operator)).toMatch(/^waiting for pods \(.*503.*\)\n$/));
    expect(states(operator)).toMatchObject({ lease: 'running', 'sync-loop': 'running', inputs: 'starting' });
    await operator.stop();
    expect(states(operator)).toEqual({ ...all([...PROCESS, ...TERM], 'stopped'), heartbeat: 'waiting' });
    expect(await holder()).toBe('');
    expect(world.writes()).toEqual([]);
  });

  it('ends what it writes before it gives the lease back', async () => {
    const operator = await world.operator(electing('one'));
    await operator.ready();
    const slow = { userAgent: 'weir-operator', verb: 'apply', resource: 'peersets' } as const;
    world.api.faults.delay(500, slow);
    await world.client.create(resources.CiliumNetworkPolicy, cnp('default/web', RULE));
    await eventually(async () => expect(world.api.stats.count(slow)).toBe(1));
    await operator.stop();
    const [set] = (await world.client.list(resources.PeerSet)).items;
    expect(await holder()).toBe('');
    expect(Number(set?.metadata.resourceVersion)).toBeLessThan(Number((await lease()).metadata.resourceVersion));
  });
});

it('an operator that preflight does not let in is stopped', async () => {
  await world.stop();
  world = await createWorld({ crds: [] });
  const lines: string[] = [];
  const client = createKubeClient({ kubeconfig: world.kubeconfig, userAgent: 'weir-operator' });
  const logger = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
  const operator = await createOperator({ client, logger, config: electing('one') });
  const started = operator.start();
  await eventually(async () => expect(await ready(operator)).toMatch(/ciliumnetworkpolicies\.cilium\.io/));
  await operator.stop();
  await started;
  client.close();
  expect(states(operator)).toEqual({ ...all(PROCESS, 'stopped'), ...all(TERM, 'waiting') });
  expect(lines).toHaveLength(1);
});

describe('a stop', () => {
  /** It expires soon, and not while a busy machine lets a process stand. */
  const shortly = { leaseDurationMs: 7_000, renewDeadlineMs: 6_000 };
  const electingShortly = { ...electing('one'), ...shortly };
  /** An operator whose end is looked at: the world does not stop it. */
  async function made(parts: readonly AnyOperatorPart[], config = {}, onFatal = (_: Error): void => {}) {
    const client = createKubeClient({
      kubeconfig: world.kubeconfig,
      userAgent: 'weir-operator',
      requestTimeoutMs: 600_000,
    });
    const logger = pino({ level: 'silent' });
    const operator = await createOperator({
      client,
      logger,
      parts,
      config: { ...electingShortly, ...config },
      onFatal,
    });
    return { operator, client };
  }

  it('is not held up by an API server that does not answer preflight', async () => {
    world.api.faults.delay(600_000, { userAgent: 'weir-operator' });
    const { operator, client } = await made(OPERATOR_PARTS);
    const started = operator.start();
    await eventually(async () => expect(world.api.stats.count({ userAgent: 'weir-operator' })).toBeGreaterThan(0));
    await operator.stop();
    await started;
    client.close();
    expect(states(operator)).toMatchObject({ preflight: 'stopped', lease: 'waiting' });
  });

  it('of a term that fails stops the parts of the process, too, and lets the lease expire', async () => {
    const stop = () => Promise.reject(new Error('busy'));
    const busy = definePart({ name: 'busy', needs: { targets: targetsPart }, build: () => ({ stop }) });
    const { operator, client } = await made([...OPERATOR_PARTS, busy]);
    await operator.start();
    await operator.ready();
    await expect(operator.stop()).rejects.toThrow('busy');
    expect(states(operator)).toMatchObject({ lease: 'stopped', health: 'stopped', busy: 'failed' });
    const renewed = (await lease()).spec?.renewTime;
    expect(await holder()).toBe('one');
    const other = await world.operator({ ...electing('two'), ...shortly });
    await other.ready();
    expect([await holder(), operator.leading]).toEqual(['two', false]);
    expect((await lease()).spec?.renewTime).not.toBe(renewed);
    client.close();
  });

  it('while a write is not answered ends, keeps the lease, and says so', async () => {
    const { operator, client } = await made(OPERATOR_PARTS);
    await operator.start();
    await operator.ready();
    const hung = { userAgent: 'weir-operator', verb: 'apply', resource: 'peersets' } as const;
    world.api.faults.delay(600_000, hung);
    await world.client.create(resources.CiliumNetworkPolicy, cnp('default/web', RULE));
    await eventually(async () => expect(world.api.stats.count(hung)).toBe(1));
    const stopped = operator.stop();
    expect(await ready(operator)).toBe('stopping\n');
    await expect(stopped).rejects.toThrow(/operations run on/);
    expect(await holder()).toBe('one');
    client.close();
  });

  it('that a part which cannot start brings about is told before the others have stopped', async () => {
    const go = Promise.withResolvers<void>();
    const start = () => go.promise.then(() => Promise.reject(new Error('cannot begin')));
    const late = definePart({ name: 'late', needs: { inputs: inputsPart }, build: () => ({ start }) });
    const fatal = Promise.withResolvers<Error>();
    const { operator, client } = await made([...OPERATOR_PARTS, late], {}, fatal.resolve);
    await operator.start();
    await operator.ready();
    go.resolve();
    expect((await fatal.promise).message).toBe('cannot begin');
    expect(states(operator)).toMatchObject({ late: 'failed', inputs: 'running', lease: 'running' });
    expect(await ready(operator)).toBe('cannot begin\n');
    await operator.stop();
    client.close();
  });
});

it('more than one part hears of a status that another hand has changed, and of its write', async () => {
  const heard: string[] = [];
  const listener = definePart({
    name: 'listener',
    needs: { targets: targetsPart },
    build: ({ targets }) => {
      targets.onStatusDrift((policy) => heard.push(`changed ${policy}`));
      targets.onStatus((policy) => heard.push(`written ${policy}`));
      return {};
    },
  });
  const operator = await world.operator({ parts: [...OPERATOR_PARTS, listener] });
  const policy = cnp('default/web', RULE);
  await world.client.create(resources.CiliumNetworkPolicy, policy);
  await world.settle(operator);
  heard.length = 0;
  const { apiVersion, kind, metadata } = policy;
  const status = { observedGeneration: 99, conditions: [] } as never;
  const other = { fieldManager: 'other', force: true, subresource: 'status' } as const;
  await world.client.apply(resources.CiliumNetworkPolicy, { apiVersion, kind, metadata, status }, other);
  await eventually(async () => expect(heard.join()).toMatch(/^changed cnp\/default\/web.*,written cnp\/default\/web$/));
});

it('an object that another hand has removed is written again', async () => {
  const operator = await world.operator();
  await world.client.create(resources.CiliumNetworkPolicy, cnp('default/web', RULE));
  await world.settle(operator);
  for (const kind of [resources.PeerSet, resources.ResolvedPolicy] as readonly Resource<KubeObject>[]) {
    const { items } = await world.client.list(kind);
    for (const { metadata } of items) await world.client.delete(kind, metadata.name);
    await eventually(async () => expect((await world.client.list(kind)).items).toHaveLength(items.length));
  }
});
