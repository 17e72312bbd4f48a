/** What a table keeps of a row, and of a row that was deleted while a stream had still to hear of it. */
import type { Key, Revision, Versioned } from './types.ts';

export class Entry<T> implements Versioned<T> {
  /** Marks a leaf of a tree. */
  readonly at = -1;
  readonly key: Key;
  readonly row: T;
  readonly revision: Revision;
  /** In how many places the indexes have it. */
  keys = 0;
  /**
   * Committed: the entry before in the order of revisions; kept when this one leaves that order, so that a stream standing
   * here finds back. Not committed yet: the committed entry that this one will replace.
   */
  before: Entry<T> | undefined = undefined;
  /** The entry after in the order of revisions; itself when it is in that order no more. */
  after: Entry<T> | undefined = undefined;

  constructor(key: Key, row: T, revision: Revision) {
    this.key = key;
    this.row = row;
    this.revision = revision;
  }
}

/** A delete; its row is the last that was there. */
export class Marker<T> extends Entry<T> {}

/** The entry is out of the order of revisions, or will never come into it. */
export function isGone<T>(entry: Entry<T>): boolean {
  return entry.after === entry;
}

export function goAway<T>(entry: Entry<T>): void {
  entry.after = entry;
}
