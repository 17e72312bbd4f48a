/** What a tenant writes in one namespace changes nothing for others. */

import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import {
  createKubeClient,
  type FencingClient,
  type KubeClient,
  type KubeObject,
  type NodePolicyStatus,
  type Resource,
  resources,
} from '@weir/kube';
import { pino } from 'pino';
import { cnp, namespace, node, pod, report } from '../../operator/testing.ts';
import { nested } from '../hostile.ts';
import { createWithStatus, createWorld, eventually, type World } from './world.ts';

let world: World;

beforeEach(async () => {
  world = await createWorld();
  for (const name of ['tenant', 'victim']) await world.client.create(resources.Namespace, namespace(name));
  await createWithStatus(world.client, node('n1'));
  await createWithStatus(world.client, pod('victim/web', { app: 'web' }, { ip: '10.0.0.1', node: 'n1' }));
});
afterEach(() => world.stop());

const deny = (app: string) => ({
  endpointSelector: { matchLabels: { app: 'web' } },
  ingressDeny: [{ fromEndpoints: [{ matchLabels: { app } }] }],
});

/** The victim's policy is resolved, and its edit. */
async function victimIsServed(): Promise<void> {
  await world.client.create(resources.CiliumNetworkPolicy, cnp('victim/p', deny('one')));
  const spec = async () => JSON.stringify((await world.client.get(resources.ResolvedPolicy, 'cnp-victim.p')).spec);
  const first = await eventually(spec);
  await world.client.apply(resources.CiliumNetworkPolicy, cnp('victim/p', deny('two')), {
    fieldManager: 'user',
    force: true,
  });
  await eventually(async () => expect(await spec()).not.toBe(first));
}

/** Names of what the API server holds of a kind. */
async function names<T extends KubeObject>(resource: Resource<T>): Promise<string[]> {
  return (await world.client.list(resource)).items.map(({ metadata: { name } }) => name);
}

const BY_USER = { fieldManager: 'user', force: true } as const;

/** A client to which objects seem to have the field `hostile` wherever they have `hostile: true`: no API server of a test takes as much. */
function seeing(hostile: () => unknown): KubeClient & FencingClient {
  const client = createKubeClient({ kubeconfig: world.kubeconfig, userAgent: 'weir-operator' });
  const marked = <T>(value: T): T => {
    if (typeof value !== 'object' || value === null) return value;
    for (const key of Object.keys(value) as (keyof T)[])
      if (key === 'hostile') value[key] = hostile() as never;
      else marked(value[key]);
    return value;
  };
  const listPage: KubeClient['listPage'] = async (resource, options) =>
    marked(await client.listPage(resource, options));
  const watch: KubeClient['watch'] = async function* (resource, options) {
    for await (const event of client.watch(resource, options)) yield marked(event);
  };
  return withOwn(client, { listPage, watch });
}

/** The client, with some of its methods replaced. */
function withOwn(client: KubeClient & FencingClient, methods: Partial<KubeClient>): KubeClient & FencingClient {
  const replaced: Readonly<Record<PropertyKey, unknown>> = { ...methods };
  return new Proxy(client, {
    get(target, name) {
      const own: unknown = Reflect.get(target, name);
      return replaced[name as string] ?? (typeof own === 'function' ? (own.bind(target) as unknown) : own);
    },
  });
}

describe('an object that is nested deep', () => {
  it.each<[string, object]>([
    ['an unknown field of the spec', { ...deny('x'), hostile: true }],
    ['an unknown field of an element', { ...deny('x'), ingress: [{ hostile: true }] }],
  ])('%s: it is left out alone, and its own status names it', async (_, spec) => {
    await world.client.create(resources.CiliumNetworkPolicy, cnp('tenant/before', spec));
    const operator = await world.operator({ client: seeing(() => nested(10_000)) });
    await world.client.create(resources.CiliumNetworkPolicy, cnp('tenant/after', spec));
    await victimIsServed();
    await eventually(async () => {
      const { items } = await world.client.list(resources.CiliumNetworkPolicy, { namespace: 'tenant' });
      expect(items.map(({ status }) => status?.conditions.find(({ type }) => type === 'Valid')?.status)).toEqual([
        'False',
        'False',
      ]);
    });
    await world.settle(operator);
  });
});

it("a node's report that leaves out what its kind does not demand ends nobody", async () => {
  const operator = await world.operator();
  const failures = [
    {},
    { reason: 'x' },
    { uid: 'u', generation: 1 },
  ] as unknown as NodePolicyStatus['status']['failures'];
  await world.client.create(resources.NodePolicyStatus, report('n1', { failures }));
  await victimIsServed();
  await world.settle(operator);
});

describe('a pod whose status a tenant writes', () => {
  /** address -> the pods that slices give it to. */
  const addresses = async (): Promise<Record<string, string[]>> => {
    const all: Record<string, string[]> = {};
    const { items } = await world.client.list(resources.CiliumEndpointSlice);
    for (const { namespace: of, endpoints } of items)
      for (const { name, networking } of endpoints)
        for (const { ipv4 = '' } of networking.addressing) all[ipv4] = [...(all[ipv4] ?? []), `${of}/${name}`];
    return all;
  };

  it('takes no address: not of a victim, not outside, not of a node; nor when the operator starts again', async () => {
    await createWithStatus(world.client, node('n2', 'True', { podCIDRs: ['10.0.2.0/24'] }));
    await createWithStatus(world.client, pod('victim/db', { app: 'db' }, { ip: '10.0.2.5', node: 'n2' }));
    const told: string[] = [];
    const write = (line: string): void => {
      const row = JSON.parse(line) as Record<'pod' | 'address' | 'reason', string> & { readonly others: string[] };
      told.push(`${row.pod} ${row.address} ${row.others.join()}: ${row.reason}`);
    };
    const first = await world.operator({ logger: pino({ level: 'warn' }, { write }) });
    await world.settle(first);
    for (const ip of ['10.0.2.6', '10.0.2.5', '10.0.0.1', '203.0.113.9', '192.0.2.1'])
      await createWithStatus(world.client, pod(`tenant/at-${ip}`, {}, { ip, node: 'n2' }));
    const expected = { '10.0.0.1': ['victim/web'], '10.0.2.5': ['victim/db'], '10.0.2.6': ['tenant/at-10.0.2.6'] };
    await eventually(async () => expect(await addresses()).toHaveProperty(['10.0.2.6']));
    await world.settle(first);
    expect(await addresses()).toEqual(expected);
    expect(told.sort()).toEqual([
      expect.stringMatching(/^tenant\/at-10.0.0.1 10.0.0.1 victim\/web: it is not in the pod CIDRs of the pod's node/),
      expect.stringMatching(/^tenant\/at-10.0.2.5 10.0.2.5 victim\/db: another pod had it first/),
      expect.stringMatching(/^tenant\/at-192.0.2.1 192.0.2.1 : it is not in/),
      expect.stringMatching(/^tenant\/at-203.0.113.9 203.0.113.9 : it is not in/),
    ]);
    // Once, however often the pods come again.
    for (const ip of ['10.0.0.1', '10.0.2.5'])
      await world.client.apply(
        resources.Pod,
        { ...pod(`tenant/at-${ip}`, { again: 'yes' }), status: {} },
        { fieldManager: 'again', force: true },
      );
    await world.settle(first);
    expect(told).toHaveLength(4);
    await first.stop();
    const second = await world.operator();
    await world.settle(second);
    expect(await addresses()).toEqual(expected);
  });

  it('fills no log: some claims of a namespace are lines of it, of the others the number is, and those of others are all', async () => {
    const lines: Readonly<Record<string, unknown>>[] = [];
    const write = (line: string): void => void lines.push(JSON.parse(line) as (typeof lines)[number]);
    const operator = await world.operator({ logger: pino({ level: 'warn' }, { write }) });
    await createWithStatus(world.client, node('n2', 'True', { podCIDRs: ['10.0.2.0/24'] }));
    const claims = Array.from({ length: 30 }, (_, n) => `tenant/p${n}`);
    for (const name of [...claims, 'victim/moved'])
      await createWithStatus(world.client, pod(name, {}, { ip: '203.0.113.9', node: 'n2' }));
    const refused = (ofNamespace: string) =>
      lines.filter(({ address, pod: who }) => address !== undefined && String(who).startsWith(`${ofNamespace}/`));
    await eventually(async () => expect(refused('victim')).toHaveLength(1));
    await world.settle(operator);
    await operator.stop();
    expect(refused('tenant')).toHaveLength(10);
    expect(lines.filter(({ leftOut }) => leftOut !== undefined)).toEqual([
      expect.objectContaining({ level: 40, namespace: 'tenant', leftOut: 20 }),
    ]);
  });
});

describe('a tenant that asks for more than its share', () => {
  const peers = (count: number) => ({
    endpointSelector: {},
    ingress: [{ fromEndpoints: Array.from({ length: count }, (_, n) => ({ matchLabels: { app: `a${n}` } })) }],
  });
  const validOf = async (name: string): Promise<string> => {
    const { status } = await world.client.get(resources.CiliumNetworkPolicy, name, 'tenant');
    const valid = status?.conditions.find(({ type }) => type === 'Valid');
    return `${valid?.status} ${valid?.reason} ${valid?.observedGeneration}: ${valid?.message}`;
  };

  it('of policies: what it has stays in force, the status says what is too much, and nobody else notices', async () => {
    const limits = { selectorsPerPolicy: 10, policiesPerNamespace: 1 };
    const operator = await world.operator(limits);
    await world.client.create(resources.CiliumNetworkPolicy, cnp('tenant/p', peers(5)));
    await eventually(async () => expect(await validOf('p')).toMatch(/^True Valid 1/));
    await world.client.apply(resources.CiliumNetworkPolicy, cnp('tenant/p', peers(5_000)), BY_USER);
    for (const name of ['q', 'r'])
      await world.client.create(resources.CiliumNetworkPolicy, cnp(`tenant/${name}`, peers(9)));
    await eventually(async () => {
      expect(await validOf('p')).toMatch(
        /^False BudgetExceeded 2: the policy needs 5001 selectors, and one may need 10: .*; generation 1 stays enforced$/,
      );
      for (const name of ['q', 'r'])
        expect(await validOf(name)).toMatch(
          /^False BudgetExceeded 1: namespace "tenant" has 1 other policies, .*; nothing of this policy is enforced$/,
        );
    });
    await victimIsServed();
    await world.settle(operator);
    expect(await names(resources.ResolvedPolicy)).toEqual(['cnp-tenant.p', 'cnp-victim.p']);
    // Five and the namespace, and the two of the victim.
    expect(await names(resources.PeerSet)).toHaveLength(8);

    // Another replica that takes over decides the same, whatever it reads first; and room that is made is used.
    await operator.stop();
    const next = await world.operator(limits);
    await world.settle(next);
    expect(await names(resources.ResolvedPolicy)).toEqual(['cnp-tenant.p', 'cnp-victim.p']);
    await world.client.delete(resources.CiliumNetworkPolicy, 'p', 'tenant');
    await world.settle(next);
    expect(await names(resources.ResolvedPolicy)).toEqual(['cnp-tenant.q', 'cnp-victim.p']);
    expect(await validOf('q')).toMatch(/^True Valid 1/);
  });

  it('of selectors: a policy of another is written before nearly all of them', async () => {
    const client = createKubeClient({ kubeconfig: world.kubeconfig, userAgent: 'weir-operator' });
    const written: string[] = [];
    const gate = Promise.withResolvers<void>();
    let ofTenant = 0;
    const apply: KubeClient['apply'] = async (resource, object, options) => {
      if (resource.kind === 'PeerSet') {
        ofTenant += 1;
        // Until the victim's policy is resolved the tenant's peer sets wait for the API server.
        if (ofTenant > 50) await gate.promise;
      }
      written.push(`${resource.kind} ${object.metadata.name}`);
      return await client.apply(resource, object, options);
    };
    const operator = await world.operator({ client: withOwn(client, { apply }) });
    const resolved = (): number | undefined =>
      operator.db.tables().find(({ name }) => name === 'desiredResolvedPolicies')?.rows;
    await world.client.create(resources.CiliumNetworkPolicy, cnp('tenant/p', peers(900)));
    await eventually(async () => expect(ofTenant).toBeGreaterThan(50));
    await world.client.create(resources.CiliumNetworkPolicy, cnp('victim/p', deny('one')));
    await eventually(async () => expect(resolved()).toBe(2));
    const before = written.length;
    gate.resolve();
    await eventually(async () => expect(written).toContain('ResolvedPolicy cnp-victim.p'));
    // As many as are under way, once for each of its two peer sets and once for itself.
    expect(written.indexOf('ResolvedPolicy cnp-victim.p') - before).toBeLessThanOrEqual(3 * 8 + 2);
    await world.settle(operator);
    expect(await names(resources.ResolvedPolicy)).toEqual(['cnp-tenant.p', 'cnp-victim.p']);
  });

  it('of identities: it pays with its own, and a new pod of another gets one', async () => {
    const operator = await world.operator({ identitiesPerNamespace: 3 });
    await createWithStatus(world.client, pod('tenant/p', { app: 'a' }, { ip: '10.0.0.2', node: 'n1' }));
    for (let n = 0; n < 12; n += 1) {
      const metadata = { namespace: 'tenant', name: 'p', labels: { app: `a${n}` } };
      await world.client.apply(resources.Pod, { apiVersion: 'v1', kind: 'Pod', metadata }, BY_USER);
      await eventually(async () => {
        const { items } = await world.client.list(resources.CiliumIdentity);
        expect(items.map(({ 'security-labels': labels }) => labels['k8s:app'])).toContain(`a${n}`);
      });
    }
    await createWithStatus(world.client, pod('victim/new', { app: 'new' }, { ip: '10.0.0.3', node: 'n1' }));
    await world.settle(operator);
    const { items } = await world.client.list(resources.CiliumIdentity);
    const apps = items.map(({ 'security-labels': labels }) => labels['k8s:app'] ?? '');
    expect(new Set(apps)).toEqual(new Set(['a9', 'a10', 'a11', 'new', 'web']));
    const slices = (await world.client.list(resources.CiliumEndpointSlice)).items;
    expect(slices.flatMap(({ endpoints }) => endpoints.map(({ name }) => name)).sort()).toEqual(['new', 'p', 'web']);
  });
});
