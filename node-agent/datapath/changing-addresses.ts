/**
 * Addresses that get another identity in a round in which rules change, too. Nobody knows which of the two changed first in the world.
 *
 * Guarantee: an endpoint is judged by its rules and the addresses of before, or by its rules and the addresses of after: the revision in its word says by
 * which. An endpoint whose word the kernel refuses stays behind: it knows nobody at addresses that have changed since, until it has one.
 */
import { isLocalCidr, RESERVED_ID } from '@weir/identity';
import type { Pieces } from '@weir/policy';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';

type Rules = Pick<EndpointStateRow, 'slot' | 'enforced'>;

export interface Changing {
  /** The identity that the kernel has for addresses of a prefix now. */
  readonly was: (prefix: string) => number;
  /** Endpoints that get words in this round. */
  readonly states: readonly EndpointStateRow[];
  /** What an endpoint's word says now; undefined: it has none. */
  readonly word: (endpoint: number) => Rules | undefined;
  /** The last row of the prefix. */
  readonly there: (prefix: string) => IpcacheRow | undefined;
  /** By prefix of rows that get another identity: the one that they had before this plan. */
  readonly moved: ReadonlyMap<string, number>;
  /** Rows that are deleted after this, as they are then. */
  readonly leaving: readonly IpcacheRow[];
  /** A revision that is newer than those of all words. */
  readonly revision: () => number;
}

/**
 * The rows, of which those that change beside rules say what they were, too. One that was left changing, as a word was refused or a plan broke off, stays as
 * it is or is unknown to endpoints of before. CIDRs outside have their numbers at once: rules that do not name them judge by what is around them. Those
 * that leave are among them where rules change.
 */
export function* versioned(rows: readonly IpcacheRow[], options: Changing): Pieces<readonly IpcacheRow[]> {
  const { was, there, moved, leaving, revision } = options;
  const beside = changesRules(options);
  let since: number | undefined;
  const out: IpcacheRow[] = [];
  for (const row of beside ? [...rows, ...leaving] : rows) {
    const last = there(row.prefix);
    if (last?.before !== undefined && last.identity === row.identity) out.push({ ...row, before: last.before });
    else if (last?.before === undefined && (!beside || (isLocalCidr(row.identity) && isOutside(moved.get(row.prefix)))))
      out.push(row);
    else {
      yield;
      const identity = last?.before === undefined ? was(row.prefix) : 0;
      since ??= revision();
      out.push(identity === row.identity ? row : { ...row, before: { identity, since } });
    }
  }
  return out;
}

/** Whether an address was one that a CIDR may name; undefined: it stays what it was. */
function isOutside(identity: number = RESERVED_ID.world): boolean {
  return isLocalCidr(identity) || identity === RESERVED_ID.world || identity === RESERVED_ID['world-ipv6'];
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

/** Rows that were changing, as they are once endpoints are left behind: unknown to those whose revision is older than `since`. */
export function unknownBefore(rows: Iterable<IpcacheRow>, since: number): readonly IpcacheRow[] {
  return Array.from(rows, (row) => ({ ...row, before: { identity: 0, since } }));
}

/** A CIDR's exceptions before it: a slot that names both is to judge them by their own. */
export function longestFirst(rows: readonly IpcacheRow[]): readonly IpcacheRow[] {
  const bits = ({ prefix }: IpcacheRow): number => Number(prefix.slice(prefix.indexOf('/') + 1));
  return [...rows].sort((a, b) => bits(b) - bits(a));
}
