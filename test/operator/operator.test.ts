import { afterEach, describe, expect, it, jest } from '@jest/globals';
import {
  type CiliumPolicyObject,
  type Condition,
  crds,
  createKubeClient,
  type KubeObject,
  resources,
} from '@weir/kube';
import { pino } from 'pino';
import { Model } from '../../operator/model/model.ts';
import { SHARE_MS } from '../../operator/model/time-share.ts';
import { createOperator, type Operator } from '../../operator/operator.ts';
import { ccnp, cnp, namespace, node, pod, report } from '../../operator/testing.ts';
import { looseCrds } from '../cluster/loose-crds.ts';
import { createWithStatus, createWorld, eventually, type World } from './world.ts';

let world: World;
afterEach(async () => {
  jest.restoreAllMocks();
  await world.stop();
});

const WEB_FROM_API = {
  endpointSelector: { matchLabels: { app: 'web' } },
  ingress: [
    {
      fromEndpoints: [{ matchLabels: { app: 'api' } }],
      toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }] }],
    },
  ],
};

const apply = { fieldManager: 'user', force: true } as const;
/** A version that the API server has not reached. */
const READ_ALL = '1000000';

/** Two namespaces, two nodes, two pods. */
async function cluster(): Promise<World> {
  world = await createWorld({ crds: looseCrds() });
  const { client } = world;
  for (const name of ['a', 'b']) await client.create(resources.Namespace, namespace(name, { team: name }));
  for (const name of ['n1', 'n2']) await createWithStatus(world.client, node(name));
  await createWithStatus(world.client, pod('a/web-1', { app: 'web' }, { ip: '10.0.0.1', node: 'n1' }));
  await createWithStatus(world.client, pod('a/api-1', { app: 'api' }, { ip: '10.0.0.2', node: 'n2' }));
  return world;
}

const policy = (name = 'web', ns = 'a'): Promise<CiliumPolicyObject> =>
  world.client.get(resources.CiliumNetworkPolicy, name, ns);

const condition = (object: CiliumPolicyObject, type: Condition['type']): Condition | undefined =>
  object.status?.conditions.find((one) => one.type === type);

const identityOf = async (labels: Record<string, string>): Promise<number> => {
  const { items } = await world.client.list(resources.CiliumIdentity);
  const found = items.find((item) => Object.entries(labels).every(([k, v]) => item['security-labels'][k] === v));
  return Number(found?.metadata.name);
};

describe('operator', () => {
  it('turns pods into identities and slices, and a policy into peer sets, rules and status', async () => {
    await cluster();
    const operator = await world.operator();
    await world.settle(operator);

    const web = await identityOf({ 'k8s:app': 'web' });
    const api = await identityOf({ 'k8s:app': 'api' });
    expect(web).toBeGreaterThanOrEqual(256);
    expect(api).not.toBe(web);
    const identity = await world.client.get(resources.CiliumIdentity, String(web));
    expect(identity['security-labels']).toMatchObject({
      'k8s:io.kubernetes.pod.namespace': 'a',
      'k8s:io.cilium.k8s.namespace.labels.team': 'a',
      'k8s:io.cilium.k8s.policy.cluster': 'default',
    });
    expect(identity.metadata.labels).toMatchObject({ app: 'web' });

    const slices = await world.client.list(resources.CiliumEndpointSlice);
    expect(slices.items).toHaveLength(1);
    expect(slices.items[0]).toMatchObject({
      namespace: 'a',
      endpoints: [
        { name: 'api-1', id: 0, identity: api, networking: { addressing: [{ ipv4: '10.0.0.2' }], node: '192.0.2.1' } },
        { name: 'web-1', id: 0, identity: web, networking: { addressing: [{ ipv4: '10.0.0.1' }] } },
      ],
    });

    const created = await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await eventually(async () => expect((await policy()).status).toBeDefined());
    await world.settle(operator);
    const resolved = await world.client.get(resources.ResolvedPolicy, 'cnp-a.web');
    expect(resolved.spec.source).toEqual({
      kind: 'CiliumNetworkPolicy',
      namespace: 'a',
      name: 'web',
      uid: created.metadata.uid,
      generation: 1,
    });
    for (const { metadata } of (await world.client.list(resources.PeerSet)).items) {
      expect(Number(metadata.resourceVersion)).toBeLessThan(Number(resolved.metadata.resourceVersion));
    }
    const [rule] = resolved.spec.rules;
    expect(rule).toMatchObject({ direction: 'ingress', verdict: 'allow', defaultDeny: true, path: 'spec.ingress[0]' });
    expect(rule?.cookie).toBeGreaterThan(0);
    const subject = await world.client.get(resources.PeerSet, rule?.subject ?? '');
    expect(subject.spec).toMatchObject({ identities: [web], slice: 0, slices: 1 });
    const [peer] = rule?.peers ?? [];
    const peers = await world.client.get(
      resources.PeerSet,
      peer !== undefined && 'peerSet' in peer ? peer.peerSet : '',
    );
    expect(peers.spec.identities).toEqual([api]);

    const status = (await policy()).status;
    expect(status).toMatchObject({ observedGeneration: 1, summary: { nodes: '0/1', endpoints: 1, rules: 1 } });
    expect(condition(await policy(), 'Programmed')).toMatchObject({ status: 'False', reason: 'Progressing' });

    await world.client.create(resources.NodePolicyStatus, report('n1', { policyVersion: READ_ALL }));
    await eventually(async () => expect(condition(await policy(), 'Programmed')?.status).toBe('True'));
    expect(condition(await policy(), 'Ready')).toMatchObject({ status: 'True', observedGeneration: 1 });
    expect((await policy()).status?.summary.nodes).toBe('1/1');
  });

  it('writes one slice for a pod with known labels, and nothing when nothing changes', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('b/web', WEB_FROM_API));
    await eventually(async () => expect((await policy('web', 'b')).status).toBeDefined());
    await world.settle(operator);
    world.writes();
    await createWithStatus(world.client, pod('a/web-2', { app: 'web' }, { ip: '10.0.0.3', node: 'n1' }));
    await eventually(async () => {
      const { items } = await world.client.list(resources.CiliumEndpointSlice);
      expect(items[0]?.endpoints.map(({ name }) => name)).toEqual(['api-1', 'web-1', 'web-2']);
    });
    await world.settle(operator);
    expect(world.writes()).toEqual(['apply ciliumendpointslices']);

    // A heartbeat, a label nobody reads, a report that says nothing new.
    await world.client.apply(
      resources.KubeNode,
      { ...node('n1'), metadata: { name: 'n1', annotations: { x: 'y' } } },
      apply,
    );
    await world.client.create(resources.NodePolicyStatus, report('n1', { revision: 7 }));
    await world.settle(operator);
    expect(world.writes()).toEqual([]);
  });

  it('a new identity is listed by its peer sets, and names them', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(
      resources.CiliumClusterwideNetworkPolicy,
      ccnp('all', { endpointSelector: {}, ingressDeny: [{ fromEndpoints: [{ matchLabels: { bad: 'yes' } }] }] }),
    );
    await eventually(() => world.client.get(resources.ResolvedPolicy, 'ccnp-all'));
    await world.settle(operator);
    world.writes();
    await createWithStatus(world.client, pod('b/evil', { bad: 'yes' }));
    const id = await eventually(async () => {
      const number = await identityOf({ 'k8s:bad': 'yes' });
      expect(number).toBeGreaterThan(0);
      return number;
    });
    await world.settle(operator);
    const { items } = await world.client.list(resources.PeerSet);
    expect(items).toHaveLength(2);
    for (const item of items) expect(item.spec.identities).toContain(id);
    // Without an address it is in no slice.
    expect([...world.writes()].sort()).toEqual(['apply ciliumidentities', 'apply peersets', 'apply peersets']);
  });

  it('a restarted operator adopts everything and writes nothing', async () => {
    await cluster();
    const first = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await world.client.create(
      resources.CiliumNetworkPolicy,
      cnp('a/broken', { endpointSelector: {}, ingress: [{ fromCIDR: ['10.0.0.300/8'] }] }),
    );
    await eventually(async () => {
      for (const name of ['web', 'broken']) expect((await policy(name)).status).toBeDefined();
    });
    await world.settle(first);
    await first.stop();
    world.writes();
    const second = await world.operator();
    await world.settle(second);
    expect(world.writes()).toEqual([]);
  });

  it('writes nothing before the first state is complete, however many rounds that takes', async () => {
    await cluster();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    world.writes();
    const early: string[] = [];
    let steps = 0;
    const completion = Reflect.get(Model.prototype, 'completion') as Model['completion'];
    jest.spyOn(Model.prototype, 'completion').mockImplementation(function* (this: Model, ...args) {
      for (const step of completion.apply(this, args)) {
        yield (txn) => {
          steps += 1;
          early.push(...world.writes());
          // Longer than a round's share: each step is a round, and other work has its turn after it.
          for (const begun = performance.now(); performance.now() - begun <= SHARE_MS; );
          step(txn);
        };
      }
    });
    await world.settle(await world.operator());
    expect(steps).toBeGreaterThan(6);
    expect(early).toEqual([]);
    expect(world.writes()).toContain('apply ciliumidentities');
  });

  it('an invalid edit leaves the last valid generation enforced, over a restart too, with its peer sets kept up', async () => {
    await cluster();
    const first = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    const before = await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
    const broken = { ...WEB_FROM_API, endpointSelector: { matchLabels: { app: 'a b' } } };
    await world.client.apply(resources.CiliumNetworkPolicy, cnp('a/web', broken), apply);
    await eventually(async () => expect(condition(await policy(), 'Valid')?.status).toBe('False'));
    const check = async (): Promise<void> => {
      const valid = condition(await policy(), 'Valid');
      expect(valid).toMatchObject({ reason: 'InvalidSpec', observedGeneration: 2 });
      expect(valid?.message).toMatch(/^spec\.endpointSelector\.matchLabels\["app"\]: .*generation 1 stays enforced$/);
      expect(condition(await policy(), 'Programmed')).toMatchObject({ status: 'False', reason: 'Invalid' });
      expect((await world.client.get(resources.ResolvedPolicy, 'cnp-a.web')).spec).toEqual(before.spec);
    };
    await check();
    await first.stop();
    const second = await world.operator();
    await world.settle(second);
    await check();
    // Another api pod, with a label set of its own, joins the set that generation 1 names.
    await createWithStatus(world.client, pod('a/api-9', { app: 'api', version: '9' }, { ip: '10.0.0.9', node: 'n2' }));
    const [rule] = before.spec.rules;
    const [peer] = rule?.peers ?? [];
    const hash = peer !== undefined && 'peerSet' in peer ? peer.peerSet : '';
    await eventually(async () =>
      expect((await world.client.get(resources.PeerSet, hash)).spec.identities).toHaveLength(2),
    );

    // Mended: the new generation takes over, and the cookie of the same element stays.
    await world.client.apply(
      resources.CiliumNetworkPolicy,
      cnp('a/web', { ...WEB_FROM_API, description: 'mended' }),
      apply,
    );
    await eventually(async () => {
      const now = await world.client.get(resources.ResolvedPolicy, 'cnp-a.web');
      expect(now.spec.source.generation).toBe(3);
      expect(now.spec.rules[0]?.cookie).toBe(rule?.cookie);
    });
  });

  it('a policy that was never valid enforces nothing and says so', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', { endpointSelector: {}, ingress: [] }));
    await eventually(async () =>
      expect(condition(await policy(), 'Valid')?.message).toContain('nothing of this policy is enforced'),
    );
    await world.settle(operator);
    expect((await world.client.list(resources.ResolvedPolicy)).items).toEqual([]);
  });

  it('what cannot be read of a policy allows nothing, and the rest is enforced', async () => {
    await cluster();
    await world.operator();
    const ingress = [{ toPorts: [{ ports: [{ port: '99999' }] }] }, ...WEB_FROM_API.ingress];
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', { ...WEB_FROM_API, ingress }));
    await eventually(async () =>
      expect(condition(await policy(), 'Valid')).toMatchObject({
        reason: 'InvalidSpec',
        message: expect.stringMatching(/^spec\.ingress\[0\].*; the rest is enforced$/),
      }),
    );
    const { spec } = await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
    expect(spec.rules).toMatchObject([{ ports: [], defaultDeny: true }, { peers: [{}] }]);
  });

  it('what cannot be enforced yet is resolved fail-closed and named', async () => {
    await cluster();
    await world.operator();
    const http = {
      ...WEB_FROM_API,
      ingress: [
        {
          ...WEB_FROM_API.ingress[0],
          toPorts: [{ ports: [{ port: '80', protocol: 'TCP' }], rules: { http: [{ method: 'GET' }] } }],
        },
      ],
    };
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', http));
    await eventually(async () => expect(condition(await policy(), 'Valid')?.reason).toBe('UnsupportedField'));
    expect(condition(await policy(), 'Valid')?.message).toContain('spec.ingress[0]');
    expect(condition(await policy(), 'Ready')?.status).toBe('False');
    const { spec } = await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
    expect(spec.rules[0]).toMatchObject({ defaultDeny: true });
  });

  it('deletes the resolved policy, then the peer sets that nobody names', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/other', { ...WEB_FROM_API, ingress: [{}] }));
    await eventually(async () => expect((await world.client.list(resources.ResolvedPolicy)).items).toHaveLength(2));
    await world.settle(operator);
    expect((await world.client.list(resources.PeerSet)).items).toHaveLength(2);
    world.writes();
    await world.client.delete(resources.CiliumNetworkPolicy, 'web', 'a');
    await eventually(async () => expect((await world.client.list(resources.PeerSet)).items).toHaveLength(1));
    await world.settle(operator);
    expect((await world.client.list(resources.ResolvedPolicy)).items.map((i) => i.metadata.name)).toEqual([
      'cnp-a.other',
    ]);
    expect(world.writes()).toEqual(['delete peersets', 'delete resolvedpolicies']);
  });

  it('survives failing writes, dropped and expired watches: the end is the same', async () => {
    await cluster();
    const operator = await world.operator();
    await world.settle(operator);
    const heal = world.api.faults.fail(500, { userAgent: 'weir-operator' });
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await createWithStatus(world.client, pod('a/db-1', { app: 'db' }, { ip: '10.0.0.5', node: 'n1' }));
    world.api.faults.dropWatches();
    world.api.faults.expireWatches();
    await world.client.delete(resources.Pod, 'api-1', 'a', { gracePeriodSeconds: 0 });
    heal();
    await eventually(async () => {
      const { items } = await world.client.list(resources.CiliumEndpointSlice);
      expect(items.flatMap((item) => item.endpoints.map(({ name }) => name))).toEqual(['db-1', 'web-1']);
      expect((await policy()).status?.summary).toMatchObject({ endpoints: 1, rules: 1 });
    });
    // A status may be written before the rules that it counts.
    await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
  });

  it('repairs what another hand changed or deleted', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    const before = await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
    await world.settle(operator);
    await world.client.delete(resources.ResolvedPolicy, 'cnp-a.web');
    await eventually(async () => {
      const after = await world.client.get(resources.ResolvedPolicy, 'cnp-a.web');
      expect(after.spec).toEqual(before.spec);
      expect(after.metadata.uid).not.toBe(before.metadata.uid);
    });
    const [slice] = (await world.client.list(resources.CiliumEndpointSlice)).items;
    if (slice === undefined) throw new Error('no slice');
    await world.client.replace(resources.CiliumEndpointSlice, { ...slice, endpoints: [] });
    await eventually(async () => {
      const after = await world.client.get(resources.CiliumEndpointSlice, slice.metadata.name);
      expect(after.endpoints).toEqual(slice.endpoints);
    });
  });

  it('a policy waits for its peer sets, an endpoint for its identity, however often those fail', async () => {
    await cluster();
    const operator = await world.operator();
    await world.settle(operator);
    const heal = world.api.faults.fail(500, { userAgent: 'weir-operator', verb: 'apply', resource: 'peersets' });
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', { endpointSelector: {}, ingress: [{}] }));
    await eventually(async () =>
      expect(
        world.api.stats.count({ verb: 'apply', resource: 'peersets', userAgent: 'weir-operator' }),
      ).toBeGreaterThan(1),
    );
    await createWithStatus(world.client, pod('a/new-1', { app: 'new' }, { ip: '10.0.0.7', node: 'n1' }));
    await createWithStatus(world.client, pod('a/web-2', { app: 'web' }, { ip: '10.0.0.8', node: 'n1' }));
    const shown = async (): Promise<string[]> =>
      (await world.client.list(resources.CiliumEndpointSlice)).items.flatMap((i) => i.endpoints.map((e) => e.name));
    // Pods do not wait with it: their labels say who they are, whatever the sets list.
    await eventually(async () => expect(await shown()).toEqual(expect.arrayContaining(['new-1', 'web-2'])));
    expect((await world.client.list(resources.ResolvedPolicy)).items).toEqual([]);
    heal();
    await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
    const mend = world.api.faults.fail(500, {
      userAgent: 'weir-operator',
      verb: 'apply',
      resource: 'ciliumidentities',
    });
    await createWithStatus(world.client, pod('a/new-2', { app: 'newer' }, { ip: '10.0.0.9', node: 'n1' }));
    await createWithStatus(world.client, pod('a/web-3', { app: 'web' }, { ip: '10.0.0.10', node: 'n1' }));
    await eventually(async () => expect(await shown()).toContain('web-3'));
    expect(await shown()).not.toContain('new-2');
    mend();
    await eventually(async () => expect(await shown()).toContain('new-2'));
  });

  it('collects identities that nobody has used for the grace period', async () => {
    await cluster();
    const operator = await world.operator({ identityGcGrace: 0, identityGcInterval: 30 });
    await world.settle(operator);
    const api = await identityOf({ 'k8s:app': 'api' });
    await world.client.delete(resources.Pod, 'api-1', 'a', { gracePeriodSeconds: 0 });
    await eventually(async () => expect(await identityOf({ 'k8s:app': 'api' })).toBeNaN());
    await expect(world.client.get(resources.CiliumIdentity, String(api))).rejects.toMatchObject({ notFound: true });
    expect(await identityOf({ 'k8s:app': 'web' })).toBeGreaterThan(0);
  });
});

describe('preflight', () => {
  const workload = (where: string): KubeObject => ({
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { namespace: where, name: 'cilium', labels: { 'k8s-app': 'cilium' } },
    ...({
      spec: {
        selector: { matchLabels: { 'k8s-app': 'cilium' } },
        template: {
          metadata: { labels: { 'k8s-app': 'cilium' } },
          spec: { containers: [{ name: 'c', image: 'i' }] },
        },
      },
    } as object),
  });
  const ciliumCrd = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'ciliumnodes.cilium.io' },
    spec: {
      group: 'cilium.io',
      scope: 'Cluster',
      names: { plural: 'ciliumnodes', singular: 'ciliumnode', kind: 'CiliumNode', listKind: 'CiliumNodeList' },
      versions: [{ name: 'v2', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
    },
  };

  /** What an operator logs that starts, and when it runs. */
  function starting(): { readonly lines: string[]; readonly runs: Promise<unknown> } {
    const lines: string[] = [];
    const logger = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
    return { lines, runs: world.operator({ logger, preflightRetryMs: 50, namespace: 'weir' }) };
  }

  it('names missing CRDs and the fix, and goes on when they are there', async () => {
    const [missing, ...others] = crds();
    world = await createWorld({ crds: others });
    const { lines, runs } = starting();
    await eventually(async () => expect(lines.join()).toMatch(/ciliumnetworkpolicies\.cilium\.io.*kubectl apply/));
    await world.client.create(resources.CustomResourceDefinition, missing as KubeObject);
    await runs;
    expect(lines).toHaveLength(1);
  });

  it.each(['kube-system', 'weir'])(
    'does not run beside Cilium in %s, says what it found, and runs once it is gone',
    async (where) => {
      world = await createWorld();
      if (where === 'weir') await world.client.create(resources.Namespace, namespace(where));
      await world.client.create(resources.DaemonSet, workload(where));
      const { lines, runs } = starting();
      await eventually(async () =>
        expect(lines.join()).toContain(`Cilium is installed here (DaemonSet ${where}/cilium)`),
      );
      await world.client.delete(resources.DaemonSet, 'cilium', where);
      await runs;
    },
  );

  it('what only looks like Cilium in a namespace of somebody is a warning; beside a CRD of Cilium it is none', async () => {
    world = await createWorld();
    await world.client.create(resources.Namespace, namespace('tenant'));
    await world.client.create(resources.DaemonSet, workload('tenant'));
    const alone = starting();
    await alone.runs;
    expect(alone.lines.join()).toContain('DaemonSet tenant/cilium looks like');
    await world.client.create(resources.CustomResourceDefinition, ciliumCrd as KubeObject);
    const beside = starting();
    await eventually(async () =>
      expect(beside.lines.join()).toContain('Cilium is installed here (DaemonSet tenant/cilium)'),
    );
    await world.client.delete(resources.DaemonSet, 'cilium', 'tenant');
    await beside.runs;
  });

  it('where an operator has led, but no policy is left, nothing keeps it from starting', async () => {
    world = await createWorld();
    for (const name of ['weir', 'tenant']) await world.client.create(resources.Namespace, namespace(name));
    const election = { leaderElect: true, leaderName: 'weir-operator', identity: 'one' };
    const first = await world.operator({ namespace: 'weir', ...election });
    await first.stop();
    await world.client.create(resources.CustomResourceDefinition, ciliumCrd as KubeObject);
    await world.client.create(resources.DaemonSet, workload('tenant'));
    const lines: string[] = [];
    const logger = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
    await world.operator({ logger, namespace: 'weir', ...election, identity: 'two' });
    expect(lines.join()).toContain('Weir has run here already');
  });

  it('where Weir has run already, nothing keeps it from starting', async () => {
    await cluster();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    const first = await world.operator();
    await world.settle(first);
    await first.stop();
    await world.client.create(resources.DaemonSet, workload('kube-system'));
    const { lines, runs } = starting();
    await runs;
    expect(lines.join()).toContain('Weir has run here already');
  });
});

describe('status', () => {
  it('two nodes that report every second what is known write nothing', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    const say = (name: string, revision: number): Promise<unknown> =>
      world.client.apply(
        resources.NodePolicyStatus,
        report(name, {
          policyVersion: `${READ_ALL}${revision}`,
          counts: { endpoints: revision, policies: 1 },
          revision,
        }),
        apply,
      );
    for (const name of ['n1', 'n2']) await say(name, 1);
    await eventually(async () => expect(condition(await policy(), 'Ready')?.status).toBe('True'));
    await world.settle(operator);
    world.writes();
    for (let revision = 2; revision < 12; revision += 1) for (const name of ['n1', 'n2']) await say(name, revision);
    await world.settle(operator);
    expect(world.writes()).toEqual([]);
  });

  it('puts a status right that another hand has changed, with one write, and then is quiet', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await eventually(async () => expect((await policy()).status).toBeDefined());
    await world.settle(operator);
    const { status } = await policy();
    const wrong = { ...status, summary: { nodes: '9/9', endpoints: 9, rules: 9 } };
    const bare = cnp('a/web', {});
    world.writes();
    await world.client.apply(
      resources.CiliumNetworkPolicy,
      { apiVersion: bare.apiVersion, kind: bare.kind, metadata: bare.metadata, status: wrong } as CiliumPolicyObject,
      { fieldManager: 'other', force: true, subresource: 'status' },
    );
    await eventually(async () => expect((await policy()).status).toEqual(status));
    await world.settle(operator);
    expect(world.writes()).toEqual(['apply ciliumnetworkpolicies/status']);
  });

  it('takes foreign fields out of a status, which an apply alone would leave there', async () => {
    await cluster();
    const operator = await world.operator();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await eventually(async () => expect((await policy()).status).toBeDefined());
    await world.settle(operator);
    const { status } = await policy();
    world.writes();
    const url = `${world.url}/apis/cilium.io/v2/namespaces/a/ciliumnetworkpolicies/web/status`;
    const answer = await fetch(url, {
      method: 'PATCH',
      headers: { 'content-type': 'application/merge-patch+json', 'user-agent': 'other' },
      body: JSON.stringify({
        status: { failures: [{ node: 'nowhere', reason: 'Made', message: 'up' }], failureCount: 1 },
      }),
    });
    expect(answer.status).toBe(200);
    await eventually(async () => expect((await policy()).status).toEqual(status));
    await world.settle(operator);
    expect(world.writes()).toEqual(['apply ciliumnetworkpolicies/status', 'update ciliumnetworkpolicies/status']);
  });
});

/** Status and body. */
async function probe({ healthPort }: Pick<Operator, 'healthPort'>, path: string): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${healthPort}/${path}`);
  return `${answer.status} ${await answer.text()}`;
}

describe('probes', () => {
  it('healthz, readyz and metrics tell how it is', async () => {
    await cluster();
    const operator = await world.operator({ healthAddress: '127.0.0.1:0' });
    await world.settle(operator);
    expect(await probe(operator, 'healthz')).toBe('200 ok\n');
    expect(await probe(operator, 'readyz')).toBe('200 ok\n');
    const metrics = await probe(operator, 'metrics');
    expect(metrics).toContain('weir_operator_identities 2');
    expect(metrics).toMatch(/^nodejs_eventloop_lag_max_seconds \d/m);
    expect(metrics).toMatch(/^process_resident_memory_bytes \d/m);
    expect(metrics).toContain('weir_operator_api_writes_total{verb="apply",resource="ciliumidentities"} 2');
    expect(await probe(operator, 'else')).toMatch(/^404/);
  });

  it('readyz names what cannot be followed any more', async () => {
    await cluster();
    const operator = await world.operator({ healthAddress: '127.0.0.1:0', staleMs: 200 });
    await world.settle(operator);
    const ready = (): Promise<string> => probe(operator, 'readyz');
    const { faults } = world.api;
    const mend = (['list', 'watch'] as const).map((verb) => faults.fail(503, { verb, resource: 'pods' }));
    faults.dropWatches({ resource: 'pods' });
    await eventually(async () =>
      expect(await ready()).toMatch(/^503 its inputs are stale: pods \(for \d+ s: .*503.*\)\n$/),
    );
    for (const each of mend) each();
    await eventually(async () => expect(await ready()).toBe('200 ok\n'));
  });
});

describe('readiness with leader election', () => {
  const electing = (identity: string, renewDeadlineMs = 40_000) => ({
    healthAddress: '127.0.0.1:0',
    leaderElect: true,
    leaderNamespace: 'a',
    leaderName: 'weir-operator',
    identity,
    leaseDurationMs: 60_000,
    renewDeadlineMs,
    retryPeriodMs: 50,
  });

  it('an operator that has never reached the API server is not ready, and says why', async () => {
    await cluster();
    const mend = world.api.faults.fail(503, { userAgent: 'weir-operator' });
    const client = createKubeClient({ kubeconfig: world.kubeconfig, userAgent: 'weir-operator' });
    const operator = await createOperator({ client, logger: pino({ level: 'silent' }), config: electing('one') });
    const started = operator.start();
    try {
      await eventually(async () => expect(operator.healthPort).toBeDefined());
      await eventually(async () =>
        expect(await probe(operator, 'readyz')).toMatch(/^503 preflight could not ask the API server: .*503.*\n$/),
      );
      mend();
      await eventually(async () => expect(await probe(operator, 'readyz')).toBe('200 ok\n'));
    } finally {
      mend();
      await started;
      await operator.stop();
      client.close();
    }
  });

  it('a replica that stands by is ready for as long as it reaches the lease', async () => {
    await cluster();
    const leader = await world.operator(electing('one'));
    await eventually(async () => expect(leader.leading).toBe(true));
    await leader.ready();
    const standby = await world.operator(electing('two', 500));
    const ready = (): Promise<string> => probe(standby, 'readyz');
    await eventually(async () => expect(await ready()).toBe('200 ok\n'));
    // The leader only writes.
    const mend = world.api.faults.fail(503, { resource: 'leases', verb: 'get', userAgent: 'weir-operator' });
    await eventually(async () =>
      expect(await ready()).toMatch(/^503 lease a\/weir-operator has not been reached for \d+ s: .*503.*\n$/),
    );
    expect(await probe(leader, 'readyz')).toBe('200 ok\n');
    mend();
    await eventually(async () => expect(await ready()).toBe('200 ok\n'));
    expect(standby.leading).toBe(false);
  });
});

describe('leadership', () => {
  it('only the leader writes; the other takes over at once when it stops', async () => {
    await cluster();
    const election = (identity: string) => ({
      leaderElect: true,
      leaderNamespace: 'a',
      leaderName: 'weir-operator',
      identity,
      leaseDurationMs: 60_000,
      renewDeadlineMs: 40_000,
      retryPeriodMs: 50,
    });
    const first = await world.operator(election('one'));
    await eventually(async () => expect(first.leading).toBe(true));
    await first.ready();
    const second = await world.operator(election('two'));
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
    expect(second.leading).toBe(false);
    await first.stop();
    await eventually(async () => expect(second.leading).toBe(true));
    await world.client.delete(resources.CiliumNetworkPolicy, 'web', 'a');
    await eventually(async () => expect((await world.client.list(resources.ResolvedPolicy)).items).toEqual([]));
  });

  const leases = { resource: 'leases', userAgent: 'weir-operator' } as const;
  const written = (): string[] => world.writes().filter((write) => !write.endsWith(' leases'));

  it('an operator that cannot renew stops writing, stands by, and leads again when it can', async () => {
    await cluster();
    const fatal: Error[] = [];
    const operator = await world.operator({
      healthAddress: '127.0.0.1:0',
      leaderElect: true,
      leaderNamespace: 'a',
      leaderName: 'weir-operator',
      identity: 'one',
      // Longer than a busy machine lets a process stand.
      leaseDurationMs: 8_000,
      renewDeadlineMs: 6_000,
      retryPeriodMs: 50,
      onFatal: (error) => fatal.push(error),
    });
    await eventually(async () => expect(operator.leading).toBe(true));
    // Its renewals never leave the API server still.
    await operator.ready();
    await operator.settled();
    const { db, healthPort } = operator;
    const mend = world.api.faults.fail(503, leases);
    await eventually(async () => expect(operator.db).not.toBe(db));
    world.writes();
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    await eventually(async () => expect(world.api.stats.count(leases)).toBeGreaterThan(5));
    expect(operator.leading).toBe(false);
    expect(written()).toEqual([]);
    expect(operator.healthPort).toBe(healthPort);
    expect(await probe(operator, 'healthz')).toBe('200 ok\n');
    // Nobody leads while it cannot: it does not do its work.
    expect(await probe(operator, 'readyz')).toMatch(
      /^503 lease a\/weir-operator has not been reached (yet|for \d+ s): .*503.*\n$/,
    );
    mend();
    await eventually(() => world.client.get(resources.ResolvedPolicy, 'cnp-a.web'));
    const metrics = await (await fetch(`http://127.0.0.1:${healthPort}/metrics`)).text();
    expect(metrics).toContain('weir_operator_leading 1');
    expect(metrics).toContain('weir_operator_api_writes_total{verb="apply",resource="ciliumidentities"} 2');
    expect(fatal).toEqual([]);
  });

  it('an operator that was frozen for longer than its lease writes nothing when it thaws', async () => {
    await cluster();
    let frozenMs = 0;
    const operator = await world.operator({
      leaderElect: true,
      leaderNamespace: 'a',
      leaderName: 'weir-operator',
      identity: 'one',
      leaseDurationMs: 60_000,
      renewDeadlineMs: 40_000,
      retryPeriodMs: 30_000,
      leaseNow: () => performance.now() + frozenMs,
    });
    await eventually(async () => expect(operator.leading).toBe(true));
    await world.settle(operator);
    const lease = await world.client.get(resources.Lease, 'weir-operator', 'a');
    await world.client.replace(resources.Lease, { ...lease, spec: { ...lease.spec, holderIdentity: 'other' } });
    const { db } = operator;
    world.writes();
    frozenMs = 60_000;
    await world.client.create(resources.CiliumNetworkPolicy, cnp('a/web', WEB_FROM_API));
    // The write that was refused is what takes the term down.
    await eventually(async () => expect(operator.db).not.toBe(db));
    expect(written()).toEqual([]);
    expect(operator.leading).toBe(false);
  });
});
