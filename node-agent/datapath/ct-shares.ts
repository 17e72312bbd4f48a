/**
 * Who has how much of the connection tables: the cells of `ct_shares`, as memory that programs count in at the same time (bpf/shares.h has the limits that they
 * hold). An endpoint's cell is of all endpoints whose ids have the same last bits; a peer's, of all addresses with the same hash.
 */
import { randomFillSync } from 'node:crypto';
import { CT_CELLS, MAPS } from '@weir/bpf';

export type CtFamily = 'ct4' | 'ct6';

/** A number of flows for each cell. */
export type CountedFlows = Int32Array;

export class CtShares {
  /** Pairs: flows, and the size of a table. */
  readonly #words: Int32Array;

  /** @param bytes the cells (see mapArray); must stay mapped while this is used */
  constructor(bytes: Uint8Array) {
    this.#words = new Int32Array(bytes.buffer, bytes.byteOffset, 2 * MAPS.ct_shares.maxEntries);
  }

  /** Says how much each table can hold, and chooses anew which peers share a cell: entries keep the cell that counts them. */
  open(size: number): void {
    for (const family of ['ct4', 'ct6'] as const) Atomics.store(this.#words, 2 * CT_CELLS.table(family) + 1, size);
    const seed = randomFillSync(new Int32Array(2));
    for (const [at, half] of seed.entries()) Atomics.store(this.#words, 2 * CT_CELLS.seed + at, half);
  }

  counted(): CountedFlows {
    return Int32Array.from({ length: CT_CELLS.seed }, (_, cell) => this.#flows(cell));
  }

  /** There were `found`: of `before`, and of what came meanwhile. What programs have counted since `before` stays counted. */
  correct(before: CountedFlows, found: CountedFlows): void {
    this.subtract(before.map((count, cell) => count - (found[cell] ?? 0)));
  }

  /** So many fewer. */
  subtract(flows: CountedFlows): void {
    for (const [cell, count] of flows.entries()) if (count !== 0) Atomics.sub(this.#words, 2 * cell, count);
  }

  /** An endpoint's cell that has all that it may have; or half of it. */
  isSpent(family: CtFamily, cell: number, part = 1): boolean {
    return this.#isBeyond(family, cell, part / 2);
  }

  /** A peer's. */
  isPeerSpent(family: CtFamily, cell: number): boolean {
    return this.#isBeyond(family, cell, 1 / 4);
  }

  #isBeyond(family: CtFamily, cell: number, part: number): boolean {
    const table = CT_CELLS.table(family);
    const size = Atomics.load(this.#words, 2 * table + 1);
    return size > 0 && this.#flows(cell) >= Math.floor((size - this.#flows(table)) * part);
  }

  #flows(cell: number): number {
    return Atomics.load(this.#words, 2 * cell);
  }
}
