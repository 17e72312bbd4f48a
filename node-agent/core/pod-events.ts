import type { Core } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type { PodEventRow } from '../tables.ts';

/** Minimum time between two Events of a node with one reason, in milliseconds. */
const NODE_REPEAT_MS = 60_000;
/** How long the Events of a pod that is not known are kept: it may be that the watch of pods has not brought it yet. Milliseconds. */
const UNKNOWN_POD_MS = 600_000;

export interface PodRef {
  readonly namespace: string;
  readonly name: string;
  readonly uid?: string | undefined;
}

/**
 * Warnings about pods of this node, and the node itself, for `kubectl describe`: one Event for each reason of each, whose count and last time grow. Rows of
 * table `podEvents`, which `kubernetes/` writes to the API server; without Kubernetes nobody does. Those of pods that are gone go with the
 * next one that comes.
 */
export class PodEvents {
  readonly #core: Pick<Core, 'db' | 'tables'>;
  /** Milliseconds since 1970. */
  readonly #now: () => number;

  constructor(core: Pick<Core, 'db' | 'tables'>, now: () => number = Date.now) {
    this.#core = core;
    this.#now = now;
  }

  /** At most one Event a minute for each reason: `tellDelayed` writes the last of those that come sooner. */
  warnNode(node: string, reason: string, message: string): void {
    const { db, tables } = this.#core;
    const { podEvents, delayedNodeEvents } = tables;
    const now = this.#now();
    db.write([podEvents, delayedNodeEvents], (txn) => {
      const key = `node ${node} ${reason}`;
      const before = txn.get(podEvents, key);
      const delayed = txn.get(delayedNodeEvents, key);
      // As kubelet does it: the namespace of what has none, and the name for a uid.
      const pod = { namespace: 'default', name: node, uid: node };
      const count = (delayed?.count ?? before?.count ?? 0) + 1;
      const row = { key, pod, node: true, reason, message, count, first: before?.first ?? now, last: now } as const;
      const tooSoon = isTooSoon(before, now);
      txn.upsert(tooSoon ? delayedNodeEvents : podEvents, row);
      if (!tooSoon) txn.delete(delayedNodeEvents, key);
    });
  }

  /** Writes delayed Events that are due. Call it every few seconds. */
  tellDelayed(): void {
    const { db, tables } = this.#core;
    const { podEvents, delayedNodeEvents } = tables;
    const now = this.#now();
    using snapshot = db.read();
    const due = [...snapshot.all(delayedNodeEvents)].filter(({ key }) => !isTooSoon(snapshot.get(podEvents, key), now));
    if (due.length === 0) return;
    db.write([podEvents, delayedNodeEvents], (txn) => {
      for (const row of due) {
        txn.delete(delayedNodeEvents, row.key);
        txn.upsert(podEvents, { ...row, last: now });
      }
    });
  }

  warn(pod: PodRef, reason: string, message: string): void {
    const { db, tables } = this.#core;
    const { podEvents, localPods } = tables;
    const now = this.#now();
    db.write([podEvents], (txn) => {
      for (const { key, pod, last, node } of txn.all(podEvents)) {
        const there = node !== undefined || txn.get(localPods, tableKey.pod(pod.namespace, pod.name))?.uid === pod.uid;
        if (!there && Math.abs(now - last) > UNKNOWN_POD_MS) txn.delete(podEvents, key);
      }
      const { namespace, name } = pod;
      const uid = pod.uid ?? txn.get(localPods, tableKey.pod(namespace, name))?.uid ?? '';
      const key = `${tableKey.pod(namespace, name)} ${uid} ${reason}`;
      const before = txn.get(podEvents, key);
      const row: PodEventRow = {
        key,
        pod: { namespace, name, uid },
        reason,
        message,
        count: (before?.count ?? 0) + 1,
        first: before?.first ?? now,
        last: now,
      };
      txn.upsert(podEvents, row);
    });
  }
}

function isTooSoon(before: PodEventRow | undefined, now: number): boolean {
  return before !== undefined && Math.abs(now - before.last) < NODE_REPEAT_MS;
}
