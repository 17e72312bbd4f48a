/** A change stream: a place in a table's history. It always reads what is committed, also within a transaction. */
import { Marker } from './entry.ts';
import { InvalidLimitError, StreamDisposedError } from './errors.ts';
import type { Place } from './history.ts';
import type { TableStore } from './table.ts';
import type { Change, ChangeStream, Revision, Watch } from './types.ts';
import { WatchNode } from './watch.ts';

/** What a stream needs to know of the running transaction. */
export interface Running {
  /** Runs `undo` should the running transaction abort; at once forgotten when none is running. */
  onAbort(undo: () => void): void;
  /** Runs `action` when no transaction is running: now, or after it has ended. */
  afterwards(action: () => void): void;
}

export class TableStream<T> implements ChangeStream<T> {
  readonly #store: TableStore<T>;
  readonly #place: Place<T>;
  readonly #running: Running;
  readonly #release: (stream: TableStream<T>) => void;
  /** Deletes up to here happened before this stream began from nothing: it has never shown those rows. */
  readonly #hideDeletesUntil: Revision;
  #closed: string | undefined;

  constructor(
    store: TableStore<T>,
    place: Place<T>,
    hideDeletesUntil: Revision,
    running: Running,
    release: (stream: TableStream<T>) => void,
  ) {
    this.#store = store;
    this.#place = place;
    this.#hideDeletesUntil = hideDeletesUntil;
    this.#running = running;
    this.#release = release;
  }

  get revision(): Revision {
    return this.#place.revision;
  }

  next(limit: number = Number.POSITIVE_INFINITY): readonly Change<T>[] {
    this.#check();
    if (!(limit >= 1)) throw new InvalidLimitError(limit);
    const place = this.#place;
    const { history, committed } = this.#store;
    const { revision: before, entry: beforeEntry } = place;
    if (before === committed.revision) return [];
    const changes: Change<T>[] = [];
    let last = beforeEntry;
    let entry = history.after(last);
    for (; entry !== undefined && changes.length < limit; entry = entry.after) {
      last = entry;
      const { row, revision } = entry;
      const deleted = entry instanceof Marker;
      if (!deleted || revision > this.#hideDeletesUntil) changes.push({ row, revision, deleted });
    }
    history.move(place, entry === undefined ? committed.revision : last.revision, last);
    this.#running.onAbort(() => history.move(place, before, beforeEntry));
    if (history.markers > 0) this.#running.afterwards(() => history.forgetMarkers());
    return changes;
  }

  watch(): Watch {
    this.#check();
    const pending = this.#store.committed.revision > this.#place.revision;
    return pending ? new WatchNode(true) : this.#store.watches.moved.node;
  }

  [Symbol.dispose](): void {
    this.close('has been disposed');
  }

  close(why: string): void {
    if (this.#closed !== undefined) return;
    this.#closed = why;
    this.#release(this);
  }

  #check(): void {
    if (this.#closed !== undefined) throw new StreamDisposedError(this.#store.spec.name, this.#closed);
  }
}
