/** Removes names whose time is over, but for those to whose addresses their endpoint has a connection. */
import type { Names } from './names.ts';
import { inPieces } from './pieces.ts';
import type { NameRow } from './tables.ts';

export interface ExpiryOptions {
  readonly names: Names;
  /** Of these names those whose endpoint has a connection to the address. Costs a look at all connections. */
  readonly connected: (names: readonly NameRow[]) => Promise<ReadonlySet<NameRow>>;
  /** Milliseconds between two looks. */
  readonly everyMs: number;
}

export class Expiry {
  readonly #options: ExpiryOptions;
  #looked = Number.NEGATIVE_INFINITY;
  #looking = false;

  constructor(options: ExpiryOptions) {
    this.#options = options;
  }

  /** To be called now and then. Looks when the last look is long ago, and only while there is a name whose time is over. */
  async look(now: number): Promise<void> {
    const { names, connected, everyMs } = this.#options;
    // The clock may have been set back.
    if (this.#looking || Math.abs(now - this.#looked) < everyMs) return;
    const over = Array.from(names.over(now));
    if (over.length === 0) return;
    this.#looking = true;
    try {
      this.#looked = now;
      const living = await connected(over);
      await inPieces(this.#remove(over.filter((row) => !living.has(row))));
    } finally {
      this.#looking = false;
    }
  }

  *#remove(rows: readonly NameRow[]): Generator<void> {
    for (const row of rows) {
      // Not when it was answered again meanwhile.
      this.#options.names.expire(row);
      yield;
    }
  }
}
