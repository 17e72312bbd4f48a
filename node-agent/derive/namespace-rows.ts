/**
 * What the slots of one namespace's endpoints may come to on this node, together. Without this limit who may make pods and policies in one
 * namespace could fill the node's memory with many slots that fit each by itself, and have everybody wait while they are written. A direction
 * that does not fit is closed.
 */
import { type CompiledPolicy, MOST_ROWS, rowsIn } from '@weir/policy';
import { DIRECTIONS } from './rows.ts';

/** Rows that a namespace may have for each row that one direction may have. 260,000 take some 140 MB of the agent, and 2 s to compile and write. */
const TIMES = 4;
/** Peers that rules tell from others, each of which is an element of the kernel's map, that count as one row. */
const MEMBERS_A_ROW = 4;

/** Counts rows while slots are gone through in their order: who comes first keeps. */
export class NamespaceRows {
  readonly #most: number;
  readonly #used = new Map<string, number>();

  /** @param most rows of one direction of a slot */
  constructor(most = MOST_ROWS) {
    this.#most = most;
  }

  /** The most rows that each direction of the namespace's next slot may have. */
  limit(namespace: string): number {
    return Math.min(this.#most, this.room(namespace));
  }

  /** The most rows that the namespace's next slot may have: no more than twice those of a direction. */
  room(namespace: string): number {
    return Math.min(2 * this.#most, TIMES * this.#most - (this.#used.get(namespace) ?? 0));
  }

  /** The slot as it fits: with a direction closed that does not. */
  take(namespace: string, compiled: CompiledPolicy): CompiledPolicy {
    let fits = compiled;
    for (const direction of DIRECTIONS) {
      const { enforced, excess } = compiled[direction];
      if (!enforced || excess !== undefined) continue;
      const rows = countOf(compiled[direction]);
      if (rows > this.limit(namespace)) fits = { ...fits, [direction]: closed(this.#message(direction, namespace)) };
      else this.#used.set(namespace, (this.#used.get(namespace) ?? 0) + rows);
    }
    return fits;
  }

  /** The slot that did not fit into `limit`, with that as the reason. */
  named(namespace: string, compiled: CompiledPolicy): CompiledPolicy {
    if (this.limit(namespace) === this.#most) return compiled;
    const of = (direction: (typeof DIRECTIONS)[number]): CompiledPolicy[typeof direction] =>
      compiled[direction].excess === undefined ? compiled[direction] : closed(this.#message(direction, namespace));
    return { ingress: of('ingress'), egress: of('egress') };
  }

  #message(direction: string, namespace: string): string {
    return (
      `${direction} needs more rows (ports of each class of peers, and one for ${MEMBERS_A_ROW} peers that rules tell from others) than are left of the ${TIMES * this.#most} that all pods of namespace ` +
      `${namespace} may have on one node; put peers that are to have the same ports into one rule, write ports that lie together as a range, or ` +
      'have fewer policies select its pods'
    );
  }
}

function countOf(direction: CompiledPolicy['ingress']): number {
  const members = direction.classes.reduce((sum, one) => sum + one.members.length, 0);
  return rowsIn(direction) + Math.floor(members / MEMBERS_A_ROW);
}

function closed(message: string): CompiledPolicy['ingress'] {
  return {
    enforced: true,
    scope: { unknown: [], pod: [], world: [] },
    classes: [],
    addresses: [],
    excess: { message },
  };
}
