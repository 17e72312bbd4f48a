/** What listens on a node's loopback alone is not for pods, though the node route such addresses, as kube-proxy has it do (CVE-2020-8558). */
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { attachTc, inNetns } from 'libbpf-ts';
import { PROGRAMS } from './maps.ts';
import { TestDatapath } from './testing/datapath.ts';
import { NODE_ADDRESS, type Peer, POD_ADDRESS, sleep, VethPair } from './testing/veth.ts';

/** Of the node, on its loopback. Answers any line with the number of datagrams that came. */
const SERVER = `
import { createSocket } from 'node:dgram';
import { createInterface } from 'node:readline';
let heard = 0;
const udp = createSocket('udp4');
udp.on('message', () => { heard += 1; });
udp.bind(7791, '127.0.0.1', () => console.log('ready'));
createInterface({ input: process.stdin }).on('line', () => console.log(heard));
`;
/** Of the pod. Sends a datagram for each line. */
const CLIENT = `
import { createSocket } from 'node:dgram';
import { createInterface } from 'node:readline';
const udp = createSocket('udp4');
createInterface({ input: process.stdin }).on('line', () => udp.send('x', 7791, '127.0.0.1', (error) => console.log(error ?? 'sent')));
`;

const path = new TestDatapath();
let pair: VethPair;
let server: Peer;
let client: Peer;
const inside = (namespace: string, ...command: readonly string[]): string =>
  execFileSync('ip', ['netns', 'exec', namespace, ...command], { encoding: 'utf8', stdio: 'pipe' });

beforeAll(async () => {
  pair = new VethPair(`weir-lo-${process.pid}`);
  inside(pair.node, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/conf/host0/route_localnet');
  // The pod gives its own loopback up, and takes its node for the way there.
  inside(pair.pod, 'ip', 'address', 'delete', '127.0.0.1/8', 'dev', 'lo');
  inside(pair.pod, 'ip', 'route', 'add', '127.0.0.1/32', 'via', NODE_ADDRESS, 'dev', 'eth0');
  server = pair.start(pair.node, SERVER);
  client = pair.start(pair.pod, CLIENT);
  expect(await server.line()).toBe('ready');
});
afterAll(async () => {
  await pair?.stop();
  path.close();
});

const heard = async (): Promise<number> => Number(await server.ask('heard?'));

it('a pod reaches the loopback of its node without the programs, and not with them, though no policy is in force', async () => {
  expect(await client.ask('send')).toBe('sent');
  while ((await heard()) < 1) await sleep(10);
  path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, flags: 0 });
  const links = inNetns(pair.nodePath, () => {
    const { ifindex } = pair;
    return [
      attachTc(path.object.program(PROGRAMS.fromPod), { ifindex, direction: 'ingress' }),
      attachTc(path.object.program(PROGRAMS.toPod), { ifindex, direction: 'egress' }),
    ];
  });
  try {
    for (let sent = 1; sent <= 20; sent += 1) expect(await client.ask('send')).toBe('sent');
    while (path.count('invalid-packet', 'egress') + path.count('forwarded', 'egress') < 20n) await sleep(5);
    expect(path.count('invalid-packet', 'egress')).toBe(20n);
    expect(await heard()).toBe(1);
  } finally {
    for (const link of links) link.close();
  }
});
