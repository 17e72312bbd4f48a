/** Kinds of Services at sockets, with real sockets on the real kernel. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { Answer, Peer } from './testing/peer.ts';
import { NODE, NODE_ADDRESSES, OTHER_NODE_ADDRESSES, PODS, service, slices, World } from './testing/world.ts';

const [A, B, C] = PODS[4];
const CLUSTER = '10.96.0.10';
const CLUSTER6 = 'fd00:96::10';

let world: World;
let pod: Peer;
beforeAll(async () => {
  world = await World.start('z1');
  pod = world.pod;
});
afterAll(() => world?.stop());

const tcp = (address: string, port = 80, from: Peer = world.node): Promise<Answer> => from.ask('TCP', address, port);
const udp = (address: string, port = 80, from: Peer = world.node): Promise<Answer> => from.ask('UDP', address, port);
/** By a socket that is told when nobody listens. */
const dial = (address: string, port = 80, from: Peer = world.node): Promise<Answer> =>
  from.ask('UDP', address, port, { connected: true });
const at = (address: string): string => `${address} 8080`;

/** Who answers, over some tries. */
async function answerers(ask: () => Promise<Answer>, tries = 20): Promise<string[]> {
  const found = new Set<string>();
  for (let i = 0; i < tries; i += 1) {
    const { text, error } = await ask();
    found.add(text ?? error ?? '');
  }
  return [...found].sort();
}

describe('cluster addresses', () => {
  it('a client of either family and protocol reaches a backend and sees the frontend', async () => {
    await world.apply([service({ clusterIPs: [CLUSTER, CLUSTER6] })], slices([A, PODS[6][0]]));
    expect(await tcp(CLUSTER)).toEqual({ text: at(A), peer: `${CLUSTER} 80` });
    expect(await tcp(CLUSTER6)).toEqual({ text: at(PODS[6][0]), peer: `${CLUSTER6} 80` });
    expect(await udp(CLUSTER)).toEqual({ text: at(A), from: `${CLUSTER} 80` });
    expect(await udp(CLUSTER6)).toEqual({ text: at(PODS[6][0]), from: `${CLUSTER6} 80` });
    const connected = { connected: true } as const;
    expect(await world.node.ask('UDP', CLUSTER, 80, connected)).toEqual({
      ...{ text: at(A), from: `${CLUSTER} 80`, peer: `${CLUSTER} 80` },
    });
    expect(await world.node.ask('UDP', CLUSTER6, 80, connected)).toMatchObject({ peer: `${CLUSTER6} 80` });
  });

  it('a socket of IPv6 that sends to an IPv4 address reaches it, and sees it as IPv4 within IPv6', async () => {
    await world.apply([service({})], slices([A]));
    const mapped = { family: 6 } as const;
    expect(await world.node.ask('UDP', `::ffff:${CLUSTER}`, 80, mapped)).toEqual({
      ...{ text: at(A), from: `::ffff:${CLUSTER} 80` },
    });
    expect(await world.node.ask('TCP', `::ffff:${CLUSTER}`, 80)).toEqual({
      ...{ text: at(A), peer: `::ffff:${CLUSTER} 80` },
    });
  });

  it('a family without a backend refuses; one that the Service does not have is not translated', async () => {
    await world.apply([service({ clusterIPs: [CLUSTER, CLUSTER6] })], slices([A]));
    expect(await tcp(CLUSTER6)).toEqual({ error: 'ECONNREFUSED' });
    expect(await udp(CLUSTER6)).toEqual({ error: 'ECONNREFUSED' });
    await world.apply([service({})], slices([A, PODS[6][0]]));
    expect((await tcp(CLUSTER6)).error).toMatch(/ENETUNREACH|EHOSTUNREACH|EADDRNOTAVAIL/);
  });

  it('clients are spread over the backends', async () => {
    await world.apply([service({})], slices([A, B, C]));
    expect(await answerers(() => udp(CLUSTER), 60)).toEqual([A, B, C].map(at));
  });
});

describe('affinity', () => {
  const sticky = (seconds: number) =>
    service({
      ...{ clusterIPs: [CLUSTER, CLUSTER6], sessionAffinity: 'ClientIP' },
      sessionAffinityConfig: { clientIP: { timeoutSeconds: seconds } },
    });

  it('a client stays with its backend by TCP and UDP, until it is none of the Service any more', async () => {
    await world.apply([sticky(10_800)], slices([...PODS[4], ...PODS[6]]));
    for (const ask of [() => tcp(CLUSTER), () => udp(CLUSTER), () => tcp(CLUSTER6), () => udp(CLUSTER6)])
      expect(await answerers(ask)).toHaveLength(1);
    const [first = ''] = await answerers(() => tcp(CLUSTER), 1);
    const rest = PODS[4].filter((address) => at(address) !== first);
    // Another Service has the backend still: that it is there does not make it one of this Service.
    const other = service({ clusterIPs: ['10.96.0.11'] }, { metadata: { name: 'other', namespace: 'ns' } });
    await world.apply([sticky(10_800), other], [...slices(rest), ...slices([...PODS[4]], 'other')]);
    const [second = ''] = await answerers(() => tcp(CLUSTER));
    expect(rest.map(at)).toContain(second);
    await world.apply([sticky(10_800)], slices([...PODS[4]]));
    expect(await answerers(() => tcp(CLUSTER))).toEqual([second]);
  });

  it('ends when the client was away for longer than the time', async () => {
    await world.apply([sticky(1)], slices([...PODS[4]]));
    const seen = new Set<string>();
    // Each pause is longer than the time and the coarseness of the clock. A client that never changes ends by the test's time limit.
    while (seen.size < 2) {
      for (const each of await answerers(() => udp(CLUSTER), 2)) seen.add(each);
      await new Promise((resolve) => setTimeout(resolve, 3300));
    }
    expect(seen.size).toBeGreaterThan(1);
  });
});

describe('node ports', () => {
  const ports = (['TCP', 'UDP'] as const).map((protocol) => ({
    ...{ name: protocol.toLowerCase(), protocol, port: 80, nodePort: 30_080 },
  }));
  const web = service({ type: 'NodePort', clusterIPs: [CLUSTER, CLUSTER6], ports });

  it('answer at every address of every node, from nodes and pods, and at no other', async () => {
    await world.apply([web], slices([A, PODS[6][0]]));
    for (const ask of [tcp, dial]) {
      for (const address of [NODE_ADDRESSES[0], OTHER_NODE_ADDRESSES[0], '10.88.1.1']) {
        expect(await ask(address, 30_080)).toMatchObject({ text: at(A) });
        expect(await ask(address, 30_080, pod)).toMatchObject({ text: at(A) });
      }
      for (const address of [NODE_ADDRESSES[1], OTHER_NODE_ADDRESSES[1]])
        expect(await ask(address, 30_080)).toMatchObject({ text: at(PODS[6][0]) });
      expect((await ask('198.51.100.9', 30_080)).error).toBe('ENETUNREACH');
      expect((await ask(NODE_ADDRESSES[0], 80)).error).toBe('ECONNREFUSED');
    }
    expect(await tcp(OTHER_NODE_ADDRESSES[0], 30_080)).toMatchObject({ peer: `${OTHER_NODE_ADDRESSES[0]} 30080` });
  });

  it('are not at the loopback address of a pod, which is its own', async () => {
    await world.apply([web], slices([A]));
    await pod.serve('TCP', '127.0.0.1', 30_080);
    expect(await tcp('127.0.0.1', 30_080, pod)).toMatchObject({ text: '127.0.0.1 30080' });
    expect(await dial('127.0.0.1', 30_080, pod)).toEqual({ error: 'ECONNREFUSED' });
  });

  it('are not at the unspecified address of a pod, which is its own loopback address', async () => {
    await world.apply([web], slices([A, PODS[6][0]]));
    expect((await tcp('0.0.0.0', 30_080, pod)).text).not.toBe(at(A));
    expect(await dial('0.0.0.0', 30_080, pod)).toEqual({ error: 'ECONNREFUSED' });
    expect((await tcp('::', 30_080, pod)).text).not.toBe(at(PODS[6][0]));
  });

  it('are no external address, whoever names an address of a node and the port', async () => {
    const own = (['TCP', 'UDP'] as const).map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 30_080 }));
    const externalIPs = [NODE_ADDRESSES[0], OTHER_NODE_ADDRESSES[0]];
    const evil = service(
      { clusterIPs: ['10.96.0.66'], externalIPs, ports: own },
      { metadata: { name: 'evil', namespace: 'ns' } },
    );
    await world.apply([evil, web], [...slices([A]), ...slices([C], 'evil')]);
    for (const address of externalIPs)
      for (const ask of [tcp, dial]) expect(await ask(address, 30_080)).toMatchObject({ text: at(A) });
    await world.apply([evil], slices([C], 'evil'));
    expect(await tcp(externalIPs[0] ?? '', 30_080)).toMatchObject({ text: at(C) });
  });

  it('go with the Service', async () => {
    await world.apply([], []);
    expect((await tcp(NODE_ADDRESSES[0], 30_080)).error).toBe('ECONNREFUSED');
    expect(['svc_frontends', 'svc_slots', 'svc_backends', 'svc_members'].map((map) => world.size(map))).toEqual([
      0, 0, 0, 0,
    ]);
  });
});

describe('external addresses', () => {
  const EXTERNAL = '198.51.100.1';
  const BALANCER = '198.51.100.2';
  const PROXY = '198.51.100.3';
  const status = {
    loadBalancer: {
      ingress: [
        { ip: BALANCER, ipMode: 'VIP' },
        { ip: PROXY, ipMode: 'Proxy' },
      ],
    },
  };
  const unreachable = expect.stringMatching(/ENETUNREACH|EHOSTUNREACH/);

  it('lead to backends, but for those of load balancers that are proxies', async () => {
    await world.apply([service({ type: 'LoadBalancer', externalIPs: [EXTERNAL] }, { status })], slices([A]));
    for (const address of [EXTERNAL, BALANCER]) expect(await tcp(address)).toMatchObject({ text: at(A) });
    expect(await tcp(PROXY)).toEqual({ error: unreachable });
  });

  it('of load balancers with source ranges are not translated at sockets: who sends is not known there', async () => {
    const limited = service({ type: 'LoadBalancer', loadBalancerSourceRanges: ['10.0.0.0/8'] }, { status });
    await world.apply([limited], slices([A]));
    expect(await tcp(BALANCER)).toEqual({ error: unreachable });
    expect(await tcp(CLUSTER)).toMatchObject({ text: at(A) });
    // One for each port.
    expect(world.size('svc_sources')).toBe(2);
  });

  it('do not take what goes to the cluster address of another Service', async () => {
    const evil = service(
      { clusterIPs: ['10.96.0.66'], externalIPs: [CLUSTER, '127.0.0.1'] },
      { metadata: { name: 'a-evil', namespace: 'evil' } },
    );
    const its = slices([C], 'a-evil').map((each) => ({
      ...each,
      metadata: { ...each.metadata, namespace: 'evil' },
    }));
    await world.apply([evil, service({})], [...its, ...slices([A])]);
    expect(await tcp(CLUSTER)).toMatchObject({ text: at(A) });
    expect(await tcp('10.96.0.66')).toMatchObject({ text: at(C) });
    expect((await tcp('127.0.0.1')).error).toBe('ECONNREFUSED');
    // Both stay the cluster's own: what is not translated there is not the world's.
    expect(world.size('svc_addresses')).toBe(2);
    await world.apply([evil], its);
    expect(await tcp(CLUSTER)).toMatchObject({ text: at(C) });
  });
});

describe('who answers', () => {
  const elsewhere = (address: string) => ({ addresses: [address], nodeName: 'n2' });
  const ending = { ready: false, serving: true, terminating: true };

  it('internalTrafficPolicy Local: those of this node, and nobody where it has none', async () => {
    const local = service({ internalTrafficPolicy: 'Local' });
    await world.apply([local], slices([A, elsewhere(B)]));
    expect(await answerers(() => udp(CLUSTER))).toEqual([at(A)]);
    await world.apply([local], slices([elsewhere(B)]));
    expect(await answerers(() => udp(CLUSTER), 2)).toEqual(['ECONNREFUSED']);
  });

  it('externalTrafficPolicy Local: who is in the cluster gets those of other nodes, too', async () => {
    const ports = [{ name: 'udp', protocol: 'UDP', port: 80, nodePort: 30_081 }];
    await world.apply([service({ type: 'NodePort', externalTrafficPolicy: 'Local', ports })], slices([elsewhere(B)]));
    expect(await udp(NODE_ADDRESSES[0], 30_081)).toMatchObject({ text: at(B) });
    expect(await udp(NODE_ADDRESSES[0], 30_081, pod)).toMatchObject({ text: at(B) });
  });

  it('those that end serve only while no other is ready', async () => {
    await world.apply([service({})], slices([A, { addresses: [B], nodeName: NODE, conditions: ending }]));
    expect(await answerers(() => udp(CLUSTER))).toEqual([at(A)]);
    await world.apply([service({})], slices([{ addresses: [B], nodeName: NODE, conditions: ending }]));
    expect(await answerers(() => udp(CLUSTER))).toEqual([at(B)]);
  });

  it('those that are hinted for the zone of the node', async () => {
    const hinted = (address: string, zone: string) => ({
      ...{ addresses: [address], nodeName: NODE, hints: { forZones: [{ name: zone }] } },
    });
    await world.apply([service({})], slices([hinted(A, 'z1'), hinted(B, 'z2')]));
    expect(await answerers(() => udp(CLUSTER))).toEqual([at(A)]);
    await world.apply([service({})], slices([hinted(B, 'z2'), hinted(C, 'z3')]));
    expect(await answerers(() => udp(CLUSTER), 60)).toEqual([B, C].map(at));
  });
});

it('connections to healthy backends outlive 300 changes of the others', async () => {
  await world.apply([service({})], slices([A, B, C]));
  const keep = async (name: string) => (await world.node.ask('TCP', CLUSTER, 80, { keep: name })).text ?? '';
  const firsts = new Map<string, string>();
  for (let i = 0; i < 9; i += 1) firsts.set(`c${i}`, await keep(`c${i}`));
  for (let round = 0; round < 300; round += 1) {
    const others = [B, C].filter(() => Math.random() < 0.5);
    await world.apply([service({})], slices([A, ...others]));
    if (round % 30 === 0) for (const [name, first] of firsts) expect(await keep(name)).toBe(first);
    expect((await tcp(CLUSTER)).text).toBeDefined();
  }
});
