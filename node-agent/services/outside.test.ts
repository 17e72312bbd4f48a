/** Services for clients outside of the node, on the real kernel: backends are a pod of the node and a machine that stands for a pod of another node. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import type { Peer } from '@weir/bpf/testing';
import { ip, iptables, NODE, NODE6, OUTSIDE, OUTSIDE6, World } from '../uplinks/testing/world.ts';
import type { ServiceObjectRow, SliceEndpoint } from './types.ts';

const NODE_PORT = 30_080;
const BALANCER = '203.0.113.9';
const FAR = '198.51.100.3';
const FAR6 = '2001:db8:1::3';
/** Where pods, and those on other nodes, answer; and where nobody does. */
const NEAR_PORTS = { TCP: 8778, UDP: 8777 };
const FAR_PORTS = { TCP: 9778, UDP: 9777 };
const NODE_PORTS = { TCP: 7778, UDP: 7777 };
const NOBODY = { TCP: 9, UDP: 9 };
const OF_NODE = /^198\.51\.100\.1 (3[2-9]|[456]\d)\d{3}$/;

let world: World;
let client: Peer;
let pod: string;
let pod6: string;
let next = 20_000;

/** A source port that no flow has. */
const fresh = (): number => {
  next += 1;
  return next;
};
const udp = (address = NODE, port = NODE_PORT, size = 10): Promise<string> =>
  client.ask(`udp ${address} ${size} ${fresh()} ${port}`);
/** Where no answer is to come. */
const silent = (address = NODE, port = NODE_PORT): Promise<string> =>
  client.ask(`brief udp ${address} 10 ${fresh()} ${port}`);
const tcp = (address = NODE, port = NODE_PORT): Promise<string> => client.ask(`tcp ${address} ${fresh()} ${port}`);
const seen = (): string => `${OUTSIDE} ${next}`;

interface Backends {
  readonly near?: readonly string[];
  readonly far?: readonly string[];
  readonly ports?: typeof NEAR_PORTS;
}

async function told({ near = [], far = [], ports }: Backends, more: Partial<ServiceObjectRow> = {}): Promise<void> {
  const { services, core } = world;
  if (services === undefined || core === undefined) throw new Error('the agent does not run');
  const { objects, slices } = services.tables;
  const of = (targets: Readonly<Record<'TCP' | 'UDP', number>>, nodePort?: number) =>
    (['TCP', 'UDP'] as const).map((protocol) => ({
      ...{ name: protocol.toLowerCase(), protocol, port: targets[protocol] },
      ...(nodePort === undefined ? {} : { nodePort }),
    }));
  const endpoints = (addresses: readonly string[], node: string): SliceEndpoint[] =>
    addresses.map((address) => ({ addresses: [address], node, ready: true, serving: true, terminating: false }));
  core.db.write([objects, slices], (txn) => {
    const name = { namespace: 'ns', name: 'web' };
    txn.upsert(objects, {
      ...{ ...name, clusterAddresses: ['10.96.0.10', 'fd00:96::10'], publishNotReady: false },
      ports: of({ TCP: 80, UDP: 80 }, NODE_PORT),
      ...more,
    });
    txn.upsert(slices, {
      namespace: 'ns',
      name: 'near',
      service: 'ns/web',
      ports: of(ports ?? NEAR_PORTS),
      endpoints: endpoints(near, 'lab'),
    });
    txn.upsert(slices, {
      namespace: 'ns',
      name: 'far',
      service: 'ns/web',
      ports: of(ports ?? FAR_PORTS),
      endpoints: endpoints(far, 'other'),
    });
  });
  await services.settled();
}

async function allowFrom(cidr?: string): Promise<void> {
  const { core } = world;
  const before = core?.deleteRules([]);
  await core?.waitPolicyRevision(before?.revision ?? 0);
  if (cidr === undefined) return;
  const imported = core?.importRules([
    {
      endpointSelector: { matchLabels: { app: 'a' } },
      ingress: [{ fromCIDR: [cidr] }],
      labels: [{ key: 'name', value: 'test', source: 'unspec' }],
    },
  ]);
  expect(imported?.problems).toEqual([]);
  await core?.waitPolicyRevision(imported?.revision ?? 0);
}

beforeAll(async () => {
  world = new World();
  await world.start();
  const [a] = world.pods;
  if (a === undefined) throw new Error('no pod');
  pod = a.address;
  pod6 = a.address6;
  await world.listen(world.namespaceOf(a), NEAR_PORTS.UDP, NEAR_PORTS.TCP);
  await world.listen(world.lab.node, NODE_PORTS.UDP, NODE_PORTS.TCP);
  client = world.talker(world.outside);
  ip('-n', world.outside, 'address', 'add', `${FAR}/24`, 'dev', 'eth0');
  ip('-n', world.outside, 'address', 'add', `${FAR6}/64`, 'dev', 'eth0', 'nodad', 'preferred_lft', '0');
  for (const address of [FAR, FAR6]) await world.listen(world.outside, FAR_PORTS.UDP, FAR_PORTS.TCP, address);
  ip('-n', world.outside, 'route', 'add', BALANCER, 'via', NODE);
});
afterAll(async () => {
  await world.close();
});
beforeEach(() => allowFrom());

describe('a backend of this node', () => {
  it('may be the node itself, as those of pods in its network namespace are', async () => {
    await told({ near: [NODE], ports: NODE_PORTS });
    expect(await udp()).toBe(seen());
    expect(await tcp()).toBe(seen());
    expect(await udp(NODE, NODE_PORT, 4000)).toBe(`${seen()} 4000`);
    // Beside it, its own ports are reached as they are.
    expect(await udp(NODE, NODE_PORTS.UDP)).toBe(seen());
    expect(await tcp(NODE, NODE_PORTS.TCP)).toBe(seen());
  });

  it('sees the true client, by either protocol and family', async () => {
    await told({ near: [pod, pod6] });
    expect(await udp()).toBe(seen());
    expect(await tcp()).toBe(seen());
    expect(await udp(NODE6)).toBe(`${OUTSIDE6} ${next}`);
    expect(await tcp(NODE6)).toBe(`${OUTSIDE6} ${next}`);
    expect(await udp(NODE, NODE_PORT, 4000)).toBe(`${seen()} 4000`);
  });

  it('is reached as policy judges the true client, never as the node', async () => {
    await told({ near: [pod] });
    await allowFrom(`${OUTSIDE}/32`);
    expect(await udp()).toBe(seen());
    await allowFrom(`${NODE}/32`);
    const dropped = world.dropped('policy', 0);
    expect(await silent()).toBe('nothing');
    expect(world.dropped('policy', 0)).toBeGreaterThan(dropped);
  });

  it('says that nobody listens', async () => {
    await told({ near: [pod], ports: NOBODY });
    expect(await udp()).toBe('ECONNREFUSED');
    expect(await tcp()).toBe('ECONNREFUSED');
  });
});

describe('a backend of another node', () => {
  it('sees this node, and its answers come back by it', async () => {
    await told({ far: [FAR, FAR6] });
    expect(await udp()).toMatch(OF_NODE);
    expect(await tcp()).toMatch(OF_NODE);
    expect(await udp(NODE6)).toMatch(/^2001:db8:1::1 /);
    expect(await tcp(NODE6)).toMatch(/^2001:db8:1::1 /);
    expect(await udp(NODE, NODE_PORT, 4000)).toMatch(/^198\.51\.100\.1 \d{5} 4000$/);
  });

  it('says that nobody listens', async () => {
    await told({ far: [FAR], ports: NOBODY });
    expect(await udp()).toBe('ECONNREFUSED');
    expect(await tcp()).toBe('ECONNREFUSED');
  });

  it('is reached beside kube-proxy, which drops what belongs to no connection that it knows', async () => {
    iptables(world.lab.node, '-A', 'FORWARD', '-m', 'conntrack', '--ctstate', 'INVALID', '-j', 'DROP');
    await told({ far: [FAR] });
    expect(await udp()).toMatch(OF_NODE);
    expect(await tcp()).toMatch(OF_NODE);
    await told({ near: [pod] });
    expect(await tcp()).toBe(seen());
  });

  it('is none where the policy for outside is Local', async () => {
    await told({ near: [pod], far: [FAR] }, { externalPolicy: 'Local' });
    for (let at = 0; at < 10; at += 1) expect(await udp()).toBe(seen());
    await told({ far: [FAR] }, { externalPolicy: 'Local' });
    const dropped = world.dropped('no-backend', 0);
    expect(await silent()).toBe('nothing');
    expect(world.dropped('no-backend', 0)).toBeGreaterThan(dropped);
  });
});

describe('clients', () => {
  const backends = async (): Promise<Set<string>> => {
    const found = new Set<string>();
    for (let at = 0; at < 20; at += 1) found.add((await udp()).split(' ')[0] ?? '');
    return found;
  };

  it('are spread, or stay where the Service wants that', async () => {
    await told({ near: [pod], far: [FAR] });
    expect(await backends()).toEqual(new Set([OUTSIDE, NODE]));
    await told({ near: [pod], far: [FAR] }, { affinitySeconds: 1000 });
    expect((await backends()).size).toBe(1);
  });

  it('get another backend when theirs goes, at the next datagram or connection', async () => {
    await told({ near: [pod] });
    const port = fresh();
    const ask = (): Promise<string> => client.ask(`udp ${NODE} 10 ${port} ${NODE_PORT}`);
    expect(await ask()).toBe(`${OUTSIDE} ${port}`);
    await told({ near: [pod], far: [FAR] });
    expect(await ask()).toBe(`${OUTSIDE} ${port}`);
    const reused = fresh();
    const dial = (): Promise<string> => client.ask(`tcp ${NODE} ${reused} ${NODE_PORT}`);
    await told({ near: [pod] });
    expect(await dial()).toBe(`${OUTSIDE} ${reused}`);
    expect(await client.ask(`hangup ${reused}`)).toBe('closed');
    await told({ far: [FAR] });
    expect(await ask()).toMatch(OF_NODE);
    expect(await dial()).toMatch(OF_NODE);
  });

  it('have half of the flows at most, and take none from pods', async () => {
    await told({ near: [pod] });
    world.addFlows(0, 131_072);
    const dropped = world.dropped('nat-share', 0);
    expect(await silent()).toBe('nothing');
    expect(world.dropped('nat-share', 0)).toBe(dropped + 1n);
    const [a] = world.pods;
    const talker = world.talker(a === undefined ? '' : world.namespaceOf(a));
    expect(await talker.ask(`udp ${OUTSIDE} 10 40001`)).toBe(`${NODE} 40001`);
    world.addFlows(0, -131_072);
    expect(await udp()).toBe(seen());
  });

  it('are refused where the Service has no backend', async () => {
    await told({});
    expect(await udp()).toBe('ECONNREFUSED');
    expect(await tcp()).toBe('ECONNREFUSED');
  });

  it('use the address of a load balancer, if they are in its source ranges', async () => {
    await told({ near: [pod] }, { balancerAddresses: [BALANCER] });
    expect(await udp(BALANCER, 80)).toBe(seen());
    expect(await tcp(BALANCER, 80)).toBe(seen());
    await told({ near: [pod] }, { balancerAddresses: [BALANCER], sourceRanges: ['192.0.2.0/24'] });
    const dropped = world.dropped('source-range', 0);
    expect(await silent(BALANCER, 80)).toBe('nothing');
    expect(world.dropped('source-range', 0)).toBe(dropped + 1n);
    await told({ near: [pod] }, { balancerAddresses: [BALANCER], sourceRanges: [`${OUTSIDE}/32`] });
    expect(await udp(BALANCER, 80)).toBe(seen());
  });

  it('reach the node’s own programs, whatever address of it a Service names', async () => {
    const node = world.talker(world.lab.node);
    const ports = [{ name: 'udp', protocol: 'UDP', port: 40_100 } as const];
    await told({ near: [pod] }, { ports, externalAddresses: [NODE] });
    expect(await udp(NODE, 40_100)).toBe(seen());
    expect(await node.ask('listen 40100')).toBe('listens');
    expect(await silent(NODE, 40_100)).toBe('nothing');
  });

  it('do not reach cluster addresses, nor ports of nodes at other addresses', async () => {
    await told({ near: [pod] });
    ip('-n', world.outside, 'route', 'add', '10.96.0.10', 'via', NODE);
    expect(await silent('10.96.0.10', 80)).toMatch(/nothing|UNREACH/);
    expect(await silent(BALANCER, NODE_PORT)).toMatch(/nothing|UNREACH/);
  });

  it('go on while the agent is away', async () => {
    await told({ near: [pod], far: [FAR] });
    const port = fresh();
    const first = await client.ask(`tcp ${NODE} ${port} ${NODE_PORT}`);
    await world.halt();
    expect(await client.ask(`tcp ${NODE} ${port} ${NODE_PORT}`)).toBe(first);
    expect(await udp()).toMatch(/^198\.51\.100\./);
    await world.run(`${world.lab.state}/none`);
    expect(await client.ask(`tcp ${NODE} ${port} ${NODE_PORT}`)).toBe(first);
  });
});
