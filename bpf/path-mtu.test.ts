/** Path MTU discovery through both programs, by real packets: it works for known flows, and is no way in or out for anything else. */
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';
import { ENDPOINT_FLAGS } from './constants.ts';
import { PROGRAMS } from './maps.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ethernet, icmp, icmpError, ipv4, udp } from './testing/packets.ts';
import { NODE_ADDRESS, type Peer, POD_ADDRESS, RAW_SENDER, sleep, VethPair } from './testing/veth.ts';

const FAR = '10.78.0.2';
/** Another pod, and a router outside of pods. */
const STRANGER = '10.78.0.3';
const ROUTER = '10.78.0.4';
const PATH_MTU = 1300;
const PORT = 7792;
/** Of the far host: prints how many bytes a connection brought once it ends. */
const SINK = `
import { createServer } from 'node:net';
createServer((socket) => {
  let bytes = 0;
  socket.on('data', (data) => { bytes += data.length; });
  socket.on('end', () => { console.log(bytes); socket.end(); });
}).listen(${PORT}, () => console.log('ready'));
`;
/** Of the pod: sends as many bytes as a line says over a connection of its own, and says "over". */
const SOURCE = `
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
createInterface({ input: process.stdin }).on('line', (bytes) =>
  connect(${PORT}, '${FAR}').end('x'.repeat(Number(bytes))).resume().on('close', () => console.log('over')));
`;
const FRAMES = 20;

const path = new TestDatapath();
const links: TcLink[] = [];
let pair: VethPair;
let far: string;
const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe' });

/** Index and MAC of an interface. */
function device(namespace: string, name: string): { readonly ifindex: number; readonly mac: Uint8Array } {
  const [link] = JSON.parse(ip('-n', namespace, '-j', 'link', 'show', 'dev', name)) as [
    { ifindex: number; address: string },
  ];
  return { ifindex: link.ifindex, mac: Uint8Array.from(link.address.split(':'), (byte) => Number.parseInt(byte, 16)) };
}

/** ICMP messages that the kernel of a namespace has received. */
function received(namespace: string): number {
  const snmp = ip('netns', 'exec', namespace, 'cat', '/proc/net/snmp');
  const [names = [], values = []] = snmp
    .split('\n')
    .filter((line) => line.startsWith('Icmp:'))
    .map((line) => line.split(' '));
  return Number(values[names.indexOf('InMsgs')]);
}

async function send(
  sender: Peer,
  from: { readonly ifindex: number },
  to: { readonly mac: Uint8Array },
  packet: Uint8Array,
  times = FRAMES,
): Promise<void> {
  const frame = ethernet(packet);
  frame.set(to.mac);
  for (let sent = 0; sent < times; sent++) await sender.ask(`${from.ifindex} ${Buffer.from(frame).toString('hex')}`);
}

beforeAll(() => {
  pair = new VethPair(`pmtu-${process.pid}`);
  far = `${pair.pod}-far`;
  ip('netns', 'add', far);
  ip('-n', pair.node, 'link', 'add', 'far0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', far);
  ip('-n', pair.node, 'link', 'set', 'far0', 'up');
  ip('-n', far, 'link', 'set', 'eth0', 'up');
  ip('-n', far, 'address', 'add', `${FAR}/32`, 'dev', 'eth0');
  ip('-n', far, 'route', 'add', NODE_ADDRESS, 'dev', 'eth0');
  ip('-n', far, 'route', 'add', POD_ADDRESS, 'via', NODE_ADDRESS, 'dev', 'eth0');
  // The far host takes packets of 1500 bytes and says so; the way to it does not.
  ip('-n', pair.node, 'route', 'add', FAR, 'dev', 'far0', 'mtu', 'lock', `${PATH_MTU}`);
  for (const sender of [STRANGER, ROUTER]) ip('-n', pair.node, 'route', 'add', sender, 'dev', 'far0');
  ip('-n', pair.pod, 'route', 'add', 'default', 'via', NODE_ADDRESS);
  ip('netns', 'exec', pair.node, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/ip_forward');
  // What the kernel says of itself by IPv6 is no packet of the test.
  for (const namespace of [pair.node, pair.pod])
    ip('netns', 'exec', namespace, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6');
  path.identity(FAR, 2000);
  path.identity(STRANGER, 2001);
  path.identity(ROUTER, 2);
  path.slot(
    0,
    [{ identity: 2000, direction: 'egress', class: 16 }],
    (['tcp', 'udp'] as const).map((protocol) => ({
      class: 16,
      direction: 'egress',
      protocol,
      port: PORT,
      verdict: 'allow',
    })),
  );
  const flags = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
  path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, flags });
  inNetns(pair.nodePath, () => {
    const { ifindex } = pair;
    links.push(attachTc(path.object.program(PROGRAMS.fromPod), { ifindex, direction: 'ingress' }));
    links.push(attachTc(path.object.program(PROGRAMS.toPod), { ifindex, direction: 'egress' }));
  });
});
afterAll(async () => {
  for (const link of links) link.close();
  await pair?.stop();
  if (far !== undefined) ip('netns', 'delete', far);
  path.close();
});

it('works for a connection that a policy allows, though nothing may open one to the pod', async () => {
  const sink = pair.start(far, SINK);
  expect(await sink.line()).toBe('ready');
  const source = pair.start(pair.pod, SOURCE);
  expect(await Promise.all([sink.line(), source.ask('300000')])).toEqual(['300000', 'over']);
  expect(ip('-n', pair.pod, 'route', 'get', FAR)).toContain(`mtu ${PATH_MTU}`);
  expect(path.count('unknown-identity', 'ingress')).toBe(0n);
});

it('carries nothing in or out without a connection, and nothing in about one that the sender does not know', async () => {
  const [ours, theirs] = [device(pair.pod, 'eth0'), device(pair.node, 'host0')];
  const inPod = pair.start(pair.pod, RAW_SENDER);
  const inNode = pair.start(pair.node, RAW_SENDER);
  const secret = new Uint8Array(600).fill(0x42);
  const before = [received(pair.pod), received(pair.node)];
  const guess = ipv4({ src: POD_ADDRESS, dst: FAR, protocol: 17, payload: udp({ sport: 1, dport: PORT }) });
  for (const payload of [icmp({ type: 3, code: 4, payload: secret }), icmpError(3, 4, guess)]) {
    await send(inNode, theirs, ours, ipv4({ src: FAR, dst: POD_ADDRESS, protocol: 1, payload }));
    await send(inPod, ours, theirs, ipv4({ src: POD_ADDRESS, dst: NODE_ADDRESS, protocol: 1, payload }));
  }
  while (path.count('unknown-identity', 'egress') + path.count('forwarded', 'egress') < 2n * BigInt(FRAMES))
    await sleep(5);
  expect([received(pair.pod), received(pair.node)]).toEqual(before);
  expect(path.count('unknown-identity', 'egress')).toBe(2n * BigInt(FRAMES));
  expect(path.count('policy', 'ingress')).toBe(2n * BigInt(FRAMES));
});

it('is told by the other end and by routers, in 576 bytes, and by no other pod', async () => {
  const inPod = pair.start(pair.pod, RAW_SENDER);
  const inFar = pair.start(far, RAW_SENDER);
  const ports = { sport: 1, dport: PORT };
  const asked = ipv4({
    src: POD_ADDRESS,
    dst: FAR,
    protocol: 17,
    payload: udp({ ...ports, payload: new Uint8Array(1200) }),
  });
  const error = (src: string, bytes: number) =>
    ipv4({
      src,
      dst: POD_ADDRESS,
      protocol: 1,
      payload: icmp({ type: 3, code: 4, payload: asked.slice(0, bytes - 8) }),
    });
  const tell = (src: string, bytes: number) =>
    send(inFar, device(far, 'eth0'), device(pair.node, 'far0'), error(src, bytes));
  const before = received(pair.pod);
  const dropped = path.count('policy', 'ingress');
  const judged = () => path.count('policy', 'ingress') + path.count('forwarded', 'ingress');
  await send(inPod, device(pair.pod, 'eth0'), device(pair.node, 'host0'), asked, 1);
  // Nobody listens there, and Linux quotes as much as it may.
  while (received(pair.pod) === before) await sleep(5);
  const from = judged();
  for (const [src, bytes] of [
    [STRANGER, 36],
    [STRANGER, 1200],
    [FAR, 577],
    [ROUTER, 577],
  ] as const)
    await tell(src, bytes);
  while (judged() < from + 4n * BigInt(FRAMES)) await sleep(5);
  expect(received(pair.pod)).toBe(before + 1);
  await tell(FAR, 576);
  await tell(ROUTER, 576);
  while (received(pair.pod) < before + 1 + 2 * FRAMES) await sleep(5);
  expect(path.count('policy', 'ingress')).toBe(dropped + 4n * BigInt(FRAMES));
});
