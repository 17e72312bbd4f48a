/** What the node itself sends to a pod, and what it forwards with an address of its own, by real packets. */
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';
import { ENDPOINT_FLAGS } from './constants.ts';
import { PROGRAMS } from './maps.ts';
import { TestDatapath } from './testing/datapath.ts';
import { ethernet, ipv4, udp } from './testing/packets.ts';
import { NODE_ADDRESS, type Peer, POD_ADDRESS, RAW_SENDER, sleep, VethPair } from './testing/veth.ts';

const PORT = 7790;
const [HOST, WORLD] = [1, 2];
const OTHER_NODE_ADDRESS = '10.79.0.1';
/** Of the node: a line "ADDRESS" has it send a datagram from there to the pod. */
const SENDER = `
import { createSocket } from 'node:dgram';
import { createInterface } from 'node:readline';
createInterface({ input: process.stdin }).on('line', (address) => {
  const socket = createSocket('udp4');
  socket.bind(0, address, () => socket.send('x', ${PORT}, '${POD_ADDRESS}', () => { socket.close(); console.log('sent'); }));
});
`;

const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8', stdio: 'pipe' });

const path = new TestDatapath();
const links: TcLink[] = [];
let pair: VethPair;
let far: string;
let node: Peer;
let outside: Peer;

beforeAll(() => {
  pair = new VethPair('masq');
  far = `${pair.pod}-far`;
  ip('netns', 'add', far);
  ip('-n', pair.node, 'link', 'add', 'far0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', far);
  ip('-n', pair.node, 'address', 'add', `${OTHER_NODE_ADDRESS}/24`, 'dev', 'far0');
  ip('-n', pair.node, 'link', 'set', 'far0', 'up');
  ip('-n', far, 'link', 'set', 'eth0', 'up');
  // As after masquerading, which comes behind these checks: the node takes packets of others with an address of its own.
  for (const setting of ['ip_forward=1', 'conf/far0/accept_local=1', 'conf/far0/rp_filter=0', 'conf/all/rp_filter=0']) {
    const [name, value] = setting.split('=');
    ip('netns', 'exec', pair.node, 'sh', '-c', `echo ${value} > /proc/sys/net/ipv4/${name}`);
  }
  // Nothing but the datagrams is counted: the node asks for no neighbour.
  ip('netns', 'exec', pair.node, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6');
  const [{ address }] = JSON.parse(ip('-n', pair.pod, '-j', 'link', 'show', 'dev', 'eth0')) as [{ address: string }];
  ip('-n', pair.node, 'neighbour', 'replace', POD_ADDRESS, 'lladdr', address, 'dev', 'host0', 'nud', 'permanent');
  path.identity(NODE_ADDRESS, HOST);
  inNetns(pair.nodePath, () => {
    const { ifindex } = pair;
    links.push(attachTc(path.object.program(PROGRAMS.fromPod), { ifindex, direction: 'ingress' }));
    links.push(attachTc(path.object.program(PROGRAMS.toPod), { ifindex, direction: 'egress' }));
  });
  [node, outside] = [pair.start(pair.node, SENDER), pair.start(far, RAW_SENDER)];
});
afterAll(async () => {
  for (const link of links) link.close();
  await pair?.stop();
  if (far !== undefined) ip('netns', 'delete', far);
  path.close();
});

/** The pod takes what comes from one identity, to one port. */
function takesFrom(identity: number, revision: number): void {
  path.slot(
    revision,
    [{ identity, direction: 'ingress', class: 16 }],
    [{ class: 16, direction: 'ingress', protocol: 'udp', port: PORT, verdict: 'allow' }],
  );
  const flags = ENDPOINT_FLAGS.ingressEnforced;
  path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, flags, revision, slot: revision });
}

/** What became of the datagram that `send` sends to the pod. */
async function judged(send: () => Promise<string>): Promise<string> {
  const outcomes = ['forwarded', 'policy', 'unknown-identity'];
  const before = outcomes.map((outcome) => path.count(outcome, 'ingress'));
  expect(await send()).toBe('sent');
  for (;;) {
    const found = outcomes.find((outcome, at) => path.count(outcome, 'ingress') !== before[at]);
    if (found !== undefined) return found;
    await sleep(1);
  }
}

/** From outside, with an address of the node; each time another port, as of another client. */
function forwarded(sport: number): Promise<string> {
  const [sender] = JSON.parse(ip('-n', far, '-j', 'link', 'show', 'dev', 'eth0')) as [{ ifindex: number }];
  const [taker] = JSON.parse(ip('-n', pair.node, '-j', 'link', 'show', 'dev', 'far0')) as [{ address: string }];
  const payload = udp({ sport, dport: PORT, payload: new Uint8Array(1) });
  const frame = ethernet(ipv4({ src: NODE_ADDRESS, dst: POD_ADDRESS, protocol: 17, payload }));
  frame.set(taker.address.split(':').map((byte) => Number.parseInt(byte, 16)));
  return outside.ask(`${sender.ifindex} ${Buffer.from(frame).toString('hex')}`);
}

it('what is forwarded with the node’s address is world, and what the node sends the host’s, from any of its addresses', async () => {
  takesFrom(HOST, 1);
  for (const address of [NODE_ADDRESS, OTHER_NODE_ADDRESS])
    expect(await judged(() => node.ask(address))).toBe('forwarded');
  expect(await judged(() => forwarded(40_001))).toBe('policy');
  takesFrom(WORLD, 2);
  expect(await judged(() => forwarded(40_002))).toBe('forwarded');
  for (const address of [NODE_ADDRESS, OTHER_NODE_ADDRESS])
    expect(await judged(() => node.ask(address))).toBe('policy');
});
