import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { Cluster, ROOT, remains, run, type StreamReport, sweep } from '../cluster/index.ts';
import { eventually } from '../eventually.ts';

const onlyFrom = (...ids: readonly string[]): string =>
  JSON.stringify({
    apiVersion: 'cilium.io/v2',
    kind: 'CiliumNetworkPolicy',
    metadata: { name: 'guard', namespace: 'default' },
    spec: {
      endpointSelector: { matchLabels: { id: 'app1' } },
      ingress: [{ fromEndpoints: ids.map((id) => ({ matchLabels: { id } })) }],
    },
  });

/** Reachability of app1 from app2 and app3, on both nodes. An answer that is expected is waited for. */
async function who(cluster: Cluster, ...expected: readonly string[]): Promise<string[]> {
  const hosts = ['app2', 'app2-far', 'app3', 'app3-far'];
  const probe = (host: string) => cluster.probe(host, 'app1', { timeoutMs: expected.includes(host) ? 60_000 : 500 });
  const results = await Promise.all(hosts.map(probe));
  return hosts.filter((_, index) => results[index] === 'reached');
}

/** Waits until the stream has sent so many more. */
async function sends(stream: { report(): Promise<StreamReport> }, count: number): Promise<void> {
  const before = await stream.report();
  await eventually(
    () => stream.report(),
    ({ sent }) => sent >= before.sent + count,
  );
}

async function onlyReach(cluster: Cluster, ...expected: readonly string[]): Promise<void> {
  expect(await who(cluster, ...expected)).toEqual(expected);
}

describe('faults under traffic', () => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await Cluster.start();
    await cluster.createPods([
      { name: 'app1', labels: { id: 'app1' }, node: 1, tcp: [80], udp: [5353] },
      { name: 'app2', labels: { id: 'app2' }, node: 1 },
      { name: 'app2-far', labels: { id: 'app2' }, node: 2 },
      { name: 'app3', labels: { id: 'app3' }, node: 1 },
      { name: 'app3-far', labels: { id: 'app3' }, node: 2 },
    ]);
    await cluster.apply(onlyFrom('app2'));
    await cluster.programmed('cnp/guard');
  });
  afterEach(() => cluster.api.faults.clear());
  afterAll(() => cluster?.stop());

  it('an agent that is killed and restarted loses no packet of an allowed flow and lets none of a denied one in', async () => {
    const app1 = (await cluster.host('app1')).address;
    const allowed = await (await cluster.host('app2-far')).process.stream('udp', app1, 5353);
    const denied = await (await cluster.host('app3')).process.stream('udp', app1, 5353);
    const goOn = () => Promise.all([allowed, denied].map((stream) => sends(stream, 30)));
    await cluster.node(1).agent.kill9();
    await goOn();
    await onlyReach(cluster, 'app2', 'app2-far');
    await cluster.node(1).startAgent();
    await goOn();
    await onlyReach(cluster, 'app2', 'app2-far');
    const [kept, stopped] = [await allowed.close(), await denied.close()];
    expect(kept.sent - kept.echoed).toBeLessThanOrEqual(1);
    expect(stopped).toMatchObject({ echoed: 0 });

    await cluster.apply(onlyFrom('app3'));
    await cluster.programmed('cnp/guard');
    await onlyReach(cluster, 'app3', 'app3-far');
    await cluster.apply(onlyFrom('app2'));
    await cluster.programmed('cnp/guard');
  });

  it('a policy deleted while the agent is down is pruned when it comes back, and not before its tables are complete', async () => {
    await cluster.node(1).agent.kill9();
    await cluster.kubectl(['delete', 'cnp', 'guard']);
    await eventually(
      () => cluster.kubectl(['get', 'resolvedpolicies', '-o', 'name']),
      (names) => !names.includes('guard'),
    );
    await onlyReach(cluster, 'app2', 'app2-far');
    await cluster.node(1).startAgent();
    expect(
      await eventually(
        () => who(cluster),
        (hosts) => hosts.length === 4,
      ),
    ).toHaveLength(4);
    await cluster.apply(onlyFrom('app2'));
    await cluster.programmed('cnp/guard');
    await onlyReach(cluster, 'app2', 'app2-far');
  });

  it('an operator that is killed resumes from what is in the API', async () => {
    await cluster.operator.kill9();
    await cluster.apply(onlyFrom('app3'));
    await onlyReach(cluster, 'app2', 'app2-far');
    cluster.startOperator();
    await cluster.programmed('cnp/guard');
    await onlyReach(cluster, 'app3', 'app3-far');
  });

  it('dropped watches, an expired history, errors and delays of the API server lose and widen nothing', async () => {
    cluster.api.faults.dropWatches();
    await cluster.apply(onlyFrom('app2'));
    await cluster.programmed('cnp/guard');
    await onlyReach(cluster, 'app2', 'app2-far');

    cluster.api.faults.expireWatches();
    cluster.api.faults.dropWatches();
    await cluster.apply(onlyFrom('app3'));
    await cluster.programmed('cnp/guard');
    await onlyReach(cluster, 'app3', 'app3-far');

    const { faults, stats } = cluster.api;
    const mend = faults.fail(500, { userAgent: 'weir' });
    stats.reset();
    faults.dropWatches();
    await cluster.apply(onlyFrom('app2'));
    const askers = ['weir-operator', 'weir-agent'];
    await eventually(
      async () => askers.map((userAgent) => stats.count({ userAgent })),
      (asked) => asked.every((count) => count > 5),
    );
    await onlyReach(cluster, 'app3', 'app3-far');
    mend();
    await cluster.programmed('cnp/guard');
    await onlyReach(cluster, 'app2', 'app2-far');

    const quicken = cluster.api.faults.delay(150);
    await cluster.apply(onlyFrom('app3'));
    await cluster.programmed('cnp/guard');
    quicken();
    await onlyReach(cluster, 'app3', 'app3-far');
  });

  it('a second agent on one node is refused, and says who holds it', async () => {
    const node = cluster.node(1);
    const args = node.agentCommand().map((arg) => (arg === node.socket ? `${arg}.second` : arg));
    const second = await run('nsenter', [`--net=/var/run/netns/${node.netns}`, process.execPath, ...args]).catch(
      (error: Error) => error,
    );
    expect(second).toBeInstanceOf(Error);
    expect((second as Error).message).toMatch(new RegExp(`${node.agent.pid}`));
    expect(await node.healthy()).toBe(true);
  });

  it('a pod whose labels change is judged by its new labels, its open connection too', async () => {
    await cluster.apply(onlyFrom('app2'));
    await cluster.programmed('cnp/guard');
    const app1 = (await cluster.host('app1')).address;
    const stream = await (await cluster.host('app2-far')).process.stream('tcp', app1, 80);
    await eventually(
      () => stream.report(),
      ({ echoed }) => echoed > 0,
    );
    await cluster.kubectl(['label', 'pod', 'app2-far', 'id=other', '--overwrite']);
    expect(
      await eventually(
        () => who(cluster, 'app2'),
        (hosts) => hosts.length === 1,
      ),
    ).toEqual(['app2']);
    const cut = await eventually(
      () => stream.report(),
      ({ silentMs }) => (silentMs ?? 0) > 500,
    );
    expect(cut.silentMs).toBeGreaterThan(500);
    await stream.close();
    await cluster.kubectl(['label', 'pod', 'app2-far', 'id=app2', '--overwrite']);
    expect(
      await eventually(
        () => who(cluster),
        (hosts) => hosts.length === 2,
      ),
    ).toEqual(['app2', 'app2-far']);
  });

  it('a pod that is deleted by force while its kubelet hangs loses its rights, on its own node too', async () => {
    await cluster.apply(onlyFrom('app2'));
    await cluster.programmed('cnp/guard');
    await cluster.createPods([{ name: 'doomed', labels: { id: 'app2' }, node: 1, tcp: [80] }]);
    const [{ process }, app1] = [await cluster.host('doomed'), (await cluster.host('app1')).address];
    expect(await cluster.probe('app3', 'doomed', { timeoutMs: 60_000 })).toBe('reached');
    const flow = await process.stream('udp', app1, 5353);
    await eventually(
      () => flow.report(),
      ({ echoed }) => echoed > 0,
    );
    const wakeUp = cluster.kubelet.hang();
    try {
      await cluster.kubectl(['delete', 'pod', 'doomed', '--force', '--grace-period=0', '--wait=false']);
      const cut = await eventually(
        () => flow.report(),
        ({ silentMs }) => (silentMs ?? 0) > 1_000,
      );
      expect(cut.silentMs).toBeGreaterThan(1_000);
      const probed = await eventually(
        () => cluster.probe('app3', 'doomed'),
        (result) => result === 'dropped',
      );
      expect(probed).toBe('dropped');
      await onlyReach(cluster, 'app2', 'app2-far');
      const said = /^Endpoints: .*pod default\/doomed .* was deleted, but its sandbox runs on/m;
      const { stdout } = await eventually(
        () => cluster.node(1).weir(['status']),
        (answer) => said.test(answer.stdout),
      );
      expect(stdout).toMatch(said);
    } finally {
      await flow.close();
      wakeUp();
    }
  });

  it.each(['ciliumidentities', 'peersets'])(
    'a pod whose labels change keeps a flow that both allow, also when the agents hear of %s late',
    async (resource) => {
      const moved = `moved-${resource}`;
      await cluster.apply(onlyFrom('app2', moved));
      await cluster.programmed('cnp/guard');
      const app1 = (await cluster.host('app1')).address;
      const flow = await (await cluster.host('app2-far')).process.stream('udp', app1, 5353);
      const denied = await (await cluster.host('app3-far')).process.stream('udp', app1, 5353);
      cluster.api.faults.delay(1000, { verb: 'watch', resource, userAgent: 'weir-agent' });
      expect(cluster.api.faults.dropWatches({ resource, userAgent: 'weir-agent' })).toBe(2);
      await cluster.kubectl(['label', 'pod', 'app2-far', `id=${moved}`, '--overwrite']);
      const identity = () => cluster.kubectl(['get', 'cep', 'app2-far', '-o', 'jsonpath={.status.identity.labels}']);
      expect(await eventually(identity, (labels) => labels.includes(moved))).toContain(moved);
      // For longer than the watch is away.
      await eventually(
        () => flow.report(),
        ({ sent }) => sent > 150,
      );
      cluster.api.faults.clear();
      await cluster.kubectl(['label', 'pod', 'app2-far', 'id=app2', '--overwrite']);
      expect(await eventually(identity, (labels) => labels.includes('k8s:id=app2'))).toContain('k8s:id=app2');
      const [kept, stopped] = [await flow.close(), await denied.close()];
      expect(kept.sent - kept.echoed).toBeLessThanOrEqual(1);
      expect(stopped).toMatchObject({ echoed: 0 });
      await onlyReach(cluster, 'app2', 'app2-far');
    },
  );
});

describe('clusters come and go', () => {
  const clusters: Cluster[] = [];
  afterAll(() => Promise.all(clusters.map((cluster) => cluster.stop())));

  it('two clusters run side by side; one that is killed is swept away by the next', async () => {
    for (let count = 0; count < 2; count += 1) clusters.push(await Cluster.start({ nodes: 1 }));
    const reached = () => Promise.all(clusters.map((cluster) => cluster.probe('app2', 'app1', { timeoutMs: 60_000 })));
    await Promise.all(
      clusters.map((cluster) =>
        cluster.createPods([
          { name: 'app1', node: 1, tcp: [80] },
          { name: 'app2', node: 1 },
        ]),
      ),
    );
    expect(await reached()).toEqual(['reached', 'reached']);

    const program = `
      import { Cluster } from '${ROOT}/test/cluster/index.ts';
      const cluster = await Cluster.start({ nodes: 1 });
      console.log(cluster.id);
    `;
    // Alive until all is seen that it has: tests beside this one start clusters, too, which sweep.
    const args = ['--input-type=module', '-e', program];
    const owner = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const lines = createInterface({ input: owner.stdout });
    const exited = once(owner, 'exit');
    const failed = exited.then(([code]) => {
      throw new Error(`the cluster that is to be killed ended with ${code}`);
    });
    try {
      const [id] = (await Promise.race([once(lines, 'line'), failed])) as [string];
      expect(id).toMatch(/^[a-z0-9]{5}$/);
      expect(remains(id)).not.toEqual([]);
      owner.kill('SIGKILL');
      await exited;
      await sweep();
      // What another has begun to sweep, it sweeps to the end.
      await eventually(
        () => Promise.resolve(remains(id)),
        (left) => left.length === 0,
      );
    } finally {
      owner.kill('SIGKILL');
    }
    expect(await reached()).toEqual(['reached', 'reached']);
  });
});
