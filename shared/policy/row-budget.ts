/**
 * What one direction of a slot may come to. Peers that rules tell apart, times the ports that are for all of them, may be far more than
 * the rules themselves: it is counted while it grows, and once it is spent the direction is closed, whatever its rules say.
 */
import { portPrefixes } from '@weir/net';
import type { ClassRows, CompiledDirection, Direction, Excess, Listeners, ResolvedRule } from './types.ts';

/** Rows of one direction of a slot, counted as blocks of ports as the kernel holds them; a class without rows counts as one. */
export const MOST_ROWS = 65_000;
/** How often rules and what tells peers apart (sets and CIDRs that hold them) may meet: some ten nanoseconds each. */
const MOST_LOOKS = 1_000_000;
/** Patterns of host names with `*`: a question of a pod, and a name that is learned, may be held against each of them. */
const MOST_PATTERNS = 1000;
/** Lists of names that a DNS proxy is told apart. A node has numbers for 65,535 of them. */
const MOST_LISTENERS = 256;

const FEWER_ROWS = 'put peers that are to have the same ports into one rule, write ports that lie together as a range';

/** What compiling a direction took of its budget. It is no part of what the direction says. */
interface Price {
  readonly rows: number;
  readonly looks: number;
  readonly listeners: ReadonlySet<number>;
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
  #looks = 0;
  #listeners = new Set<number>();
  #excess: { readonly what: string; readonly fix: string } | undefined;

  constructor(direction: Direction, rules: readonly ResolvedRule[], most: number) {
    this.#direction = direction;
    this.#rules = rules;
    this.#most = most;
    if (hasManyPatterns(rules))
      this.#excess = {
        what: `more than ${MOST_PATTERNS} patterns of host names with *`,
        fix: 'write one pattern for many names',
      };
  }

  /** Whether the direction does not fit. Once true, it stays so. */
  get spent(): boolean {
    return this.#excess !== undefined || this.lookedEnough;
  }

  /** Whether nothing more is looked at. */
  get lookedEnough(): boolean {
    return this.#looks > MOST_LOOKS;
  }

  /** Counts the rows of another class. */
  takeRows(rows: ClassRows): void {
    this.#takeRows(countOf(rows));
  }

  takeLooks(count: number): void {
    this.#looks += count;
  }

  /** Gives numbers as the given ones do, until they are too many; then none. */
  listeners(given: Listeners): Listeners {
    const take = (number: number): number => {
      this.#listeners.add(number);
      if (this.#listeners.size > MOST_LISTENERS)
        this.#excess ??= {
          what: `more than ${MOST_LISTENERS} lists of names that pods may ask for`,
          fix: 'have rules let pods ask for the same names',
        };
      return number;
    };
    return {
      ofNames: (patterns) => (this.spent ? 0 : take(given.ofNames(patterns))),
      union: (one, other) => (this.spent ? 0 : take(given.union(one, other))),
    };
  }

  /** Counts what the direction took when it was compiled; returns whether that is known, and room is left. */
  resume(compiled: CompiledDirection): boolean {
    const price = PRICES.get(compiled);
    this.#takeRows(price?.rows ?? 0);
    this.#listeners = new Set(price?.listeners);
    this.#looks += price?.looks ?? 0;
    return price !== undefined && !this.spent;
  }

  /** A class is no more. */
  giveBack(rows: ClassRows): void {
    this.#rows -= countOf(rows);
  }

  /** Keeps in mind what the direction took. */
  paysFor(compiled: CompiledDirection): void {
    PRICES.set(compiled, { rows: this.#rows, looks: this.#looks, listeners: this.#listeners });
  }

  /** Why the direction is closed; undefined: it fits. */
  excess(): Excess | undefined {
    if (!this.spent) return undefined;
    const everybody = this.#rules.filter(({ peers }) => peers === undefined).length;
    const { what, fix } = this.#excess ?? {
      what: `its rules to be held against classes of peers more than ${MOST_LOOKS} times`,
      fix: FEWER_ROWS,
    };
    const message =
      `${this.#direction} needs ${what}: ${this.#rules.length} rules, ${everybody} of them for every peer; ${fix}, ` +
      'or have fewer policies select the same pod';
    return { message };
  }

  #takeRows(count: number): void {
    this.#rows += count;
    if (this.#rows > this.#most)
      this.#excess ??= { what: `more than ${this.#most} rows (ports of each class of peers)`, fix: FEWER_ROWS };
  }
}

function hasManyPatterns(rules: readonly ResolvedRule[]): boolean {
  const patterns = new Set<string>();
  for (const { dns = [], peers = [] } of rules) {
    for (const pattern of dns) if (pattern.includes('*')) patterns.add(pattern);
    for (const peer of peers) if ('fqdn' in peer && peer.fqdn.includes('*')) patterns.add(peer.fqdn);
    if (patterns.size > MOST_PATTERNS) return true;
  }
  return false;
}
