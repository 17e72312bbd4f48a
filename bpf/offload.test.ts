/** Checksum offload by real packets: what pods' kernels leave to others passes, and nothing is rewritten behind the judging. */
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';
import { buildDatapath, SKB_ACCESS } from './build.ts';
import { type Direction, ENDPOINT_FLAGS } from './constants.ts';
import { PROGRAMS } from './maps.ts';
import { TestDatapath } from './testing/datapath.ts';
import { arp, checksum, ETHERTYPE, ethernet, icmp, ip6, ipv4, ipv6, sctp, tcp, udp } from './testing/packets.ts';
import { NODE_ADDRESS, type Peer, POD_ADDRESS, RAW_SENDER, sleep, VethPair } from './testing/veth.ts';

const FAR = '10.78.0.2';
const ALLOWED = 53;
const DENIED = 9999;
/** What the pod sends to the far host is longer than a packet there, so that the node fragments it, which completes its checksum. */
const FAR_MTU = 1300;
const LONG = 1400;
/** Addresses inside of a VXLAN tunnel between pod and node. */
const TUNNEL = { node: '172.31.0.1', pod: '172.31.0.2' } as const;
/** Of the far host: answers any line with the ports at which datagrams came. */
const RECEIVER = `
import { createSocket } from 'node:dgram';
import { createInterface } from 'node:readline';
const heard = [];
for (const port of [${ALLOWED}, ${DENIED}]) {
  const udp = createSocket('udp4');
  udp.on('message', () => heard.push(port));
  await new Promise((bound) => udp.bind(port, bound));
}
console.log('ready');
createInterface({ input: process.stdin }).on('line', () => console.log('heard ' + heard.splice(0).join(' ')));
`;
/** Of the node: sends datagrams back, and answers a connection with how many bytes it brought. */
const SERVER = `
import { createSocket } from 'node:dgram';
import { createServer } from 'node:net';
const udp = createSocket('udp4');
udp.on('message', (text, from) => udp.send(text, from.port, from.address));
udp.bind(7777, () => createServer({ allowHalfOpen: true }, (socket) => {
  let bytes = 0;
  socket.on('data', (data) => { bytes += data.length; });
  socket.on('end', () => socket.end(String(bytes)));
}).listen(7778, () => console.log('ready')));
`;
/** Of the pod: for "udp ADDRESS" and "tcp ADDRESS" answers how many bytes came there: of a datagram of 1000, of a connection with 400,000. */
const CLIENT = `
import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
createInterface({ input: process.stdin }).on('line', (line) => {
  const [protocol, address] = line.split(' ');
  if (protocol === 'tcp') {
    connect(7778, address).on('data', (bytes) => console.log(String(bytes))).end('x'.repeat(400_000));
    return;
  }
  const udp = createSocket('udp4');
  udp.on('message', (text) => { console.log(text.length); udp.close(); });
  udp.send('x'.repeat(1000), 7777, address);
});
`;

const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe' });
const bytes = (count: number): Uint8Array => new Uint8Array(count);

interface Device {
  readonly ifindex: number;
  readonly mac: Uint8Array;
}

function device(namespace: string, name: string): Device {
  const [link] = JSON.parse(ip('-n', namespace, '-j', 'link', 'show', 'dev', name)) as [
    { ifindex: number; address: string },
  ];
  return { ifindex: link.ifindex, mac: Uint8Array.from(link.address.split(':'), (byte) => Number.parseInt(byte, 16)) };
}

/** A datagram to the allowed port whose sum, written over that port, is the denied one. */
function disguised(): Uint8Array {
  const datagram = udp({ sport: 40_000, dport: ALLOWED, payload: bytes(LONG) });
  const word = ((~DENIED & 0xffff) - (~checksum(datagram) & 0xffff) + 2 * 0xffff) % 0xffff;
  new DataView(datagram.buffer).setUint16(8, word);
  return datagram;
}

/** Without IPv6, which sends on its own; a far host behind the node; a tunnel to the node. */
function network(pair: VethPair, far: string): void {
  for (const namespace of [pair.node, pair.pod])
    ip('netns', 'exec', namespace, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6');
  ip('netns', 'add', far);
  ip('-n', pair.node, 'link', 'add', 'far0', 'mtu', `${FAR_MTU}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', far);
  ip('-n', pair.node, 'link', 'set', 'far0', 'up');
  ip('-n', far, 'link', 'set', 'eth0', 'up');
  ip('-n', far, 'address', 'add', `${FAR}/32`, 'dev', 'eth0');
  ip('-n', far, 'route', 'add', NODE_ADDRESS, 'dev', 'eth0');
  ip('-n', far, 'route', 'add', POD_ADDRESS, 'via', NODE_ADDRESS, 'dev', 'eth0');
  ip('-n', pair.node, 'route', 'add', FAR, 'dev', 'far0');
  ip('netns', 'exec', pair.node, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward');
  for (const [side, local, remote] of [
    ['node', NODE_ADDRESS, POD_ADDRESS],
    ['pod', POD_ADDRESS, NODE_ADDRESS],
  ] as const) {
    const namespace = pair[side];
    const vxlan = ['type', 'vxlan', 'id', '7', 'local', local, 'remote', remote, 'dstport', '4789'];
    ip('-n', namespace, 'link', 'add', 'tunnel', ...vxlan);
    ip('-n', namespace, 'address', 'add', `${TUNNEL[side]}/24`, 'dev', 'tunnel');
    ip('-n', namespace, 'link', 'set', 'tunnel', 'up');
  }
}

describe.each(SKB_ACCESS)('reading the kernel’s packet: %s', (access) => {
  const path = new TestDatapath({ objectPath: buildDatapath({ access }).objectPath });
  const links: TcLink[] = [];
  let pair: VethPair;
  let far: string;
  let ours: Device;
  let theirs: Device;
  let inPod: Peer;
  let inNode: Peer;
  let receiver: Peer;
  let client: Peer;

  beforeAll(async () => {
    pair = new VethPair(`off-${access}`);
    far = `${pair.pod}-far`;
    network(pair, far);
    path.identity(FAR, 2000);
    path.slot(
      0,
      [{ identity: 2000, direction: 'egress', class: 16 }],
      [{ class: 16, direction: 'egress', protocol: 'udp', port: ALLOWED, verdict: 'allow' }],
    );
    inNetns(pair.nodePath, () => {
      const { ifindex } = pair;
      links.push(attachTc(path.object.program(PROGRAMS.fromPod), { ifindex, direction: 'ingress' }));
      links.push(attachTc(path.object.program(PROGRAMS.toPod), { ifindex, direction: 'egress' }));
    });
    [ours, theirs] = [device(pair.pod, 'eth0'), device(pair.node, 'host0')];
    [inPod, inNode] = [pair.start(pair.pod, RAW_SENDER), pair.start(pair.node, RAW_SENDER)];
    [receiver, client] = [pair.start(far, RECEIVER), pair.start(pair.pod, CLIENT)];
    expect(await Promise.all([receiver.line(), pair.start(pair.node, SERVER).line()])).toEqual(['ready', 'ready']);
  });
  afterAll(async () => {
    for (const link of links) link.close();
    await pair?.stop();
    if (far !== undefined) ip('netns', 'delete', far);
    path.close();
  });
  beforeEach(() => path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, ipv6: 'fd00::2', flags: 0 }));

  const misplaced = (direction: Direction): bigint => path.count('misplaced-checksum', direction);
  const seen = (): bigint => path.count('forwarded', 'egress') + misplaced('egress');

  /** Sends a frame of the pod whose checksum is left: made from `start` on, written `offset` behind that. Whether it passed. */
  async function passes(frame: Uint8Array, start: number, offset: number): Promise<boolean> {
    const before = [seen(), misplaced('egress')] as const;
    frame.set(theirs.mac);
    const hex = Buffer.from(frame).toString('hex');
    expect(await inPod.ask(`${ours.ifindex} ${hex} ${start} ${offset}`)).toBe('sent');
    while (seen() === before[0]) await sleep(1);
    return misplaced('egress') === before[1];
  }

  /** @param turns after which nothing has come */
  async function heardFar(turns: number): Promise<string> {
    for (let turn = 0; turn < turns; turn++) {
      const heard = await receiver.ask('heard?');
      if (heard !== 'heard ') return heard;
      await sleep(2);
    }
    return 'heard ';
  }

  it('a datagram to an allowed port is delivered to no other', async () => {
    path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, ipv6: 'fd00::2', flags: ENDPOINT_FLAGS.egressEnforced });
    const frame = (payload: Uint8Array) => ethernet(ipv4({ src: POD_ADDRESS, dst: FAR, protocol: 17, payload }));
    const honest = frame(udp({ sport: 40_000, dport: ALLOWED, payload: bytes(LONG) }));
    expect([await passes(frame(disguised()), 34, 2), await heardFar(50)]).toEqual([false, 'heard ']);
    // Of a checksum that is in its place only the far host can say that it is right.
    new DataView(honest.buffer).setUint16(34 + 6, pseudo(17, FAR, 8 + LONG));
    expect([await passes(honest, 34, 6), await heardFar(Number.POSITIVE_INFINITY)]).toEqual([true, `heard ${ALLOWED}`]);
  });

  it.each(['udp', 'tcp'])(
    '%s of pods’ kernels passes, also in super-packets and through a tunnel',
    async (protocol) => {
      const before = path.metric('forwarded', 'egress');
      for (const address of [NODE_ADDRESS, TUNNEL.node])
        expect(await client.ask(`${protocol} ${address}`)).toBe(protocol === 'udp' ? '1000' : '400000');
      const after = path.metric('forwarded', 'egress');
      expect(misplaced('ingress')).toBe(0n);
      if (protocol === 'udp') return;
      expect(Number(after.bytes - before.bytes) / Number(after.packets - before.packets)).toBeGreaterThan(1514);
    },
  );

  const to = (protocol: number, payload: Uint8Array, options = {}) =>
    ethernet(ipv4({ src: POD_ADDRESS, dst: NODE_ADDRESS, protocol, payload, ...options }));
  const datagram = udp({ sport: 1, dport: 9, payload: bytes(64) });
  const segment = tcp({ sport: 1, dport: 9, payload: bytes(64) });
  const chunk = sctp({ sport: 1, dport: 9, payload: bytes(64) });
  const v6 = (nextHeader: number, payload: Uint8Array) =>
    ethernet(ipv6({ src: ip6('fd00::2'), dst: ip6('fd00::1'), nextHeader, payload, hopLimit: 64 }), ETHERTYPE.ipv6);
  /** Frame, start, offset, whether it passes. */
  const cases: Readonly<Record<string, readonly [Uint8Array, number, number, boolean]>> = {
    'UDP, its own': [to(17, datagram), 34, 6, true],
    'UDP, over the source port': [to(17, datagram), 34, 0, false],
    'UDP, over the length': [to(17, datagram), 34, 4, false],
    'UDP, in its place, of bytes before the header': [to(17, datagram), 32, 8, false],
    'UDP, behind the header': [to(17, datagram), 42, 0, true],
    'UDP, from the last byte of the header on': [to(17, datagram), 41, 8, false],
    'TCP, its own': [to(6, segment), 34, 16, true],
    'TCP, over the flags': [to(6, segment), 34, 12, false],
    'TCP, where UDP has it': [to(6, segment), 34, 6, false],
    'TCP, behind the header': [to(6, segment), 54, 16, true],
    'TCP, from the last byte of the header on': [to(6, segment), 53, 8, false],
    'SCTP, its own': [to(132, chunk), 34, 8, true],
    'SCTP, over the port': [to(132, chunk), 34, 2, false],
    'SCTP, behind the header': [to(132, chunk), 46, 8, true],
    'SCTP, from the last byte of the header on': [to(132, chunk), 45, 8, false],
    'over the destination address': [to(17, datagram), 30, 2, false],
    'over the protocol': [to(17, datagram), 23, 0, false],
    'UDP behind IPv4 options': [to(17, datagram, { options: bytes(4) }), 38, 6, true],
    'over IPv4 options': [to(17, datagram, { options: bytes(4) }), 34, 6, false],
    'a first fragment, its own': [to(17, datagram, { moreFragments: true, id: 7 }), 34, 6, true],
    'a first fragment, over the port': [to(17, datagram, { moreFragments: true, id: 7 }), 34, 2, false],
    'a later fragment': [to(17, bytes(64), { offset: 72, id: 7 }), 34, 6, false],
    'a later fragment, behind where a header were': [to(17, bytes(64), { offset: 72, id: 7 }), 60, 6, false],
    'ICMP, its own': [to(1, icmp({ type: 8, payload: bytes(64) })), 34, 2, false],
    'ICMP, in what it quotes': [to(1, icmp({ type: 3, payload: bytes(64) })), 62, 2, false],
    'another protocol, behind the IP header': [to(47, bytes(64)), 34, 4, true],
    'another protocol, from the last byte of the IP header on': [to(47, bytes(64)), 33, 8, false],
    'ARP, over the sender’s address': [
      ethernet(arp({ sender: POD_ADDRESS, target: NODE_ADDRESS }), ETHERTYPE.arp),
      20,
      8,
      false,
    ],
    'IPv6 UDP, its own': [v6(17, datagram), 54, 6, true],
    'IPv6 UDP, over the port': [v6(17, datagram), 54, 2, false],
    'IPv6, over the next header': [v6(17, datagram), 20, 0, false],
    'IPv6, over the type of ICMPv6': [v6(58, icmp({ type: 128, payload: bytes(64) })), 54, 0, false],
    'IPv6 TCP behind an extension header': [v6(60, Uint8Array.of(6, 0, 1, 4, 0, 0, 0, 0, ...segment)), 62, 16, true],
  };

  it.each(Object.entries(cases))('%s', async (_, [frame, start, offset, expected]) => {
    expect(await passes(frame, start, offset)).toBe(expected);
  });

  it('nothing is rewritten on its way to a pod, either', async () => {
    const frame = ethernet(ipv4({ src: NODE_ADDRESS, dst: POD_ADDRESS, protocol: 17, payload: datagram }));
    frame.set(ours.mac);
    const hex = Buffer.from(frame).toString('hex');
    expect(await inNode.ask(`${theirs.ifindex} ${hex} 34 6`)).toBe('sent');
    expect([await inNode.ask(`${theirs.ifindex} ${hex} 34 2`), misplaced('ingress')]).toEqual(['refused', 1n]);
  });
});

/** The sum of a pseudo header, with which the sender of a packet fills the field of the checksum that it leaves. */
function pseudo(protocol: number, dst: string, length: number): number {
  const header = ipv4({ src: POD_ADDRESS, dst, protocol, payload: bytes(0) }).slice(12, 20);
  return ~checksum(Uint8Array.of(...header, 0, protocol, length >> 8, length & 0xff)) & 0xffff;
}
