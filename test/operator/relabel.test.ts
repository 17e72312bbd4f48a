/** A pod that is given other labels while the API server refuses some of what the operator writes. */
import { afterEach, describe, expect, it } from '@jest/globals';
import { type CiliumEndpointSlice, type KubeClient, resources } from '@weir/kube';
import { ccnp, namespace, node, pod } from '../../operator/testing.ts';
import { createWithStatus, createWorld, eventually, type World } from './world.ts';

let world: World;
afterEach(async () => {
  await world.stop();
});

async function appOf(client: KubeClient, slice: CiliumEndpointSlice): Promise<string | undefined> {
  const id = slice.endpoints.find(({ name }) => name === 'p')?.identity;
  if (id === undefined) return undefined;
  return (await client.get(resources.CiliumIdentity, String(id)))['security-labels']['k8s:app'];
}

describe('a relabelled pod', () => {
  it('stays in its slice with the identity that it had, as long as its new one cannot be written', async () => {
    const resource = 'ciliumidentities';
    world = await createWorld();
    const { client, api } = world;
    await client.create(resources.Namespace, namespace('a'));
    await createWithStatus(client, node('n1'));
    await createWithStatus(client, pod('a/p', { app: 'old' }, { ip: '10.0.0.1', node: 'n1' }));
    const policy = { endpointSelector: {}, ingress: [{ fromEndpoints: [{ matchLabels: { app: 'new' } }] }] };
    await client.create(resources.CiliumClusterwideNetworkPolicy, ccnp('all', policy));
    const operator = await world.operator();
    await world.settle(operator);

    const { items, resourceVersion } = await client.list(resources.CiliumEndpointSlice);
    const told: (string | undefined)[] = [await appOf(client, items[0] as CiliumEndpointSlice)];
    const stop = new AbortController();
    const watch = (async () => {
      for await (const { type, object } of client.watch(resources.CiliumEndpointSlice, {
        resourceVersion,
        signal: stop.signal,
      }))
        told.push(type === 'DELETED' ? undefined : await appOf(client, object as CiliumEndpointSlice));
    })();
    // Of a test that fails nobody waits for it.
    watch.catch(() => undefined);
    const mend = api.faults.fail(500, { resource, verb: 'apply', userAgent: 'weir-operator' });
    const before = api.stats.count({ resource, verb: 'apply' });
    await client.apply(
      resources.Pod,
      { apiVersion: 'v1', kind: 'Pod', metadata: { namespace: 'a', name: 'p', labels: { app: 'new' } } },
      { fieldManager: 'user', force: true },
    );
    // Refused, and tried again: the slice has had its turn in between.
    await eventually(async () => expect(api.stats.count({ resource, verb: 'apply' })).toBeGreaterThan(before + 3));
    expect(told).toEqual(['old']);
    // What goes on meanwhile is written, and does not cost the pod its place.
    await createWithStatus(client, pod('a/q', { app: 'old' }, { ip: '10.0.0.2', node: 'n1' }));
    const names = async (): Promise<readonly string[]> =>
      (await client.list(resources.CiliumEndpointSlice)).items.flatMap((each) =>
        each.endpoints.map(({ name }) => name),
      );
    await eventually(async () => expect(await names()).toContain('q'));
    expect(await names()).toEqual(['p', 'q']);
    mend();
    await eventually(async () => expect(told.at(-1)).toBe('new'));
    await world.settle(operator);
    stop.abort();
    await watch;
    expect(new Set(told)).toEqual(new Set(['old', 'new']));
  });
});
