/**
 * The price of one 64-byte TCP packet by BPF_PROG_TEST_RUN beside `return TC_ACT_OK`, the floor, measured by turns with it. Goals are
 * for a machine whose floor is 17 ns: figures are scaled to that, as the machine's speed drifts and differs.
 */
import { FIRST_CLASS, PROGRAMS } from '@weir/bpf';
import { TEST_IFINDEX, TestDatapath } from '@weir/bpf/testing/datapath.ts';
import { ethernet, ipv4, tcp } from '@weir/bpf/testing/packets.ts';
import { skbContext } from 'libbpf-ts';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const PEER = '10.0.0.2';
const OTHER = '10.0.0.3';
const OWN = '10.0.0.1';
const ROUNDS = 11;
const REPEAT = 300_000;
const FLOWS = 3000;
const ENFORCED = 3;
const FLOOR_NS = 17;

const context = skbContext({ ifindex: TEST_IFINDEX });
const frame = (sport: number, dport: number, src = PEER) =>
  ethernet(ipv4({ src, dst: OWN, protocol: 6, payload: tcp({ sport, dport, flags: 0x02 }) }), undefined, 10);

/** One endpoint that admits TCP 80 from `peers` identities. */
function scene(peers: number, ctEntries: number): TestDatapath {
  const datapath = new TestDatapath({ ctEntries });
  datapath.endpoint({ ipv4: OWN, slot: 1, flags: ENFORCED });
  datapath.identity(PEER, 1001);
  datapath.identity(OTHER, 60_001);
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

/** Median over rounds of cost/floor, each taken in the same moment, as nanoseconds at a floor of 17. */
function scaled(datapath: TestDatapath, data: Uint8Array): number {
  const ratios = Array.from({ length: ROUNDS }, () => {
    const floor = once(datapath, PROGRAMS.pass, data, REPEAT);
    return once(datapath, PROGRAMS.toPod, data, REPEAT) / floor;
  });
  return quantile(ratios, 0.5) * FLOOR_NS;
}

/** A new flow is new once only: single cold runs over many flows, less the cost of a single run of the floor program. */
function newFlow(datapath: TestDatapath, floor: number): number {
  const single = (program: string) =>
    Array.from({ length: FLOWS }, (_, flow) => once(datapath, program, frame(1024 + flow, 80), 1));
  const timer = quantile(single(PROGRAMS.pass), 0.5);
  return ((quantile(single(PROGRAMS.toPod), 0.5) - timer) * FLOOR_NS) / floor;
}

export const packets: Suite = async function* () {
  const unit = 'ns at a floor of 17';
  let floor = 0;
  for (const peers of [1, 1000, 10_000]) {
    using datapath = scene(peers, 65_536);
    if (floor === 0) {
      floor = quantile(
        Array.from({ length: ROUNDS }, () => once(datapath, PROGRAMS.pass, frame(1, 80), REPEAT)),
        0.5,
      );
      yield { case: 'packet floor, return TC_ACT_OK, as it is here', value: floor, unit: 'ns' };
    }
    datapath.run('ingress', frame(1000, 80));
    const cases = [
      { name: 'established', data: frame(1000, 80), goal: 50 },
      { name: 'denied, no match', data: frame(1000, 80, OTHER), goal: 200 },
      { name: 'denied, peer matches, port does not', data: frame(1000, 81), goal: 200 },
    ];
    for (const { name, data, goal } of cases) {
      yield { case: `packet ${name}, ${peers} peers`, value: scaled(datapath, data), unit, goal, peer: FLOOR_NS };
    }
    yield {
      case: `packet new flow, stored, ${peers} peers (cold)`,
      value: newFlow(datapath, floor),
      unit,
      goal: 500,
      peer: FLOOR_NS,
    };
  }
  using full = scene(1000, 16);
  for (let flow = 0; flow < 64; flow += 1) full.run('ingress', frame(2000 + flow, 80));
  yield {
    case: 'packet new flow, connection table full',
    value: scaled(full, frame(999, 80)),
    unit,
    goal: 500,
    peer: FLOOR_NS,
  };
};
