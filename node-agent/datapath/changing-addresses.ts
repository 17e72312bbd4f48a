/**
 * Addresses that get another identity in a round in which rules change, too. Nobody knows which of the two changed first in the world.
 *
 * Guarantee: an endpoint is judged by its rules and the addresses of before, or by its rules and the addresses of after: the revision in its word says by
 * which. An endpoint whose word the kernel refuses knows nobody at these addresses until it has one.
 */
import { isLocalCidr } from '@weir/identity';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';

type Rules = Pick<EndpointStateRow, 'slot' | 'enforced'>;

export interface Changing {
  /** By prefix: the identity that the address had. */
  readonly moved: ReadonlyMap<string, number>;
  /** Endpoints that get words in this round. */
  readonly states: readonly EndpointStateRow[];
  /** What an endpoint's word says now; undefined: it has none. */
  readonly word: (endpoint: number) => Rules | undefined;
  /** The last row of the prefix. */
  readonly there: (prefix: string) => IpcacheRow | undefined;
  /** A revision that is newer than those of all words. */
  readonly revision: () => number;
}

/**
 * The rows, of which those that change beside rules say what they were, too. One that was left changing, as a word was refused or a plan broke off, stays as
 * it is or is unknown to endpoints of before. CIDRs have their numbers at once: rules that do not name them judge by what is around them.
 */
export function versioned(rows: readonly IpcacheRow[], options: Changing): readonly IpcacheRow[] {
  const { moved, there, revision } = options;
  const beside = changesRules(options);
  let since: number | undefined;
  return rows.map((row) => {
    const last = there(row.prefix);
    if (last?.before !== undefined && last.identity === row.identity) return { ...row, before: last.before };
    const from = beside && !isLocalCidr(row.identity) ? moved.get(row.prefix) : undefined;
    if (last?.before === undefined && from === undefined) return row;
    since ??= revision();
    return { ...row, before: { identity: last?.before === undefined ? (from ?? 0) : 0, since } };
  });
}

function changesRules({ states, word }: Changing): boolean {
  return states.some((state) => {
    const now = word(state.id);
    return now !== undefined && now.slot !== 0 && !sameRules(now, state);
  });
}

function sameRules(a: Rules, b: Rules): boolean {
  return a.slot === b.slot && a.enforced.ingress === b.enforced.ingress && a.enforced.egress === b.enforced.egress;
}

/** Rows that were changing, as they are to all endpoints once these have their words. */
export function settled(rows: Iterable<IpcacheRow>): readonly IpcacheRow[] {
  return Array.from(rows, ({ before: _, ...row }) => row);
}

/** Those that are still to become unknown to endpoints whose words are refused. */
export function closed(rows: Iterable<IpcacheRow>): readonly IpcacheRow[] {
  return Array.from(rows).flatMap((row) =>
    row.before === undefined || row.before.identity === 0 ? [] : [{ ...row, before: { ...row.before, identity: 0 } }],
  );
}

/** A CIDR's exceptions before it: a slot that names both is to judge them by their own. */
export function longestFirst(rows: readonly IpcacheRow[]): readonly IpcacheRow[] {
  const bits = ({ prefix }: IpcacheRow): number => Number(prefix.slice(prefix.indexOf('/') + 1));
  return [...rows].sort((a, b) => bits(b) - bits(a));
}
