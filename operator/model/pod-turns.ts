/**
 * Pods whose changes wait to be taken in: each namespace has turns, and mirrors of static pods have as many together as one namespace. Among
 * them each namespace has turns on each node: a kubelet makes mirrors in any namespace. Whoever makes pods may say that they are mirrors on
 * any node; of one that does not exist they go in their namespace's turns, so that nobody gets turns by making nodes up.
 */
import { type AnyTable, type Change, keys, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { NodeRow, PodRow } from '../types.ts';
import { FairQueue } from './fair-queue.ts';

/** Stands for the next mirror among the namespaces' pods. No namespace, and no pod, is called so. */
const MIRRORS = '/mirrors';

export class PodTurns {
  readonly #nodes: Table<NodeRow>;
  /** Waits with MIRRORS as long as a mirror waits. */
  readonly #pods: FairQueue<PodRow | typeof MIRRORS>;
  readonly #mirrors: FairQueue<PodRow>;

  constructor(db: StateDB, nodes: Table<NodeRow>) {
    this.#nodes = nodes;
    this.#pods = new FairQueue<PodRow | typeof MIRRORS>(db, {
      name: 'pods',
      keyOf: (turn) => (turn === MIRRORS ? MIRRORS : turn.key),
      ownerOf: (turn) => (turn === MIRRORS ? MIRRORS : turn.namespace),
    });
    this.#mirrors = new FairQueue<PodRow>(db, {
      name: 'mirrors',
      keyOf: ({ key }) => key,
      ownerOf: ({ namespace, mirrorOf = '' }) => keys.join(namespace, mirrorOf),
    });
  }

  get tables(): readonly AnyTable[] {
    return [...this.#pods.tables, ...this.#mirrors.tables];
  }

  /** Queues a change. A pod that waits already stays where it waits, whatever it is now: of two places the later would hold the older change. */
  put(txn: WriteTxn, change: Change<PodRow>): void {
    const { key, mirrorOf } = change.row;
    const isMirror =
      this.#mirrors.has(txn, key) ||
      (!this.#pods.has(txn, key) && mirrorOf !== undefined && txn.has(this.#nodes, mirrorOf));
    if (!isMirror) {
      this.#pods.put(txn, change);
      return;
    }
    this.#mirrors.put(txn, change);
    this.#putMirrors(txn, change.revision);
  }

  /** The next change, which waits no more. */
  take(txn: WriteTxn): Change<PodRow> | undefined {
    const next = this.#pods.take(txn);
    if (next === undefined) return undefined;
    const { row, revision } = next;
    if (row !== MIRRORS) return { ...next, row };
    const mirror = this.#mirrors.take(txn);
    // Where nobody waits no turn is kept: to be asked once more, the queue forgets them.
    if (this.#mirrors.isEmpty(txn)) this.#mirrors.take(txn);
    else this.#putMirrors(txn, revision);
    return mirror;
  }

  #putMirrors(txn: WriteTxn, revision: number): void {
    this.#pods.put(txn, { row: MIRRORS, revision, deleted: false });
  }
}
