/** Which flows two sets of policies judge differently. */
import { matches } from '@weir/labels';
import { type Direction, oracleVerdict, PROTOCOL_NUMBERS, passes, type Rule } from '@weir/policy';
import { blocksOf, otherParties, type Party, type PodParty, type PortBlock, podParties } from './diff-universe.ts';
import type { FileWorld } from './world.ts';

/** Flows that change. Both ends count: one that only one end allows is denied. */
export interface FlowChange {
  readonly source: string;
  readonly destination: string;
  readonly before: 'allowed' | 'denied';
  readonly after: 'allowed' | 'denied';
  /** `TCP 80-90, 443; ICMP`. */
  readonly ports: string;
}

export interface PolicyDiff {
  readonly changes: readonly FlowChange[];
  /** Pairs that were compared. Those that no changed rule is about are not. */
  readonly pairs: number;
  /** False: the comparison was ended, as it took too much. */
  readonly complete: boolean;
}

/** Questions to the oracle: some 20 seconds. */
const MOST_QUESTIONS = 3_000_000;
const DIRECTIONS: readonly Direction[] = ['ingress', 'egress'];

interface Subject {
  readonly party: PodParty;
  /** Rules that select it. */
  readonly before: readonly Rule[];
  readonly after: readonly Rule[];
  /** Where they are not the same. */
  readonly changed: Readonly<Record<Direction, boolean>>;
}

/** @param world whose pods are compared */
export function diffPolicies(before: readonly Rule[], after: readonly Rule[], world: FileWorld): PolicyDiff {
  const all = [...before, ...after];
  const subjects = podParties(world, all).map((party) => subjectOf(party, before, after));
  const others = otherParties(all);
  const changes: FlowChange[] = [];
  let [pairs, questions] = [0, 0];
  for (const [source, destination] of pairsOf(subjects, others)) {
    const [from, to] = [source.subject, destination.subject];
    if (!from?.changed.egress && !to?.changed.ingress) continue;
    const rules = [from, to].flatMap((end) => (end === undefined ? [] : [...end.before, ...end.after]));
    const blocks = blocksOf(rules, world.endpoints);
    pairs += 1;
    questions += blocks.length * 4;
    if (questions > MOST_QUESTIONS) return { changes, pairs, complete: false };
    const changed = blocks.map((block) => ({
      block,
      before: allowed('before', source, destination, block, world),
      after: allowed('after', source, destination, block, world),
    }));
    for (const now of [true, false]) {
      const found = changed.filter((each) => each.after === now && each.before !== now).map(({ block }) => block);
      if (found.length === 0) continue;
      changes.push({
        source: source.party.name,
        destination: destination.party.name,
        before: now ? 'denied' : 'allowed',
        after: now ? 'allowed' : 'denied',
        ports: portsText(found, blocks),
      });
    }
  }
  const rank = ({ after: now }: FlowChange): number => (now === 'allowed' ? 0 : 1);
  return { changes: changes.sort((a, b) => rank(a) - rank(b)), pairs, complete: true };
}

interface End {
  readonly party: Party;
  readonly subject?: Subject;
}

function* pairsOf(subjects: readonly Subject[], others: readonly Party[]): Generator<readonly [End, End]> {
  const pods: readonly End[] = subjects.map((subject) => ({ party: subject.party, subject }));
  for (const source of pods) for (const destination of pods) yield [source, destination];
  for (const pod of pods)
    for (const party of others) {
      yield [{ party }, pod];
      yield [pod, { party }];
    }
}

function subjectOf(party: PodParty, before: readonly Rule[], after: readonly Rule[]): Subject {
  const selecting = (rules: readonly Rule[]): readonly Rule[] =>
    rules.filter((rule) => matches(rule.subject, party.endpoint.labels));
  const [old, now] = [selecting(before), selecting(after)];
  const changed = (direction: Direction): boolean => textOf(old, direction) !== textOf(now, direction);
  return { party, before: old, after: now, changed: { ingress: changed('ingress'), egress: changed('egress') } };
}

/** Equal for rules that judge alike, wherever they are written. */
function textOf(rules: readonly Rule[], direction: Direction): string {
  const texts = rules
    .filter((rule) => rule.has[direction])
    .map(({ elements, defaultDeny }) =>
      JSON.stringify([
        defaultDeny[direction],
        elements.filter((each) => each.direction === direction).map(({ path: _, ...rest }) => rest),
      ]),
    );
  return texts.sort().join('\n');
}

function allowed(
  side: 'before' | 'after',
  source: End,
  destination: End,
  { protocol, from: port }: PortBlock,
  { endpoints }: FileWorld,
): boolean {
  return DIRECTIONS.every((direction) => {
    const [own, other] = direction === 'egress' ? [source, destination] : [destination, source];
    if (own.subject === undefined) return true;
    const traffic = { protocol: PROTOCOL_NUMBERS[protocol], port };
    const { endpoint } = own.subject.party;
    return passes(oracleVerdict(own.subject[side], direction, endpoint, other.party.peer, traffic, { endpoints }));
  });
}

/** @param all of the pair: where all of a protocol change, only its name is told */
function portsText(changed: readonly PortBlock[], all: readonly PortBlock[]): string {
  if (changed.length === all.length) return 'everything';
  const protocols = [...new Set(changed.map(({ protocol }) => protocol))];
  return protocols
    .map((protocol) => {
      const own = changed.filter((block) => block.protocol === protocol);
      if (own.length === all.filter((block) => block.protocol === protocol).length) return protocol;
      const ranges: { from: number; to: number }[] = [];
      for (const { from, to } of own) {
        const last = ranges.at(-1);
        if (last !== undefined && last.to + 1 === from) last.to = to;
        else ranges.push({ from, to });
      }
      const texts = ranges.map(({ from, to }) => (from === to ? `${from}` : `${from}-${to}`));
      const more = texts.length > MOST_RANGES ? ` and ${texts.length - MOST_RANGES} more` : '';
      return `${protocol} ${texts.slice(0, MOST_RANGES).join(', ')}${more}`;
    })
    .join('; ');
}

/** Ranges of one protocol that a line has. */
const MOST_RANGES = 20;
