/** The life of an installation, in order: each step with traffic running and every packet accounted for. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { askableContainer, askableVolume, type RealCluster } from '../cluster/real/index.ts';
import { eventually } from '../eventually.ts';
import { loudLines } from './quiet.ts';
import { type Account, Traffic } from './traffic.ts';
import { weirCluster } from './weir.ts';

const GUARD = {
  apiVersion: 'cilium.io/v2',
  kind: 'CiliumNetworkPolicy',
  metadata: { name: 'guard', namespace: 'default' },
  spec: {
    endpointSelector: { matchLabels: { app: 'server' } },
    ingress: [{ fromEndpoints: [{ matchLabels: { app: 'friend' } }] }],
  },
};
const SPEC = {
  allowed: ['friend', 'friend-far'],
  denied: ['stranger', 'stranger-far'],
  to: 'server',
  tcp: 80,
  udp: 53,
};

/** Of each flow. */
const ENOUGH = { packets: 100, connections: 20 };

/** Nothing lost, nothing leaked, and enough seen to say so. */
function expectEveryPacket(account: Account): void {
  expect(account).toMatchObject({ lost: [], leaked: [] });
  expect(account.packets).toBeGreaterThan(ENOUGH.packets);
  expect(account.connections).toBeGreaterThan(ENOUGH.connections);
}

describe('the life of an installation on a real Kubernetes', () => {
  let cluster: RealCluster;
  beforeAll(async () => {
    cluster = await weirCluster({ install: false });
  }, 240_000);
  afterAll(() => cluster?.stop());

  const condition = async (type: string): Promise<string> =>
    cluster.kubectl([
      ...['get', 'cnp', 'guard', '-o'],
      `jsonpath={.status.conditions[?(@.type=="${type}")].status} {.status.summary.nodes}`,
    ]);
  const during = async (what: () => Promise<unknown>): Promise<Account> => {
    const traffic = await Traffic.start(cluster, SPEC);
    try {
      await sleep(500);
      await what();
      await sleep(500);
      await traffic.seen(ENOUGH.packets + 50, ENOUGH.connections);
    } catch (error) {
      await traffic.stop();
      throw error;
    }
    return traffic.stop();
  };
  /** But for the folder /var/run/weir itself, which kubelet made to mount it. */
  const nodeFiles = async (node: number): Promise<string> =>
    (
      await cluster.enter(node, [
        'bash',
        '-c',
        'ls /etc/cni/net.d /opt/cni/bin; find /var/run/weir -mindepth 1; ls -d /sys/fs/bpf/*; true',
      ])
    ).stdout;
  /** Address of each pod of the cluster's own network. */
  const addresses = async (): Promise<ReadonlyMap<string, string>> => {
    const list = await cluster.kubectl([
      ...['get', 'pods', '-n', 'default', '-o'],
      'jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{"\\n"}{end}',
    ]);
    const rows = list.trim().split('\n');
    return new Map(rows.map((row) => row.split(' ')).map(([name = '', address = '']) => [name, address]));
  };
  const newcomers = (name: string) =>
    [1, 1, 1, 2].map((node, index) => ({ name: `${name}-${index}`, labels: { app: name }, node }));
  /** Pods of `before` have what they had, nobody shares an address, and the nodes say so. */
  const expectOwnAddresses = async (before: ReadonlyMap<string, string>): Promise<void> => {
    const now = await addresses();
    for (const [name, address] of before) expect([name, now.get(name)]).toEqual([name, address]);
    expect(now.size).toBe(before.size + 4);
    expect([...now.values()]).not.toContain('');
    expect(new Set(now.values()).size).toBe(now.size);
    const status = await cluster.kubectl([
      'exec',
      '-n',
      'kube-system',
      'ds/weir-agent',
      '-c',
      'agent',
      '--',
      'weir',
      'status',
    ]);
    expect(status).toMatch(/^Addresses: *Ok +each address has one owner$/m);
  };
  const nodeProblem = (): Promise<string> => {
    const fields = ['status', 'reason', 'message'].map(
      (field) => `{.status.conditions[?(@.type=="WeirProblem")].${field}}`,
    );
    return cluster.kubectl(['get', 'node', 'node-1', '-o', `jsonpath=${fields.join(' ')}`]);
  };
  const ported = (name: string, hostPort: number) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'default', labels: { app: name } },
    spec: {
      nodeSelector: { 'kubernetes.io/hostname': 'node-1' },
      terminationGracePeriodSeconds: 1,
      containers: [{ ...askableContainer({ tcp: [80] }), ports: [{ containerPort: 80, hostPort }] }],
      volumes: [askableVolume],
    },
  });
  /** From another node, as somebody outside would. */
  const reachesNode = async (port: number): Promise<boolean> => {
    const { address } = await cluster.host('node-1');
    const connect = ['timeout', '2', 'bash', '-c', `exec 3<>/dev/tcp/${address}/${port}`];
    return (await cluster.enter(2, connect)).code === 0;
  };
  let before: string;

  it('installs: nodes become Ready by it, pods get their network from it, its own test passes', async () => {
    before = await nodeFiles(1);
    expect(await cluster.kubectl(['get', 'nodes'])).toContain('NotReady');
    await cluster.install();
    expect(await cluster.kubectl(['get', 'nodes'])).not.toContain('NotReady');
    await cluster.createPods([
      { name: 'server', labels: { app: 'server' }, node: 1, tcp: [80], udp: [53] },
      { name: 'friend', labels: { app: 'friend' }, node: 1 },
      { name: 'friend-far', labels: { app: 'friend' }, node: 2 },
      { name: 'stranger', labels: { app: 'stranger' }, node: 1 },
      { name: 'stranger-far', labels: { app: 'stranger' }, node: 2 },
    ]);
    await cluster.applyObjects([GUARD]);
    await cluster.programmed('cnp/guard');
    expect(await condition('Programmed')).toBe('True 1/1');
    expect(await cluster.helmTest()).toMatch(/Phase:\s+Succeeded/);
    expectEveryPacket(await during(() => sleep(1000)));
  });

  it('upgrades with changed values: no packet of an allowed flow is lost, none of a denied one passes', async () => {
    const account = await during(() =>
      cluster.upgrade({ agent: { logLevel: 'debug' }, operator: { logLevel: 'debug' } }),
    );
    expectEveryPacket(account);
    expect(await condition('Programmed')).toBe('True 1/1');
  });

  it('rolls back', async () => {
    expectEveryPacket(await during(() => cluster.rollback(1)));
    expect(await condition('Programmed')).toBe('True 1/1');
  });

  it('fails over: the new leader contradicts nothing and goes on', async () => {
    const seen: string[] = [];
    let watching = true;
    const look = async (): Promise<void> => {
      const programmed = '.status.conditions[?(@.type=="Programmed")]';
      const shown = await cluster.kubectl([
        ...['get', 'cnp', 'guard', '-o', `jsonpath={${programmed}.observedGeneration} {${programmed}.status}`],
      ]);
      if (shown !== seen.at(-1)) seen.push(shown);
    };
    const watch = (async () => {
      while (watching) {
        await look();
        await sleep(50);
      }
    })();
    const leader = await cluster.kubectl([
      ...['get', 'lease', 'weir-operator', '-n', 'kube-system', '-o', 'jsonpath={.spec.holderIdentity}'],
    ]);
    const pods = (
      await cluster.kubectl([
        ...['get', 'pods', '-n', 'kube-system', '-l', 'app.kubernetes.io/name=weir-operator'],
        ...['-o', 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}'],
      ])
    )
      .trim()
      .split('\n');
    const leading = pods.find((name) => leader.startsWith(name));
    expect(leading).toBeDefined();
    await cluster.kubectl(['delete', 'pod', '-n', 'kube-system', leading ?? '', '--grace-period=0', '--force']);
    // An edit that only a leader can carry out.
    await cluster.applyObjects([
      { ...GUARD, spec: { ...GUARD.spec, description: 'the same rules, another generation' } },
    ]);
    await cluster.kubectl(['wait', '--for=condition=Programmed', '--timeout=60s', 'cnp/guard']);
    watching = false;
    await watch;
    await look();
    // The edited generation waits for its nodes, and after a change of leaders for each node that may still enforce the one before it. The
    // generation that was programmed stays so, and each is once.
    const [before = '0', after = '0'] = [seen[0]?.split(' ')[0], seen.at(-1)?.split(' ')[0]];
    expect(Number(after)).toBe(Number(before) + 1);
    expect(seen.filter((each) => each !== `${after} False`)).toEqual([`${before} True`, `${after} True`]);
    expect(await condition('Programmed')).toBe('True 1/1');
    await cluster.kubectl(['rollout', 'status', '-n', 'kube-system', 'deployment/weir-operator', '--timeout=60s']);
  });

  it('kubelet and containerd restart', async () => {
    const account = await during(async () => {
      await cluster.restartKubelet(1);
      await cluster.restartContainerd(1);
      await cluster.nodesReady();
      await sleep(3000);
    });
    expectEveryPacket(account);
  });

  it('a node joins: its pods are enforced, and the status counts it', async () => {
    const account = await during(async () => {
      await cluster.addNode();
      await cluster.nodesReady();
      await cluster.createPods([
        { name: 'server-3', labels: { app: 'server' }, node: 3, tcp: [80], udp: [53] },
        { name: 'stranger-3', labels: { app: 'stranger' }, node: 3 },
        { name: 'friend-3', labels: { app: 'friend' }, node: 3 },
      ]);
    });
    expectEveryPacket(account);
    expect(
      await eventually(
        () => condition('Programmed'),
        (text) => text === 'True 2/2',
      ),
    ).toBe('True 2/2');
    expect(await cluster.probe('friend-3', 'server', { timeoutMs: 3000 })).toBe('reached');
    expect(await cluster.probe('friend', 'server-3', { timeoutMs: 3000 })).toBe('reached');
    expect(await cluster.probe('stranger-3', 'server', { timeoutMs: 800 })).toBe('dropped');
    expect(await cluster.probe('stranger', 'server-3', { timeoutMs: 800 })).toBe('dropped');
  });

  it('a node reboots: its pods come back enforced, the others notice nothing', async () => {
    const account = await during(async () => {
      await cluster.rebootNode(3);
      // Its pods are recreated from the start; until then kubelet still reports those of before.
      await eventually(
        async () =>
          (await cluster.enter(3, ['sh', '-c', 'ls /run/weir/weir.sock && ls -d /sys/fs/bpf/weir'])).code === 0,
        (up) => up,
        60,
      );
      await cluster.nodesReady();
    });
    expectEveryPacket(account);
    const reach = (from: string) =>
      eventually(
        // Until kubelet has made the pod again there is nothing to ask.
        () => cluster.probe(from, 'server-3', { timeoutMs: 1000 }).catch(() => 'gone'),
        (answer) => answer === 'reached',
        60,
      );
    expect(await reach('friend')).toBe('reached');
    expect(await cluster.probe('stranger', 'server-3', { timeoutMs: 800 })).toBe('dropped');
    expect(
      await eventually(
        () => condition('Programmed'),
        (text) => text === 'True 2/2',
      ),
    ).toBe('True 2/2');
  });

  it('a node that is down does not hold up the status, and is caught up with when it comes back', async () => {
    await cluster.haltNode(3);
    const down = async (): Promise<string> =>
      cluster.kubectl(['get', 'node', 'node-3', '-o', 'jsonpath={.status.conditions[?(@.type=="Ready")].status}']);
    expect(await eventually(down, (status) => status === 'Unknown', 90)).toBe('Unknown');
    await cluster.applyObjects([{ ...GUARD, spec: { ...GUARD.spec, description: 'while node-3 is down' } }]);
    await cluster.programmed('cnp/guard');
    expect(await condition('Programmed')).toBe('True 1/1');
    await cluster.bootNode(3);
    await cluster.nodesReady();
    expect(
      await eventually(
        () => condition('Programmed'),
        (text) => text === 'True 2/2',
        60,
      ),
    ).toBe('True 2/2');
  }, 240_000);

  it('a node is drained and leaves: nothing of it remains in the status', async () => {
    const account = await during(async () => {
      await cluster.kubectl([
        ...['drain', 'node-3', '--ignore-daemonsets', '--force', '--delete-emptydir-data', '--timeout=60s'],
      ]);
      await cluster.removeNode(3);
    });
    expectEveryPacket(account);
    expect(
      await eventually(
        () => condition('Programmed'),
        (text) => text === 'True 1/1',
      ),
    ).toBe('True 1/1');
    const reports = () => cluster.kubectl(['get', 'nodepolicystatuses', '-o', 'name']);
    expect(await reports()).toContain('node-1');
  });

  it('needs no person for any of this, and for pods, policies and namespaces that come and go: logs say nothing above info', async () => {
    const labels = { app: 'passer' };
    const guard = (generation: number) => ({
      ...GUARD,
      metadata: { name: 'guard', namespace: 'passing' },
      spec: {
        endpointSelector: { matchLabels: labels },
        ingress: [{ fromEndpoints: [{}], toPorts: [{ ports: [{ port: String(80 + generation), protocol: 'TCP' }] }] }],
      },
    });
    for (let round = 0; round < 2; round += 1) {
      await cluster.kubectl(['create', 'namespace', 'passing']);
      await cluster.applyObjects([guard(0)]);
      await cluster.createPods(
        ['a', 'b', 'c', 'd'].map((name, index) => ({ name, namespace: 'passing', labels, node: 1 + (index % 2) })),
      );
      await Promise.all([
        cluster.applyObjects([guard(1)]),
        cluster.kubectl(['label', 'pod', 'b', '-n', 'passing', 'app=other', '--overwrite']),
        cluster.kubectl(['delete', 'pod', 'a', '-n', 'passing', '--wait=false']),
        cluster.kubectl(['delete', 'pod', 'c', '-n', 'passing', '--force', '--grace-period=0', '--wait=false']),
      ]);
      // With a pod and a policy in it, which change until the end.
      await Promise.all([
        cluster.kubectl(['delete', 'namespace', 'passing', '--timeout=60s']),
        cluster.tryKubectl(['label', 'pod', '--all', '-n', 'passing', 'app=last', '--overwrite']),
      ]);
    }
    expect(await loudLines(cluster)).toEqual([]);
  }, 240_000);

  it('names on the Node, and as an Event of the pod, an address that something else has, too; ends it when that has gone', async () => {
    const address = (await addresses()).get('friend') ?? '';
    const route = (verb: string) =>
      cluster.enter(1, ['ip', 'route', verb, `${address}/32`, 'dev', 'eth0', 'metric', '5000']);
    expect(await route('add')).toMatchObject({ code: 0 });
    const problem = (status: string) => eventually(nodeProblem, (now) => now.startsWith(status));
    expect(await problem('True')).toMatch(
      new RegExp(`^True AddressConflict .*address ${address} of default/friend is elsewhere on the node, too \\(route`),
    );
    const events = await cluster.kubectl(['get', 'events', '--field-selector', 'reason=AddressConflict']);
    expect(events).toContain('pod/friend ');
    expect(await route('del')).toMatchObject({ code: 0 });
    expect(await problem('False')).toBe('False NoProblem nothing is wrong any more');
  });

  it('uninstalls: allowed flows go on, nodes are as they were, and no status claims enforcement', async () => {
    const allowed = await Traffic.start(cluster, { ...SPEC, denied: [] });
    await cluster.uninstall();
    await sleep(1000);
    await allowed.seen(ENOUGH.packets + 50, ENOUGH.connections);
    expectEveryPacket(await allowed.stop());
    expect(await cluster.probe('stranger-far', 'server', { timeoutMs: 3000 })).toBe('reached');
    for (const node of [1, 2]) expect(await nodeFiles(node)).toBe(before);
    expect((await nodeProblem()).trim()).toBe('');
    // The policies stay, with their kinds.
    expect(await cluster.kubectl(['get', 'cnp', 'guard', '-o', 'jsonpath={.metadata.name} {.status.conditions}'])).toBe(
      'guard ',
    );
    for (const kind of [
      'resolvedpolicies',
      'peersets',
      'nodepolicystatuses',
      'ciliumidentities',
      'ciliumendpointslices',
      'ciliumendpoints',
    ])
      expect(await cluster.kubectl(['get', kind, '-A', '-o', 'name'])).toBe('');
    const left = async (): Promise<readonly string[]> =>
      (
        await cluster.kubectl([
          'get',
          'all,clusterrole,clusterrolebinding,role,rolebinding,configmap,serviceaccount,lease,poddisruptionbudget',
          ...['-A', '-o', 'name'],
        ])
      )
        .split('\n')
        .filter((name) => name.includes('weir'));
    // The agent's pod of the node that left is collected by Kubernetes within a minute or two.
    expect(await eventually(left, (names) => names.length === 0, 180)).toEqual([]);
  }, 300_000);

  it('installs again beside pods that run: they keep addresses and connections, and new pods get others', async () => {
    const before = await addresses();
    const allowed = await Traffic.start(cluster, { ...SPEC, denied: [] });
    await cluster.install();
    await cluster.programmed('cnp/guard');
    await allowed.mark();
    await cluster.createPods(newcomers('late'));
    const { leaked, lost, lostSince } = await allowed.stop();
    expect(leaked).toEqual([]);
    // An agent cannot tell a new installation from maps that were lost: a pod is closed until its identity is known, which takes as long as an
    // operator takes to begin. Open connections outlive that, and once the policy is programmed nothing of anybody's is lost any more.
    expect(lost.filter((flow) => flow.includes(' tcp '))).toEqual([]);
    expect(lostSince).toEqual([]);
    expectEveryPacket(await during(() => sleep(1000)));
    await expectOwnAddresses(before);
    expect(await loudLines(cluster)).toEqual([]);
  }, 300_000);

  it('installs again over what an uninstall left: policies are enforced once more', async () => {
    await cluster.kubectl(['delete', 'pod', '--all', '--grace-period=0', '--force']);
    await cluster.createPods([
      { name: 'server', labels: { app: 'server' }, node: 1, tcp: [80], udp: [53] },
      { name: 'friend', labels: { app: 'friend' }, node: 1 },
      { name: 'friend-far', labels: { app: 'friend' }, node: 2 },
      { name: 'stranger', labels: { app: 'stranger' }, node: 1 },
      { name: 'stranger-far', labels: { app: 'stranger' }, node: 2 },
    ]);
    await cluster.programmed('cnp/guard');
    expectEveryPacket(await during(() => sleep(1000)));
  });

  it('tells a pod that its hostPort is not mapped where the node has no portmap', async () => {
    await cluster.applyObjects([ported('unmapped', 18080)]);
    await cluster.kubectl(['wait', '--for=condition=Ready', '--timeout=90s', 'pod/unmapped']);
    const told = () =>
      cluster.kubectl([
        ...['get', 'events', '--field-selector', 'involvedObject.name=unmapped,reason=HostPortNotMapped'],
        ...['-o', 'jsonpath={.items[*].message}'],
      ]);
    expect(await eventually(told, (text) => text !== '')).toContain('hostPort 18080/tcp does not reach this pod');
    expect(await reachesNode(18080)).toBe(false);
  });

  it('takes over from another network plugin: its pods keep addresses and connections, and new pods get others', async () => {
    await cluster.uninstall();
    await cluster.kubectl(['delete', 'pod', '--all', '--grace-period=0', '--force']);
    await cluster.kubectl(['delete', 'cnp', '--all']);
    await cluster.bridgeOn();
    await cluster.createPods([
      { name: 'server', labels: { app: 'server' }, node: 1, tcp: [80], udp: [53] },
      { name: 'friend', labels: { app: 'friend' }, node: 1 },
    ]);
    const before = await addresses();
    await cluster.applyObjects([GUARD]);
    const allowed = await Traffic.start(cluster, { ...SPEC, allowed: ['friend'], denied: [] });
    await cluster.bridgeOff({ keepPods: true });
    await cluster.install();
    await cluster.createPods(newcomers('moved'));
    const programmed = '.status.conditions[?(@.type=="Programmed")]';
    const reason = () => cluster.kubectl(['get', 'cnp', 'guard', '-o', `jsonpath={${programmed}.reason}`]);
    expect(await eventually(reason, (now) => now === 'PodNotConnected', 60)).toBe('PodNotConnected');
    expectEveryPacket(await allowed.stop());
    await expectOwnAddresses(before);
    expect(await loudLines(cluster)).toEqual([]);
  }, 300_000);

  it('maps the hostPort of a pod by portmap, which the plugin before left there', async () => {
    await cluster.applyObjects([ported('mapped', 18081)]);
    await cluster.kubectl(['wait', '--for=condition=Ready', '--timeout=90s', 'pod/mapped']);
    expect(
      await eventually(
        () => reachesNode(18081),
        (reached) => reached,
      ),
    ).toBe(true);
    await cluster.kubectl(['delete', 'pod', 'mapped', '--wait=true', '--timeout=60s']);
    expect(
      await eventually(
        () => reachesNode(18081),
        (reached) => !reached,
      ),
    ).toBe(false);
  });
});
