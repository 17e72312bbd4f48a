/** A table's content at one instant, and what a running transaction makes of it. */

import type { Tree } from './branch.ts';
import type { Entry } from './entry.ts';
import type { Root } from './indexes.ts';
import type { Revision } from './types.ts';

/** A table's content at one instant. Nobody changes one that others can see. */
export interface View<T> {
  readonly rows: Tree<Entry<T>> | undefined;
  readonly count: number;
  readonly revision: Revision;
  /** Roots of the secondary indexes, by their number. */
  readonly indexes: readonly Root<T>[];
  /** Names of the initialisers that are not done. */
  readonly pending: readonly string[];
  /** There were initialisers, and all are done. */
  readonly complete: boolean;
}

/** What a running transaction makes of a view. */
export class Draft<T> implements View<T> {
  rows: Tree<Entry<T>> | undefined;
  count: number;
  revision: Revision;
  readonly indexes: Root<T>[];
  pending: readonly string[];
  complete: boolean;

  constructor(base: View<T>) {
    this.rows = base.rows;
    this.count = base.count;
    this.revision = base.revision;
    this.indexes = base.indexes.slice();
    this.pending = base.pending;
    this.complete = base.complete;
  }
}

/** Tokens for those who edit trees: each once. */
export class Edits {
  #last = 0;

  next(): number {
    return ++this.#last;
  }
}

const NOTHING: readonly never[] = [];

export const EMPTY: View<never> = {
  rows: undefined,
  count: 0,
  revision: 0,
  indexes: NOTHING,
  pending: NOTHING,
  complete: false,
};
