import { afterEach, describe, expect, it } from '@jest/globals';
import { type Condition, type KubeEvent, type ResolvedPolicyObject, resources } from '@weir/kube';
import { ccnp, cnp, knp, namespace, node, pod, report } from '../../operator/testing.ts';
import { looseCrds } from '../cluster/loose-crds.ts';
import { createWithStatus, createWorld, eventually, type World } from './world.ts';

let world: World;
afterEach(async () => {
  await world.stop();
});

const apply = { fieldManager: 'user', force: true } as const;
const FROM_API = {
  podSelector: { matchLabels: { app: 'web' } },
  ingress: [{ from: [{ podSelector: { matchLabels: { app: 'api' } } }], ports: [{ port: 'http' }] }],
};

async function cluster(): Promise<void> {
  world = await createWorld({ crds: looseCrds() });
  for (const name of ['a', 'b']) await world.client.create(resources.Namespace, namespace(name));
  for (const name of ['n1', 'n2']) await createWithStatus(world.client, node(name));
  const ports = [{ name: 'http', containerPort: 8080 }];
  await createWithStatus(world.client, pod('a/web-1', { app: 'web' }, { ip: '10.0.0.1', node: 'n1', ports }));
  await createWithStatus(world.client, pod('a/api-1', { app: 'api' }, { ip: '10.0.0.2', node: 'n2' }));
}

const resolved = (name = 'knp-a.web'): Promise<ResolvedPolicyObject> =>
  world.client.get(resources.ResolvedPolicy, name);

/** The version of the only ResolvedPolicy, once there is one. */
async function written(): Promise<string> {
  return await eventually(async () => {
    const { items } = await world.client.list(resources.ResolvedPolicy);
    expect(items).toHaveLength(1);
    return items[0]?.metadata.resourceVersion ?? '';
  });
}

const condition = (object: ResolvedPolicyObject, type: Condition['type']): string => {
  const found = object.status?.conditions.find((one) => one.type === type);
  return `${found?.status} ${found?.reason} ${found?.observedGeneration}`;
};

/** `Warning InvalidSpec x2`, by policy. */
async function events(name: string): Promise<string[]> {
  const { items } = await world.client.list(resources.Event);
  return items
    .filter(({ involvedObject }) => involvedObject.name === name)
    .map(({ type, reason, count }: KubeEvent) => `${type} ${reason} x${count}`)
    .sort();
}

describe('NetworkPolicy', () => {
  it('becomes rules with port names, has its status on the ResolvedPolicy, and is told of by Events', async () => {
    await cluster();
    const operator = await world.operator();
    const { metadata } = await world.client.create(resources.NetworkPolicy, knp('a/web', FROM_API));
    const uid = metadata.uid ?? '';
    await eventually(async () => expect(condition(await resolved(), 'Programmed')).toBe('False Progressing 1'));
    const { spec, status } = await resolved();
    expect(spec.source).toEqual({ kind: 'NetworkPolicy', namespace: 'a', name: 'web', uid, generation: 1 });
    expect(spec.rules).toMatchObject([
      { direction: 'ingress', verdict: 'allow', ports: [{ protocol: 'TCP', name: 'http' }], defaultDeny: true },
    ]);
    expect(spec.rules[0]?.cookie).toBeGreaterThan(0);
    expect(status?.summary).toEqual({ nodes: '0/1', endpoints: 1, rules: 1 });
    await world.settle(operator);
    const { items } = await world.client.list(resources.CiliumEndpointSlice);
    expect(items[0]?.endpoints.map((e) => e['named-ports'])).toEqual([
      undefined,
      [{ name: 'http', port: 8080, protocol: 'TCP' }],
    ]);
    expect(await events('web')).toEqual([]);

    await world.client.create(resources.NodePolicyStatus, report('n1', { policyVersion: await written() }));
    await eventually(async () => expect(condition(await resolved(), 'Programmed')).toBe('True Programmed 1'));
    expect(await events('web')).toEqual(['Normal Programmed x1']);
    const [event] = (await world.client.list(resources.Event, { namespace: 'a' })).items;
    expect(event).toMatchObject({
      involvedObject: { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', namespace: 'a', name: 'web', uid },
      source: { component: 'weir-operator' },
      message: 'Generation 1 is in the kernel of the 1 node that must enforce it.',
    });

    // An edit: rules and status follow, in one object, and nothing is written twice.
    await world.settle(operator);
    world.writes();
    await world.client.apply(resources.NetworkPolicy, knp('a/web', { ...FROM_API, ingress: [{}] }), apply);
    await eventually(async () => expect(condition(await resolved(), 'Programmed')).toBe('False Progressing 2'));
    await world.settle(operator);
    expect(world.writes().filter((write) => !write.includes('peersets'))).toEqual([
      'apply resolvedpolicies',
      'apply resolvedpolicies/status',
    ]);
    await world.client.delete(resources.NetworkPolicy, 'web', 'a');
    await eventually(async () => expect((await world.client.list(resources.ResolvedPolicy)).items).toEqual([]));
  });

  it('beside a CNP of the same name: two policies, two objects', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.NetworkPolicy, knp('a/web', FROM_API));
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', { endpointSelector: {}, ingress: [{}] }));
    await eventually(async () => expect((await world.client.list(resources.ResolvedPolicy)).items).toHaveLength(2));
    await world.settle(operator);
    const { items } = await world.client.list(resources.ResolvedPolicy);
    const cookies = items.flatMap(({ spec }) => spec.rules.map(({ cookie }) => cookie));
    expect(new Set(cookies).size).toBe(cookies.length);
    expect((await resolved('cnp-a.web')).status).toBeUndefined();
    expect((await resolved('knp-a.web')).status).toBeDefined();
  });

  it('a restarted operator adopts rules and status and tells nothing again', async () => {
    await cluster();
    const first = await world.operator();
    await world.client.create(resources.NetworkPolicy, knp('a/web', FROM_API));
    await world.client.create(resources.NodePolicyStatus, report('n1', { policyVersion: await written() }));
    await eventually(async () => expect(await events('web')).toEqual(['Normal Programmed x1']));
    await world.settle(first);
    // The node has read that write, too.
    const said = report('n1', { policyVersion: await written() });
    await world.client.apply(resources.NodePolicyStatus, said, { fieldManager: 'agent', force: true });
    await world.settle(first);
    await first.stop();
    world.writes();
    const second = await world.operator();
    await world.settle(second);
    expect(world.writes()).toEqual([]);
  });

  it('another one of the name, made while no operator ran, is never told to be enforced before it is', async () => {
    await cluster();
    const first = await world.operator();
    await world.client.create(resources.NetworkPolicy, knp('a/web', FROM_API));
    await world.client.create(resources.NodePolicyStatus, report('n1', { policyVersion: await written() }));
    await eventually(async () => expect(condition(await resolved(), 'Programmed')).toBe('True Programmed 1'));
    await world.settle(first);
    await first.stop();
    await world.client.delete(resources.NetworkPolicy, 'web', 'a');
    const { uid } = (await world.client.create(resources.NetworkPolicy, knp('a/web', FROM_API))).metadata;
    const stop = new AbortController();
    const seen: string[] = [];
    const { resourceVersion } = await world.client.list(resources.ResolvedPolicy);
    const watch = (async () => {
      const options = { resourceVersion, signal: stop.signal };
      for await (const { object } of world.client.watch(resources.ResolvedPolicy, options)) {
        seen.push(`${object.spec.source.uid === uid ? 'new' : 'old'} ${condition(object, 'Programmed')}`);
      }
    })();
    await world.settle(await world.operator());
    await eventually(async () => expect(seen.at(-1)).toBe('new False Progressing 1'));
    stop.abort();
    await watch;
    expect(seen.filter((each) => each.startsWith('new True'))).toEqual([]);
  });

  it.each([403, 404])('that cannot be read (%i) stays as it is enforced, and holds up nothing else', async (code) => {
    await cluster();
    const first = await world.operator();
    for (const name of ['web', 'gone']) await world.client.create(resources.NetworkPolicy, knp(`a/${name}`, FROM_API));
    await eventually(async () => {
      for (const name of ['web', 'gone']) expect((await resolved(`knp-a.${name}`)).status).toBeDefined();
    });
    await world.settle(first);
    const before = await resolved();
    const { items: sets } = await world.client.list(resources.PeerSet);
    await first.stop();
    await world.client.delete(resources.NetworkPolicy, 'gone', 'a');
    const heal = world.api.faults.fail(code, { userAgent: 'weir-operator', verb: 'list', resource: 'networkpolicies' });
    const second = await world.operator({ healthAddress: '127.0.0.1:0' });
    await world.client.create(resources.CiliumNetworkPolicy, cnp('b/other', { endpointSelector: {}, ingress: [{}] }));
    await eventually(() => resolved('cnp-b.other'));
    await world.settle(second);
    expect(await resolved()).toEqual(before);
    await resolved('knp-a.gone');
    const left = (await world.client.list(resources.PeerSet)).items.map(({ metadata }) => metadata.name);
    for (const set of sets) expect(left).toContain(set.metadata.name);
    // A pod that joins its peers is still seen.
    await createWithStatus(world.client, pod('a/api-2', { app: 'api', v: '2' }, { ip: '10.0.0.9', node: 'n2' }));
    const peer = before.spec.rules[0]?.peers?.[0];
    const hash = peer !== undefined && 'peerSet' in peer ? peer.peerSet : '';
    await eventually(async () =>
      expect((await world.client.get(resources.PeerSet, hash)).spec.identities).toHaveLength(2),
    );
    expect((await fetch(`http://127.0.0.1:${second.healthPort}/readyz`)).status).toBe(200);
    heal();
    await eventually(async () => await expect(resolved('knp-a.gone')).rejects.toMatchObject({ notFound: true }));
    await world.settle(second);
    expect((await resolved()).spec).toEqual(before.spec);
    await world.client.delete(resources.NetworkPolicy, 'web', 'a');
    await eventually(async () => await expect(resolved()).rejects.toMatchObject({ notFound: true }));
  });
});

describe('readiness', () => {
  it('names what may not be read, and how to mend it', async () => {
    await cluster();
    world.api.faults.fail(403, { userAgent: 'weir-operator', verb: 'list', resource: 'pods' });
    const operator = await world.operator({ healthAddress: '127.0.0.1:0' });
    await eventually(async () => {
      const answer = await fetch(`http://127.0.0.1:${operator.healthPort}/readyz`);
      const text = await answer.text();
      expect(answer.status).toBe(503);
      expect(text).toMatch(
        /^waiting for pods \(.*403.*grant the operator's role get, list and watch on pods \(v1\)\)\n$/,
      );
    });
  });
});

describe('Events', () => {
  const BROKEN = { endpointSelector: {}, ingress: [{ fromCIDR: ['10.0.0.300/8'] }] };

  it('an invalid edit is told once, over a new leader too; another one counts up', async () => {
    await cluster();
    let later = 0;
    const first = await world.operator({ now: () => Date.now() + later });
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/broken', BROKEN));
    await world.client.create(resources.CiliumClusterwideNetworkPolicy, ccnp('wide', BROKEN));
    await eventually(async () => {
      expect(await events('broken')).toEqual(['Warning InvalidSpec x1']);
      expect(await events('wide')).toEqual(['Warning InvalidSpec x1']);
    });
    later = 20_000;
    await world.client.apply(resources.CiliumNetworkPolicy, cnp('a/broken', { ...BROKEN, description: 'x' }), apply);
    await eventually(async () => expect(await events('broken')).toEqual(['Warning InvalidSpec x2']));
    await world.settle(first);
    const { items } = await world.client.list(resources.Event);
    expect(new Set(items.map(({ metadata }) => metadata.namespace))).toEqual(new Set(['a', 'default']));
    await first.stop();
    world.writes();
    const second = await world.operator();
    await world.settle(second);
    expect(world.writes()).toEqual([]);
  });

  it('a failing write is tried until it is told, and delays no rules', async () => {
    await cluster();
    const operator = await world.operator();
    await world.settle(operator);
    const heal = world.api.faults.fail(500, { userAgent: 'weir-operator', verb: 'apply', resource: 'events' });
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/broken', BROKEN));
    // The status says it all the same.
    await eventually(async () =>
      expect((await world.client.get(resources.CiliumNetworkPolicy, 'broken', 'a')).status).toBeDefined(),
    );
    expect(await events('broken')).toEqual([]);
    heal();
    await eventually(async () => expect(await events('broken')).toEqual(['Warning InvalidSpec x1']));
  });

  it('a node that fails is told with its reason', async () => {
    await cluster();
    await world.operator();
    const { metadata } = await world.client.create(
      resources.CiliumNetworkPolicy,
      cnp('a/web', { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{}] }),
    );
    const uid = metadata.uid ?? '';
    const failures = [{ uid, generation: 1, reason: 'KernelRefused', message: 'map is full' }];
    await world.client.create(resources.NodePolicyStatus, report('n1', { failures }));
    await eventually(async () => expect(await events('web')).toEqual(['Warning NodeFailed x1']));
    const [event] = (await world.client.list(resources.Event, { namespace: 'a' })).items;
    expect(event?.message).toBe('n1: KernelRefused: map is full');
  });
});

describe('failover', () => {
  it('a new leader passes through no other status, whatever comes late', async () => {
    await cluster();
    const first = await world.operator({ statusIntervalMs: 1_000 });
    await world.client.create(
      resources.CiliumNetworkPolicy,
      cnp('a/web', { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{}] }),
    );
    await world.client.create(resources.NodePolicyStatus, report('n1', { policyVersion: await written() }));
    await eventually(async () => {
      const { status } = await world.client.get(resources.CiliumNetworkPolicy, 'web', 'a');
      expect(status?.conditions.find(({ type }) => type === 'Programmed')?.status).toBe('True');
    });
    await world.settle(first);
    await first.stop();
    for (const late of ['nodes', 'pods', 'nodepolicystatuses', 'namespaces', 'peersets', 'ciliumidentities']) {
      world.writes();
      const heal = world.api.faults.delay(150, { userAgent: 'weir-operator', verb: 'list', resource: late });
      const next = await world.operator();
      await world.settle(next);
      expect([late, ...world.writes()]).toEqual([late]);
      await next.stop();
      heal();
    }
  });
});
