/**
 * What a reconciler knows of the rows that are not done: those whose operation runs, those that wait for an older
 * operation on the same row, and those that failed. A row that is not in the book is done if its change has been handled.
 */
import type { Change, Revision } from '@weir/statedb';
import { DueHeap } from './due-heap.ts';
import type { Group } from './frontier.ts';
import type { Failure } from './types.ts';

/** What a set of attempts is for. */
export interface Work {
  /** Where attempts that do not end at once are counted. */
  readonly group: Group;
  /** The oldest revision that a change among them may have taken the place of. */
  readonly since: Revision;
}

/** One change of one row, until the target has acknowledged it or a newer one takes its place. */
export class Item<T> {
  readonly key: string;
  row: T;
  revision: Revision;
  deleted: boolean;
  running = false;
  /** The operation's time was over; it still runs, or has ended since. */
  timedOut = false;
  /** Of the last attempt, or of an older revision that was refused. */
  error: Error | undefined;
  /** While there is an error: when the row, or an older revision of it, was refused first. */
  failingSince = 0;
  /** Failed attempts at this revision. */
  attempt = 0;
  dueAt = 0;
  /** All retries were asked for while it ran. */
  hastened = false;
  /** The oldest revision of the row that the target may not have acknowledged. */
  since: Revision;
  /** As `since`, were all older changes acknowledged. */
  readonly #first: Revision;
  /** Where the attempt under way, or the first one to come, is counted. */
  group: Group | undefined;
  /** Waits for this one to end. */
  newer: Item<T> | undefined;
  /** How often the row was in a batch that failed without saying which row was to blame, since it last succeeded. */
  suspected = 0;

  constructor(key: string, { row, revision, deleted }: Change<T>, since: Revision) {
    this.key = key;
    this.row = row;
    this.revision = revision;
    this.deleted = deleted;
    this.since = since;
    this.#first = since;
  }

  /** Everything older than this change is acknowledged. */
  clear(): void {
    this.error = undefined;
    this.since = this.#first;
  }
}

export class Book<T> {
  /** By primary key, the newest of each row. */
  readonly items = new Map<string, Item<T>>();
  /** Keys that fail, or did, since somebody last cleared it; undefined when nobody does. */
  readonly touched: Set<string> | undefined;
  readonly #due = new DueHeap<Item<T>>();
  #failing = 0;

  constructor(noteTouched: boolean) {
    this.touched = noteTouched ? new Set() : undefined;
  }

  /** Items with an error. */
  get failing(): number {
    return this.#failing;
  }

  newest(item: Item<T>): boolean {
    return this.items.get(item.key) === item;
  }

  /** `since`: the oldest revision of the row that this change may have taken the place of. */
  add(key: string, change: Change<T>, since: Revision): Item<T> {
    const item = new Item(key, change, Math.min(since, change.revision));
    this.items.set(key, item);
    return item;
  }

  /** A newer change of a row in the book. Returns the item to begin, or undefined when that must wait for an older one. */
  supersede(known: Item<T>, change: Change<T>, { group, since }: Work): Item<T> | undefined {
    if (known.group !== undefined && !known.running) {
      // It has been waiting, and goes on waiting in its place.
      known.row = change.row;
      known.revision = change.revision;
      known.deleted = change.deleted;
      return undefined;
    }
    const item = this.add(known.key, change, since);
    if (known.error !== undefined) {
      item.error = known.error;
      item.failingSince = known.failingSince;
      item.since = known.since;
      item.suspected = known.suspected;
    }
    if (!known.running) return item;
    known.newer = item;
    item.group = group;
    group.running++;
    return undefined;
  }

  /** The target has acknowledged the newest change. */
  succeeded(item: Item<T>): void {
    this.items.delete(item.key);
    if (item.error === undefined) return;
    this.#failing--;
    this.touched?.add(item.key);
  }

  /** The newest change was refused, `now`; it is due again at `dueAt`, once it does not run. */
  failed(item: Item<T>, error: Error, now: number, dueAt: number): void {
    if (item.error === undefined) {
      this.#failing++;
      item.failingSince = now;
    }
    item.error = error;
    item.attempt++;
    item.dueAt = dueAt;
    item.hastened = false;
    this.touched?.add(item.key);
    if (!item.running) this.schedule(item);
  }

  schedule(item: Item<T>): void {
    this.#due.push(item.dueAt, item);
  }

  /** Every item that waits for a retry is due at `now`; one that runs is not to wait for long, should it fail. */
  hasten(now: number): void {
    for (const item of this.items.values()) {
      item.hastened = item.running;
      if (item.dueAt <= now || !this.#retriable(item)) continue;
      item.dueAt = now;
      this.schedule(item);
    }
  }

  /** An older change has ended, `now`, while this one waited for it. */
  released(item: Item<T>, older: Item<T>, error: Error | undefined, now: number): void {
    if (error === undefined && item.error === undefined) {
      item.clear();
      return;
    }
    if (error === undefined) {
      this.#failing--;
      item.clear();
    } else {
      if (item.error === undefined) {
        this.#failing++;
        item.failingSince = older.error === undefined ? now : older.failingSince;
      }
      item.error = error;
      item.since = older.since;
    }
    this.touched?.add(item.key);
  }

  /** When the next retry is due; undefined when none is. */
  nextDue(): number | undefined {
    for (;;) {
      const top = this.#due.peek();
      if (top === undefined) return undefined;
      if (this.#retriable(top.value) && top.value.dueAt === top.at) return top.at;
      this.#due.pop();
    }
  }

  /** At most `limit` items whose retry is due. */
  takeDue(now: number, limit: number): Item<T>[] {
    const taken: Item<T>[] = [];
    while (taken.length < limit) {
      const next = this.nextDue();
      if (next === undefined || next > now) break;
      const item = this.#due.pop();
      if (item !== undefined) taken.push(item);
    }
    return taken;
  }

  failures(until: Revision = Number.POSITIVE_INFINITY): Failure<T>[] {
    const failures: Failure<T>[] = [];
    if (this.#failing === 0) return failures;
    for (const item of this.items.values()) {
      if (item.error !== undefined && item.since <= until) failures.push(failureOf(item, item.error));
    }
    return failures;
  }

  #retriable(item: Item<T>): boolean {
    return item.attempt > 0 && !item.running && this.newest(item);
  }
}

export function failureOf<T>({ key, row, revision, deleted, attempt, dueAt }: Item<T>, error: Error): Failure<T> {
  return { key, row, revision, deleted, error, attempt, nextRetryAt: dueAt };
}
