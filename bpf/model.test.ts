/** Random policies and random packets: the kernel and the model agree on every outcome. */
import { afterAll, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';

import { type Direction, ENDPOINT_FLAGS } from './constants.ts';
import { ctValue } from './flows.ts';
import { type ClassRow, OUTSIDE_IFINDEX, TestDatapath, type VerdictRow } from './testing/datapath.ts';
import { bits, Model, type ModelError, type ModelPacket } from './testing/model.ts';
import { concat, ethernet, icmp, ipv4, tcp, udp } from './testing/packets.ts';

const POD = '10.0.0.1';
const PEERS = new Map([
  ['10.0.0.2', 2000],
  ['10.0.0.3', 2001],
  ['10.0.0.4', 1],
  ['192.0.2.1', 0x0100_0001],
]);
const ADDRESSES = [...PEERS.keys(), '198.51.100.1'];
const PORTS = [0, 1, 79, 80, 81, 88, 95, 96, 443, 65_535];

const direction = fc.constantFrom<Direction>('ingress', 'egress');
const classRow: fc.Arbitrary<ClassRow> = fc.record({
  identity: fc.constantFrom(0, 2, ...PEERS.values()),
  direction,
  class: fc.constantFrom(16, 17),
});
const anyRow: fc.Arbitrary<VerdictRow> = fc.record({
  class: fc.constantFrom(0, 1, 2, 16, 17),
  direction,
  protocol: fc.constantFrom('tcp' as const, 'udp' as const, 'icmp' as const),
  port: fc.constantFrom(0, 8, 80, 88, 443),
  portBits: fc.constantFrom(0, 9, 12, 13, 16),
  verdict: fc.oneof(
    { weight: 6, arbitrary: fc.constant('allow' as const) },
    { weight: 3, arbitrary: fc.constant('deny' as const) },
    { weight: 1, arbitrary: fc.constantFrom('redirect' as const, 'authenticate' as const) },
  ),
});
/** ICMP errors are few, and so are rows of their types: one row in four is of all types. */
const allOfIcmp: fc.Arbitrary<VerdictRow> = fc.record({
  class: fc.constantFrom(0, 1, 2),
  direction,
  protocol: fc.constant('icmp' as const),
  port: fc.constant(0),
  portBits: fc.constant(0),
  verdict: fc.constantFrom('allow' as const, 'deny' as const),
});
const verdictRow = fc.oneof({ weight: 3, arbitrary: anyRow }, { weight: 1, arbitrary: allOfIcmp });
const BUSY = { peer: '10.0.0.2', podPort: 80, peerPort: 80 };
/** Most packets are of few flows, so that these live through several policies. */
const ports = fc.oneof(
  { weight: 3, arbitrary: fc.constant(BUSY) },
  {
    weight: 2,
    arbitrary: fc.record({
      peer: fc.constantFrom(...ADDRESSES),
      podPort: fc.constantFrom(...PORTS),
      peerPort: fc.constantFrom(80, 443),
    }),
  },
);
const packet: fc.Arbitrary<ModelPacket> = fc
  .record({
    direction,
    protocol: fc.constantFrom('tcp' as const, 'udp' as const, 'icmp' as const),
    ports,
    tcpFlags: fc.constantFrom(2, 2, 18, 16, 17, 4, 20),
    reply: fc.boolean(),
    local: fc.constantFrom(false, false, false, true),
    number: fc.constantFrom(0, 1, 0xffff_0000),
  })
  .map(({ tcpFlags, reply, local, ports: { peer, podPort, peerPort }, ...rest }) => ({
    ...rest,
    local: local && rest.direction === 'ingress',
    peer,
    podPort,
    peerPort: rest.protocol === 'icmp' ? 8 : peerPort,
    bits: rest.protocol === 'tcp' ? tcpFlags : rest.protocol === 'icmp' ? (reply ? 0 : 8) : 0,
  }));
const error: fc.Arbitrary<ModelError> = fc
  .record({
    // The quoted packet travelled the other way. Most were sent by the pod in the flow that most packets are of.
    about: fc.oneof(
      packet,
      packet.map((sent) => {
        const peerPort = sent.protocol === 'icmp' ? 8 : BUSY.peerPort;
        return { ...sent, direction: 'egress' as const, local: false, ...BUSY, peerPort };
      }),
    ),
    router: fc.constantFrom(...ADDRESSES),
    type: fc.constantFrom(3, 3, 4, 11, 12),
    bytes: fc.constantFrom(36, 36, 576, 577),
    local: fc.boolean(),
  })
  .map(({ about, router, type, bytes, local }) => ({
    direction: about.direction === 'egress' ? 'ingress' : 'egress',
    local: local && about.direction === 'egress',
    peer: about.direction === 'egress' ? router : about.peer,
    type,
    bytes,
    about,
  }));
/** So many conntrack ticks pass. No sum of few of them is near a time after which the kernel judges otherwise. */
const idle = fc.constantFrom(1, 2, 4, 11, 20, 22, 1260, 25_150).map((units) => ({ ticks: 16 * units }));
const policy = fc.record({
  flags: fc.integer({ min: 0, max: 3 }),
  quarantine: fc.boolean(),
  classes: fc.uniqueArray(classRow, { selector: (row) => `${row.identity} ${row.direction}`, maxLength: 8 }),
  verdicts: fc.uniqueArray(verdictRow, {
    selector: (row) => `${row.class} ${row.direction} ${row.protocol} ${bits(row)} ${masked(row)}`,
    maxLength: 16,
  }),
});
const story = fc.array(
  fc.record({
    policy,
    packets: fc.array(
      fc.oneof({ weight: 8, arbitrary: packet }, { weight: 3, arbitrary: error }, { weight: 1, arbitrary: idle }),
      { minLength: 8, maxLength: 30 },
    ),
  }),
  {
    minLength: 1,
    maxLength: 4,
  },
);

/** Random rows that ask for more judge few packets: no run does without these. */
const asking = (['redirect', 'authenticate'] as const).map((verdict) => ({
  policy: {
    flags: ENDPOINT_FLAGS.ingressEnforced,
    quarantine: false,
    classes: [{ identity: 2000, direction: 'ingress', class: 16 }] as ClassRow[],
    verdicts: [{ class: 16, direction: 'ingress', protocol: 'tcp', port: 80, portBits: 16, verdict }] as VerdictRow[],
  },
  packets: [{ ...BUSY, direction: 'ingress', protocol: 'tcp', bits: 2, local: false, number: 0 }] as ModelPacket[],
}));

const sent: ModelPacket = { ...BUSY, direction: 'egress', protocol: 'udp', bits: 0, local: false, number: 0 };
const errorsFrom = (...routers: string[]): ModelError[] =>
  routers.flatMap((peer) =>
    [36, 577].map((bytes): ModelError => ({ direction: 'ingress', local: false, peer, type: 3, bytes, about: sent })),
  );
const policyOf = (flags: number, verdicts: VerdictRow[]) => ({ flags, quarantine: false, classes: [], verdicts });
/** Errors, short and long, of every common outcome: about a flow from others than its end, and about the same flow once it is denied. */
const erring = [
  { policy: policyOf(0, []), packets: [sent, ...errorsFrom('10.0.0.3')] },
  {
    policy: policyOf(ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced, [
      { class: 1, direction: 'ingress', protocol: 'icmp', port: 0, portBits: 0, verdict: 'deny' },
    ]),
    packets: [sent, ...errorsFrom('10.0.0.2', '192.0.2.1', '198.51.100.1')],
  },
];

function masked(row: VerdictRow): number {
  return Math.floor((row.port ?? 0) / 2 ** (16 - bits(row)));
}

function datagram(p: ModelPacket): Uint8Array {
  const sent = p.direction === 'egress';
  const ports = { sport: sent ? p.podPort : p.peerPort, dport: sent ? p.peerPort : p.podPort };
  const [protocol, payload] =
    p.protocol === 'tcp'
      ? ([
          6,
          tcp({ ...ports, flags: p.bits, ...(sent ? { seq: 7, ack: p.number } : { seq: p.number, ack: 7 }) }),
        ] as const)
      : p.protocol === 'udp'
        ? ([17, udp(ports)] as const)
        : ([1, icmp({ type: p.bits, id: p.podPort })] as const);
  return ipv4({ src: sent ? POD : p.peer, dst: sent ? p.peer : POD, protocol, payload });
}

function frame(p: ModelPacket | ModelError): Uint8Array {
  if (!('about' in p)) return ethernet(datagram(p));
  const [src, dst] = p.direction === 'egress' ? [POD, p.peer] : [p.peer, POD];
  const quoted = datagram(p.about).slice(0, 28);
  const payload = icmp({ type: p.type, code: 4, payload: concat(quoted, new Uint8Array(p.bytes - 8 - quoted.length)) });
  return ethernet(ipv4({ src, dst, protocol: 1, payload }));
}

const path = new TestDatapath();
afterAll(() => path.close());

describe('the kernel judges as the model does', () => {
  it('over random policies, revisions and packets', () => {
    for (const [address, identity] of PEERS) path.identity(address, identity);
    const seen = new Map<string, number>();
    const errors = new Set<string>();
    const long = new Set<string>();
    let strangers = 0;
    let denied = 0;
    fc.assert(
      fc.property(story, (chapters) => {
        path.map('ct4').deleteBatch([...path.map('ct4').keys()]);
        const model = new Model(PEERS);
        chapters.forEach(({ policy: { flags, quarantine, classes, verdicts }, packets }, at) => {
          const enforced = new Set<Direction>();
          if ((flags & ENDPOINT_FLAGS.ingressEnforced) !== 0) enforced.add('ingress');
          if ((flags & ENDPOINT_FLAGS.egressEnforced) !== 0) enforced.add('egress');
          path.slot(at, classes, verdicts);
          path.endpoint({
            flags,
            quarantine,
            revision: at + 1,
            slot: at,
          });
          model.policy(at + 1, enforced, classes, verdicts, quarantine);
          for (const each of packets) {
            if ('ticks' in each) {
              path.age(each.ticks);
              model.age(each.ticks);
              continue;
            }
            const outcome = path.judge(each.direction, frame(each), each.local ? 0 : OUTSIDE_IFINDEX);
            seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
            expect([each, outcome]).toEqual([each, 'about' in each ? model.judgeError(each) : model.judge(each)]);
            if ('about' in each) (each.bytes > 576 ? long : errors).add(outcome);
          }
          const flows = [...path.map('ct4').entries()].map(([, value]) => ctValue.decode(value));
          expect(flows).toHaveLength(model.flows);
          expect(flows.filter((flow) => flow.denied)).toHaveLength(model.denied);
          denied += model.denied;
        });
        strangers += model.strangers;
      }),
      { numRuns: 80, examples: [[asking], [erring]] },
    );
    const outcomes = ['forwarded', 'no-authentication', 'no-proxy', 'policy', 'policy-denied', 'unknown-identity'];
    expect([...seen.keys()].sort()).toEqual(outcomes);
    // Rows that ask for more are few, and so are errors and long packets.
    const common = outcomes.filter((name) => !name.startsWith('no-'));
    expect([...errors]).toEqual(expect.arrayContaining(common));
    expect([...long]).toEqual(expect.arrayContaining(common));
    expect(strangers).toBeGreaterThan(0);
    expect(denied).toBeGreaterThan(0);
  });
});
