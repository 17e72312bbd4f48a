/** The real cluster itself, with the bridge plugin as its network: what the end-to-end tests of Weir build on. */
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { eventually } from '../../eventually.ts';
import { attempt, ROOT } from '../run.ts';
import { askableContainer, askableVolume, RealCluster, remains, sweep, weirImages } from './index.ts';

const SERVERS = { app: 'server' };
const deployment = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'server' },
  spec: {
    replicas: 4,
    selector: { matchLabels: SERVERS },
    template: {
      metadata: { labels: SERVERS },
      spec: {
        terminationGracePeriodSeconds: 1,
        containers: [
          {
            ...askableContainer({ tcp: [80] }),
            readinessProbe: { tcpSocket: { port: 80 }, periodSeconds: 1 },
            resources: { limits: { memory: '128Mi' } },
          },
        ],
        volumes: [askableVolume],
      },
    },
  },
};
const service = {
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name: 'server' },
  spec: { selector: SERVERS, ports: [{ port: 8080, targetPort: 80 }] },
};

describe('a real cluster with the bridge plugin and kube-proxy', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await RealCluster.start({ kubeProxy: true, images: await weirImages(['pod']) });
    await cluster.bridgeOn();
  }, 300_000);
  afterAll(async () => {
    await cluster?.stop();
    expect(cluster === undefined ? [] : remains(cluster.id)).toEqual([]);
  });

  const nodesOfServers = async () =>
    (await cluster.kubectl(['get', 'pods', '-l', 'app=server', '-o', 'jsonpath={.items[*].spec.nodeName}'])).split(' ');

  it('has Ready nodes of the pinned version, each with its own pod network', async () => {
    const nodes = JSON.parse(await cluster.kubectl(['get', 'nodes', '-o', 'json'])) as {
      readonly items: readonly {
        readonly metadata: { readonly name: string };
        readonly spec: { readonly podCIDR: string };
        readonly status: { readonly nodeInfo: { readonly kubeletVersion: string } };
      }[];
    };
    expect(nodes.items.map(({ metadata }) => metadata.name)).toEqual(['node-1', 'node-2']);
    expect(new Set(nodes.items.map(({ spec }) => spec.podCIDR)).size).toBe(2);
    for (const { status } of nodes.items) expect(status.nodeInfo.kubeletVersion).toBe('v1.34.4');
  });

  it('spreads a Deployment over the nodes, and its pods answer kubectl exec and logs', async () => {
    await cluster.applyObjects([deployment, service]);
    await cluster.kubectl(['rollout', 'status', 'deployment/server', '--timeout=90s']);
    expect(new Set(await nodesOfServers())).toEqual(new Set(['node-1', 'node-2']));
    const limit = await cluster.kubectl([
      ...['exec', 'deploy/server', '--', 'sh', '-c', 'hostname; cat /sys/fs/cgroup/memory/memory.limit_in_bytes'],
    ]);
    expect(limit).toMatch(/^server-\S+\n134217728\n$/);
  });

  it('lets pods, nodes, the control plane and the outside reach each other', async () => {
    await cluster.createPods([
      { name: 'near', node: 1, tcp: [80], udp: [53] },
      { name: 'far', node: 2, tcp: [80], udp: [53] },
    ]);
    const tries = [
      ['near', 'far'],
      ['near', '203.0.113.9'],
      ['far', '10.2.0.1'],
      ['outside', 'far'],
      ['control-plane', 'near'],
      ['node-1', 'far'],
    ] as const;
    const results = await Promise.all(tries.map(([from, to]) => cluster.probe(from, to, { timeoutMs: 3000 })));
    expect(results).toEqual(tries.map(() => 'reached'));
    const udp = { protocol: 'udp', port: 53, timeoutMs: 60_000 } as const;
    expect(await cluster.probe('near', 'far', udp)).toBe('reached');
    expect(await cluster.probe('near', 'far', { port: 81, timeoutMs: 3000 })).toBe('refused');
    const address = (await cluster.host('far')).address;
    const stream = await (await cluster.host('near')).process.stream('tcp', address, 80);
    const report = await eventually(
      () => stream.report(),
      ({ echoed }) => echoed > 0,
    );
    expect(report.echoed).toBeGreaterThan(0);
    await stream.close();
  });

  it('translates Services by kube-proxy', async () => {
    const address = await cluster.kubectl(['get', 'service', 'server', '-o', 'jsonpath={.spec.clusterIP}']);
    const reached = () => cluster.probe('near', address, { port: 8080, protocol: 'http', timeoutMs: 1000 });
    expect(await eventually(reached, (result) => result === 'reached')).toBe('reached');
  });

  it('restarts kubelet and containerd without touching pods', async () => {
    const stream = await (await cluster.host('near')).process.stream('udp', (await cluster.host('far')).address, 53);
    await eventually(
      () => stream.report(),
      ({ echoed }) => echoed > 0,
    );
    await cluster.restartKubelet(2);
    await cluster.restartContainerd(2);
    const { sent } = await stream.report();
    const later = await eventually(
      () => stream.report(),
      ({ echoed }) => echoed > sent + 10,
    );
    expect(later.echoed).toBeGreaterThan(sent + 10);
    await stream.close();
    await cluster.nodesReady();
  });

  it('takes a node that joins', async () => {
    const node = await cluster.addNode();
    expect(node.name).toBe('node-3');
    await cluster.nodesReady();
    await cluster.createPods([{ name: 'joined', node: 3, tcp: [80] }]);
    expect(await cluster.probe('near', 'joined', { timeoutMs: 3000 })).toBe('reached');
    expect(await cluster.probe('outside', 'joined', { timeoutMs: 3000 })).toBe('reached');
  });

  it('brings a node back from a reboot: its disk as it was, /run and interfaces new, its pods running again', async () => {
    const boot = async () => (await cluster.enter(3, ['cat', '/proc/sys/kernel/random/boot_id'])).stdout;
    const before = await boot();
    const marks = 'touch /var/mark /run/mark; ip link add mark type veth peer name mark2; mkdir /sys/fs/bpf/mark';
    expect((await cluster.enter(3, ['sh', '-ec', marks])).code).toBe(0);
    await cluster.rebootNode(3);
    const list = await cluster.enter(3, ['sh', '-c', 'ls -d /var/mark /run/mark /sys/fs/bpf/mark /sys/class/net/mark']);
    expect(list.stdout).toBe('/var/mark\n');
    expect(await boot()).not.toBe(before);
    await eventually(
      () => cluster.kubectl(['get', 'pod', 'joined', '-o', 'jsonpath={.status.containerStatuses[0].restartCount}']),
      (count) => count !== '0',
    );
    await cluster.nodesReady();
    await cluster.kubectl(['wait', '--for=condition=Ready', 'pod/joined', '--timeout=60s']);
    // Ready may still be what the API remembers of the pod from before.
    const probe = () => cluster.probe('near', 'joined', { timeoutMs: 1000 }).catch(() => 'gone');
    expect(await eventually(probe, (answer) => answer === 'reached', 60)).toBe('reached');
  });

  it('lets a node go', async () => {
    await cluster.kubectl(['drain', 'node-3', '--ignore-daemonsets', '--force', '--grace-period=1', '--timeout=60s']);
    const { folder } = cluster.node(3);
    await cluster.removeNode(3);
    expect(existsSync(folder)).toBe(false);
    expect(await cluster.kubectl(['get', 'nodes', '-o', 'name'])).toBe('node/node-1\nnode/node-2\n');
    await cluster.kubectl(['rollout', 'status', 'deployment/server', '--timeout=60s']);
    expect(await nodesOfServers()).not.toContain('node-3');
  });

  it('goes without a network plugin when the bridge is taken away', async () => {
    await cluster.bridgeOff();
    const ready = () =>
      cluster.kubectl([...['get', 'nodes', '-o', 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}']]);
    expect(await eventually(ready, (text) => text === 'False False', 90)).toBe('False False');
  });
});

describe('real clusters come and go', () => {
  it('the processes of a cluster whose owner is killed end with it, and the next start removes the rest', async () => {
    const program = `
      import { RealCluster } from '${ROOT}/test/cluster/real/index.ts';
      const cluster = await RealCluster.start({ nodes: 1 });
      process.stdout.write(cluster.id + '\\n', () => process.kill(process.pid, 'SIGKILL'));
    `;
    const killed = await attempt(process.execPath, ['--input-type=module', '-e', program], { timeoutMs: 200_000 });
    const id = killed.stdout.trim();
    expect(id).toMatch(/^[a-z0-9]{5}$/);
    const processes = () => Promise.resolve(remains(id).filter((what) => what.startsWith('process')));
    expect(await eventually(processes, (list) => list.length === 0)).toEqual([]);
    expect(remains(id)).not.toEqual([]);
    expect(await sweep()).toContain(id);
    expect(remains(id)).toEqual([]);
  });

  it('a signal takes the cluster away before the process ends', async () => {
    const program = `
      import { RealCluster } from '${ROOT}/test/cluster/real/index.ts';
      const cluster = await RealCluster.start({ nodes: 0 });
      process.stdout.write(cluster.id + '\\n', () => process.kill(process.pid, 'SIGTERM'));
    `;
    const ended = await attempt(process.execPath, ['--input-type=module', '-e', program], { timeoutMs: 200_000 });
    expect(ended.code).toBe(143);
    expect(remains(ended.stdout.trim())).toEqual([]);
  });
});
