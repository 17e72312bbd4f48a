/** Random frames under random policies: the kernel's programs and the oracle come to the same, with the same reason. */

import { setImmediate as yieldNow } from 'node:timers/promises';
import { type Direction, ENDPOINT_FLAGS } from '@weir/bpf';
import { type ClassRow, Model, OUTSIDE_IFINDEX, TestDatapath, type VerdictRow } from '@weir/bpf/testing';
import { Random } from '../../chaos/random.ts';
import { Frames, PEERS, PEERS6, PORTS } from './frames.ts';
import { FrameOracle } from './oracle.ts';

/** Frames under one policy. */
const ROUND = 40;
/** Datagrams in fragments of one round: as many as one set of the kernel's memory of them holds, wherever they are put. */
const FRAGMENTED = 4;
/** Of the node, of a pod, of two identities, and of nobody. */
const IDENTITIES = new Map<string, number>([
  [PEERS[0], 2000],
  [PEERS[1], 2001],
  [PEERS[2], 1],
  [PEERS[3], 0x0100_0001],
  [PEERS6[0], 2000],
  [PEERS6[1], 2001],
  [PEERS6[2], 1],
  [PEERS6[3], 0x0100_0002],
]);
const DIRECTIONS = ['ingress', 'egress'] as const;
const PROTOCOLS = ['tcp', 'udp', 'sctp', 'icmp', 'icmpv6', 'other'] as const;

/** What rows have for ports where these are others. */
const PORTS_OF: Readonly<Partial<Record<(typeof PROTOCOLS)[number], readonly number[]>>> = {
  icmp: [0, 3, 5, 8, 11],
  icmpv6: [1, 2, 4, 128, 143],
  other: [1, 4, 47, 58],
};

export interface FrameFuzzOptions {
  readonly packets: number;
  /** 0 to 2^31. */
  readonly seed: number;
  readonly signal?: AbortSignal;
  readonly log?: (line: string) => void;
}

/** A frame of which the two say different things. */
export interface FrameFinding {
  readonly round: number;
  readonly direction: Direction;
  readonly local: boolean;
  /** In hex. */
  readonly frame: string;
  readonly kernel: string;
  readonly oracle: string;
}

export interface FrameFuzzReport {
  readonly packets: number;
  /** How many had which outcome. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** At most one of each round. */
  readonly findings: readonly FrameFinding[];
}

export async function fuzzFrames({ packets, seed, signal, log }: FrameFuzzOptions): Promise<FrameFuzzReport> {
  using path = new TestDatapath();
  for (const [address, identity] of IDENTITIES) path.identity(address, identity);
  const outcomes: Record<string, number> = {};
  const findings: FrameFinding[] = [];
  let judged = 0;
  for (let round = 0; judged < packets && signal?.aborted !== true; round += 1) {
    const finding = playRound(path, new Random(seed + round), (outcome) => {
      judged += 1;
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    });
    if (finding !== undefined) findings.push({ round, ...finding });
    if (round % 1000 === 999) log?.(`${judged} packets, ${findings.length} findings`);
    // A signal is to be heard.
    await yieldNow();
  }
  return { packets: judged, outcomes, findings };
}

export function printFrames({ packets, outcomes, findings }: FrameFuzzReport): string {
  const counts = Object.entries(outcomes).sort(([, a], [, b]) => b - a);
  const lines = findings.map(
    ({ round, direction, local, frame, kernel, oracle }) =>
      `round ${round}, ${direction}${local ? ' from the node' : ''}: the kernel says ${kernel}, the oracle ${oracle}: ${frame}`,
  );
  const all = counts.map(([outcome, count]) => `${outcome} ${count}`).join(', ');
  return [...lines, `${packets} packets, ${findings.length} findings (${all})`].join('\n');
}

function playRound(
  path: TestDatapath,
  random: Random,
  count: (outcome: string) => void,
): Omit<FrameFinding, 'round'> | undefined {
  path.forget();
  const enforced = new Set(DIRECTIONS.filter(() => random.chance(0.6)));
  const classes = classRows(random);
  const verdicts = verdictRows(random);
  path.slot(0, classes, verdicts);
  path.endpoint({
    flags:
      (enforced.has('ingress') ? ENDPOINT_FLAGS.ingressEnforced : 0) |
      (enforced.has('egress') ? ENDPOINT_FLAGS.egressEnforced : 0),
  });
  const model = new Model(IDENTITIES);
  model.policy(1, enforced, classes, verdicts, false);
  const oracle = new FrameOracle({ model, enforced });
  const first = random.between(0, 60_000);
  const frames = new Frames({ random, ids: [first, first + 1] });
  for (let at = 0; at < ROUND && oracle.fragmented < FRAGMENTED; at += 1) {
    const direction = random.pick(DIRECTIONS);
    const frame = frames.next(direction);
    const local = direction === 'ingress' && random.chance(0.1);
    const kernel = path.judge(direction, frame, local ? 0 : OUTSIDE_IFINDEX);
    const expected = oracle.judge(direction, frame, local);
    count(kernel);
    if (kernel !== expected)
      return { direction, local, frame: Buffer.from(frame).toString('hex'), kernel, oracle: expected };
  }
  return undefined;
}

function classRows(random: Random): ClassRow[] {
  const known = [0, 1, 2, 10, ...IDENTITIES.values()];
  return DIRECTIONS.flatMap((direction) =>
    random
      .some([...new Set(known)], random.between(0, 4))
      .map((identity) => ({ identity, direction, class: random.pick([16, 17]) })),
  );
}

function verdictRows(random: Random): VerdictRow[] {
  const rows = new Map<string, VerdictRow>();
  for (let left = random.between(0, 24); left > 0; left -= 1) {
    const protocol = random.pick(PROTOCOLS);
    const whole = random.chance(0.3);
    const port = whole ? 0 : random.pick(PORTS_OF[protocol] ?? PORTS);
    const row: VerdictRow = {
      class: random.pick([0, 1, 2, 16, 17]),
      direction: random.pick(DIRECTIONS),
      protocol,
      port,
      portBits: whole ? 0 : 16,
      verdict: random.pick(['allow', 'allow', 'allow', 'allow', 'deny', 'deny', 'redirect', 'authenticate']),
    };
    rows.set(`${row.class} ${row.direction} ${protocol} ${port} ${row.portBits}`, row);
  }
  return [...rows.values()];
}
