/** What people run beside policies: Services, probes, host networking, port-forward and exec, calls from the API server. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { askableContainer, askableVolume, type RealCluster, STATIC_PODS } from '../cluster/real/index.ts';
import { TOOL_PATH } from '../cluster/run.ts';
import { eventually } from '../eventually.ts';
import { weirCluster } from './weir.ts';

const policy = (name: string, spec: object) => ({
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name, namespace: 'default' },
  spec,
});
const only = (app: string, ingress: readonly object[]) =>
  policy(`only-${app}`, { endpointSelector: { matchLabels: { app } }, ingress });
const deployment = (name: string, replicas: number, container: object) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace: 'default' },
  spec: {
    replicas,
    selector: { matchLabels: { app: name } },
    template: {
      metadata: { labels: { app: name } },
      spec: {
        terminationGracePeriodSeconds: 1,
        containers: [{ ...askableContainer({ tcp: [80], udp: [53] }), ...container }],
        volumes: [askableVolume],
      },
    },
  },
});

describe('workloads under policies on a real Kubernetes with kube-proxy', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await weirCluster({ kubeProxy: true });
    await cluster.createPods([
      { name: 'client', labels: { app: 'client' }, node: 1 },
      { name: 'client-far', labels: { app: 'client' }, node: 2 },
      { name: 'stranger', labels: { app: 'stranger' }, node: 1 },
      { name: 'stranger-far', labels: { app: 'stranger' }, node: 2 },
    ]);
    await cluster.applyObjects([
      deployment('web', 2, {}),
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'web', namespace: 'default' },
        spec: {
          selector: { app: 'web' },
          ports: [
            { name: 'http', port: 8000, targetPort: 80 },
            { name: 'names', port: 53, targetPort: 53, protocol: 'UDP' },
          ],
        },
      },
    ]);
    await cluster.kubectl(['rollout', 'status', 'deployment/web', '--timeout=90s']);
  }, 240_000);
  afterAll(() => cluster?.stop());
  afterEach(() => cluster.kubectl(['delete', 'cnp', '--all']));

  const pod = async (app: string): Promise<string> =>
    cluster.kubectl(['get', 'pod', '-l', `app=${app}`, '-o', 'jsonpath={.items[0].metadata.name}']);
  const addressOf = async (name: string): Promise<string> =>
    cluster.kubectl(['get', 'pod', name, '-o', 'jsonpath={.status.podIP}']);
  const serviceAddress = () => cluster.kubectl(['get', 'service', 'web', '-o', 'jsonpath={.spec.clusterIP}']);
  const everyClient = ['client', 'client-far', 'stranger', 'stranger-far'];
  /** Who reaches an address; each asks several times, as a Service spreads what it gets. */
  const who = async (address: string, port: number, protocol: 'tcp' | 'udp' = 'tcp'): Promise<readonly string[]> => {
    const answers = await Promise.all(
      everyClient.map((from) =>
        // By UDP a process answers, not the kernel: it may have no core for a while.
        Promise.all(
          Array.from({ length: 4 }, () =>
            cluster.probe(from, address, { port, protocol, timeoutMs: protocol === 'udp' ? 6000 : 1500 }),
          ),
        ),
      ),
    );
    return everyClient.flatMap((name, index) => {
      const reached = answers[index]?.filter((answer) => answer === 'reached').length ?? 0;
      return reached === 0 ? [] : [reached === 4 ? name : `${name}: ${reached} of 4`];
    });
  };

  it('a Service by its ClusterIP: TCP, and UDP as a name server answers', async () => {
    const service = await serviceAddress();
    // kube-proxy refuses until it knows of the endpoints.
    const all = (list: readonly string[]): boolean => list.join() === everyClient.join();
    expect(await eventually(() => who(service, 8000), all)).toEqual(everyClient);
    expect(await who(service, 53, 'udp')).toEqual(everyClient);
    await cluster.applyObjects([only('web', [{ fromEndpoints: [{ matchLabels: { app: 'client' } }] }])]);
    await cluster.programmed('cnp/only-web');
    expect(await who(service, 8000)).toEqual(['client', 'client-far']);
    expect(await who(service, 53, 'udp')).toEqual(['client', 'client-far']);
  });

  it('a NodePort beside kube-proxy: who asks is judged, and outside is world; a pod reaches itself through its Service', async () => {
    await cluster.createPods([{ name: 'shown', labels: { app: 'shown' }, node: 1, tcp: [80] }]);
    await cluster.applyObjects([
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'shown', namespace: 'default' },
        spec: { type: 'NodePort', selector: { app: 'shown' }, ports: [{ port: 8000, targetPort: 80 }] },
      },
    ]);
    const of = (path: string) => cluster.kubectl(['get', 'service', 'shown', '-o', `jsonpath=${path}`]);
    const port = Number(await of('{.spec.ports[0].nodePort}'));
    const node = await cluster.kubectl(['get', 'pod', 'shown', '-o', 'jsonpath={.status.hostIP}']);
    const all = (list: readonly string[]): boolean => list.join() === everyClient.join();
    expect(await eventually(() => who(node, port), all)).toEqual(everyClient);
    const itself = async () => cluster.probe('shown', await of('{.spec.clusterIP}'), { port: 8000, timeoutMs: 1500 });
    await cluster.applyObjects([only('shown', [{}])]);
    await cluster.programmed('cnp/only-shown');
    expect(await who(node, port)).toEqual([]);
    expect(await itself()).toBe('reached');
    const outside = async () => cluster.probe('outside', node, { port, timeoutMs: 1500 });
    expect(await outside()).toBe('dropped');
    await cluster.applyObjects([only('shown', [{ fromEntities: ['world'] }])]);
    await cluster.programmed('cnp/only-shown');
    expect(await outside()).toBe('reached');
    expect(await who(node, port)).toEqual([]);
    await cluster.applyObjects([only('shown', [{ fromEndpoints: [{ matchLabels: { app: 'client' } }] }])]);
    await cluster.programmed('cnp/only-shown');
    expect(await outside()).toBe('dropped');
    expect(await who(node, port)).toEqual(['client', 'client-far']);
    await cluster.kubectl(['delete', 'service/shown', 'pod/shown']);
  });

  it("kubelet's probes pass under default deny, also of a pod that starts under it", async () => {
    await cluster.applyObjects([
      policy('shut', { endpointSelector: {}, ingress: [{}] }),
      deployment('probed', 2, {
        readinessProbe: { httpGet: { path: '/', port: 80 }, periodSeconds: 1 },
        livenessProbe: { tcpSocket: { port: 80 }, periodSeconds: 1, failureThreshold: 1 },
      }),
    ]);
    await cluster.kubectl(['rollout', 'status', 'deployment/probed', '--timeout=60s']);
    await cluster.programmed('cnp/shut');
    const target = await addressOf(await pod('probed'));
    expect(await who(target, 80)).toEqual([]);
    const restarts = await cluster.kubectl([
      ...['get', 'pods', '-l', 'app=probed'],
      ...['-o', 'jsonpath={.items[*].status.containerStatuses[0].restartCount}'],
    ]);
    expect(restarts).toBe('0 0');
    await cluster.kubectl(['delete', 'deployment', 'probed']);
  });

  it('exec, logs and port-forward work under default deny', async () => {
    await cluster.applyObjects([policy('shut', { endpointSelector: {}, ingress: [{}], egress: [{}] })]);
    await cluster.programmed('cnp/shut');
    const web = await pod('web');
    expect(await cluster.kubectl(['exec', web, '--', 'sh', '-c', 'echo $WEIR_POD_TCP'])).toBe('80\n');
    expect((await cluster.tryKubectl(['logs', web])).code).toBe(0);
    const forward = spawn('kubectl', ['port-forward', `pod/${web}`, ':80'], {
      env: { ...process.env, PATH: TOOL_PATH, KUBECONFIG: cluster.kubeconfig },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      const [line] = (await once(forward.stdout, 'data')) as [Buffer];
      const port = /127\.0\.0\.1:(\d+)/.exec(line.toString())?.[1];
      const answer = await fetch(`http://127.0.0.1:${port}/`);
      expect(await answer.text()).toBe(`${web}\n`);
    } finally {
      forward.kill('SIGTERM');
    }
  });

  it('a static pod with a network of its own is connected and enforced', async () => {
    await cluster.applyObjects([only('static', [{ fromEndpoints: [{ matchLabels: { app: 'client' } }] }])]);
    const [node] = cluster.nodes;
    const file = node?.file(`${STATIC_PODS}/static.json`) ?? '';
    writeFileSync(
      file,
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'static', namespace: 'default', labels: { app: 'static' } },
        spec: {
          terminationGracePeriodSeconds: 0,
          containers: [askableContainer({ tcp: [80] })],
          volumes: [askableVolume],
        },
      }),
    );
    try {
      // Kubelet gives its mirror the node's name.
      const mirror = `static-${node?.name}`;
      const running = await eventually(
        () => cluster.tryKubectl(['get', 'pod', mirror, '-o', 'jsonpath={.status.phase} {.status.podIP}']),
        ({ stdout }) => /^Running \d/.test(stdout),
      );
      await cluster.programmed('cnp/only-static');
      expect(await who(running.stdout.split(' ')[1] ?? '', 80)).toEqual(['client', 'client-far']);
      const owner = await cluster.kubectl([
        ...['get', 'cep', mirror, '-o', 'jsonpath={.metadata.ownerReferences[0].uid} {.status.state}'],
      ]);
      expect(owner).toBe(`${await cluster.kubectl(['get', 'pod', mirror, '-o', 'jsonpath={.metadata.uid}'])} ready`);
    } finally {
      rmSync(file);
    }
    await cluster.kubectl(['wait', 'pod', '-l', 'app=static', '--for=delete', '--timeout=60s']);
  });

  it('pods on the host network: those of the own node are let in, others only where a policy says so', async () => {
    const web = await pod('web');
    const near = await cluster.kubectl(['get', 'pod', web, '-o', 'jsonpath={.spec.nodeName}']);
    const far = cluster.nodes.find(({ name }) => name !== near)?.name ?? '';
    await cluster.applyObjects(
      Object.entries({ own: near, other: far }).map(([name, node]) => ({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: `host-${name}`, namespace: 'default', labels: { app: 'client' } },
        spec: {
          hostNetwork: true,
          nodeSelector: { 'kubernetes.io/hostname': node },
          terminationGracePeriodSeconds: 0,
          containers: [
            { name: 'main', image: 'localhost/busybox:1', imagePullPolicy: 'Never', command: ['sleep', '100000'] },
          ],
        },
      })),
    );
    await cluster.kubectl(['wait', '--for=condition=Ready', 'pod/host-own', 'pod/host-other', '--timeout=60s']);
    const address = await addressOf(web);
    const reaches = async (): Promise<Record<string, boolean>> => {
      const ask = ['timeout', '10', 'wget', '-q', '-O-', `http://${address}/`];
      const [own, other] = await Promise.all(
        ['own', 'other'].map((name) => cluster.tryKubectl(['exec', `host-${name}`, '--', ...ask])),
      );
      return { own: own?.stdout === `${web}\n`, other: other?.stdout === `${web}\n` };
    };
    // Their labels are those of a client that is let in: on the host's network they have no identity of their own.
    await cluster.applyObjects([only('web', [{ fromEndpoints: [{ matchLabels: { app: 'client' } }] }])]);
    await cluster.programmed('cnp/only-web');
    expect(await reaches()).toEqual({ own: true, other: false });
    await cluster.applyObjects([only('web', [{ fromEntities: ['remote-node'] }])]);
    await cluster.programmed('cnp/only-web');
    expect(await reaches()).toEqual({ own: true, other: true });
    expect(await cluster.kubectl(['get', 'cep', '-A', '-o', 'name'])).not.toMatch(/host-|weir-agent|weir-operator/);
    await cluster.kubectl(['delete', 'pod', 'host-own', 'host-other']);
  });

  it('egress to a node is an entity, and not world', async () => {
    const node = cluster.node(2).address;
    const shut = (entity: string) =>
      policy('leave', { endpointSelector: { matchLabels: { app: 'client' } }, egress: [{ toEntities: [entity] }] });
    // kubelet answers on each node, with TLS: a connection is enough.
    await cluster.applyObjects([shut('world')]);
    await cluster.programmed('cnp/leave');
    expect(await cluster.probe('client', node, { port: 10250, timeoutMs: 1500 })).toBe('dropped');
    expect(await cluster.probe('client', '203.0.113.9', { timeoutMs: 3000 })).toBe('reached');
    await cluster.applyObjects([shut('remote-node')]);
    await cluster.programmed('cnp/leave');
    expect(await cluster.probe('client', node, { port: 10250, timeoutMs: 3000 })).toBe('reached');
    expect(await cluster.probe('client', '203.0.113.9', { timeoutMs: 1500 })).toBe('dropped');
  });

  it('the API server calls a pod, as it calls a webhook: let in by the entity kube-apiserver', async () => {
    const web = await pod('web');
    const call = async (): Promise<number> =>
      (
        await cluster.tryKubectl([
          'get',
          '--raw',
          `/api/v1/namespaces/default/pods/${web}:80/proxy/`,
          '--request-timeout=15s',
        ])
      ).code;
    expect(await call()).toBe(0);
    await cluster.applyObjects([only('web', [{}])]);
    await cluster.programmed('cnp/only-web');
    expect(await call()).not.toBe(0);
    await cluster.applyObjects([only('web', [{ fromEntities: ['kube-apiserver'] }])]);
    await cluster.programmed('cnp/only-web');
    expect(await call()).toBe(0);
    expect(await who(await addressOf(web), 80)).toEqual([]);
  });

  it('a Deployment that is scaled and rolled: every new pod is judged, no CiliumEndpoint outlives its pod', async () => {
    await cluster.applyObjects([only('web', [{ fromEndpoints: [{ matchLabels: { app: 'client' } }] }])]);
    await cluster.programmed('cnp/only-web');
    await cluster.kubectl(['scale', 'deployment/web', '--replicas=5']);
    await cluster.kubectl(['rollout', 'status', 'deployment/web', '--timeout=90s']);
    await cluster.kubectl(['rollout', 'restart', 'deployment/web']);
    await cluster.kubectl(['rollout', 'status', 'deployment/web', '--timeout=90s']);
    const names = async (kind: string): Promise<readonly string[]> =>
      (await cluster.kubectl(['get', kind, '-o', 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}']))
        .trim()
        .split('\n')
        .sort();
    const pods = await eventually(
      () => names('pods'),
      (list) => list.filter((name) => name.startsWith('web')).length === 5,
    );
    expect(
      await eventually(
        () => names('cep'),
        (list) => list.join() === pods.join(),
      ),
    ).toEqual(pods);
    for (const name of pods.filter((each) => each.startsWith('web')))
      expect(await who(await addressOf(name), 80)).toEqual(['client', 'client-far']);
    // One set of labels is one identity, whatever the number of pods and of ReplicaSets.
    const identities = JSON.parse(await cluster.kubectl(['get', 'ciliumid', '-o', 'json'])) as {
      readonly items: readonly { readonly 'security-labels': Readonly<Record<string, string>> }[];
    };
    expect(identities.items.filter((item) => item['security-labels']['k8s:app'] === 'web')).toHaveLength(1);
    await cluster.kubectl(['scale', 'deployment/web', '--replicas=2']);
    // What comes next asks pods that stay.
    const two = (list: readonly string[]): boolean => list.filter((name) => name.startsWith('web')).length === 2;
    expect(await eventually(() => names('pods'), two)).toHaveLength(everyClient.length + 2);
  });

  it('a pod that is relabelled moves between identities without a gap', async () => {
    const web = await addressOf(await pod('web'));
    await cluster.applyObjects([
      only('web', [{ fromEndpoints: [{ matchLabels: { app: 'client' } }, { matchLabels: { role: 'friend' } }] }]),
    ]);
    await cluster.programmed('cnp/only-web');
    // Both of their identities are allowed: not one packet may be lost on the way, from the node of the target or from another one.
    const pods = ['client', 'client-far'];
    const flows = await Promise.all(
      pods.map(async (name) => (await cluster.host(name)).process.stream('udp', web, 53)),
    );
    const denied = await (await cluster.host('stranger')).process.stream('udp', web, 53);
    const labelled = async (labels: readonly string[], seen: string): Promise<void> => {
      await cluster.kubectl(['label', 'pod', ...pods, ...labels, '--overwrite']);
      for (const name of pods) {
        const identity = () => cluster.kubectl(['get', 'cep', name, '-o', 'jsonpath={.status.identity.labels}']);
        expect(await eventually(identity, (all) => all.includes(seen))).toContain(seen);
      }
    };
    await labelled(['app=moved', 'role=friend'], 'k8s:app=moved');
    await labelled(['app=client', 'role-'], 'k8s:app=client');
    for (const flow of flows) {
      const kept = await flow.close();
      expect(kept.sent).toBeGreaterThan(20);
      expect(kept.sent - kept.echoed).toBeLessThanOrEqual(1);
    }
    expect((await denied.close()).echoed).toBe(0);
    expect(await who(web, 80)).toEqual(['client', 'client-far']);
  });

  it('a namespace that is relabelled: its pods are other peers at once', async () => {
    const web = await addressOf(await pod('web'));
    await cluster.apply('{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"guests"}}');
    await cluster.createPods([{ name: 'guest', namespace: 'guests', labels: { app: 'guest' }, node: 2 }]);
    await cluster.applyObjects([
      only('web', [{ fromEndpoints: [{ matchLabels: { 'io.cilium.k8s.namespace.labels.trust': 'yes' } }] }]),
    ]);
    await cluster.programmed('cnp/only-web');
    const guest = () => cluster.probe('guests/guest', web, { timeoutMs: 800 });
    expect(await guest()).toBe('dropped');
    await cluster.kubectl(['label', 'namespace', 'guests', 'trust=yes']);
    expect(await eventually(guest, (answer) => answer === 'reached')).toBe('reached');
    await cluster.kubectl(['label', 'namespace', 'guests', 'trust-']);
    expect(await eventually(guest, (answer) => answer === 'dropped')).toBe('dropped');
    await cluster.kubectl(['delete', 'namespace', 'guests', '--wait=false']);
  });
});
