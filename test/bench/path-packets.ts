/** The price of one 64-byte TCP packet by BPF_PROG_TEST_RUN, beside `return TC_ACT_OK` in the same run. */
import { FIRST_CLASS, PROGRAMS } from '@weir/bpf';
import { TEST_IFINDEX, TestDatapath } from '@weir/bpf/testing/datapath.ts';
import { ethernet, ipv4, tcp } from '@weir/bpf/testing/packets.ts';
import { skbContext } from 'libbpf-ts';
import { quantile } from './report.ts';
import type { Suite } from './suite.ts';

const PEER = '10.0.0.2';
const OWN = '10.0.0.1';
const REPEAT = 1_000_000;
const FLOWS = 3000;
const ENFORCED = 3;

const frame = (sport: number, dport: number, src = PEER) =>
  ethernet(ipv4({ src, dst: OWN, protocol: 6, payload: tcp({ sport, dport, flags: 0x02 }) }), undefined, 10);

/** Median of five means: the machine's speed drifts. */
function steady(measure: () => number): number {
  return quantile(Array.from({ length: 5 }, measure), 0.5);
}

function scene(peers: number, ctEntries: number): TestDatapath {
  const datapath = new TestDatapath({ ctEntries });
  datapath.endpoint({ ipv4: OWN, slot: 1, flags: ENFORCED });
  datapath.identity(PEER, 1001);
  datapath.identity('10.0.0.3', 60_001);
  const classes = Array.from({ length: peers }, (_, index) => ({
    identity: 1001 + index,
    direction: 'ingress' as const,
    class: FIRST_CLASS,
  }));
  datapath.slot(1, classes, [
    { class: FIRST_CLASS, direction: 'ingress', protocol: 'tcp', port: 80, verdict: 'allow', cookie: 1 },
  ]);
  return datapath;
}

/** Mean of single runs over many flows, the timer's own cost (the floor program run the same way) taken off. */
function newFlow(datapath: TestDatapath): number {
  const context = skbContext({ ifindex: TEST_IFINDEX });
  const single = (program: string) =>
    Array.from(
      { length: FLOWS },
      (_, flow) =>
        datapath.object.program(program).testRun({ data: frame(1024 + flow, 80), repeat: 1, context }).durationNs,
    );
  const floor = quantile(single(PROGRAMS.pass), 0.5);
  return quantile(single(PROGRAMS.toPod), 0.5) - floor;
}

export const packets: Suite = async function* () {
  let floor = 0;
  for (const peers of [1, 1000, 10_000]) {
    using datapath = scene(peers, 65_536);
    const context = skbContext({ ifindex: TEST_IFINDEX });
    if (floor === 0) {
      floor = steady(
        () =>
          datapath.object.program(PROGRAMS.pass).testRun({ data: frame(1, 80), repeat: REPEAT, context }).durationNs,
      );
      yield { case: 'packet floor, return TC_ACT_OK', value: floor, unit: 'ns' };
    }
    datapath.run('ingress', frame(1000, 80));
    yield {
      case: `packet established, ${peers} peers`,
      value: steady(() => datapath.runMany('ingress', frame(1000, 80), REPEAT).ns),
      unit: 'ns',
      goal: 50,
      peer: floor,
    };
    yield {
      case: `packet denied, no match, ${peers} peers`,
      value: steady(() => datapath.runMany('ingress', frame(1000, 80, '10.0.0.3'), REPEAT / 4).ns),
      unit: 'ns',
      goal: 200,
      peer: floor,
    };
    yield {
      case: `packet denied, peer matches, port does not, ${peers} peers`,
      value: steady(() => datapath.runMany('ingress', frame(1000, 81), REPEAT / 4).ns),
      unit: 'ns',
      goal: 200,
      peer: floor,
    };
    yield { case: `packet new flow, ${peers} peers`, value: newFlow(datapath), unit: 'ns', goal: 500, peer: floor };
  }
  using full = scene(1000, 16);
  for (let flow = 0; flow < 64; flow += 1) full.run('ingress', frame(2000 + flow, 80));
  yield {
    case: 'packet new flow, connection table full',
    value: steady(() => full.runMany('ingress', frame(999, 80), REPEAT / 4).ns),
    unit: 'ns',
    goal: 500,
    peer: floor,
  };
};
