/** A change stream: a cursor into the revision log. It always reads the committed state, also within a transaction. */
import { InvalidLimitError, StreamDisposedError } from './errors.ts';
import type { Generation } from './history.ts';
import type { Cursor, TableStore } from './table.ts';
import type { Change, ChangeStream, Revision, Watch } from './types.ts';
import { WatchNode } from './watch.ts';

/** What a stream needs to know of the running transaction. */
export interface Committed {
  /** The generation of the committed state; undefined when that is the present. */
  at(): Generation | undefined;
  /** Runs `undo` should the running transaction abort; at once forgotten when none is running. */
  onAbort(undo: () => void): void;
  /** Runs `action` when no transaction is running: now, or after it has ended. */
  afterwards(action: () => void): void;
}

export class TableStream<T> implements ChangeStream<T> {
  readonly #store: TableStore<T>;
  readonly #cursor: Cursor;
  readonly #committed: Committed;
  readonly #release: (stream: TableStream<T>) => void;
  /** Deletes up to here happened before this stream began from nothing: it has never shown those rows. */
  readonly #hideDeletesUntil: Revision;
  #closed: string | undefined;

  constructor(
    store: TableStore<T>,
    cursor: Cursor,
    hideDeletesUntil: Revision,
    committed: Committed,
    release: (stream: TableStream<T>) => void,
  ) {
    this.#store = store;
    this.#cursor = cursor;
    this.#hideDeletesUntil = hideDeletesUntil;
    this.#committed = committed;
    this.#release = release;
  }

  get revision(): Revision {
    return this.#cursor.revision;
  }

  next(limit: number = Number.POSITIVE_INFINITY): readonly Change<T>[] {
    this.#check();
    if (!(limit >= 1)) throw new InvalidLimitError(limit);
    const at = this.#committed.at();
    const changes: Change<T>[] = [];
    const before = this.#cursor.revision;
    let reached = this.#store.stateAt(at).revision;
    for (const { revision, key } of this.#store.log.after(before)) {
      if (changes.length >= limit) {
        reached = changes.at(-1)?.revision ?? before;
        break;
      }
      const version = this.#store.rows.get(key, at);
      if (version?.revision === revision) {
        changes.push({ row: version.row, revision, deleted: false });
        continue;
      }
      const marker = this.#store.markers.get(key);
      if (marker?.revision === revision && revision > this.#hideDeletesUntil) {
        changes.push({ row: marker.row, revision, deleted: true });
      }
    }
    if (reached !== before) {
      this.#cursor.revision = reached;
      this.#committed.onAbort(() => {
        this.#cursor.revision = before;
      });
      this.#committed.afterwards(() => this.#store.forgetMarkers());
    }
    return changes;
  }

  watch(): Watch {
    this.#check();
    const { revision } = this.#store.stateAt(this.#committed.at());
    return revision > this.#cursor.revision ? new WatchNode(true) : this.#store.changed.node;
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
