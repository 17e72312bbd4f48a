/** What pods send out of the cluster, on the real kernel: a node, its pods, and a machine outside that knows only the node. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  ETHERTYPE,
  ethernet,
  icmp,
  ip6,
  ipv4,
  ipv6,
  type Peer,
  RAW_SENDER,
  TCP_FLAGS,
  tcp,
  udp,
} from '@weir/bpf/testing';
import { eventually } from '../../test/eventually.ts';
import { ip, iptables, NODE, NODE6, OUTSIDE, OUTSIDE6, World } from '../uplinks/testing/world.ts';

/** The first endpoint, in nat_owners. */
const OWNER = Uint8Array.of(1, 0, 0, 0);
const SHARE = 32_768;
const FLOWS = 262_144;
/** Where last_seen, flags and the owner stand in a flow. */
const [SEEN_AT, FLAGS_AT, OWNER_AT] = [80, 84, 88];
const RESET = 16;
/** As the watcher shows an address of IPv6. */
const HEX6 = Buffer.from(ip6(NODE6)).toString('hex');

let world: World;
let a: Peer;
let b: Peer;
let node: Peer;

/** The flags of the flow that has this source port. */
function flagsOf(port: number): number {
  for (const [key, value] of world.map('nat_flows').entries())
    if (key[32] === port >> 8 && key[33] === (port & 255)) return value[FLAGS_AT] ?? 0;
  return 0;
}

const u32 = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);
const ticks = (): number => Number(process.hrtime.bigint() >> 30n);

beforeAll(async () => {
  world = new World();
  await world.start();
  [a, b] = world.pods.map((pod) => world.talker(world.namespaceOf(pod))) as [Peer, Peer];
  node = world.talker(world.lab.node);
});
afterAll(async () => {
  await world.close();
});

describe('what leaves', () => {
  it('has the address of the node, and answers come back: UDP, TCP, pings', async () => {
    expect(await a.ask(`udp ${OUTSIDE} 10 40001`)).toBe(`${NODE} 40001`);
    expect(await a.ask(`tcp ${OUTSIDE} 40001`)).toBe(`${NODE} 40001`);
    expect(await a.ask(`ping ${OUTSIDE} 77`)).toBe(`echo from ${OUTSIDE}`);
  });

  it('does so over IPv6', async () => {
    expect(await a.ask(`udp ${OUTSIDE6} 10 41001`)).toBe(`${NODE6} 41001`);
    expect(await a.ask(`tcp ${OUTSIDE6} 41001`)).toBe(`${NODE6} 41001`);
    expect(await a.ask(`udp ${OUTSIDE6} 4000 41009`)).toBe(`${NODE6} 41009 4000`);
    expect(await a.ask(`udp ${OUTSIDE6} 10 41008 7999`)).toBe('ECONNREFUSED');
  });

  it('may come in fragments, both ways', async () => {
    expect(await a.ask(`udp ${OUTSIDE} 4000 40010`)).toBe(`${NODE} 40010 4000`);
    expect(await a.ask(`udp ${OUTSIDE} 4000 1010`)).toMatch(/^198\.51\.100\.1 (3[2-9]|[456]\d)\d{3} 4000$/);
  });

  it('gets a port of the node where its own is not high enough', async () => {
    const [, port] = (await a.ask(`udp ${OUTSIDE} 10 1011`)).split(' ');
    expect(Number(port)).toBeGreaterThanOrEqual(32_768);
    const [, other] = (await a.ask(`tcp ${OUTSIDE} 1011`)).split(' ');
    expect(Number(other)).toBeGreaterThanOrEqual(32_768);
  });
});

describe('ports', () => {
  it('are different for two pods with one source port', async () => {
    expect(await a.ask(`udp ${OUTSIDE} 10 40002`)).toBe(`${NODE} 40002`);
    const other = await b.ask(`udp ${OUTSIDE} 10 40002`);
    expect(other).toMatch(/^198\.51\.100\.1 (3[2-9]|[456]\d)\d{3}$/);
    expect(other).not.toBe(`${NODE} 40002`);
    expect(await b.ask(`udp ${OUTSIDE} 10 40002`)).toBe(other);
    expect(await a.ask(`udp ${OUTSIDE} 10 40002`)).toBe(`${NODE} 40002`);
  });

  it('of pings, too', async () => {
    expect(await Promise.all([a, b].map((pod) => pod.ask(`ping ${OUTSIDE} 78`)))).toEqual(
      Array.from({ length: 2 }, () => `echo from ${OUTSIDE}`),
    );
  });

  it('are not taken from a flow that is only beginning', async () => {
    expect(await a.ask(`udp ${OUTSIDE} 10 40007`)).toBe(`${NODE} 40007`);
    const flows = world.map('nat_flows');
    const isMeant = (key: Uint8Array): boolean => key[32] === 40_007 >> 8 && key[33] === (40_007 & 255);
    const [key, flow] = [...flows.entries()].find((entry) => isMeant(entry[0])) ?? [];
    if (key === undefined || flow === undefined) throw new Error('no flow');
    // Between the two writes of a new flow: its answers are claimed, and it is not there yet.
    flows.delete(key);
    expect(await b.ask(`udp ${OUTSIDE} 10 40007`)).not.toBe(`${NODE} 40007`);
    flows.update(key, flow);
    expect(await a.ask(`udp ${OUTSIDE} 10 40007`)).toBe(`${NODE} 40007`);
  });

  it('of the node’s own sockets are no pod’s, nor of those that take them later', async () => {
    expect(await node.ask('listen 40003')).toBe('listens');
    expect(await a.ask(`udp ${OUTSIDE} 10 40003`)).not.toBe(`${NODE} 40003`);
    expect(await a.ask(`udp ${OUTSIDE} 10 40004`)).toBe(`${NODE} 40004`);
    expect(await node.ask(`udp ${OUTSIDE} 10 40004`)).toBe(`${NODE} 40004`);
    expect(await a.ask(`udp ${OUTSIDE} 10 40004`)).not.toBe(`${NODE} 40004`);
    expect(await a.ask(`tcp ${OUTSIDE} 40005`)).toBe(`${NODE} 40005`);
    expect(await node.ask(`tcp ${OUTSIDE} 40005`)).toBe(`${NODE} 40005`);
    expect(await node.ask(`tcp ${OUTSIDE} 40006`)).toBe(`${NODE} 40006`);
    expect(await a.ask(`tcp ${OUTSIDE} 40006`)).not.toBe(`${NODE} 40006`);
  });
});

describe('errors', () => {
  it('come back to the pod: nobody listens, no way there', async () => {
    expect(await a.ask(`udp ${OUTSIDE} 10 40011 7999`)).toBe('ECONNREFUSED');
    expect(await a.ask(`udp ${OUTSIDE} 10 1012 7999`)).toBe('ECONNREFUSED');
    expect(await a.ask(`tcp ${OUTSIDE} 40012 7999`)).toBe('ECONNREFUSED');
    ip('-n', world.lab.node, 'route', 'add', '203.0.113.0/24', 'via', OUTSIDE);
    ip('-n', world.outside, 'route', 'add', 'unreachable', '203.0.113.0/24');
    ip('netns', 'exec', world.outside, 'sysctl', '-qw', 'net.ipv4.ip_forward=1');
    expect(await a.ask('ping 203.0.113.1 79')).toBe('unreachable');
  });

  it('a reset from outside ends a connection only where the pod takes it', async () => {
    expect(await a.ask(`tcp ${OUTSIDE} 40015`)).toBe(`${NODE} 40015`);
    const raw = world.peer(world.outside, RAW_SENDER);
    const [far] = JSON.parse(ip('-n', world.outside, '-j', 'link', 'show', 'dev', 'eth0')) as [{ ifindex: number }];
    const [up] = JSON.parse(ip('-n', world.lab.node, '-j', 'link', 'show', 'dev', 'up0')) as [{ address: string }];
    const payload = tcp({ sport: 7778, dport: 40_015, flags: TCP_FLAGS.rst, seq: 12_345 });
    const frame = ethernet(ipv4({ src: OUTSIDE, dst: NODE, protocol: 6, payload }));
    frame.set(up.address.split(':').map((byte) => Number.parseInt(byte, 16)));
    expect(await raw.ask(`${far.ifindex} ${Buffer.from(frame).toString('hex')}`)).toBe('sent');
    expect(await a.ask(`tcp ${OUTSIDE} 40015`)).toBe(`${NODE} 40015`);
    expect(flagsOf(40_015) & RESET).toBe(0);
    expect(await a.ask('hangup 40015')).toBe('closed');
    await eventually(
      async () => flagsOf(40_015),
      (flags) => (flags & RESET) !== 0,
    );
    expect(await a.ask(`tcp ${OUTSIDE} 40016 7999`)).toBe('ECONNREFUSED');
    expect(flagsOf(40_016) & RESET).toBe(RESET);
  });

  it('of a pod leave with the node’s address', async () => {
    const outside = world.talker(world.outside);
    // The outside's own port from which it then talks to the pod's, which is closed by then.
    expect(await a.ask(`udp ${OUTSIDE} 10 40013 7998`)).toBe('ECONNREFUSED');
    expect(await outside.ask(`udp ${NODE} 10 7998 40013`)).toBe('ECONNREFUSED');
  });

  it('tell a pod the largest packet of a path', async () => {
    ip('-n', world.outside, 'link', 'add', 'thin', 'type', 'veth', 'peer', 'name', 'end');
    for (const end of ['thin', 'end']) ip('-n', world.outside, 'link', 'set', end, 'up', 'mtu', '1300');
    ip('-n', world.outside, 'route', 'add', '203.0.114.0/24', 'dev', 'thin');
    ip('-n', world.lab.node, 'route', 'add', '203.0.114.0/24', 'via', OUTSIDE);
    const [pod] = world.pods;
    const route = async (): Promise<string> =>
      ip('-n', pod === undefined ? '' : world.namespaceOf(pod), 'route', 'get', '203.0.114.5');
    expect(await route()).not.toContain('mtu');
    await a.ask('brief udp 203.0.114.5 1400 40014');
    expect(await eventually(route, (text) => text.includes('mtu'))).toContain('mtu 1300');
  });
});

describe('limits', () => {
  it('a flow is over after its time, and its port free', async () => {
    expect(await a.ask(`udp ${OUTSIDE} 10 40020`)).toBe(`${NODE} 40020`);
    expect(await b.ask(`udp ${OUTSIDE} 10 40020`)).not.toBe(`${NODE} 40020`);
    const flows = world.map('nat_flows');
    for (const [key, value] of flows.entries()) {
      const flow = Uint8Array.from(value);
      flow.set(u32(ticks() - 200), SEEN_AT);
      if (key[32] === 40_020 >> 8 && key[33] === (40_020 & 255)) flows.update(key, flow);
    }
    expect(await b.ask(`udp ${OUTSIDE} 10 40020`)).toBe(`${NODE} 40020`);
    expect(await a.ask(`udp ${OUTSIDE} 10 40020`)).not.toBe(`${NODE} 40020`);
  });

  it('a pod with its whole share has no more, goes on with what it has, and takes nothing from others', async () => {
    expect(await a.ask(`udp ${OUTSIDE} 10 40021`)).toBe(`${NODE} 40021`);
    world.addFlows(1, SHARE);
    const dropped = world.dropped('nat-share');
    expect(await a.ask(`brief udp ${OUTSIDE} 10 40022`)).toBe('nothing');
    expect(world.dropped('nat-share')).toBe(dropped + 1n);
    expect(await a.ask(`udp ${OUTSIDE} 10 40021`)).toBe(`${NODE} 40021`);
    expect(await b.ask(`udp ${OUTSIDE} 10 40022`)).toBe(`${NODE} 40022`);
    world.addFlows(1, -SHARE);
    expect(await a.ask(`udp ${OUTSIDE} 10 40023`)).toBe(`${NODE} 40023`);
  });

  it('counts what each pod has', async () => {
    const mine = Array.from(world.map('nat_flows').entries()).filter(([, value]) => value[OWNER_AT] === 1);
    const count = world.map('nat_owners').lookup(OWNER) ?? new Uint8Array(4);
    expect(new DataView(count.buffer, count.byteOffset).getInt32(0, true)).toBe(mine.length);
  });

  it('a full table drops rather than let the pod’s address out, and makes room of what is over', async () => {
    const flows = world.map('nat_flows');
    const fill = (seen: number): void => {
      const entries = Array.from({ length: FLOWS }, (_, at): readonly [Uint8Array, Uint8Array] => {
        const [key, value] = [new Uint8Array(40), new Uint8Array(100)];
        key.set(u32(at));
        key[36] = 17;
        value.set(key);
        value.set(u32(seen), SEEN_AT);
        return [key, value];
      });
      try {
        flows.updateBatch(entries);
      } catch {
        // Until it is full.
      }
    };
    const watcher = await world.watcher();
    // What is over would make room.
    for (const key of [...flows.keys()]) flows.delete(key);
    for (const owner of [1, 2]) world.map('nat_owners').update(u32(owner), u32(0));
    fill(ticks() + 1000);
    const dropped = world.dropped('nat-full');
    expect(await a.ask(`brief udp ${OUTSIDE} 10 40030`)).toBe('nothing');
    expect(world.dropped('nat-full')).toBeGreaterThan(dropped);
    expect(await watcher.ask('?')).not.toContain('10.88.');
    // Nobody has answered these.
    fill(ticks() - 10);
    expect(await a.ask(`udp ${OUTSIDE} 10 40030`)).toBe(`${NODE} 40030`);
  });
});

it('a pod with raw sockets lets no address of its own out', async () => {
  const [pod, neighbour] = world.pods;
  if (pod === undefined || neighbour === undefined) throw new Error('no pod');
  const namespace = world.namespaceOf(pod);
  const raw = world.peer(namespace, RAW_SENDER);
  const watcher = await world.watcher();
  const [own] = JSON.parse(ip('-n', namespace, '-j', 'link', 'show', 'dev', 'eth0')) as [{ ifindex: number }];
  const [host] = JSON.parse(ip('-n', world.lab.node, '-j', 'link', 'show', 'dev', pod.interfaceName)) as [
    { address: string },
  ];
  const send = async (protocol: number, payload: Uint8Array, more: object = {}): Promise<void> =>
    sendFrame(ethernet(ipv4({ src: pod.address, dst: OUTSIDE, protocol, payload, ...more })));
  const between = (src: string, dst: string, nextHeader: number, payload: Uint8Array): Uint8Array =>
    ipv6({ src: ip6(src), dst: ip6(dst), nextHeader, payload });
  const send6 = (nextHeader: number, payload: Uint8Array): Promise<void> =>
    sendFrame(ethernet(between(pod.address6, OUTSIDE6, nextHeader, payload), ETHERTYPE.ipv6));
  const sendFrame = async (frame: Uint8Array): Promise<void> => {
    frame.set(host.address.split(':').map((byte) => Number.parseInt(byte, 16)));
    expect(await raw.ask(`${own.ifindex} ${Buffer.from(frame).toString('hex')}`)).toBe('sent');
  };
  const quoted = ipv4({ src: OUTSIDE, dst: pod.address, protocol: 17, payload: udp({ sport: 9, dport: 9 }) });
  await send(1, icmp({ type: 0, code: 0, id: 5 }));
  await send(1, icmp({ type: 3, code: 3, payload: quoted }));
  await send(1, icmp({ type: 3, code: 3, payload: new Uint8Array(4) }));
  await send(1, icmp({ type: 5, code: 1, payload: quoted }));
  // Of a neighbour's packets: of a flow, of none, and of the node's own.
  expect(await b.ask(`udp ${OUTSIDE} 10 40041`)).toBe(`${NODE} 40041`);
  for (const [dst, dport] of [
    [neighbour.address, 40_041],
    [neighbour.address, 9],
    [NODE, 40_041],
  ] as const) {
    const told = ipv4({ src: OUTSIDE, dst, protocol: 17, payload: udp({ sport: 7777, dport }) });
    await send(1, icmp({ type: 3, code: 3, payload: told }));
  }
  await send(1, icmp({ type: 13, code: 0, id: 5 }));
  await send(17, new Uint8Array(64), { offset: 800, id: 99 });
  await send(47, new Uint8Array(64));
  await send(132, new Uint8Array(64));
  await send(6, new Uint8Array(20).fill(0x50));
  await send6(58, icmp({ type: 129, code: 0, id: 5 }));
  expect(await b.ask(`udp ${OUTSIDE6} 10 40042`)).toBe(`${NODE6} 40042`);
  for (const [dst, dport] of [
    [pod.address6, 9],
    [neighbour.address6, 40_042],
    [neighbour.address6, 9],
    [NODE6, 40_042],
  ] as const)
    await send6(58, icmp({ type: 1, code: 4, payload: between(OUTSIDE6, dst, 17, udp({ sport: 7777, dport })) }));
  await send6(47, new Uint8Array(64));
  await send6(132, new Uint8Array(64));
  expect(await a.ask(`udp ${OUTSIDE6} 10 40043`)).toBe(`${NODE6} 40043`);
  expect(await a.ask(`udp ${OUTSIDE} 10 40040`)).toBe(`${NODE} 40040`);
  const seen = (await watcher.ask('?')).split(' ');
  expect(seen).toEqual(expect.arrayContaining([NODE, HEX6]));
  expect(seen.filter((address) => address.startsWith('10.88.') || address.startsWith('fd88'))).toEqual([]);
});

it('flows outlive the agent, and the configuration says who sees pods’ own addresses', async () => {
  expect(await a.ask(`tcp ${OUTSIDE} 40050`)).toBe(`${NODE} 40050`);
  await world.halt();
  expect(await a.ask(`tcp ${OUTSIDE} 40050`)).toBe(`${NODE} 40050`);
  expect(await b.ask(`udp ${OUTSIDE} 10 40051`)).toBe(`${NODE} 40051`);
  const file = join(world.lab.state, 'masq');
  writeFileSync(file, 'nonMasqueradeCIDRs: [192.0.2.0/24]\n');
  await world.run(file);
  expect(await a.ask(`tcp ${OUTSIDE} 40050`)).toBe(`${NODE} 40050`);
  ip('-n', world.outside, 'route', 'add', '10.88.0.0/16', 'via', NODE);
  writeFileSync(file, `nonMasqueradeCIDRs: [${OUTSIDE}/32]\n`);
  await eventually(
    () => a.ask(`brief udp ${OUTSIDE} 10 40052`),
    (text) => text === `${world.pods[0]?.address} 40052`,
  );
  writeFileSync(file, 'nonMasqueradeCIDRs: none\n');
  const { message } = await eventually(
    async () => world.masquerade?.status() ?? { ok: true, message: '' },
    ({ ok }) => !ok,
  );
  expect(message).toContain(`${file} has "none" at nonMasqueradeCIDRs: write a list of CIDRs`);
  expect(await a.ask(`udp ${OUTSIDE} 10 40052`)).toBe(`${world.pods[0]?.address} 40052`);
  writeFileSync(file, '');
  await eventually(
    () => a.ask(`brief udp ${OUTSIDE} 10 40052`),
    (text) => text === `${NODE} 40052`,
  );
});

it('a connection that somebody outside opened to a pod’s own address keeps it', async () => {
  const outside = world.talker(world.outside);
  ip('-n', world.outside, '-6', 'route', 'add', 'fd88::/64', 'via', NODE6);
  for (const [address, port] of [
    [world.pods[0]?.address, 40_060],
    [world.pods[0]?.address6, 40_061],
  ] as const) {
    expect(await outside.ask(`udp ${address} 10 ${port}`)).toBe('x'.repeat(10));
    expect(await outside.ask(`ping ${address} 80`)).toBe(`echo from ${address}`);
  }
});

it('leaves alone what iptables has masqueraded', async () => {
  ip('-n', world.outside, 'route', 'del', '10.88.0.0/16');
  iptables(world.lab.node, '-t', 'nat', '-A', 'POSTROUTING', '-o', 'up0', '-s', '10.88.0.0/16', '-j', 'MASQUERADE');
  // Of a known flow the first packet's way counts: these are new.
  expect(await a.ask(`udp ${OUTSIDE} 4000 40070`)).toBe(`${NODE} 40070 4000`);
  expect(await a.ask(`tcp ${OUTSIDE} 40071`)).toBe(`${NODE} 40071`);
  const ports = Array.from(world.map('nat_flows').keys(), (key) => ((key[32] ?? 0) << 8) | (key[33] ?? 0));
  expect(ports).not.toContain(40_070);
  expect(ports).not.toContain(40_071);
});
