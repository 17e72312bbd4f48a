/**
 * The price of one 64-byte TCP packet by BPF_PROG_TEST_RUN beside `return TC_ACT_OK`, the floor, measured by turns with it. Goals are
 * for a machine whose floor is 17 ns: figures are scaled to that, as the machine's speed drifts and differs. Fails where a packet comes to something
 * else than its row says.
 */
import { ctValue, FIRST_CLASS, PROGRAMS } from '@weir/bpf';
import { OUTSIDE_IFINDEX, TEST_IFINDEX, TestDatapath } from '@weir/bpf/testing/datapath.ts';
import { ETHERTYPE, ethernet, ip6, ipv4, ipv6, TCP_FLAGS, tcp } from '@weir/bpf/testing/packets.ts';
import { skbContext } from 'libbpf-ts';
import { type Figure, quantile } from './report.ts';
import type { Suite } from './suite.ts';

interface Family {
  readonly family: string;
  readonly own: string;
  readonly peer: string;
  readonly other: string;
}

const FAMILIES: readonly [Family, Family] = [
  { family: 'IPv4', own: '10.0.0.1', peer: '10.0.0.2', other: '10.0.0.3' },
  { family: 'IPv6', own: 'fd00::1', peer: 'fd00::2', other: 'fd00::3' },
];
const ENFORCED = 3;
const FLOOR_NS = 17;

export interface Effort {
  readonly rounds: number;
  /** Packets of a round. */
  readonly repeat: number;
  /** New flows. */
  readonly flows: number;
}

/** From outside the node. */
const context = skbContext({ ifindex: TEST_IFINDEX, ingressIfindex: OUTSIDE_IFINDEX });
function frame(
  { own, peer }: Pick<Family, 'own' | 'peer'>,
  sport: number,
  dport: number,
  flags: number = TCP_FLAGS.syn,
) {
  const payload = tcp({ sport, dport, flags });
  return own.includes(':')
    ? ethernet(ipv6({ src: ip6(peer), dst: ip6(own), nextHeader: 6, payload }), ETHERTYPE.ipv6)
    : ethernet(ipv4({ src: peer, dst: own, protocol: 6, payload }), undefined, 10);
}

/** One endpoint that admits TCP 80 from `peers` identities. */
function scene(peers: number, ctEntries: number): TestDatapath {
  const datapath = new TestDatapath({ ctEntries });
  datapath.endpoint({ ipv4: FAMILIES[0].own, ipv6: FAMILIES[1].own, slot: 1, flags: ENFORCED });
  for (const { peer, other } of FAMILIES) {
    datapath.identity(peer, 1001);
    datapath.identity(other, 60_001);
  }
  const classes = Array.from({ length: peers }, (_, index) => ({
    identity: 1001 + index,
    direction: 'ingress' as const,
    class: FIRST_CLASS,
  }));
  const allow = { direction: 'ingress', protocol: 'tcp', port: 80, verdict: 'allow', cookie: 1 } as const;
  datapath.slot(1, classes, [{ ...allow, class: FIRST_CLASS }]);
  return datapath;
}

function once(datapath: TestDatapath, program: string, data: Uint8Array, repeat: number): number {
  return datapath.object.program(program).testRun({ data, repeat, context }).durationNs;
}

/** What packets come to, as `TestDatapath.judge` names it, and what the connection table gains by them. */
interface Outcome {
  readonly outcome: string;
  readonly flows: number;
  readonly tracked: number;
}

/** Flows in the connection table, and packets of them. */
export function connections(datapath: TestDatapath): Omit<Outcome, 'outcome'> {
  const packets = ['ct4', 'ct6'].flatMap((name) =>
    Array.from(datapath.map(name).entries(), ([, bytes]) => Number(ctValue.decode(bytes).packets)),
  );
  return { flows: packets.length, tracked: packets.reduce((sum, each) => sum + each, 0) };
}

/** What `run` returns. @throws where its packets come to something else */
function expecting<T>(datapath: TestDatapath, packets: number, expected: Outcome, run: () => T): T {
  const before = connections(datapath);
  const result = datapath.expecting('ingress', expected.outcome, packets, run);
  const after = connections(datapath);
  const [flows, tracked] = [after.flows - before.flows, after.tracked - before.tracked];
  if (flows !== expected.flows || tracked !== expected.tracked)
    throw new Error(
      `expected ${expected.flows} more flows with ${expected.tracked} packets, and found ${flows} with ${tracked}`,
    );
  return result;
}

/** Median over rounds of cost/floor, each taken in the same moment, as nanoseconds at a floor of 17. */
function scaled(datapath: TestDatapath, data: Uint8Array, { rounds, repeat }: Effort): number {
  const ratios = Array.from({ length: rounds }, () => {
    const floor = once(datapath, PROGRAMS.pass, data, repeat);
    return once(datapath, PROGRAMS.toPod, data, repeat) / floor;
  });
  return quantile(ratios, 0.5) * FLOOR_NS;
}

/** A new flow is new once only: single cold runs over many flows, less the cost of a single run of the floor program. */
function newFlow(datapath: TestDatapath, family: Family, floor: number, { flows }: Effort): number {
  const single = (program: string) =>
    Array.from({ length: flows }, (_, flow) => once(datapath, program, frame(family, 1024 + flow, 80), 1));
  const timer = quantile(single(PROGRAMS.pass), 0.5);
  return ((quantile(single(PROGRAMS.toPod), 0.5) - timer) * FLOOR_NS) / floor;
}

export async function* packetCosts(effort: Effort): AsyncGenerator<Figure> {
  const unit = 'ns at a floor of 17';
  const { rounds, repeat, flows } = effort;
  const all = rounds * repeat;
  let floor = 0;
  for (const peers of [1, 1000, 10_000]) {
    using datapath = scene(peers, 65_536);
    if (floor === 0) {
      floor = quantile(
        Array.from({ length: rounds }, () => once(datapath, PROGRAMS.pass, frame(FAMILIES[0], 1, 80), repeat)),
        0.5,
      );
      yield { case: 'packet floor, return TC_ACT_OK, as it is here', value: floor, unit: 'ns' };
    }
    for (const family of FAMILIES) {
      const of = `${family.family}, ${peers} peers`;
      datapath.run('ingress', frame(family, 1000, 80));
      const known = { outcome: 'forwarded', flows: 0, tracked: all };
      const denied = { outcome: 'policy', flows: 0, tracked: 0 };
      const stranger = { ...family, peer: family.other };
      const cases = [
        { name: 'established', data: frame(family, 1000, 80, TCP_FLAGS.ack), goal: 50, expected: known },
        { name: 'denied, no match', data: frame(stranger, 1000, 80), goal: 150, expected: denied },
        { name: 'denied, peer matches, port does not', data: frame(family, 1000, 81), goal: 150, expected: denied },
      ];
      for (const { name, data, goal, expected } of cases) {
        const value = expecting(datapath, all, expected, () => scaled(datapath, data, effort));
        yield { case: `packet ${name}, ${of}`, value, unit, goal, peer: FLOOR_NS };
      }
      const stored = { outcome: 'forwarded', flows, tracked: flows };
      const value = expecting(datapath, flows, stored, () => newFlow(datapath, family, floor, effort));
      yield { case: `packet new flow, stored, ${of} (cold)`, value, unit, goal: 500, peer: FLOOR_NS };
    }
  }
  using full = scene(1000, 16);
  for (let flow = 0; flow < 64; flow += 1) full.run('ingress', frame(FAMILIES[0], 2000 + flow, 80));
  const untracked = { outcome: 'ct-full+forwarded', flows: 0, tracked: 0 };
  const value = expecting(full, all, untracked, () => scaled(full, frame(FAMILIES[0], 999, 80), effort));
  yield { case: 'packet new flow, connection table full', value, unit, goal: 500, peer: FLOOR_NS };
}

export const packets: Suite = () => packetCosts({ rounds: 11, repeat: 300_000, flows: 3000 });
