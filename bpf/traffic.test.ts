/** Real packets through both programs on a veth pair, while policies change under them. */
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';

import { CT_FLAGS, ENDPOINT_FLAGS } from './constants.ts';
import { CT_KEYS, ctValue } from './flows.ts';
import { PROGRAMS } from './maps.ts';
import { TestDatapath, type VerdictRow } from './testing/datapath.ts';
import { checksum, concat, ethernet, ip4, ipv4, TCP_FLAGS, tcp } from './testing/packets.ts';
import {
  CHATTER_IN_NODE,
  CHATTER_IN_POD,
  ECHO_CLIENT,
  ECHO_SERVER,
  NODE_ADDRESS,
  type Peer,
  POD_ADDRESS,
  RAW_SENDER,
  sleep,
  VethPair,
} from './testing/veth.ts';

/** Of the other side, which is the node. */
const HOST = 1;
const ENFORCED = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;
const NARROW = 0;
const WIDE = 1;
const NOTHING = 2;
const ports: readonly VerdictRow[] = [
  { class: 16, direction: 'egress', protocol: 'udp', port: 7777, verdict: 'allow' },
  { class: 16, direction: 'egress', protocol: 'tcp', port: 7778, verdict: 'allow' },
];

let pair: VethPair;
let client: Peer;
const path = new TestDatapath();
const links: TcLink[] = [];
let revision = 0;

function flip(slot: number, flags: number = ENFORCED): void {
  revision += 1;
  path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, flags, slot, revision });
}

/** What a namespace's kernel counts of TCP, of all its sockets. */
function tcpCount(namespace: string, name: 'OutSegs' | 'RetransSegs'): number {
  const snmp = execFileSync('ip', ['netns', 'exec', namespace, 'cat', '/proc/net/snmp'], { encoding: 'utf8' });
  const [names = [], values = []] = snmp
    .split('\n')
    .filter((line) => line.startsWith('Tcp:'))
    .map((line) => line.split(' '));
  return Number(values[names.indexOf(name)]);
}

async function until(what: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await what())) await sleep(10);
}

/** Sends datagrams (`stream` or `big`) and returns once all of them have come back. */
async function comesBack(verb: 'stream' | 'big', count: number): Promise<void> {
  expect(await client.ask(`${verb} ${count}`)).toBe('sent');
  await until(async () => (await client.ask('back?')) === String(count));
}

/** Packets of the pod that no rule allowed. */
const dropped = (): bigint => path.count('policy', 'egress');

/** Sends text over the connection and returns once it has come back. */
async function heardBack(text: string): Promise<void> {
  await client.ask(`say ${text}`);
  await until(async () => (await client.ask(`heard? ${text}`)) === 'heard');
}

/** TCP bytes and datagrams that a chatter has received. */
async function heard(peer: Peer): Promise<readonly [number, number]> {
  const [bytes, datagrams] = (await peer.ask('heard?')).split(' ').map(Number);
  return [bytes ?? 0, datagrams ?? 0];
}

beforeAll(async () => {
  pair = new VethPair(`weir-bpf-${process.pid}`);
  path.identity(NODE_ADDRESS, HOST);
  const classes = [{ identity: HOST, direction: 'egress' as const, class: 16 }];
  path.slot(NARROW, classes, ports);
  path.slot(WIDE, classes, [
    { class: 16, direction: 'egress', protocol: 'udp', verdict: 'allow' },
    { class: 16, direction: 'egress', protocol: 'tcp', verdict: 'allow' },
  ]);
  path.slot(NOTHING, classes, []);
  flip(NARROW);
  inNetns(pair.nodePath, () => {
    const { ifindex } = pair;
    links.push(attachTc(path.object.program(PROGRAMS.fromPod), { ifindex, direction: 'ingress' }));
    links.push(attachTc(path.object.program(PROGRAMS.toPod), { ifindex, direction: 'egress' }));
  });
  await pair.start(pair.node, ECHO_SERVER).line();
  client = pair.start(pair.pod, ECHO_CLIENT);
});

afterAll(async () => {
  for (const link of links) link.close();
  await pair.stop();
  path.close();
});

describe('ordinary traffic', () => {
  it('passes in fragments and in super-packets, both ways', async () => {
    flip(NARROW);
    await comesBack('big', 20);
    // A set for each direction at least.
    expect([...path.map('frags').keys()].length).toBeGreaterThanOrEqual(2);
    const before = path.metric('forwarded', 'ingress');
    const bulk = 'x'.repeat(400_000);
    await heardBack(bulk);
    // More than a frame holds, on average: these were super-packets, whose payload is outside the linear part.
    const after = path.metric('forwarded', 'ingress');
    expect(Number(after.bytes - before.bytes) / Number(after.packets - before.packets)).toBeGreaterThan(1514);
    for (const direction of ['ingress', 'egress'] as const) {
      expect(path.count('invalid-packet', direction)).toBe(0n);
      expect(path.count('fragment-without-first', direction)).toBe(0n);
    }
  });
});

describe('a connection of the pod, of which a reset arrives that only looks like its other end’s', () => {
  const { rst } = TCP_FLAGS;
  const deviceOf = (namespace: string, device: string): { readonly ifindex: number; readonly address: string } => {
    const text = execFileSync('ip', ['-n', namespace, '-j', 'link', 'show', 'dev', device], { encoding: 'utf8' });
    const [link] = JSON.parse(text) as [{ ifindex: number; address: string }];
    return link;
  };
  const reset = (port: number, seq: number): string => {
    const payload = tcp({ sport: 7778, dport: port, flags: rst, seq });
    const [src, dst] = [ip4(NODE_ADDRESS), ip4(POD_ADDRESS)];
    const pseudo = concat(src, dst, Uint8Array.of(0, 6, 0, payload.length));
    new DataView(payload.buffer).setUint16(16, checksum(concat(pseudo, payload)));
    const frame = ethernet(ipv4({ src: NODE_ADDRESS, dst: POD_ADDRESS, protocol: 6, payload }));
    frame.set(
      deviceOf(pair.pod, 'eth0')
        .address.split(':')
        .map((byte) => Number.parseInt(byte, 16)),
    );
    return Buffer.from(frame).toString('hex');
  };

  it('goes on after a silence, as the pod does not take it; the reset that the pod takes ends it', async () => {
    flip(NARROW);
    const ports = (): ReadonlySet<number> =>
      new Set(Array.from(path.map('ct4').keys(), (key) => CT_KEYS.ct4.decode(key).sport));
    const before = ports();
    const own = pair.start(pair.pod, ECHO_CLIENT);
    const said = async (text: string): Promise<void> => {
      await own.ask(`say ${text}`);
      await until(async () => (await own.ask(`heard? ${text}`)) === 'heard');
    };
    await said('one');
    const [port = 0] = ports().difference(before);
    const connection = path.flow('egress', 6, POD_ADDRESS, port, NODE_ADDRESS, 7778);
    const raw = pair.start(pair.node, RAW_SENDER);
    const { ifindex } = deviceOf(pair.node, 'host0');
    // What the pod waits for, by conntrack.
    const next = connection.get()?.acked ?? 0;
    for (const seq of [next - 1, next + 1, next + 1000, next ^ 0x8000_0000])
      expect(await raw.ask(`${ifindex} ${reset(port, seq >>> 0)}`)).toBe('sent');
    connection.age(300);
    await said('two');
    const acked = connection.get()?.acked ?? 0;
    expect(acked - next).toBe('two'.length);
    expect(await raw.ask(`${ifindex} ${reset(port, acked)}`)).toBe('sent');
    await until(() => ((connection.get()?.flags ?? 0) & CT_FLAGS.reset) !== 0);
    await own.ask('say three');
    expect(await own.ask('heard? three')).toBe('silence');
    await Promise.all([own.stop(), raw.stop()]);
  });
});

describe('policy changes under traffic', () => {
  it('loses nothing while revisions flip between policies that both allow the flow', async () => {
    flip(NARROW);
    await comesBack('stream', 3);
    // As many streams as it takes for 50 flips under one.
    for (let flips = 0; flips < 50; ) {
      let done = false;
      const finished = comesBack('stream', 400).then(() => {
        done = true;
      });
      for (flips = 0; !done; flips += 1) {
        flip(flips % 2 === 0 ? WIDE : NARROW);
        await sleep(1);
      }
      await finished;
    }
  });

  it('cuts the flow at once when a policy no longer allows it, and lets it go on when one does again', async () => {
    flip(NARROW);
    await comesBack('stream', 5);
    await heardBack('one');
    const before = dropped();
    flip(NOTHING);
    await client.ask('stream 5');
    await until(() => dropped() >= before + 5n);
    await client.ask('say two');
    await until(() => dropped() >= before + 6n);
    expect([await client.ask('back?'), await client.ask('heard? two')]).toEqual(['0', 'silence']);
    flip(NARROW);
    await comesBack('stream', 5);
    await heardBack('three');
    expect(await client.ask('heard? two')).toBe('heard');
  });

  it('cuts what others opened when only ingress is enforced, while both sides keep sending', async () => {
    const LISTED = 4;
    const fromNode = [{ identity: HOST, direction: 'ingress' as const, class: 16 }];
    path.slot(LISTED, fromNode, [
      { class: 16, direction: 'ingress', protocol: 'tcp', port: 7779, verdict: 'allow' },
      { class: 16, direction: 'ingress', protocol: 'udp', port: 7780, verdict: 'allow' },
    ]);
    flip(LISTED, ENDPOINT_FLAGS.ingressEnforced);
    const inPod = pair.start(pair.pod, CHATTER_IN_POD);
    await inPod.line();
    const inNode = pair.start(pair.node, CHATTER_IN_NODE);
    for (const peer of [inPod, inNode]) await until(async () => (await heard(peer)).every((count) => count > 20));

    flip(NOTHING, ENDPOINT_FLAGS.ingressEnforced);
    // The first drop is behind what the pod's sockets still hold.
    const cut = path.count('policy', 'ingress');
    await until(() => path.count('policy', 'ingress') > cut);
    let atCut = await heard(inPod);
    await until(async () => {
      const before = atCut;
      atCut = await heard(inPod);
      return atCut.every((count, at) => count === before[at]);
    });
    const sent = path.count('forwarded', 'egress');
    await until(() => path.count('policy', 'ingress') > cut + 100n && path.count('forwarded', 'egress') > sent + 100n);
    // Both sides send TCP again. What is dropped on its way out of the node its kernel takes for never sent.
    const again = () => [tcpCount(pair.node, 'OutSegs'), tcpCount(pair.pod, 'RetransSegs')];
    const earlier = again();
    await until(() => again().every((count, at) => count > (earlier[at] ?? 0)));
    expect(await heard(inPod)).toEqual(atCut);
    const flows = [...path.map('ct4').entries()].map(([key, value]) => ({
      ...CT_KEYS.ct4.decode(key),
      ...ctValue.decode(value),
    }));
    const theirs = flows.filter(({ sport, dport }) => [7779, 7780].some((port) => port === sport || port === dport));
    expect(theirs.map(({ direction, denied }) => ({ direction, denied }))).toEqual([
      { direction: 0, denied: true },
      { direction: 0, denied: true },
    ]);

    flip(LISTED, ENDPOINT_FLAGS.ingressEnforced);
    await until(async () => (await heard(inPod)).every((count, at) => count > (atCut[at] ?? 0) + 20));
    await inNode.stop();
    await inPod.stop();
  });

  it('never passes under any interleaving what both policies deny', async () => {
    const denied = [16, 17].map((number) => ({ ...ports[0], class: number }) as VerdictRow);
    path.slot(3, [{ identity: HOST, direction: 'egress', class: 18 }], denied);
    flip(NOTHING);
    const before = dropped();
    let done = false;
    const finished = client.ask('stream 200').then(() => {
      done = true;
    });
    while (!done) {
      flip(revision % 2 === 0 ? NOTHING : 3);
      await sleep(1);
    }
    await finished;
    await until(() => dropped() >= before + 200n);
    expect(await client.ask('back?')).toBe('0');
  });
});
