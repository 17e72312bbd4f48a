/** Real packets through both programs on a veth pair, while policies change under them. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { attachTc, inNetns, type TcLink } from 'libbpf-ts';

import { ENDPOINT_FLAGS } from './constants.ts';
import { PROGRAMS } from './maps.ts';
import { TestDatapath, type VerdictRow } from './testing/datapath.ts';
import { ECHO_CLIENT, ECHO_SERVER, NODE_ADDRESS, type Peer, POD_ADDRESS, sleep, VethPair } from './testing/veth.ts';

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

function flip(slot: number): void {
  revision += 1;
  path.endpoint({ ifindex: pair.ifindex, ipv4: POD_ADDRESS, flags: ENFORCED, slot, revision });
}

beforeAll(async () => {
  pair = new VethPair(`weir-bpf-${process.pid}`);
  path.identity(NODE_ADDRESS, 2000);
  const classes = [{ identity: 2000, direction: 'egress' as const, class: 16 }];
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
    expect(await client.ask('big 20')).toBe('20');
    expect([...path.map('frags').keys()].length).toBeGreaterThanOrEqual(40);
    const bulk = 'x'.repeat(400_000);
    expect(await client.ask(`say ${bulk}`)).toBe(`heard ${bulk}`);
    for (const direction of ['ingress', 'egress'] as const) {
      expect(path.count('invalid-packet', direction)).toBe(0n);
      expect(path.count('fragment-without-first', direction)).toBe(0n);
    }
  });
});

describe('policy changes under traffic', () => {
  it('loses nothing while revisions flip between policies that both allow the flow', async () => {
    flip(NARROW);
    expect(await client.ask('stream 3')).toBe('3');
    const answer = client.ask('stream 400');
    let done = false;
    const finished = answer.then(() => {
      done = true;
    });
    let flips = 0;
    while (!done) {
      flip(flips % 2 === 0 ? WIDE : NARROW);
      flips += 1;
      await sleep(1);
    }
    await finished;
    expect(await answer).toBe('400');
    expect(flips).toBeGreaterThan(50);
  });

  it('cuts the flow at once when a policy no longer allows it, and lets it go on when one does again', async () => {
    flip(NARROW);
    expect(await client.ask('stream 5')).toBe('5');
    expect(await client.ask('say one')).toBe('heard one');
    const before = path.count('policy', 'egress');
    flip(NOTHING);
    expect(await client.ask('stream 5')).toBe('0');
    expect(await client.ask('say two')).toBe('silence');
    expect(path.count('policy', 'egress') - before).toBeGreaterThanOrEqual(6n);
    flip(NARROW);
    expect(await client.ask('stream 5')).toBe('5');
    for (let tries = 0; tries < 20 && (await client.ask('say three')) === 'silence'; tries++) await sleep(1);
    expect(await client.ask('say two')).toBe('heard two');
  });

  it('never passes under any interleaving what both policies deny', async () => {
    const denied = [16, 17].map((number) => ({ ...ports[0], class: number }) as VerdictRow);
    path.slot(3, [{ identity: 2000, direction: 'egress', class: 18 }], denied);
    flip(NOTHING);
    const answer = client.ask('stream 200');
    let done = false;
    const finished = answer.then(() => {
      done = true;
    });
    while (!done) {
      flip(revision % 2 === 0 ? NOTHING : 3);
      await sleep(1);
    }
    await finished;
    expect(await answer).toBe('0');
  });
});
