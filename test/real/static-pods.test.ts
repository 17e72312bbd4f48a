/** Pods that a kubelet runs from its own folder, and ports by their names, on a real Kubernetes: identities, real packets, and what is left. */
import { rmSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { askableContainer, askableVolume, type RealCluster, STATIC_PODS } from '../cluster/real/index.ts';
import { eventually } from '../eventually.ts';
import { weirCluster } from './weir.ts';

const CLIENTS = ['client', 'client-far', 'stranger', 'stranger-far'];
/** Those that policies here let in. */
const KNOWN = ['client', 'client-far'];
const client = { matchLabels: { app: 'client' } };

const cnp = (where: string, spec: object) => {
  const [namespace, name] = where.split('/');
  return { apiVersion: 'cilium.io/v2', kind: 'CiliumNetworkPolicy', metadata: { namespace, name }, spec };
};
const tcp = (...ports: readonly string[]) => [{ ports: ports.map((port) => ({ port, protocol: 'TCP' })) }];
/** Listens where it is told to, and can ask others. */
const busybox = (name: string, listens: number) => ({
  name,
  image: 'localhost/busybox:1',
  imagePullPolicy: 'Never',
  command: ['httpd', '-f', '-p', String(listens)],
});

interface Mirror {
  readonly name: string;
  readonly uid: string;
  readonly address: string;
}

describe('static pods and names of ports on a real Kubernetes', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await weirCluster({
      install: { operator: { extraArgs: ['--identity-gc-grace=5s', '--identity-gc-interval=1s'] } },
    });
    await cluster.applyObjects([{ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'fixed' } }]);
    await cluster.createPods([
      { name: 'client', labels: { app: 'client' }, node: 1, tcp: [80] },
      { name: 'client-far', labels: { app: 'client' }, node: 2, tcp: [80] },
      { name: 'stranger', labels: { app: 'stranger' }, node: 1, tcp: [80] },
      { name: 'stranger-far', labels: { app: 'stranger' }, node: 2, tcp: [80] },
    ]);
  }, 240_000);
  afterAll(() => cluster?.stop());
  afterEach(() => cluster.kubectl(['delete', 'cnp', '--all', '--all-namespaces']));

  /** Who gets an answer. */
  const who = async (address: string, port: number): Promise<readonly string[]> => {
    const answers = await Promise.all(CLIENTS.map((from) => cluster.probe(from, address, { port, timeoutMs: 1500 })));
    return CLIENTS.filter((_, index) => answers[index] === 'reached');
  };
  /** Which of the ports the client reaches. */
  const open = async (address: string, ports: readonly number[], from = 'client'): Promise<readonly number[]> => {
    const answers = await Promise.all(ports.map((port) => cluster.probe(from, address, { port, timeoutMs: 1500 })));
    return ports.filter((_, index) => answers[index] === 'reached');
  };
  const items = async <T>(...what: readonly string[]): Promise<readonly T[]> =>
    (JSON.parse(await cluster.kubectl(['get', ...what, '-o', 'json'])) as { readonly items: readonly T[] }).items;
  const identitiesOf = async (app: string): Promise<readonly string[]> =>
    (
      await items<{ metadata: { name: string }; 'security-labels': Readonly<Record<string, string>> }>('ciliumid')
    ).flatMap((object) => (object['security-labels']['k8s:app'] === app ? [object.metadata.name] : []));
  /** Rows of an agent's table that have the text anywhere. */
  const rowsWith = async (node: number, table: string, text: string): Promise<readonly string[]> => {
    const { stdout } = await cluster.node(node).weir(['table', 'get', table, '-o', 'json']);
    return stdout.split('\n').filter((row) => row.includes(`"${text}`));
  };

  const file = (name: string) => cluster.node(1).file(`${STATIC_PODS}/${name}.json`);
  const writeManifest = (name: string, namespace: string, app: string): void =>
    writeFileSync(
      file(name),
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name, namespace, labels: { app } },
        spec: {
          terminationGracePeriodSeconds: 0,
          containers: [
            { ...askableContainer({ tcp: [80, 81] }), ports: [{ name: 'web', containerPort: 80 }] },
            busybox('tools', 8080),
          ],
          volumes: [askableVolume],
        },
      }),
    );
  /** Kubelet gives it the node's name. With other labels it is another pod. Kubelet looks for one that is gone once a minute. */
  const mirror = async (name: string, namespace: string, app: string, gone = 'none'): Promise<Mirror> => {
    const called = `${name}-${cluster.node(1).name}`;
    const path = '{.metadata.labels.app} {.status.phase} {.metadata.uid} {.status.podIP}';
    const { stdout } = await eventually(
      () => cluster.tryKubectl(['get', 'pod', called, '-n', namespace, '-o', `jsonpath=${path}`]),
      ({ stdout: said }) => said.startsWith(`${app} Running `) && /\.\d+$/.test(said) && !said.includes(gone),
      150,
    );
    const [, , uid = '', address = ''] = stdout.split(' ');
    return { name: called, uid, address };
  };
  /** What the API and the nodes know of it. */
  const traces = async (namespace: string, { name, address }: Mirror) => ({
    pods: (await items<{ metadata: { name: string } }>('pods', '-n', namespace)).filter(
      ({ metadata }) => metadata.name === name,
    ).length,
    endpoints: (await items<{ metadata: { name: string } }>('cep', '-n', namespace)).filter(
      ({ metadata }) => metadata.name === name,
    ).length,
    sliced: (await items<{ namespace: string; endpoints: readonly { name: string }[] }>('ces'))
      .filter((slice) => slice.namespace === namespace)
      .flatMap((slice) => slice.endpoints.filter((endpoint) => endpoint.name === name)).length,
    connected: (await rowsWith(1, 'endpoints', address)).length,
    known: [
      (await rowsWith(1, 'ipcache', `${address}/32`)).length,
      (await rowsWith(2, 'ipcache', `${address}/32`)).length,
    ],
  });

  it('a static pod has an identity, an endpoint and the policies of its own namespace; its deletion frees all', async () => {
    const links = async () => (await cluster.enter(1, ['ip', '-o', 'link'])).stdout.trim().split('\n').length;
    const before = { links: await links(), slots: (await rowsWith(1, 'slots', '')).length };
    // By its name: the port that the mirror says.
    const rules = [
      {
        fromEndpoints: [{ matchLabels: { ...client.matchLabels, 'k8s:io.kubernetes.pod.namespace': 'default' } }],
        toPorts: tcp('web'),
      },
    ];
    await cluster.applyObjects([
      cnp('fixed/own', {
        endpointSelector: { matchLabels: { app: 'static' } },
        ingress: rules,
        egress: [{ toEndpoints: [{ matchLabels: { app: 'client', 'k8s:io.kubernetes.pod.namespace': 'default' } }] }],
      }),
      // Another namespace's: nothing of it holds.
      cnp('default/others', {
        endpointSelector: { matchLabels: { app: 'static' } },
        ingressDeny: [{ fromEntities: ['all'] }],
      }),
    ]);
    writeManifest('static', 'fixed', 'static');
    const found = await mirror('static', 'fixed', 'static');
    try {
      await cluster.programmed('-n=fixed', 'cnp/own');
      expect(await who(found.address, 80)).toEqual(KNOWN);
      expect(await who(found.address, 81)).toEqual([]);
      // What it sends is judged, too.
      const ask = async (name: string): Promise<number> => {
        const { address } = await cluster.host(name);
        const wget = ['timeout', '3', 'wget', '-q', '-O-', `http://${address}/`];
        return (await cluster.tryKubectl(['exec', '-n', 'fixed', found.name, '-c', 'tools', '--', ...wget])).code;
      };
      expect([await ask('client-far'), await ask('stranger-far')]).toEqual([0, expect.any(Number)]);
      expect(await ask('stranger')).not.toBe(0);
      expect(await traces('fixed', found)).toEqual({ pods: 1, endpoints: 1, sliced: 1, connected: 1, known: [1, 1] });
      const [identity, ...more] = await identitiesOf('static');
      expect(more).toEqual([]);
      const path = '{.metadata.ownerReferences[0].uid} {.status.identity.id} {.status.state}';
      const endpoint = await cluster.kubectl(['get', 'cep', '-n', 'fixed', found.name, '-o', `jsonpath=${path}`]);
      expect(endpoint).toBe(`${found.uid} ${identity} ready`);
    } finally {
      rmSync(file('static'));
    }
    const none = { pods: 0, endpoints: 0, sliced: 0, connected: 0, known: [0, 0] };
    const left = await eventually(
      () => traces('fixed', found),
      (now) => JSON.stringify(now) === JSON.stringify(none),
    );
    expect(left).toEqual(none);
    await cluster.kubectl(['delete', 'cnp', '--all', '--all-namespaces']);
    const after = await eventually(
      async () => ({ links: await links(), slots: (await rowsWith(1, 'slots', '')).length }),
      (now) => JSON.stringify(now) === JSON.stringify(before),
    );
    expect(after).toEqual(before);
    // The number that was given last stays until there is another.
    await cluster.createPods([{ name: 'next', labels: { app: 'next' }, node: 2 }]);
    expect(
      await eventually(
        () => identitiesOf('static'),
        (numbers) => numbers.length === 0,
      ),
    ).toEqual([]);
    await cluster.deletePod('next');
  });

  it('a static pod whose manifest gets other labels is judged by those', async () => {
    const letIn = (app: string, peer: string) =>
      cnp(`default/${app}`, {
        endpointSelector: { matchLabels: { app } },
        ingress: [{ fromEndpoints: [{ matchLabels: { app: peer } }] }],
      });
    await cluster.applyObjects([letIn('first', 'client'), letIn('second', 'stranger')]);
    writeManifest('edited', 'default', 'first');
    try {
      const first = await mirror('edited', 'default', 'first');
      expect(
        await eventually(
          () => who(first.address, 80),
          (list) => list.length > 0,
        ),
      ).toEqual(KNOWN);
      writeManifest('edited', 'default', 'second');
      const second = await mirror('edited', 'default', 'second');
      await cluster.programmed('cnp/second');
      expect(
        await eventually(
          () => who(second.address, 80),
          (list) => list.length > 0,
        ),
      ).toEqual(['stranger', 'stranger-far']);
      expect(second.address).not.toBe(first.address);
      expect(await rowsWith(1, 'endpoints', first.address)).toEqual([]);
    } finally {
      rmSync(file('edited'));
    }
    await cluster.kubectl(['wait', 'pod', '-l', 'app=second', '--for=delete', '--timeout=60s']);
  });

  it('a mirror that is deleted comes back: the pod stays what it was, and is enforced all the while', async () => {
    await cluster.applyObjects([
      cnp('default/static', {
        endpointSelector: { matchLabels: { app: 'static' } },
        ingress: [{ fromEndpoints: [client] }],
      }),
    ]);
    writeManifest('static', 'default', 'static');
    try {
      const first = await mirror('static', 'default', 'static');
      await cluster.programmed('cnp/static');
      expect(
        await eventually(
          () => who(first.address, 80),
          (list) => list.length > 0,
        ),
      ).toEqual(KNOWN);
      const denied = await (await cluster.host('stranger')).process.stream('tcp', first.address, 80);
      await cluster.kubectl(['delete', 'pod', first.name]);
      // The API says nothing of it meanwhile, and it runs.
      expect(await who(first.address, 80)).toEqual(KNOWN);
      const second = await mirror('static', 'default', 'static', first.uid);
      expect(second.address).toBe(first.address);
      const path = '{.metadata.ownerReferences[0].uid} {.status.state}';
      const owner = () => cluster.kubectl(['get', 'cep', second.name, '-o', `jsonpath=${path}`]);
      expect(await eventually(owner, (said) => said === `${second.uid} ready`)).toBe(`${second.uid} ready`);
      const again = () => who(first.address, 80);
      expect(await eventually(again, (list) => list.length === KNOWN.length)).toEqual(KNOWN);
      expect((await denied.close()).echoed).toBe(0);
    } finally {
      rmSync(file('static'));
    }
    await cluster.kubectl(['wait', 'pod', '-l', 'app=static', '--for=delete', '--timeout=60s']);
  }, 300_000);

  const serve = [80, 81, 82];
  const named = (names: Readonly<Record<string, `${number}/tcp`>>) => ({ tcp: serve, portNames: names });

  it('ingress by the name of a port: each pod by its own number, also of a second container, and of pods that come later', async () => {
    await cluster.createPods([
      { name: 'one', labels: { app: 'server' }, node: 1, ...named({ web: '80/tcp', admin: '81/tcp' }) },
      { name: 'other', labels: { app: 'server' }, node: 2, ...named({ web: '81/tcp', admin: '80/tcp' }) },
      { name: 'nameless', labels: { app: 'server' }, node: 2, ...named({}) },
    ]);
    await cluster.applyObjects([
      {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'two', namespace: 'default', labels: { app: 'server' } },
        spec: {
          nodeSelector: { 'kubernetes.io/hostname': cluster.node(1).name },
          terminationGracePeriodSeconds: 0,
          // A sidecar, and two ordinary ones, of which the last says a name that the one before it has.
          initContainers: [
            { ...busybox('side', 8081), restartPolicy: 'Always', ports: [{ name: 'admin', containerPort: 8081 }] },
          ],
          containers: [
            { ...askableContainer({ tcp: serve }), ports: [{ name: 'plain', containerPort: 80 }] },
            { ...busybox('second', 8080), ports: [{ name: 'web', containerPort: 8080 }] },
            { ...busybox('third', 8082), ports: [{ name: 'web', containerPort: 8082 }] },
          ],
          volumes: [askableVolume],
        },
      },
      cnp('default/names', {
        endpointSelector: { matchLabels: { app: 'server' } },
        ingress: [{ fromEndpoints: [client], toPorts: tcp('web') }],
      }),
    ]);
    await cluster.kubectl(['wait', '--for=condition=Ready', 'pod/two', '--timeout=60s']);
    await cluster.programmed('cnp/names');
    const address = async (name: string) => (await cluster.host(name)).address;
    const all = [...serve, 8080, 8081, 8082];
    const reached = async () => ({
      one: await open(await address('one'), serve),
      other: await open(await address('other'), serve),
      nameless: await open(await address('nameless'), serve),
      two: await open(await address('two'), all),
      stranger: await open(await address('one'), serve, 'stranger-far'),
    });
    expect(await reached()).toEqual({ one: [80], other: [81], nameless: [], two: [8080], stranger: [] });

    // A pod that comes under it, by a number that nobody had yet.
    await cluster.createPods([{ name: 'later', labels: { app: 'server' }, node: 1, ...named({ web: '82/tcp' }) }]);
    expect(await open(await address('later'), serve)).toEqual([82]);
    expect(await reached()).toEqual({ one: [80], other: [81], nameless: [], two: [8080], stranger: [] });

    // Another name, of which each pod has another container; and a deny by name beside an allow of everything.
    await cluster.applyObjects([
      cnp('default/names', {
        endpointSelector: { matchLabels: { app: 'server' } },
        ingress: [{ fromEndpoints: [client], toPorts: tcp('admin') }],
      }),
    ]);
    await cluster.programmed('cnp/names');
    expect(await reached()).toEqual({ one: [81], other: [80], nameless: [], two: [8081], stranger: [] });
    await cluster.applyObjects([
      cnp('default/names', {
        endpointSelector: { matchLabels: { app: 'server' } },
        ingress: [{ fromEndpoints: [client] }],
        ingressDeny: [{ toPorts: tcp('web') }],
      }),
    ]);
    await cluster.programmed('cnp/names');
    expect(await reached()).toEqual({
      one: [81, 82],
      other: [80, 82],
      nameless: serve,
      two: [80, 81, 82, 8081, 8082],
      stranger: [],
    });
    await cluster.kubectl(['delete', 'pod', 'two', '--wait=false']);
    for (const name of ['one', 'other', 'nameless', 'later']) await cluster.deletePod(name);
  });

  it('egress by the name of a port: by the number of each peer; where pods of equal labels differ, by none, and every one is denied', async () => {
    await cluster.createPods([
      { name: 'one', labels: { app: 'server', n: '1' }, node: 1, ...named({ web: '80/tcp' }) },
      { name: 'other', labels: { app: 'server', n: '2' }, node: 2, ...named({ web: '81/tcp' }) },
    ]);
    const leave = (rule: object) => cnp('default/leave', { endpointSelector: client, ...rule });
    const server = { matchLabels: { app: 'server' } };
    const address = async (name: string) => (await cluster.host(name)).address;
    const reached = async (...names: readonly string[]) =>
      Object.fromEntries(
        await Promise.all(names.map(async (name) => [name, await open(await address(name), serve)] as const)),
      );
    await cluster.applyObjects([leave({ egress: [{ toEndpoints: [server], toPorts: tcp('web') }] })]);
    await cluster.programmed('cnp/leave');
    expect(await reached('one', 'other')).toEqual({ one: [80], other: [81] });
    // No peers named: those that have the name.
    await cluster.applyObjects([leave({ egress: [{ toPorts: tcp('web') }] })]);
    await cluster.programmed('cnp/leave');
    expect(await reached('one', 'other', 'stranger')).toEqual({ one: [80], other: [81], stranger: [] });

    await cluster.createPods([
      { name: 'twin', labels: { app: 'server', n: '1' }, node: 2, ...named({ web: '82/tcp' }) },
    ]);
    const told = await eventually(
      () => reached('one', 'other', 'twin'),
      ({ one }) => one?.length === 0,
    );
    expect(told).toEqual({ one: [], other: [81], twin: [] });
    await cluster.applyObjects([
      leave({ egress: [{ toEndpoints: [server] }], egressDeny: [{ toEndpoints: [server], toPorts: tcp('web') }] }),
    ]);
    await cluster.programmed('cnp/leave');
    expect(await reached('one', 'other', 'twin')).toEqual({ one: [81], other: [80, 82], twin: [81] });
    await cluster.deletePod('twin');
    const alone = await eventually(
      () => reached('one', 'other'),
      ({ one }) => one?.length === 2,
    );
    expect(alone).toEqual({ one: [81, 82], other: [80, 82] });
    for (const name of ['one', 'other']) await cluster.deletePod(name);
  });
});
