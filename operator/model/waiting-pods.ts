/**
 * Tells of pods that wait for a number: by an Event on the first of a namespace, and to whoever listens. Mirror pods are told of by themselves: a node
 * could hide by them that others wait.
 */
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { NoIdentityError } from '../errors.ts';
import { type Desired, show } from '../tables.ts';
import { oneLine } from '../texts.ts';
import type { EventRow } from '../types.ts';
import { secondsOf } from './events.ts';
import { Marks } from './marks.ts';
import { type PlacedPod, waitingGroup } from './placed-pods.ts';

/** Milliseconds between two times that one group's lack is told. */
const LACKS_MS = 60_000;

/** A group (`waitingGroup`) of which it was told that pods wait. */
interface ToldLack {
  readonly group: string;
  /** Milliseconds. */
  readonly toldAt: number;
}

export interface WaitingPodsOptions {
  readonly pods: Table<PlacedPod>;
  readonly events: Table<Desired<EventRow>>;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly onNoIdentity: ((namespace: string, pod: string, error: NoIdentityError) => void) | undefined;
}

export class WaitingPods {
  readonly #options: WaitingPodsOptions;
  readonly #told: Table<ToldLack>;
  /** Groups in which pods have begun to wait, where none waited. */
  readonly #lacking = new Marks<string>();

  constructor(db: StateDB, options: WaitingPodsOptions) {
    this.#options = options;
    this.#told = db.table<ToldLack>({ name: 'told-identity-lacks', key: ({ group }) => group });
  }

  get tables(): readonly AnyTable[] {
    return [this.#told];
  }

  /** To be called before the pod is stored as it is now. */
  begins(txn: WriteTxn, before: PlacedPod | undefined, after: PlacedPod): void {
    if (after.waiting === undefined || before?.waiting !== undefined) return;
    const group = waitingGroup(after.row);
    if (this.#firstOf(txn, group) === undefined) this.#lacking.add(txn, group);
  }

  /** All that wait are told of anew. Returns the accounts that they wait for. */
  all(txn: WriteTxn): Set<string> {
    const accounts = new Set<string>();
    for (const { row, waiting } of txn.prefix(this.#options.pods, '', 'waiting')) {
      this.#lacking.add(txn, waitingGroup(row));
      if (waiting !== undefined) accounts.add(waiting.because.account);
    }
    return accounts;
  }

  tell(txn: WriteTxn): void {
    for (const group of this.#lacking.take(txn)) {
      const first = this.#firstOf(txn, group);
      if (first?.waiting !== undefined) this.#tell(txn, group, first, first.waiting.because);
    }
  }

  /** Forgets what was told long ago. */
  collect(txn: WriteTxn, now: number): void {
    for (const { group, toldAt } of txn.all(this.#told)) {
      if (now - toldAt < LACKS_MS) continue;
      txn.delete(this.#told, group);
      txn.delete(this.#options.events, eventKey(group));
    }
  }

  count(reader: Reader): number {
    let count = 0;
    for (const _ of reader.prefix(this.#options.pods, '', 'waiting')) count += 1;
    return count;
  }

  #firstOf(reader: Reader, group: string): PlacedPod | undefined {
    const [first] = reader.list(this.#options.pods, 'waiting-in', group);
    return first;
  }

  #tell(
    txn: WriteTxn,
    group: string,
    { row: { key: pod, namespace, name, uid } }: PlacedPod,
    because: NoIdentityError,
  ) {
    const { onNoIdentity, events } = this.#options;
    const now = this.#options.now();
    const last = txn.get(this.#told, group)?.toldAt;
    // A clock that was set back silences nobody for long.
    if (last !== undefined && last <= now && now - last < LACKS_MS) return;
    txn.upsert(this.#told, { group, toldAt: now });
    onNoIdentity?.(namespace, pod, because);
    const at = secondsOf(now);
    show(txn, events, {
      key: eventKey(group),
      about: { key: pod, kind: 'Pod', namespace, name, uid },
      type: 'Warning',
      reason: 'NoIdentity',
      message: oneLine(because.message),
      count: 1,
      first: at,
      last: at,
    });
  }
}

function eventKey(group: string): string {
  return keys.join('pods', group);
}
