/**
 * What a reconciler knows of each row: what the target was last asked for, whether it acknowledged, when to try again.
 * A newer change replaces what is known of the row, its error and its retries, whatever either asks for.
 */
import type { Change, Revision } from '@weir/statedb';
import { DueHeap } from './backoff.ts';
import type { Failure } from './types.ts';

export interface Item<T> {
  readonly key: string;
  readonly row: T;
  readonly revision: Revision;
  readonly deleted: boolean;
  state: 'pending' | 'done' | 'error';
  error: Error | undefined;
  /** Failed attempts beyond the first, of this revision. */
  retries: number;
  dueAt: number;
  /** The oldest revision of the row that the target has not acknowledged. */
  unacknowledgedSince: Revision;
}

export class Book<T> {
  readonly items = new Map<string, Item<T>>();
  readonly #failing = new Set<Item<T>>();
  readonly #due = new DueHeap<Item<T>>();

  /** Notes a change that is now to be carried out. */
  record(key: string, change: Change<T>): Item<T> {
    const before = this.items.get(key);
    const item: Item<T> = {
      key,
      row: change.row,
      revision: change.revision,
      deleted: change.deleted,
      state: 'pending',
      error: undefined,
      retries: 0,
      dueAt: 0,
      unacknowledgedSince:
        before === undefined || before.state === 'done' ? change.revision : before.unacknowledgedSince,
    };
    if (before !== undefined) this.#failing.delete(before);
    this.items.set(key, item);
    return item;
  }

  current(item: Item<T>): boolean {
    return this.items.get(item.key) === item;
  }

  succeeded(item: Item<T>): void {
    if (!this.current(item)) return;
    this.#failing.delete(item);
    item.state = 'done';
    item.error = undefined;
    item.retries = 0;
    if (item.deleted) this.items.delete(item.key);
  }

  /** `delay` gives the milliseconds until the next attempt, from the number of retries so far. */
  failed(item: Item<T>, error: Error, now: number, delay: (retries: number) => number): void {
    if (!this.current(item)) return;
    item.retries = item.state === 'error' ? item.retries + 1 : 0;
    if (item.state === 'done') item.unacknowledgedSince = item.revision;
    item.state = 'error';
    item.error = error;
    item.dueAt = now + delay(item.retries);
    this.#failing.add(item);
    this.#due.push(item.dueAt, item);
  }

  /** When the next retry is due; undefined when none is. */
  nextDue(): number | undefined {
    for (;;) {
      const top = this.#due.peek();
      if (top === undefined) return undefined;
      if (this.#failing.has(top.value) && top.value.dueAt === top.at) return top.at;
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

  /** Puts back a retry that was taken and not attempted. */
  putBack(item: Item<T>): void {
    if (this.#failing.has(item)) this.#due.push(item.dueAt, item);
  }

  failing(until: Revision = Number.POSITIVE_INFINITY): Failure<T>[] {
    const failures: Failure<T>[] = [];
    for (const { row, error, retries, unacknowledgedSince } of this.#failing) {
      if (error !== undefined && unacknowledgedSince <= until) failures.push({ row, error, retries });
    }
    return failures;
  }
}
