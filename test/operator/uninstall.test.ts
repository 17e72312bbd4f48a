import { spawn } from 'node:child_process';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { type CiliumPolicyObject, crds, type KubeObject, type PolicyStatus, resources } from '@weir/kube';
import { ccnp, cnp, namespace, node, pod, report } from '../../operator/testing.ts';
import { REMOVED_ANNOTATION, UNINSTALL_ANNOTATION, uninstall } from '../../operator/uninstall/uninstall.ts';
import { createWithStatus, createWorld, eventually, type World } from './world.ts';

let world: World;
let log: string[];
let agents: AbortController;
beforeEach(() => {
  log = [];
  agents = new AbortController();
});
afterEach(async () => {
  agents.abort();
  await world.stop();
});

const NODES = ['n1', 'n2'];
const POLICY = { endpointSelector: { matchLabels: { app: 'web' } }, ingress: [{}] };

const run = (timeoutMs = 60_000): Promise<void> =>
  uninstall({
    client: world.client,
    namespace: 'weir',
    daemonSet: 'weir-agent',
    deployment: 'weir-operator',
    lease: 'weir-operator',
    timeoutMs,
    log: (message) => log.push(message),
    pollMs: 20,
  });

function workload(kind: 'Deployment' | 'DaemonSet', name: string): KubeObject {
  const labels = { 'app.kubernetes.io/name': name };
  const template = { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'i' }] } };
  const spec = { selector: { matchLabels: labels }, template, ...(kind === 'Deployment' ? { replicas: 2 } : {}) };
  return { apiVersion: 'apps/v1', kind, metadata: { namespace: 'weir', name }, ...({ spec } as object) };
}

/** An installed Weir that has a policy of each kind, without its operator and agents. */
async function installed(options?: Parameters<typeof createWorld>[0]): Promise<void> {
  world = await createWorld(options);
  const { client } = world;
  for (const name of ['weir', 'a']) await client.create(resources.Namespace, namespace(name));
  for (const name of NODES) {
    await createWithStatus(client, node(name));
    await createWithStatus(client, agentPod(name));
  }
  await client.create(resources.Deployment, workload('Deployment', 'weir-operator'));
  await client.create(resources.DaemonSet, workload('DaemonSet', 'weir-agent'));
}

const agentPod = (on: string): ReturnType<typeof pod> =>
  pod(`weir/weir-agent-${on}`, { 'app.kubernetes.io/name': 'weir-agent' }, { node: on, hostNetwork: true });

/** What an operator and agents leave when they have worked for a while. */
async function worked(): Promise<void> {
  const { client } = world;
  await createWithStatus(client, pod('a/web-1', { app: 'web' }, { ip: '10.0.0.1', node: 'n1' }));
  await client.create(resources.CiliumNetworkPolicy, cnp('a/web', POLICY));
  await client.create(resources.CiliumClusterwideNetworkPolicy, ccnp('all', POLICY));
  const operator = await world.operator({
    leaderElect: true,
    leaderNamespace: 'weir',
    leaderName: 'weir-operator',
    identity: 'one',
  });
  await eventually(async () => expect((await policy()).status).toBeDefined());
  await world.settle(operator);
  await operator.stop();
  for (const name of NODES) await asAgent(report(name, {}));
  const endpoint = { apiVersion: 'cilium.io/v2', kind: 'CiliumEndpoint', metadata: { namespace: 'a', name: 'web-1' } };
  await asAgent({ ...endpoint, ...({ status: { id: 1, state: 'ready' } } as object) });
}

async function asAgent(object: KubeObject): Promise<void> {
  const resource = object.kind === 'CiliumEndpoint' ? resources.CiliumEndpoint : resources.NodePolicyStatus;
  await world.client.apply(resource as typeof resources.DaemonSet, object, { fieldManager: 'weir-agent', force: true });
}

/** Agents on these nodes that do as they are asked. */
function startAgents(names: readonly string[] = NODES): void {
  const loop = async (name: string): Promise<void> => {
    const mark = await eventually(async () => {
      const { metadata } = await world.client.get(resources.DaemonSet, 'weir-agent', 'weir');
      if (metadata.annotations?.[UNINSTALL_ANNOTATION] === undefined && !agents.signal.aborted) throw new Error('wait');
      return metadata.annotations?.[UNINSTALL_ANNOTATION];
    });
    if (mark === undefined) return;
    const said = report(name, {});
    await asAgent({ ...said, metadata: { name, annotations: { [REMOVED_ANNOTATION]: mark } } });
  };
  for (const name of names) loop(name).catch(() => {});
}

const policy = (): Promise<CiliumPolicyObject> => world.client.get(resources.CiliumNetworkPolicy, 'web', 'a');

const DERIVED = [
  resources.ResolvedPolicy,
  resources.PeerSet,
  resources.NodePolicyStatus,
  resources.CiliumIdentity,
  resources.CiliumEndpointSlice,
  resources.CiliumEndpoint,
] as const;

const NOTHING = Object.fromEntries(DERIVED.map(({ kind }) => [kind, 0]));

async function counts(): Promise<Record<string, number>> {
  const entries = DERIVED.map(async (resource) => {
    const { items } = await world.client.list(resource as typeof resources.DaemonSet);
    return [resource.kind, items.length] as const;
  });
  return Object.fromEntries(await Promise.all(entries));
}

describe('uninstall', () => {
  it('stops the operator, has the nodes cleared, deletes what was derived, and may be run again', async () => {
    await installed();
    await worked();
    for (const count of Object.values(await counts())) expect(count).toBeGreaterThan(0);
    await createWithStatus(
      world.client,
      pod('weir/weir-operator-1', { 'app.kubernetes.io/name': 'weir-operator' }, { node: 'n1', hostNetwork: true }),
    );
    const running = run();
    const replicas = async (): Promise<unknown> =>
      (
        (await world.client.get(resources.Deployment, 'weir-operator', 'weir')) as unknown as {
          spec: { replicas: number };
        }
      ).spec.replicas;
    await eventually(async () => expect(await replicas()).toBe(0));
    // While an operator runs nobody is asked to clear anything.
    const daemonSet = await world.client.get(resources.DaemonSet, 'weir-agent', 'weir');
    expect(daemonSet.metadata.annotations ?? {}).not.toHaveProperty([UNINSTALL_ANNOTATION]);
    await world.client.delete(resources.Pod, 'weir-operator-1', 'weir', { gracePeriodSeconds: 0 });
    startAgents(['n1']);
    await eventually(async () => expect(log).toContain('node n1 is clear'));
    for (const count of Object.values(await counts())) expect(count).toBeGreaterThan(0);
    startAgents(['n2']);
    await running;

    expect(await counts()).toEqual(NOTHING);
    expect((await policy()).status).toBeUndefined();
    expect((await policy()).spec).toEqual(POLICY);
    expect((await world.client.get(resources.CiliumClusterwideNetworkPolicy, 'all')).status).toBeUndefined();
    await expect(world.client.get(resources.Lease, 'weir-operator', 'weir')).rejects.toMatchObject({ notFound: true });
    expect((await world.client.list(resources.CustomResourceDefinition)).items).toHaveLength(crds().length);

    const version = world.api.stats.resourceVersion;
    await run();
    expect(world.api.stats.resourceVersion).toBe(version);
  });

  it('names the nodes that are not clear when time is over, deletes nothing, and goes on where it ended', async () => {
    await installed();
    await worked();
    const before = await counts();
    // Down: nobody waits for it. Without an agent: nothing to clear. Without an agent now, with one before: named.
    await createWithStatus(world.client, node('n3', 'Unknown'));
    await createWithStatus(world.client, agentPod('n3'));
    await createWithStatus(world.client, node('n4'));
    await createWithStatus(world.client, node('n5'));
    await asAgent(report('n5', {}));
    startAgents(['n1']);
    // Until n1, which is asked for once, has confirmed it.
    await eventually(() =>
      expect(run(700)).rejects.toThrow(
        /not done within 0\.7 s: these nodes are not clear: n2 \(agent pod weir-agent-n2 has not confirmed it\); n5 \(no agent runs there\)\. Look at/,
      ),
    );
    expect(await counts()).toEqual({ ...before, NodePolicyStatus: 3 });
    expect((await policy()).status).toBeDefined();
    await world.client.delete(resources.NodePolicyStatus, 'n5');
    startAgents(['n2']);
    const asked = (await world.client.get(resources.DaemonSet, 'weir-agent', 'weir')).metadata.annotations;
    await run();
    const now = (await world.client.get(resources.DaemonSet, 'weir-agent', 'weir')).metadata.annotations;
    // The request is the same: nodes that are clear need not do it again.
    expect(now?.[UNINSTALL_ANNOTATION]).toBe(asked?.[UNINSTALL_ANNOTATION]);
    expect(await counts()).toEqual(NOTHING);
  });

  it('names operator pods that do not end, with their node', async () => {
    await installed();
    for (const [name, on] of [
      ['one', 'n1'],
      ['two', 'gone'],
    ] as const) {
      const labels = { 'app.kubernetes.io/name': 'weir-operator' };
      await createWithStatus(world.client, pod(`weir/${name}`, labels, { node: on, hostNetwork: true }));
    }
    await expect(run(100)).rejects.toThrow(
      /operator pods still run: one on n1; end them: kubectl -n weir delete pod one$/,
    );
  });

  it('leaves what others made of the shared kinds, and their part of a status', async () => {
    await installed();
    await worked();
    await world.client.create(resources.CiliumIdentity, {
      apiVersion: 'cilium.io/v2',
      kind: 'CiliumIdentity',
      metadata: { name: '777' },
      'security-labels': { 'k8s:app': 'theirs' },
    });
    const foreign = { type: 'Audited', status: 'True', reason: 'R', message: 'm' };
    const { status, ...rest } = await policy();
    const conditions = [...(status?.conditions ?? []), { ...foreign, observedGeneration: 1 }];
    await world.client.replace(
      resources.CiliumNetworkPolicy,
      { ...rest, status: { ...status, conditions } as unknown as PolicyStatus },
      { subresource: 'status' },
    );
    startAgents();
    await run();
    expect((await world.client.list(resources.CiliumIdentity)).items.map((i) => i.metadata.name)).toEqual(['777']);
    expect((await policy()).status).toEqual({ conditions: [{ ...foreign, observedGeneration: 1 }] });
  });

  it('needs neither CRDs nor workloads: an install that failed half way', async () => {
    world = await createWorld({ crds: [] });
    await run();
    expect(log.at(-1)).toMatch(/^Weir was removed from this cluster/);
  });

  it('reads a status again that somebody writes meanwhile, and says which one never holds still', async () => {
    await installed();
    await worked();
    startAgents();
    const heal = world.api.faults.fail(409, { resource: 'ciliumnetworkpolicies/status', verb: 'update' });
    // Until the nodes are clear.
    await eventually(() =>
      expect(run(400)).rejects.toThrow(/ciliumnetworkpolicies web still carries Weir's conditions/),
    );
    heal();
    world.api.faults.fail(409, { resource: 'ciliumnetworkpolicies/status', verb: 'update' }, 2);
    await run();
    expect((await policy()).status).toBeUndefined();
  });

  it('is a subcommand: exit 0 when done, 1 with the message when not', async () => {
    await installed();
    const main = new URL('../../operator/main.ts', import.meta.url).pathname;
    const command = async (timeout: string): Promise<{ code: number | null; output: string }> => {
      const args = ['uninstall', '--namespace=weir', '--daemonset=weir-agent', '--deployment=weir-operator'];
      const child = spawn(process.execPath, [main, ...args, `--timeout=${timeout}`, '--kubeconfig', world.kubeconfig]);
      let output = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (chunk: Buffer) => (output += String(chunk)));
      const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
      return { code, output };
    };
    const late = await command('200ms');
    expect(late.code).toBe(1);
    expect(late.output).toContain('n1 (agent pod weir-agent-n1 has not confirmed it); n2');
    startAgents();
    const done = await command('120s');
    expect(done.output).toContain('Weir was removed from this cluster');
    expect(done.code).toBe(0);
  });
});
