/** IPv6 neighbour discovery between a pod and its node, by their kernels, through both programs; and what a pod makes of it. */
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';
import { ENDPOINT_FLAGS } from './constants.ts';
import { PROGRAMS } from './maps.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ETHERTYPE, ethernet, neighbour } from './testing/packets.ts';
import { type Peer, POD_ADDRESS, RAW_SENDER, sleep, VethPair } from './testing/veth.ts';

const NODE = 'fe80::1';
const POD = 'fe80::2';
const NODE_GLOBAL = 'fd00:1::1';
const POD_GLOBAL = 'fd00:2::2';
const ENFORCED = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
const PORT = 7793;
/** Sends a datagram to an address for each line. */
const SENDER = `
import { createSocket } from 'node:dgram';
import { createInterface } from 'node:readline';
const udp = createSocket('udp6');
createInterface({ input: process.stdin }).on('line', (to) => udp.send('x', ${PORT}, to, () => console.log('sent')));
`;
/** Answers any line with the number of datagrams that came. */
const RECEIVER = `
import { createSocket } from 'node:dgram';
import { createInterface } from 'node:readline';
let heard = 0;
const udp = createSocket('udp6');
udp.on('message', () => { heard += 1; });
udp.bind(${PORT}, () => console.log('ready'));
createInterface({ input: process.stdin }).on('line', () => console.log(heard));
`;

const path = new TestDatapath();
const links: TcLink[] = [];
let pair: VethPair;
let pod: Peer;
let node: Peer;
const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe' });
const enforce = (flags: number): void =>
  path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, ipv6: POD_GLOBAL, flags });

async function until(what: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await what())) await sleep(10);
}

/** What a namespace knows of a neighbour, such as REACHABLE. */
function state(namespace: string, device: string, address: string): string {
  return ip('-n', namespace, '-6', 'neighbour', 'show', address, 'dev', device).trim().split(' ').at(-1) ?? '';
}

/** IPv6 packets that the node's kernel has received from the pod. */
function received(): number {
  const text = ip('netns', 'exec', pair.node, 'cat', '/proc/net/dev_snmp6/host0');
  return Number(/^Ip6InReceives\s+(\d+)$/m.exec(text)?.[1]);
}

beforeAll(() => {
  pair = new VethPair(`nd-${process.pid}`);
  enforce(ENFORCED);
  for (const [namespace, device, address, global] of [
    [pair.node, 'host0', NODE, NODE_GLOBAL],
    [pair.pod, 'eth0', POD, POD_GLOBAL],
  ] as const) {
    ip('-n', namespace, 'link', 'set', device, 'addrgenmode', 'none');
    ip('-n', namespace, '-6', 'address', 'flush', 'dev', device);
    // Else it asks for routers, too.
    ip('netns', 'exec', namespace, 'sh', '-c', `echo 0 > /proc/sys/net/ipv6/conf/${device}/router_solicitations`);
    ip('-n', namespace, '-6', 'address', 'add', `${global}/128`, 'dev', device, 'nodad');
    if (namespace === pair.node) ip('-n', namespace, '-6', 'address', 'add', `${address}/64`, 'dev', device, 'nodad');
  }
  ip('-n', pair.node, '-6', 'route', 'add', POD_GLOBAL, 'dev', 'host0');
  inNetns(pair.nodePath, () => {
    const { ifindex } = pair;
    links.push(attachTc(path.object.program(PROGRAMS.fromPod), { ifindex, direction: 'ingress' }));
    links.push(attachTc(path.object.program(PROGRAMS.toPod), { ifindex, direction: 'egress' }));
  });
  pod = pair.start(pair.pod, SENDER);
  node = pair.start(pair.node, SENDER);
});
afterAll(async () => {
  for (const link of links) link.close();
  await pair?.stop();
  path.close();
});
beforeEach(() => enforce(ENFORCED));

describe('where everything is enforced', () => {
  it('a pod gets a link-local address, and not one that its node has', async () => {
    const addresses = () => ip('-n', pair.pod, '-6', 'address', 'show', 'dev', 'eth0');
    ip('-n', pair.pod, '-6', 'address', 'add', `${NODE}/64`, 'dev', 'eth0');
    await until(() => addresses().includes('dadfailed'));
    ip('-n', pair.pod, '-6', 'address', 'delete', `${NODE}/64`, 'dev', 'eth0');
    ip('-n', pair.pod, '-6', 'address', 'add', `${POD}/64`, 'dev', 'eth0');
    await until(() => !addresses().includes('tentative'));
    expect(addresses()).not.toContain('dadfailed');
  });

  it('pod and node find each other, and find out that they still are there', async () => {
    for (const [sender, namespace, device, address] of [
      [pod, pair.pod, 'eth0', NODE],
      [node, pair.node, 'host0', POD],
    ] as const) {
      ip('-n', namespace, '-6', 'neighbour', 'flush', 'dev', device);
      await sender.ask(`${address}%${device}`);
      await until(() => state(namespace, device, address) === 'REACHABLE');
      ip('-n', namespace, '-6', 'neighbour', 'change', address, 'dev', device, 'nud', 'probe');
      await until(() => state(namespace, device, address) === 'REACHABLE');
    }
    expect(path.count('neighbour-discovery', 'egress')).toBe(0n);
    // The datagrams themselves.
    expect(path.count('invalid-source', 'egress')).toBeGreaterThan(0n);
  });

  it('a pod sends its node nothing by it, and nobody beyond', async () => {
    const raw = pair.start(pair.pod, RAW_SENDER);
    const [link] = JSON.parse(ip('-n', pair.pod, '-j', 'link', 'show', 'dev', 'eth0')) as [{ ifindex: number }];
    const [other] = JSON.parse(ip('-n', pair.node, '-j', 'link', 'show', 'dev', 'host0')) as [{ address: string }];
    const secret = new Uint8Array(1000).fill(0x42);
    const before = [received(), path.count('neighbour-discovery', 'egress')] as const;
    const packets = [135, 136].flatMap((type) =>
      ['2001:db8::1', NODE_GLOBAL, NODE].map((dst) => neighbour({ type, src: POD, dst, target: NODE, extra: secret })),
    );
    for (const packet of packets) {
      const frame = ethernet(packet, ETHERTYPE.ipv6);
      frame.set(other.address.split(':').map((byte) => Number.parseInt(byte, 16)));
      expect(await raw.ask(`${link.ifindex} ${Buffer.from(frame).toString('hex')}`)).toBe('sent');
    }
    await until(
      () => path.count('neighbour-discovery', 'egress') + path.count('forwarded', 'egress') >= before[1] + 6n,
    );
    expect(path.count('neighbour-discovery', 'egress')).toBe(before[1] + 6n);
    expect(received()).toBe(before[0]);
  });
});

it('where nothing is enforced, a pod reaches others over IPv6 from its own address', async () => {
  enforce(0);
  const refused = path.count('neighbour-discovery', 'egress');
  const receiver = pair.start(pair.node, RECEIVER);
  expect(await receiver.line()).toBe('ready');
  ip('-n', pair.pod, '-6', 'neighbour', 'flush', 'dev', 'eth0');
  ip('-n', pair.pod, '-6', 'route', 'add', 'default', 'via', NODE, 'dev', 'eth0');
  await pod.ask(NODE_GLOBAL);
  await until(async () => (await receiver.ask('heard?')) === '1');
  expect(path.count('neighbour-discovery', 'egress')).toBe(refused);
});
