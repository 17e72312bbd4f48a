/**
 * Rules that hit one peer -> disjoint port intervals, each with one decision (design section 4). What several peers have in common is painted
 * once: the rows of each class are painted over it, and those that stay as they were are the same objects.
 */
import { ALLOW, compareRank, decidedByBoth, decisionKey, NO_LISTENERS, sameDecision } from './decision.ts';
import { compareNumber } from './order.ts';
import { isIcmp, isPortProtocol, LAST_PORT, LAST_TYPE, PROTOCOL_NUMBERS } from './protocols.ts';
import type { ClassRows, CompiledRow, Decision, Listeners, PortRange } from './types.ts';

/** A row while it is painted: an allow that widens redirects outranks them. */
export type RankedRow = CompiledRow & { readonly widens?: true };

/** A rule whose port names are numbers by now. */
export type NumberedRule = Decision & {
  readonly cookie: number;
  /** Absent: every protocol and port. */
  readonly ports?: readonly PortRange[];
  readonly widens?: true;
};

/** Highest "port" of each protocol: for ICMP it is the type, for 0 (any other protocol) the protocol's number. */
const LAST_PORTS = [
  [0, 255],
  [1, LAST_TYPE],
  [6, LAST_PORT],
  [17, LAST_PORT],
  [58, LAST_TYPE],
  [132, LAST_PORT],
] as const;

/** Disjoint rows of each protocol, ascending, in the order of LAST_PORTS. */
export type Painting = readonly (readonly RankedRow[])[];

/** No row: everything drops. */
export const BLANK: Painting = LAST_PORTS.map(() => []);
/** Everything is allowed, by no rule: where there is no default deny, and for the localhost rule. Every rule beats it. */
export const OPEN: Painting = LAST_PORTS.map(([protocol, to]) => [{ protocol, from: 0, to, ...ALLOW, cookie: 0 }]);

/** Equal texts = equal decisions, and the same rules that make them. */
export function textOf(rows: ClassRows): string {
  return rows.map((row) => `${row.protocol}/${row.from}-${row.to}=${row.cookie}${decisionKey(row)}`).join();
}

/** Whether their texts are equal. */
export function sameRows(a: ClassRows, b: ClassRows): boolean {
  return (
    a.length === b.length &&
    a.every((one, index) => {
      const other = b[index];
      return (
        one === other ||
        (one.protocol === other?.protocol && one.from === other.from && one.to === other.to && sameDecided(one, other))
      );
    })
  );
}

/** What the rule decides where no other does. */
export function rowsOfRule({ ports, ...decided }: NumberedRule): RankedRow[] {
  if (ports === undefined) return LAST_PORTS.map(([protocol, to]) => ({ protocol, from: 0, to, ...decided }));
  return ports.map((range) => ({ ...placeOf(range), ...decided }));
}

function placeOf({ protocol, from, to }: PortRange): Pick<CompiledRow, 'protocol' | 'from' | 'to'> {
  if (isPortProtocol(protocol) || isIcmp(protocol)) return { protocol: PROTOCOL_NUMBERS[protocol], from, to };
  return { protocol: 0, from: PROTOCOL_NUMBERS[protocol], to: PROTOCOL_NUMBERS[protocol] };
}

/**
 * What both decide together: by rank, whatever the width; among equals the lowest cookie is named. Time is n log n in the
 * rows that are added and those of `under` among them, of which `look` is told before; others are copied by reference.
 */
export function paintOver(
  under: Painting,
  added: readonly RankedRow[],
  look: (count: number) => void = () => undefined,
  listeners: Listeners = NO_LISTENERS,
): Painting {
  if (added.length === 0) return under;
  const byProtocol = Map.groupBy(added, ({ protocol }) => protocol);
  return LAST_PORTS.map(([protocol, last], index) => {
    const below = under[index] ?? [];
    const rows = byProtocol.get(protocol);
    if (rows === undefined) return below;
    let [low, high] = [last as number, 0];
    for (const { from, to } of rows) {
      low = Math.min(low, from);
      high = Math.max(high, to);
    }
    // A neighbour may have the same decision: both are then one row.
    const after = (at: number): number => (at < 0 ? below.length : at);
    const begin = after(below.findIndex(({ to }) => to >= low - 1));
    const end = after(below.findIndex(({ from }) => from > high + 1));
    look(rows.length + end - begin);
    return below.slice(0, begin).concat(paint(rows.concat(below.slice(begin, end)), last, listeners), below.slice(end));
  });
}

export function rowsOf(painting: Painting): ClassRows {
  return painting.flat().map((row) => {
    if (row.widens === undefined) return row;
    const { widens: _, ...plain } = row;
    return plain;
  });
}

function sameDecided(a: RankedRow, b: RankedRow): boolean {
  return a.cookie === b.cookie && a.widens === b.widens && sameDecision(a, b);
}

/** Negative: `a` beats `b`. */
function compareRows(a: RankedRow, b: RankedRow): number {
  // Cookie 0, which is no rule's, comes last.
  return compareWidening(a, b) || ((a.cookie - 1) >>> 0) - ((b.cookie - 1) >>> 0);
}

function compareWidening(a: RankedRow, b: RankedRow): number {
  if (a.widens === b.widens) return compareRank(a, b);
  const [widening, other] = a.widens ? [-1, b] : [1, a];
  return other.verdict === 'allow' || other.verdict === 'redirect' ? widening : -widening;
}

/** Each point gets the first row that covers it, by rank, of one at least. Neighbours with equal decisions are joined. */
function paint(rows: readonly RankedRow[], last: number, listeners: Listeners): RankedRow[] {
  const first = rows.reduce((best, row) => (compareRows(row, best) < 0 ? row : best));
  const asking = rows.filter(isRedirect);
  const isMixed = asking.some(({ listener }) => listener.port !== asking[0]?.listener.port);
  if (rows.length === 1 || (!isMixed && first.from === 0 && first.to === last)) return [first];
  const spans = rows.toSorted(compareRows);
  const starts = [...new Set(spans.flatMap(({ from, to }) => [from, to + 1]))].sort(compareNumber);
  const indexOf = new Map(starts.map((start, index) => [start, index]));
  const owner = Array.from<RankedRow | undefined>({ length: starts.length });
  // next[i]: the first unowned segment at or after i, with path halving.
  const next = Array.from({ length: starts.length + 1 }, (_, index) => index);
  const find = (index: number): number => {
    let at = index;
    for (let parent = next[at] ?? at; parent !== at; parent = next[at] ?? at) {
      next[at] = next[parent] ?? parent;
      at = next[at] ?? at;
    }
    return at;
  };
  for (const span of spans) {
    const end = indexOf.get(span.to + 1) ?? starts.length;
    for (let at = find(indexOf.get(span.from) ?? end); at < end; at = find(at)) {
      owner[at] = span;
      next[at] = at + 1;
    }
  }
  const painted: RankedRow[] = [];
  owner.forEach((owning, index) => {
    if (owning === undefined) return;
    const from = starts[index] ?? 0;
    const to = (starts[index + 1] ?? 0) - 1;
    const span = isMixed && isRedirect(owning) ? united(owning, from, asking, listeners) : owning;
    const before = painted.at(-1);
    const joins = before !== undefined && before.to === from - 1 && sameDecided(before, span);
    const begin = joins ? before.from : from;
    if (joins) painted.pop();
    painted.push(span.from === begin && span.to === to ? span : { ...span, from: begin, to });
  });
  return painted;
}

type Redirect = RankedRow & { readonly verdict: 'redirect' };

function isRedirect(row: RankedRow): row is Redirect {
  return row.verdict === 'redirect';
}

/** What all that ask a proxy at this point ask together. */
function united(owner: Redirect, at: number, asking: readonly Redirect[], listeners: Listeners): RankedRow {
  const together = asking.filter(
    ({ from, to, listener }) => from <= at && at <= to && listener.priority === owner.listener.priority,
  );
  const decision = together.reduce(
    (all: Decision, { verdict, listener }) => decidedByBoth(all, { verdict, listener }, listeners),
    {
      verdict: owner.verdict,
      listener: owner.listener,
    },
  );
  return { ...owner, ...decision, cookie: Math.min(...together.map(({ cookie }) => cookie)) };
}
