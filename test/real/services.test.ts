/** Services on a real Kubernetes without kube-proxy: Weir alone translates them, and policies judge the pods behind them. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { RealCluster } from '../cluster/real/index.ts';
import { eventually } from '../eventually.ts';
import { weirCluster } from './weir.ts';

const service = (name: string, spec: object) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name, namespace: 'default' },
  spec: { selector: { app: name }, ...spec },
});
const egress = (name: string, spec: object) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name, namespace: 'default' },
  spec: { endpointSelector: { matchLabels: { app: 'client' } }, ...spec },
});

describe('Services on a real Kubernetes without kube-proxy', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await weirCluster({ install: { kubeProxyReplacement: true } });
    await cluster.createPods([
      { name: 'client', labels: { app: 'client' }, node: 1 },
      { name: 'web-1', labels: { app: 'web' }, node: 1, tcp: [80], udp: [53] },
      { name: 'web-2', labels: { app: 'web' }, node: 2, tcp: [80], udp: [53] },
      { name: 'other', labels: { app: 'other' }, node: 2, tcp: [80] },
    ]);
    await cluster.applyObjects([
      service('web', {
        ports: [
          { name: 'http', port: 8000, targetPort: 80 },
          { name: 'names', port: 53, targetPort: 53, protocol: 'UDP' },
        ],
      }),
      service('other', { ports: [{ port: 8000, targetPort: 80 }] }),
      service('nobody', { ports: [{ port: 8000, targetPort: 80 }] }),
    ]);
  }, 240_000);
  afterAll(() => cluster?.stop());

  const addressOf = (name: string, namespace = 'default') =>
    cluster.kubectl(['get', 'service', name, '-n', namespace, '-o', 'jsonpath={.spec.clusterIP}']);
  const asks = async (from: string, name: string, port = 8000, protocol: 'tcp' | 'udp' = 'tcp') =>
    // By UDP a process answers, not the kernel: it may have no core for a while.
    cluster.probe(from, await addressOf(name), { port, protocol, timeoutMs: protocol === 'udp' ? 60_000 : 1500 });

  it('reaches Services by TCP and UDP from pods; refuses one without endpoints', async () => {
    expect(
      await eventually(
        () => asks('client', 'web'),
        (answer) => answer === 'reached',
      ),
    ).toBe('reached');
    expect(await asks('client', 'web', 53, 'udp')).toBe('reached');
    expect(await asks('web-1', 'web')).toBe('reached');
    expect(await asks('client', 'nobody')).toBe('refused');
  });

  it('judges the pods behind a Service: an allow allows, a deny denies', async () => {
    await cluster.applyObjects([egress('web-only', { egress: [{ toEndpoints: [{ matchLabels: { app: 'web' } }] }] })]);
    await cluster.programmed('cnp/web-only');
    expect(await asks('client', 'web')).toBe('reached');
    expect(await asks('client', 'other')).toBe('dropped');
    await cluster.kubectl(['delete', 'cnp', 'web-only']);
    await cluster.applyObjects([
      egress('not-other', {
        egress: [{ toEntities: ['all'] }],
        egressDeny: [{ toEndpoints: [{ matchLabels: { app: 'other' } }] }],
      }),
    ]);
    await cluster.programmed('cnp/not-other');
    expect(await asks('client', 'web')).toBe('reached');
    expect(await asks('client', 'other')).toBe('dropped');
    await cluster.kubectl(['delete', 'cnp', 'not-other']);
  });

  it("the node's own processes reach Services", async () => {
    const connect = `exec 3<>/dev/tcp/${await addressOf('web')}/8000 && echo connected`;
    const script = `echo 0 >/sys/fs/cgroup/unified/cgroup.procs && ${connect}`;
    for (const node of [1, 2]) {
      const { code, stdout, stderr } = await cluster.enter(node, ['bash', '-c', script]);
      expect(`${code} ${stdout}${stderr}`).toBe('0 connected\n');
    }
  });

  describe('a NodePort', () => {
    const ports: Record<string, number> = {};
    const at = async (from: string, node: number, name: string) => {
      const address = (await cluster.host(`node-${node}`)).address;
      return cluster.probe(from, address, { port: ports[name] ?? 0, timeoutMs: 1500 });
    };
    beforeAll(async () => {
      const of = (name: string, externalTrafficPolicy: string) =>
        service(name, { type: 'NodePort', externalTrafficPolicy, selector: { app: 'near' }, ports: [{ port: 80 }] });
      await cluster.createPods([{ name: 'near', labels: { app: 'near' }, node: 1, tcp: [80] }]);
      await cluster.applyObjects([of('spread', 'Cluster'), of('local', 'Local')]);
      for (const name of ['spread', 'local'])
        ports[name] = Number(
          await cluster.kubectl(['get', 'service', name, '-o', 'jsonpath={.spec.ports[0].nodePort}']),
        );
    });

    it('is reached at every node, from pods and from outside, and at its own nodes alone with Local', async () => {
      for (const from of ['client', 'outside'])
        for (const node of [1, 2]) {
          const answer = await eventually(
            () => at(from, node, 'spread'),
            (found) => found === 'reached',
          );
          expect([from, node, answer]).toEqual([from, node, 'reached']);
        }
      expect(await at('outside', 1, 'local')).toBe('reached');
      expect(await at('outside', 2, 'local')).toBe('dropped');
      expect(await at('client', 2, 'local')).toBe('reached');
    });

    it('shows the pod who asks, where its own node took that in', async () => {
      const { address } = await cluster.host('outside');
      const only = (name: string, cidr: string) => ({
        apiVersion: 'cilium.io/v2',
        kind: 'CiliumNetworkPolicy',
        metadata: { name, namespace: 'default' },
        spec: { endpointSelector: { matchLabels: { app: 'near' } }, ingress: [{ fromCIDR: [cidr] }] },
      });
      await cluster.applyObjects([only('who', `${address}/32`)]);
      await cluster.programmed('cnp/who');
      for (const name of ['spread', 'local']) expect([name, await at('outside', 1, name)]).toEqual([name, 'reached']);
      // The other node sends with an address of its own.
      expect(await at('outside', 2, 'spread')).toBe('dropped');
      await cluster.applyObjects([only('who', '192.0.2.1/32')]);
      await cluster.programmed('cnp/who');
      for (const name of ['spread', 'local']) expect([name, await at('outside', 1, name)]).toEqual([name, 'dropped']);
      await cluster.kubectl(['delete', 'cnp', 'who']);
    });
  });

  it('answers load balancers as kube-proxy does', async () => {
    const ask = "exec 3<>/dev/tcp/127.0.0.1/10256; printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    for (const node of [1, 2]) {
      const { stdout } = await cluster.enter(node, ['bash', '-c', ask]);
      expect(stdout).toMatch(/"nodeEligible": ?true/);
    }
  });

  it('follows what becomes of the pods', async () => {
    await cluster.kubectl(['delete', 'pod', 'other', '--grace-period=0', '--force']);
    expect(
      await eventually(
        () => asks('client', 'other'),
        (answer) => answer === 'refused',
      ),
    ).toBe('refused');
  });
});
