import { afterEach, describe, expect, it } from '@jest/globals';
import { type CiliumEndpointSlice, type CiliumIdentity, resources } from '@weir/kube';
import { ccnp, namespace, node, pod } from '../../operator/testing.ts';
import { createWithStatus, createWorld, eventually, type World } from './world.ts';

let world: World;
afterEach(async () => {
  await world.stop();
});

const apply = { fieldManager: 'user', force: true } as const;
const ADDRESS = '10.0.0.1';

/** Everything that the API server has told of the kinds, in its order. */
interface Told {
  readonly version: number;
  readonly type: string;
  readonly object: CiliumEndpointSlice | CiliumIdentity;
}

describe('identities in the API', () => {
  it.each([
    ['', 0],
    [', or has none for a moment, when its namespace has no number left but those in use', 2],
  ])(
    'a pod that is relabelled, alone and with its namespace, has an identity that everybody can know%s',
    async (_, identitiesPerNamespace) => {
      world = await createWorld();
      const { client } = world;
      await client.create(resources.Namespace, namespace('a', { team: 'red' }));
      await createWithStatus(client, node('n1'));
      await createWithStatus(client, pod('a/p', { app: 'v0' }, { ip: ADDRESS, node: 'n1' }));
      await createWithStatus(client, pod('a/q', { app: 'q' }, { ip: '10.0.0.2', node: 'n1' }));
      const deny = { endpointSelector: {}, ingressDeny: [{ fromEndpoints: [{ matchLabels: { app: 'v3' } }] }] };
      await client.create(resources.CiliumClusterwideNetworkPolicy, ccnp('all', deny));
      const operator = await world.operator({ identitiesPerNamespace });
      await world.settle(operator);

      const told: Told[] = [];
      const stop = new AbortController();
      const watches = [resources.CiliumEndpointSlice, resources.CiliumIdentity].map(async (resource) => {
        const { items, resourceVersion } = await client.list<Told['object']>(resource);
        for (const object of items)
          told.push({ version: Number(object.metadata.resourceVersion), type: 'ADDED', object });
        const events = client.watch<Told['object']>(resource, { resourceVersion, signal: stop.signal });
        for await (const { type, object } of events) {
          told.push({ version: Number(object.metadata.resourceVersion), type, object });
        }
      });
      const labelsOf = async (): Promise<string> => {
        const { items } = await client.list(resources.CiliumEndpointSlice);
        const id = items[0]?.endpoints.find(({ name }) => name === 'p')?.identity;
        const { 'security-labels': labels } = await client.get(resources.CiliumIdentity, String(id));
        return `${labels['k8s:app']} ${labels['k8s:io.cilium.k8s.namespace.labels.team']}`;
      };
      for (const [app, team] of [
        ['v1', 'red'],
        ['v1', 'blue'],
        ['v3', 'blue'],
        ['v1', 'red'],
      ] as const) {
        await client.apply(resources.Namespace, namespace('a', { team }), apply);
        await client.apply(
          resources.Pod,
          { apiVersion: 'v1', kind: 'Pod', metadata: { namespace: 'a', name: 'p', labels: { app } } },
          apply,
        );
        await eventually(async () => expect(await labelsOf()).toBe(`${app} ${team}`));
      }
      await world.settle(operator);
      stop.abort();
      await Promise.all(watches);

      const identities = new Map<number, CiliumIdentity>();
      const seen = new Set<number>();
      let sliced: readonly number[] = [];
      for (const { type, object } of told.sort((a, b) => a.version - b.version)) {
        if (object.kind === 'CiliumIdentity') {
          const id = Number(object.metadata.name);
          if (type === 'DELETED') {
            identities.delete(id);
            expect(sliced).not.toContain(id);
          } else identities.set(id, object as CiliumIdentity);
        }
        if (object.kind !== 'CiliumEndpointSlice') continue;
        const { endpoints } = object as CiliumEndpointSlice;
        sliced = endpoints.map(({ identity }) => identity);
        const mine = endpoints.filter(({ networking }) => networking.addressing[0]?.ipv4 === ADDRESS);
        if (identitiesPerNamespace === 0 || mine.length > 0) expect(mine.map(({ name }) => name)).toEqual(['p']);
        for (const { identity } of mine) {
          expect(identities.has(identity)).toBe(true);
          seen.add(identity);
        }
      }
      // Four label sets, and perhaps the one between two changes.
      expect(seen.size).toBeGreaterThanOrEqual(4);
    },
  );

  it('a pod of another namespace that takes an address over has it alone in the end, also when the first one stays around', async () => {
    world = await createWorld();
    const { client } = world;
    for (const name of ['a', 'b']) await client.create(resources.Namespace, namespace(name));
    await createWithStatus(client, node('n1'));
    await createWithStatus(client, pod('a/job', { app: 'job' }, { ip: ADDRESS, node: 'n1' }));
    const operator = await world.operator();
    await world.settle(operator);
    await client.apply(
      resources.Pod,
      { ...pod('a/job', {}, { ip: ADDRESS, phase: 'Succeeded' }), spec: undefined } as never,
      { ...apply, subresource: 'status' },
    );
    await createWithStatus(client, pod('b/next', { app: 'next' }, { ip: ADDRESS, node: 'n1' }));
    await eventually(async () => {
      const { items } = await client.list(resources.CiliumEndpointSlice);
      const claims = items.flatMap((item) => item.endpoints.map(({ name }) => `${item.namespace}/${name}`));
      expect(claims).toEqual(['b/next']);
    });
  });
});
