/**
 * What one direction of a slot may come to. Peers that rules tell apart, times the ports that are for all of them, may be far more than
 * the rules themselves: it is counted while it grows, and once it is spent the direction is closed, whatever its rules say.
 */
import { portPrefixes } from '@weir/net';
import type { ClassRows, CompiledDirection, Direction, Excess, ResolvedRule } from './types.ts';

/** Rows of one direction of a slot, counted as blocks of ports as the kernel holds them; a class without rows counts as one. */
export const MOST_ROWS = 65_000;
/** How often rules and what tells peers apart (sets and CIDRs that hold them) may meet: some ten nanoseconds each. */
const MOST_LOOKS = 1_000_000;

/** What compiling a direction took of its budget. It is no part of what the direction says. */
interface Price {
  readonly rows: number;
  readonly looks: number;
}
const PRICES = new WeakMap<CompiledDirection, Price>();

function countOf(rows: ClassRows): number {
  let count = Math.max(1, rows.length);
  for (const { from, to } of rows) if (from !== to) count += portPrefixes(from, to).length - 1;
  return count;
}

/** What the rows of a direction count for; at most the budget. */
export function rowsIn(direction: CompiledDirection): number {
  const { enforced, scope, classes, addresses } = direction;
  if (!enforced) return 0;
  const price = PRICES.get(direction);
  if (price !== undefined) return price.rows;
  let count = countOf(scope.unknown) + countOf(scope.pod) + countOf(scope.world);
  for (const { rows } of classes) count += countOf(rows);
  count += addresses.length;
  for (const rows of new Set(addresses.map((each) => each.rows))) count += countOf(rows);
  return count;
}

export class RowBudget {
  readonly #direction: Direction;
  readonly #rules: readonly ResolvedRule[];
  readonly #most: number;
  #rows = 0;
  #full = false;
  #looks = 0;

  constructor(direction: Direction, rules: readonly ResolvedRule[], most: number) {
    this.#direction = direction;
    this.#rules = rules;
    this.#most = most;
  }

  /** Whether the direction does not fit. Once true, it stays so. */
  get spent(): boolean {
    return this.#full || this.lookedEnough;
  }

  /** Whether nothing more is looked at. */
  get lookedEnough(): boolean {
    return this.#looks > MOST_LOOKS;
  }

  /** Counts the rows of another class. */
  takeRows(rows: ClassRows): void {
    this.#rows += countOf(rows);
    this.#full ||= this.#rows > this.#most;
  }

  takeLooks(count: number): void {
    this.#looks += count;
  }

  /** Counts what the direction took when it was compiled; returns whether that is known, and room is left. */
  resume(compiled: CompiledDirection): boolean {
    const price = PRICES.get(compiled);
    this.#rows += price?.rows ?? 0;
    this.#full ||= this.#rows > this.#most;
    this.#looks += price?.looks ?? 0;
    return price !== undefined && !this.spent;
  }

  /** A class is no more. */
  giveBack(rows: ClassRows): void {
    this.#rows -= countOf(rows);
  }

  /** Keeps in mind what the direction took. */
  paysFor(compiled: CompiledDirection): void {
    PRICES.set(compiled, { rows: this.#rows, looks: this.#looks });
  }

  /** Why the direction is closed; undefined: it fits. */
  excess(): Excess | undefined {
    if (!this.spent) return undefined;
    const everybody = this.#rules.filter(({ peers }) => peers === undefined).length;
    const what = this.#full
      ? `more than ${this.#most} rows (ports of each class of peers)`
      : `its rules to be held against classes of peers more than ${MOST_LOOKS} times`;
    const message =
      `${this.#direction} needs ${what}: ${this.#rules.length} rules, ${everybody} of them for every peer; put peers that are to have the same ` +
      'ports into one rule, write ports that lie together as a range, or have fewer policies select the same pod';
    return { message };
  }
}
