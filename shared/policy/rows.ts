/** Rules that hit one peer -> disjoint port intervals, each with one decision (design section 4). */
import { compareNumber } from './order.ts';
import type { ClassRows, CompiledRow, PortRange, Verdict } from './types.ts';

/** A rule whose port names are numbers by now. */
export interface NumberedRule {
  readonly verdict: Verdict;
  readonly cookie: number;
  /** Absent: every protocol and port. */
  readonly ports?: readonly PortRange[];
}

/** What decides when no rule hits: nothing (drop), or an allow with cookie 0 (no default deny, or the localhost rule). */
export interface Fallback {
  readonly allow: boolean;
}

const PORT_PROTOCOL = { TCP: 6, UDP: 17, SCTP: 132 } as const;
/** Highest "port" of each protocol: for ICMP it is the type, for 0 (any other protocol) there is none. */
const LAST_PORT = [
  [0, 0],
  [1, 255],
  [6, 65535],
  [17, 65535],
  [58, 255],
  [132, 65535],
] as const;

interface Span {
  readonly from: number;
  readonly to: number;
  readonly verdict: Verdict;
  readonly cookie: number;
}

/**
 * Rows of the class that exactly `hits` apply to. A deny beats every allow, whatever its width; among equals the lowest
 * cookie is named. Time is n log n in the number of port ranges.
 */
export function rowsOf(hits: Iterable<NumberedRule>, fallback: Fallback): ClassRows {
  const ranked = [...hits].sort(
    (a, b) => (a.verdict === b.verdict ? 0 : a.verdict === 'deny' ? -1 : 1) || compareNumber(a.cookie, b.cookie),
  );
  const rows: CompiledRow[] = [];
  for (const [protocol, last] of LAST_PORT) {
    const spans: Span[] = [];
    for (const { ports, verdict, cookie } of ranked) {
      if (ports === undefined) spans.push({ from: 0, to: last, verdict, cookie });
      else {
        for (const range of ports) {
          if (PORT_PROTOCOL[range.protocol] === protocol)
            spans.push({ from: range.from, to: range.to, verdict, cookie });
        }
      }
    }
    if (fallback.allow) spans.push({ from: 0, to: last, verdict: 'allow', cookie: 0 });
    for (const span of paint(spans, last)) rows.push({ protocol, ...span });
  }
  return rows;
}

/** Each point gets the first span that covers it. Neighbours with equal decisions are joined. */
function paint(spans: readonly Span[], last: number): Span[] {
  const [first] = spans;
  if (first === undefined) return [];
  if (spans.length === 1 || (first.from === 0 && first.to === last)) return [first];
  const starts = [...new Set(spans.flatMap(({ from, to }) => [from, to + 1]))].sort(compareNumber);
  const indexOf = new Map(starts.map((start, index) => [start, index]));
  const owner = Array.from<Span | undefined>({ length: starts.length });
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
  const painted: Span[] = [];
  owner.forEach((span, index) => {
    if (span === undefined) return;
    const from = starts[index] ?? 0;
    const to = (starts[index + 1] ?? 0) - 1;
    const before = painted.at(-1);
    if (
      before !== undefined &&
      before.to === from - 1 &&
      before.verdict === span.verdict &&
      before.cookie === span.cookie
    ) {
      painted[painted.length - 1] = { ...before, to };
    } else painted.push({ from, to, verdict: span.verdict, cookie: span.cookie });
  });
  return painted;
}
