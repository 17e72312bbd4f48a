/**
 * How far every change has been attempted, and who waits for that.
 *
 * The change stream leaves out a change that a newer one of the same row supersedes. So "everything up to revision r"
 * can be said only for an r at which the stream had been read to its end: a mark.
 */
import type { Revision } from '@weir/statedb';

/** Attempts that belong together and have not ended. */
export interface Group {
  running: number;
}

interface Mark {
  readonly group: Group;
  revision: Revision;
}

export interface Waiter {
  readonly revision: Revision;
  reached(): void;
  stopped(): void;
}

export class Frontier {
  /** Every change up to this revision has been attempted, or a newer one of the same row. */
  attempted: Revision = 0;
  readonly waiters = new Set<Waiter>();
  #group: Group = { running: 0 };
  readonly #marks: Mark[] = [];

  /** For the first attempts at changes that are begun now. */
  get group(): Group {
    return this.#group;
  }

  /** Everything up to `revision` has been begun. */
  mark(revision: Revision): void {
    const last = this.#marks.at(-1);
    if (this.#group.running > 0) {
      this.#marks.push({ group: this.#group, revision });
      this.#group = { running: 0 };
    } else if (last !== undefined) {
      last.revision = revision;
    } else {
      this.#reach(revision);
    }
  }

  /** An attempt of the group has ended. */
  ended(group: Group): void {
    group.running--;
    for (;;) {
      const first = this.#marks[0];
      if (first === undefined || first.group.running > 0) return;
      this.#marks.shift();
      this.#reach(first.revision);
    }
  }

  #reach(revision: Revision): void {
    if (revision <= this.attempted) return;
    this.attempted = revision;
    for (const waiter of [...this.waiters]) if (waiter.revision <= revision) waiter.reached();
  }
}
