/**
 * Random worlds of policies, refused and asking parts among them: oracle, compiled policy, explanation and kernel come to the same of every flow, and no part
 * that is refused makes a flow more allowed.
 */
import { setImmediate as yieldNow } from 'node:timers/promises';
import { formatAddress, parseAddress } from '@weir/net';
import { type OracleEndpoint, type OraclePeer, parsePolicy, type Rule } from '@weir/policy';
import { askingPolicyArbitrary, askingPolicyOf } from '@weir/policy/testing/asking.ts';
import { Judge } from '@weir/policy/testing/judge.ts';
import { networkPolicyArbitrary } from '@weir/policy/testing/network-policies.ts';
import { JUNK, spoil } from '@weir/policy/testing/spoiled.ts';
import {
  namingPolicyArbitrary,
  type PolicyObject,
  policyArbitrary,
  SMALL_WORLD,
  SMALL_WORLD_PEERS,
  trafficArbitrary,
} from '@weir/policy/testing/worlds.ts';
import fc from 'fast-check';
import { KernelJudge } from './kernel.ts';

export interface PolicyFuzzOptions {
  readonly worlds: number;
  /** 0 to 2^31. */
  readonly seed: number;
  readonly signal?: AbortSignal;
  readonly log?: (line: string) => void;
}

export interface PolicyFinding {
  readonly world: number;
  readonly what: string;
  readonly flow: string;
  readonly objects: readonly object[];
}

export interface PolicyFuzzReport {
  readonly worlds: number;
  readonly flows: number;
  /** How many flows of which reason of the oracle. */
  readonly reasons: Readonly<Record<string, number>>;
  /** Objects of which a part was refused. */
  readonly refused: number;
  /** At most one of each world. */
  readonly findings: readonly PolicyFinding[];
}

interface Written {
  readonly object: PolicyObject;
  /** As it was meant, where a part cannot be read now. */
  readonly meant?: PolicyObject;
}

const spoiledArbitrary: fc.Arbitrary<Written> = fc
  .tuple(
    fc.oneof(policyArbitrary, networkPolicyArbitrary),
    fc.noBias(fc.nat({ max: 100_000 })),
    fc.constantFrom(...JUNK),
    fc.boolean(),
  )
  .map(([meant, at, junk, beside]) => ({
    object: { ...meant, object: spoil(meant.object, at, junk, beside) as PolicyObject['object'] },
    meant,
  }));
const writtenArbitrary: fc.Arbitrary<Written> = fc.oneof(
  { weight: 3, arbitrary: policyArbitrary.map((object) => ({ object })) },
  { weight: 1, arbitrary: namingPolicyArbitrary.map((object) => ({ object })) },
  { weight: 1, arbitrary: networkPolicyArbitrary.map((object) => ({ object })) },
  { weight: 4, arbitrary: askingPolicyArbitrary.map((policy) => ({ object: askingPolicyOf(policy) })) },
  { weight: 2, arbitrary: spoiledArbitrary },
);
const worldArbitrary = fc.record({
  written: fc.array(writtenArbitrary, { minLength: 1, maxLength: 4 }),
  traffics: fc.array(trafficArbitrary, { minLength: 2, maxLength: 4 }),
  mode: fc.constantFrom('default' as const, 'default' as const, 'default' as const, 'always' as const),
  allowLocalhost: fc.constantFrom(true, true, false),
});
type World = typeof worldArbitrary extends fc.Arbitrary<infer T> ? T : never;

export async function fuzzPolicies({ worlds, seed, signal, log }: PolicyFuzzOptions): Promise<PolicyFuzzReport> {
  using kernel = new KernelJudge();
  const reasons: Record<string, number> = {};
  const findings: PolicyFinding[] = [];
  let [played, flows, refused] = [0, 0, 0];
  for (; played < worlds && signal?.aborted !== true; played += 1) {
    const [world] = fc.sample(worldArbitrary, { seed: seed + played, numRuns: 1 });
    if (world === undefined) break;
    const finding = playWorld(kernel, world, {
      flow: (reason) => {
        flows += 1;
        reasons[reason] = (reasons[reason] ?? 0) + 1;
      },
      refused: () => {
        refused += 1;
      },
    });
    if (finding !== undefined) findings.push({ world: played, ...finding });
    if (played % 1000 === 999) log?.(`${played + 1} worlds, ${flows} flows, ${findings.length} findings`);
    // A signal is to be heard.
    if (played % 10 === 9) await yieldNow();
  }
  return { worlds: played, flows, reasons, refused, findings };
}

interface Counts {
  flow(reason: string): void;
  refused(): void;
}

function playWorld(
  kernel: KernelJudge,
  { written, traffics, mode, allowLocalhost }: World,
  counts: Counts,
): Omit<PolicyFinding, 'world'> | undefined {
  const read = written.map(({ object, meant }) => {
    const result = parsePolicy(object.object, object.kind, { stack: 'dual' });
    if (result.problems.some(({ code }) => code === 'InvalidSpec')) counts.refused();
    const asMeant =
      meant === undefined || result.refused ? result : parsePolicy(meant.object, meant.kind, { stack: 'dual' });
    // What can be read otherwise than it was meant is another policy.
    const isRefused = result.problems.some(({ code }) => code === 'InvalidSpec');
    return { rules: result.rules, meant: isRefused ? asMeant.rules : result.rules };
  });
  const judge = new Judge(SMALL_WORLD, rulesOf(read, 'rules'), { mode, allowLocalhost });
  const meant = new Judge(SMALL_WORLD, rulesOf(read, 'meant'), { mode, allowLocalhost });
  const objects = written.map(({ object }) => object.object);
  for (const subject of SMALL_WORLD.endpoints.slice(0, 3)) {
    kernel.policy(judge.compiledFor(subject), addressesOf(judge, subject));
    for (const direction of ['ingress', 'egress'] as const)
      for (const peer of SMALL_WORLD_PEERS)
        for (const traffic of traffics) {
          const what = judgeFlow({ kernel, judge, meant, counts }, { direction, subject, peer, ...traffic });
          if (what !== undefined)
            return { what, flow: JSON.stringify({ direction, subject: subject.name, peer, traffic, mode }), objects };
        }
  }
  return undefined;
}

interface Judges {
  readonly kernel: KernelJudge;
  readonly judge: Judge;
  readonly meant: Judge;
  readonly counts: Counts;
}

/** What is wrong with the verdicts of a flow. */
function judgeFlow(
  { kernel, judge, meant, counts }: Judges,
  question: Parameters<Judge['ask']>[0],
): string | undefined {
  const { oracle, compiled, explained } = judge.ask(question);
  counts.flow(oracle.reason);
  const verdicts = `oracle ${oracle.verdict} (${oracle.reason}), compiled ${compiled.verdict}, explained ${explained.verdict}`;
  if (compiled.verdict !== oracle.verdict || explained.verdict !== oracle.verdict) return verdicts;
  if (compiled.cookie !== (explained.deciding[0]?.cookie ?? 0)) return `${verdicts}: by different rules`;
  if (oracle.verdict === 'allow' && meant.ask(question).oracle.verdict !== 'allow')
    return `${verdicts}: a refusal has opened it`;
  const { direction, subject, peer, protocol, port } = question;
  // An ipBlock would hold the address that stands for it, of which the oracle knows nothing.
  if (peer.kind === 'reserved') return undefined;
  const local = direction === 'ingress' && peer.kind === 'node' && peer.node.name === subject.node;
  const passes = kernel.passes({ direction, address: addressOf(peer), local, protocol, port });
  if (passes === undefined || passes === (oracle.verdict === 'allow')) return undefined;
  return `${verdicts}, the kernel ${passes ? 'passes' : 'drops'} it`;
}

function rulesOf<K extends string>(read: readonly Readonly<Record<K, readonly Rule[]>>[], of: K): Rule[] {
  return read.flatMap((each) => each[of]);
}

/** Whose addresses are, as seen on the subject's node. */
function addressesOf(judge: Judge, subject: OracleEndpoint): ReadonlyMap<string, number> {
  const addresses = new Map(judge.numbers.cidrs);
  for (const peer of SMALL_WORLD_PEERS) {
    // The longest prefix says it of those outside.
    if (peer.kind === 'outside') continue;
    const address = addressOf(peer);
    addresses.set(`${address}/${address.includes(':') ? 128 : 32}`, judge.numbers.identityOf(peer, subject.node));
  }
  return addresses;
}

const RESERVED_PLACES = ['health', 'init', 'ingress', 'unmanaged'];

/** An address that stands for the peer. */
function addressOf(peer: OraclePeer): string {
  switch (peer.kind) {
    case 'endpoint':
      return peer.endpoint.addresses[0] ?? '';
    case 'node':
      return peer.node.addresses[0] ?? '';
    case 'outside':
      return formatAddress(parseAddress(peer.address).bytes);
    case 'reserved':
      return `192.168.78.${1 + RESERVED_PLACES.indexOf(peer.name)}`;
    case 'unknown':
      return '192.168.78.9';
  }
}

export function printPolicies({ worlds, flows, reasons, refused, findings }: PolicyFuzzReport): string {
  const counted = Object.entries(reasons)
    .sort(([, a], [, b]) => b - a)
    .map(([reason, count]) => `${reason} ${count}`);
  return [
    ...findings.map(
      ({ world, what, flow, objects }) => `world ${world}: ${what}\n  ${flow}\n  ${JSON.stringify(objects)}`,
    ),
    `${worlds} worlds, ${flows} flows, ${refused} policies refused in part or whole, ${findings.length} findings (${counted.join(', ')})`,
  ].join('\n');
}
