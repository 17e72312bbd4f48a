/**
 * Addresses of pods and nodes that do not get their identities for as long as the kernel refuses a slot: they are unknown.
 *
 * A refused slot goes on with what it had, and so does an endpoint that was to have it instead of another. Neither has an element of an identity that is
 * new to it: such a peer is judged as any pod is, past a deny that the rules before and the new ones have. Guarantee: no address gets an
 * identity of which the kernel may let through what is to be dropped. An unknown peer is dropped by every deny, and let through by allows of anybody only.
 *
 * CIDRs get theirs: a slot that does not name one judges its addresses as before.
 */
import { isLocalCidr } from '@weir/identity';
import type { Pieces } from '@weir/policy';
import { type Around, DIRECTIONS } from '../derive/contract.ts';
import type { EndpointStateRow, IpcacheRow, SlotContent } from '../tables.ts';
import { opensPeer } from './slot-content.ts';

type Word = Pick<EndpointStateRow, 'slot' | 'enforced'>;

export interface AtRefusal {
  /** Slots that the kernel refuses, with their wanted content. */
  readonly refused: ReadonlyMap<number, SlotContent>;
  /** What endpoints are to enforce. */
  readonly states: Iterable<EndpointStateRow>;
  /** Endpoints whose words the kernel refuses. */
  readonly waiting: ReadonlySet<number>;
  /** What an endpoint's word says; undefined: there is none. */
  readonly word: (endpoint: number) => Word | undefined;
  /** What the kernel has of a slot; undefined: nothing, so that nothing passes. */
  readonly content: (slot: number) => SlotContent | undefined;
  readonly around: Around;
}

/** Prefixes of rows whose identities the kernel may allow though they must be dropped. */
export function* withheldAddresses(rows: readonly IpcacheRow[], at: AtRefusal): Pieces<ReadonlySet<string>> {
  const pairs = [...pairsOf(at)];
  const known = new Map<number, boolean>();
  const withheld = new Set<string>();
  const { around } = at;
  for (const { prefix, identity } of rows) {
    if (isLocalCidr(identity)) continue;
    let open = known.get(identity);
    if (open === undefined) {
      yield;
      open = pairs.some(({ there, wanted, directions }) =>
        directions.some((direction) =>
          opensPeer({ content: there, identity, around }, [{ content: wanted, identity, around }], direction),
        ),
      );
      known.set(identity, open);
    }
    if (open) withheld.add(prefix);
  }
  return withheld;
}

interface Pair {
  readonly there: SlotContent;
  readonly wanted: SlotContent;
  /** Those that are enforced now and stay so. */
  readonly directions: readonly (typeof DIRECTIONS)[number][];
}

/** What endpoints have and are to have, each pair once. */
function pairsOf({ refused, states, waiting, word, content }: AtRefusal): Iterable<Pair> {
  const pairs = new Map<string, Pair>();
  for (const { id, slot, enforced } of states) {
    const now = word(id);
    const there = now === undefined ? undefined : content(now.slot);
    if (now === undefined || there === undefined) continue;
    const directions = DIRECTIONS.filter((direction) => now.enforced[direction] && enforced[direction]);
    // Its wanted slot, and the slot that it keeps until then.
    for (const of of new Set([slot, now.slot])) {
      const wanted = refused.get(of) ?? (waiting.has(id) && of !== now.slot ? content(of) : undefined);
      if (wanted !== undefined) pairs.set(`${now.slot} ${of} ${directions.join()}`, { there, wanted, directions });
    }
  }
  return pairs.values();
}
