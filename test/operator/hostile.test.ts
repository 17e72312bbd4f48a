/** What a tenant writes in one namespace changes nothing for others. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { createKubeClient, type FencingClient, type KubeClient, resources } from '@weir/kube';
import { pino } from 'pino';
import { cnp, namespace, node, pod } from '../../operator/testing.ts';
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

const nested = (depth: number, leaf: unknown = 1): unknown => {
  let value = leaf;
  for (let at = 0; at < depth; at += 1) value = at % 2 === 0 ? [value] : { x: value };
  return value;
};

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
  const seen: Readonly<Record<PropertyKey, unknown>> = { listPage, watch };
  return new Proxy(client, {
    get(target, name) {
      const own: unknown = Reflect.get(target, name);
      return seen[name as string] ?? (typeof own === 'function' ? (own.bind(target) as unknown) : own);
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

  it('takes no address: not of a victim, not outside, not of a node; nor when the operator starts anew', async () => {
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
});
