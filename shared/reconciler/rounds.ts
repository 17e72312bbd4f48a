/** What a reconciler does in its rounds: takes in changes, retries, refreshes. One thing at a time. */
import type { Change, ChangeStream, Revision } from '@weir/statedb';
import { Batches } from './batches.ts';
import type { Work } from './book.ts';
import type { Group } from './frontier.ts';
import type { Inputs } from './inputs.ts';
import type { Parts } from './parts.ts';
import { Singles } from './singles.ts';

/** Every row of the table, once. */
export interface Sweep<T> {
  readonly stream: ChangeStream<T>;
  /** What changes later is carried out anyway. */
  readonly until: Revision;
  readonly group: Group;
}

export class Rounds<T> {
  /** Every change up to here has been begun: a row that is older and not in the book is done. */
  handled: Revision = 0;
  readonly singles: Singles<T>;
  readonly #parts: Parts<T>;
  readonly #inputs: Inputs<T>;
  /** Who carries out updates, and who deletes. */
  readonly #updates: Singles<T> | Batches<T>;
  readonly #deletes: Singles<T> | Batches<T>;
  #stream: ChangeStream<T> | undefined;
  /** The table's revision when the stream was last read to its end. */
  #drained: Revision = 0;
  #seen: Revision = 0;
  #limit: number;

  constructor(parts: Parts<T>, inputs: Inputs<T>) {
    this.#parts = parts;
    this.#inputs = inputs;
    this.singles = new Singles(parts);
    const { operations, batchSize } = parts.settings;
    const batches = new Batches(parts);
    this.#updates = operations.updateBatch === undefined ? this.singles : batches;
    this.#deletes = operations.deleteBatch === undefined ? this.singles : batches;
    this.#limit = batchSize;
  }

  get stream(): ChangeStream<T> {
    const { db, table, name } = this.#parts.settings;
    this.#stream ??= db.changes(table, { name });
    return this.#stream;
  }

  close(): void {
    this.#stream?.[Symbol.dispose]();
  }

  tableRevision(): Revision {
    const { db, table } = this.#parts.settings;
    using snapshot = db.read();
    return snapshot.revision(table);
  }

  /** Begins what is committed, one pull of the stream at a time, until everything up to `revision` is begun. */
  async catchUp(revision: Revision): Promise<void> {
    do await this.changes(revision);
    while (this.#drained < revision && !this.#parts.gate.closed);
  }

  /** Begins one pull of changes; `awaited` is a revision that somebody waits for. */
  async changes(awaited: Revision = Number.POSITIVE_INFINITY): Promise<void> {
    const { frontier, gate } = this.#parts;
    const { stream } = this;
    const work = { group: frontier.group, since: this.#drained + 1 };
    await this.singles.released(work);
    if (gate.closed) return;
    const changes = stream.next(this.#limit);
    const reached = stream.revision;
    const now = this.tableRevision();
    this.#limit = this.#nextLimit(reached, now, awaited);
    if (!(await this.#carryOut(changes, work))) return;
    this.handled = reached;
    if (reached < now) return;
    this.#drained = reached;
    frontier.mark(reached);
  }

  /** Begins one batch of due retries. */
  async retries(group: Group): Promise<void> {
    const { book, settings } = this.#parts;
    const due = book.takeDue(settings.clock.now(), settings.batchSize);
    if (due.length > 0) await this.#split(due, { group, since: 0 });
  }

  /** Throws `NotInitialisedError`. */
  sweep(): Sweep<T> {
    const { db, table, name } = this.#parts.settings;
    using snapshot = db.read();
    this.#inputs.check('refresh', snapshot);
    return {
      stream: db.changes(table, { name: `${name} (refresh)` }),
      until: snapshot.revision(table),
      group: { running: 0 },
    };
  }

  /** Begins to apply again the next batch of acknowledged rows. False when there are no more. */
  async refresh({ stream, until, group }: Sweep<T>): Promise<boolean> {
    const { book, settings, gate } = this.#parts;
    if (stream.revision >= until || gate.closed) return false;
    const changes = stream.next(settings.batchSize).filter(
      // What is in the book, or not begun yet, is applied anyway.
      ({ row, revision, deleted }) =>
        !deleted && revision <= Math.min(until, this.handled) && !book.items.has(settings.table.spec.key(row)),
    );
    await this.#split(changes, { group, since: Number.POSITIVE_INFINITY });
    return true;
  }

  /** Takes what is not in the book as it is, and what is there in the place of what was known. */
  async #carryOut(changes: readonly Change<T>[], work: Work): Promise<boolean> {
    const { book, settings } = this.#parts;
    if (this.#updates === this.singles && this.#deletes === this.singles) {
      return this.singles.changes(changes, work, ({ revision }) => {
        this.handled = revision;
      });
    }
    if (book.items.size === 0) return this.#split(changes, work);
    const begin: Change<T>[] = [];
    for (const change of changes) {
      const known = book.items.get(settings.table.spec.key(change.row));
      const next = known === undefined ? change : book.supersede(known, change, work);
      if (next !== undefined) begin.push(next);
    }
    return this.#split(begin, work);
  }

  /** Deletes before updates where batches are used, so that what one row gives up is free when another takes it. */
  async #split(changes: readonly Change<T>[], work: Work): Promise<boolean> {
    if (this.#updates === this.singles && this.#deletes === this.singles) return this.singles.run(changes, work);
    const some = hasDeletes(changes);
    const updates = some ? changes.filter(({ deleted }) => !deleted) : changes;
    const deletes = some ? changes.filter(({ deleted }) => deleted) : [];
    return (await this.#deletes.run(deletes, work)) && this.#updates.run(updates, work);
  }

  /**
   * Somebody who waits for a revision is answered when the stream has been read to its end. Where writers keep ahead of
   * the target, that takes ever larger pulls.
   */
  #nextLimit(reached: Revision, now: Revision, awaited: Revision): number {
    const { frontier, settings } = this.#parts;
    const written = now > this.#seen;
    this.#seen = now;
    if (reached >= now) return settings.batchSize;
    const waited = awaited <= reached || [...frontier.waiters].some(({ revision }) => revision <= reached);
    return written && waited ? this.#limit * 4 : this.#limit;
  }
}

function hasDeletes(changes: readonly Change<unknown>[]): boolean {
  for (const { deleted } of changes) if (deleted) return true;
  return false;
}
