/**
 * What one direction of a slot may come to. Peers that rules tell apart, times the ports that are for all of them, may be far more than
 * the rules themselves: it is counted while it grows.
 */
import { portPrefixes } from '@weir/net';
import { RowBudgetError } from './errors.ts';
import type { ClassRows, Direction, ResolvedRule } from './types.ts';

/** Rows of one direction of a slot, counted as blocks of ports as the kernel holds them; a class without rows counts as one. */
export const MOST_ROWS = 65_000;
/** How often rules and what tells peers apart (sets and CIDRs that hold them) may meet: some ten nanoseconds each. */
const MOST_LOOKS = 1_000_000;

export class RowBudget {
  readonly #direction: Direction;
  readonly #rules: readonly ResolvedRule[];
  readonly #most: number;
  #rows = 0;
  #looks = 0;

  constructor(direction: Direction, rules: readonly ResolvedRule[], most: number) {
    this.#direction = direction;
    this.#rules = rules;
    this.#most = most;
  }

  /** Another class has these rows. @throws RowBudgetError */
  takeRows(rows: ClassRows): ClassRows {
    this.#rows += Math.max(1, rows.length);
    for (const { from, to } of rows) if (from !== to) this.#rows += portPrefixes(from, to).length - 1;
    if (this.#rows > this.#most) this.#refuse();
    return rows;
  }

  /** @throws RowBudgetError */
  takeLooks(count: number): void {
    this.#looks += count;
    if (this.#looks > MOST_LOOKS) this.#refuse();
  }

  #refuse(): never {
    const everybody = this.#rules.filter(({ peers }) => peers === undefined).length;
    const what =
      this.#rows > this.#most
        ? `more than ${this.#most} rows (ports of each class of peers)`
        : `its rules to be held against classes of peers more than ${MOST_LOOKS} times`;
    throw new RowBudgetError(
      this.#direction,
      this.#rows,
      `${what}: ${this.#rules.length} rules, ${everybody} of them for every peer`,
    );
  }
}
