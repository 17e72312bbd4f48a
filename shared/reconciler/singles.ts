/**
 * Operations on single rows, at most `concurrency` at once and never two on one row.
 *
 * A row whose operation succeeds without a promise leaves no trace: no object is made for it and nothing is looked up.
 */
import type { Change } from '@weir/statedb';
import { Item, type Work } from './book.ts';
import { isPromise } from './calls.ts';
import { toError } from './errors.ts';
import type { Group } from './frontier.ts';
import type { Parts } from './parts.ts';

export class Singles<T> {
  /** Waited for an older operation on their row that has ended now. */
  ready: Item<T>[] = [];
  readonly #parts: Parts<T>;

  constructor(parts: Parts<T>) {
    this.#parts = parts;
  }

  /** Begins each of the changes; `handled` is told each that is. False when the gate was closed before the last. */
  async changes(changes: readonly Change<T>[], work: Work, handled: (change: Change<T>) => void): Promise<boolean> {
    const { gate, settings, book } = this.#parts;
    const { concurrency } = settings;
    for (const change of changes) {
      if (gate.enter(1, concurrency) === 0 && (await gate.wait(1, concurrency)) === 0) return false;
      const known = book.items.size === 0 ? undefined : book.items.get(settings.table.spec.key(change.row));
      if (known === undefined) {
        this.#attempt(change, undefined, work);
      } else {
        const item = book.supersede(known, change, work);
        if (item !== undefined) this.#attempt(item, item, work);
      }
      handled(change);
    }
    return true;
  }

  /** Begins an attempt at each: rows that are not in the book, or items of it. False as in `changes()`. */
  async run(changes: readonly Change<T>[], work: Work): Promise<boolean> {
    const { gate, settings, book } = this.#parts;
    const { concurrency } = settings;
    for (const change of changes) {
      if (gate.enter(1, concurrency) === 0 && (await gate.wait(1, concurrency)) === 0) return false;
      const item = change instanceof Item ? (change as Item<T>) : undefined;
      if (item === undefined || book.newest(item)) this.#attempt(change, item, work);
    }
    return true;
  }

  /** Begins what has become ready. */
  async released(work: Work): Promise<void> {
    const { ready } = this;
    if (ready.length === 0) return;
    this.ready = [];
    await this.run(ready, work);
  }

  #attempt(change: Change<T>, known: Item<T> | undefined, work: Work): void {
    const { book, calls, gate, results, settings } = this.#parts;
    const { operations, table } = settings;
    const { row, revision, deleted } = change;
    const began = gate.at;
    let returned: unknown;
    let error: Error | undefined;
    try {
      returned = deleted
        ? operations.delete(row, revision, calls.signal)
        : operations.update(row, revision, calls.signal);
      if (isPromise(returned)) {
        const item = known ?? book.add(table.spec.key(row), change, work.since);
        this.#follow(item, returned, work.group);
        return;
      }
    } catch (thrown) {
      error = toError(thrown);
    }
    gate.at = performance.now();
    results.called(deleted ? 'delete' : 'update', gate.at - began, 1, error === undefined ? 0 : 1);
    if (error !== undefined) results.failed(known ?? book.add(table.spec.key(row), change, work.since), error);
    else if (known !== undefined) book.succeeded(known);
    if (known?.group !== undefined) this.#attempted(known);
  }

  #follow(item: Item<T>, promise: PromiseLike<unknown>, group: Group): void {
    const { book, calls, results } = this.#parts;
    const began = performance.now();
    const called = (error: Error | undefined): void =>
      results.called(item.deleted ? 'delete' : 'update', performance.now() - began, 1, error === undefined ? 0 : 1);
    item.running = true;
    item.timedOut = false;
    if (item.group === undefined) {
      item.group = group;
      group.running++;
    }
    calls.follow(promise, {
      timedOut: (error) => {
        item.timedOut = true;
        called(error);
        if (!book.newest(item)) return;
        results.failed(item, error);
        this.#attempted(item);
      },
      ended: (error) => {
        item.running = false;
        if (!item.timedOut || error === undefined) called(error);
        this.#ended(item, error);
      },
    });
  }

  #ended(item: Item<T>, error: Error | undefined): void {
    const { book, results, settings } = this.#parts;
    if (item.newer !== undefined) {
      book.released(item.newer, item, error, settings.clock.now());
      this.ready.push(item.newer);
      item.newer = undefined;
    } else if (error === undefined) {
      book.succeeded(item);
    } else if (item.timedOut) {
      book.schedule(item);
    } else {
      results.failed(item, error);
    }
    this.#attempted(item);
  }

  /** The first attempt of its group has ended, one way or the other. */
  #attempted(item: Item<T>): void {
    const { group } = item;
    if (group === undefined) return;
    item.group = undefined;
    this.#parts.frontier.ended(group);
  }
}
