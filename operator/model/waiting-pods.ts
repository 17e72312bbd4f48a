/** Tells of pods that wait for a number: by an Event on each, and to whoever listens of the first of a namespace in a minute. */
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { NoIdentityError } from '../errors.ts';
import { type Desired, show } from '../tables.ts';
import { oneLine } from '../texts.ts';
import type { EventRow, PodRow } from '../types.ts';
import { secondsOf } from './events.ts';
import { Marks } from './marks.ts';
import type { PlacedPod } from './placed-pods.ts';

/** Milliseconds of a namespace's window, in which no pod gets the same Event twice. */
const WINDOW_MS = 60_000;
/** Pods of a namespace that get an Event in a window. The others get theirs when unused identities are collected next. */
const MOST_EVENTS = 100;
/** Milliseconds after which a pod that still waits gets its Event again: API servers drop Events after an hour. */
const AGAIN_MS = 30 * 60_000;
/** As the keys of these Events begin. */
const EVENTS = keys.join('pods');

/** A namespace whose pods got Events. */
interface Window {
  readonly namespace: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** Events written in it. */
  readonly count: number;
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
  readonly #windows: Table<Window>;
  /** Pods that get an Event if they still wait. */
  readonly #due = new Marks<string>();

  constructor(db: StateDB, options: WaitingPodsOptions) {
    this.#options = options;
    this.#windows = db.table<Window>({ name: 'identityWarnings', key: ({ namespace }) => namespace });
  }

  get tables(): readonly AnyTable[] {
    return [this.#windows];
  }

  /** Notes a pod that begins to wait, or waits for another reason than before. */
  begins(txn: WriteTxn, before: PlacedPod | undefined, { row, waiting }: PlacedPod): void {
    if (waiting === undefined) return;
    const same = before?.row.uid === row.uid && before.waiting?.message === waiting.message;
    if (!same) this.#due.add(txn, row.key);
  }

  /** Reports all that wait. Returns the accounts that they wait for. */
  all(txn: WriteTxn): Set<string> {
    const accounts = new Set<string>();
    for (const { row, waiting } of txn.prefix(this.#options.pods, '', 'waiting')) {
      this.#due.add(txn, row.key);
      if (waiting !== undefined) accounts.add(waiting.account);
    }
    return accounts;
  }

  /** To be called at the end of a round. */
  tell(txn: WriteTxn): void {
    for (const key of this.#due.take(txn)) {
      const pod = txn.get(this.#options.pods, key);
      if (pod?.waiting !== undefined) this.#tell(txn, pod.row, pod.waiting);
    }
  }

  /** Forgets Events of pods that wait no more. Those that still wait get an Event, first those that have none yet. */
  collect(txn: WriteTxn, now: number): void {
    const { pods, events } = this.#options;
    for (const { namespace, since } of txn.all(this.#windows))
      if (isOver(since, now)) txn.delete(this.#windows, namespace);
    for (const { row } of txn.prefix(events, EVENTS)) {
      const pod = txn.get(pods, row.about.key);
      if (pod?.waiting === undefined || pod.row.uid !== row.about.uid) txn.delete(events, row.key);
    }
    const again: string[] = [];
    const untold = new Map<string, number>();
    for (const { row } of txn.prefix(pods, '', 'waiting')) {
      const before = untold.get(row.namespace) ?? 0;
      // No window has room for more.
      if (before >= MOST_EVENTS) continue;
      const shown = txn.get(events, eventKey(row))?.row;
      if (shown === undefined) {
        this.#due.add(txn, row.key);
        untold.set(row.namespace, before + 1);
      } else if (now - Date.parse(shown.last) >= AGAIN_MS) again.push(row.key);
    }
    for (const key of again) this.#due.add(txn, key);
  }

  count(reader: Reader): number {
    let count = 0;
    for (const _ of reader.prefix(this.#options.pods, '', 'waiting')) count += 1;
    return count;
  }

  #tell(txn: WriteTxn, row: PodRow, because: NoIdentityError): void {
    const { events } = this.#options;
    const { key: pod, namespace, name, uid } = row;
    const now = this.#options.now();
    const key = eventKey(row);
    const shown = txn.get(events, key)?.row;
    const before = shown?.about.uid === uid ? shown : undefined;
    const message = oneLine(because.message);
    if (before?.message === message && !isOver(Date.parse(before.last), now)) return;
    if (!this.#admits(txn, row, because)) return;
    const at = secondsOf(now);
    show(txn, events, {
      ...{
        key,
        about: { key: pod, kind: 'Pod', namespace, name, uid },
        type: 'Warning',
        reason: 'NoIdentity',
        message,
      },
      count: (before?.count ?? 0) + 1,
      first: before?.first ?? at,
      last: at,
    });
  }

  /** Whether one more pod of the namespace may get an Event now. */
  #admits(txn: WriteTxn, row: PodRow, because: NoIdentityError): boolean {
    const now = this.#options.now();
    const { namespace } = row;
    const window = txn.get(this.#windows, namespace);
    if (window === undefined || isOver(window.since, now)) {
      txn.upsert(this.#windows, { namespace, since: now, count: 1 });
      this.#options.onNoIdentity?.(namespace, row.key, because);
      return true;
    }
    if (window.count >= MOST_EVENTS) return false;
    txn.upsert(this.#windows, { ...window, count: window.count + 1 });
    return true;
  }
}

/** A clock that was set back silences nobody for long. */
function isOver(since: number, now: number): boolean {
  return now < since || now - since >= WINDOW_MS;
}

function eventKey({ key }: PodRow): string {
  return keys.join('pods', key);
}
