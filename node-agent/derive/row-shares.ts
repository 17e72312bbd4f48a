/**
 * What the slots of one namespace's endpoints may come to on this node, together. Each fits by itself (`@weir/policy`'s row budget); without
 * this, who may make pods and policies in one namespace could fill the agent's memory with many that fit, and have every edit of others wait
 * while they are compiled. What slots need beyond their share is denied, as beyond the row budget; a namespace whose slots need less loses nothing.
 */
import { type CompiledPolicy, MOST_ROWS, rowsIn, workOf } from '@weir/policy';
import { DIRECTIONS } from './rows.ts';
import { RULE_WORK, WorkBudget } from './work-budget.ts';

/** Rows of all slots of a namespace's endpoints on a node, both directions: some 140 MB of the agent, 2 s to compile on a busy core. */
export const NAMESPACE_ROWS = 4 * MOST_ROWS;

/** Rows that the directions of a shape need, as it was compiled with at most `most` in each: Infinity where they did not fit. */
export interface Needs {
  readonly rows: readonly number[];
  readonly most: number;
}

/** Of what has not been compiled yet. */
const UNKNOWN: Needs = { rows: [Infinity, Infinity], most: 0 };
/** Of what could not be compiled, and has no rows. */
export const NO_NEEDS: Needs = { rows: [], most: MOST_ROWS };

export function needsOf(compiled: CompiledPolicy, most: number): Needs {
  const one = (direction: (typeof DIRECTIONS)[number]): number =>
    compiled[direction].excess === undefined ? rowsIn(compiled[direction]) : Infinity;
  return { rows: DIRECTIONS.map(one), most };
}

/** Whether rows were left out that a larger share would have room for. */
export function limited({ rows, most }: Needs, mostRows = MOST_ROWS): boolean {
  return most < mostRows && rows.includes(Infinity);
}

/**
 * The most rows that each direction may have so that all directions fit into what their namespace may have: four times `mostRows`. It depends on
 * the needs that are below it and on the number of those above it alone: whoever knows no more than that comes to the same share, whatever was
 * compiled before.
 */
export function shareOf(needs: readonly number[], mostRows = MOST_ROWS): number {
  const total = (NAMESPACE_ROWS / MOST_ROWS) * mostRows;
  // What is above a share counts for twice the share, which is less than twice the need.
  if (needs.reduce((rows, need) => rows + Math.min(2 * need, mostRows), 0) <= total) return mostRows;
  // A share is `mostRows` halved until one row is left, at most.
  const most = 31 - Math.clz32(mostRows);
  let share = mostRows >> most;
  for (let halvings = most - 1; halvings >= 0; halvings -= 1) {
    const next = mostRows >> halvings;
    const sum = needs.reduce((rows, need) => rows + (need <= share ? need : next), 0);
    if (sum > total) break;
    share = next;
  }
  return share;
}

/** Namespaces of the endpoints that keep each shape. */
export type Kept = ReadonlyMap<string, ReadonlySet<string>>;

export interface ShareOptions {
  /** By shape: the namespaces of the endpoints that are to have it. Who comes first has its turn first. */
  readonly users: ReadonlyMap<string, ReadonlySet<string>>;
  /** By a shape that some endpoint is to have: shapes that these endpoints keep for as long as it is not compiled. */
  readonly kept: ReadonlyMap<string, Kept>;
  readonly dirty: ReadonlySet<string>;
  /** As it was compiled last. */
  needs(shape: string): Needs;
  /** Whether it could not be compiled when that was last tried. Its needs are then those of what stays in force. */
  failing(shape: string): boolean;
  /** Or returns why it cannot be compiled. */
  compile(shape: string, most: number): Promise<CompiledPolicy | Error>;
  /** How many rules it has. */
  rules(shape: string): number;
  /** Whether the dirty shape may be compiled by a later plan. */
  mayWait(shape: string): boolean;
  /**
   * Most work of one plan for each namespace: so much for shapes that may wait, and as much again for shapes in force whose share changes.
   * undefined: the default; Infinity: nothing waits.
   */
  readonly work?: number | undefined;
  /** Rows that a direction may have at most; a namespace may have four times as many. Default MOST_ROWS. */
  readonly mostRows?: number | undefined;
}

/** A shape as it was compiled with the share that it has. */
export interface Shared {
  readonly compiled: CompiledPolicy;
  readonly needs: Needs;
}

export interface SharedOut {
  readonly made: ReadonlyMap<string, Shared>;
  /** Why others could not be compiled. */
  readonly failed: ReadonlyMap<string, Error>;
  /** Shapes that wait for a later plan: they are dirty still, or have another share than they are to have. */
  readonly waiting: ReadonlySet<string>;
}

/**
 * Compiles the dirty shapes, and those that have another share now, each with its share: the largest of the namespaces that use it. What is in force
 * is taken to need what it did until it is compiled, also where it is kept by endpoints that are to have another. What is new begins with what fits in any case, and is compiled again while there is more room;
 * once its namespaces have had their part of this plan it waits, and takes nothing of a share. Whichever way it is come to, there is one set of
 * shares with which nothing is left to compile: `shareOf` asks only who is above a share, and what those below it need.
 */
export function compileByShare(options: ShareOptions): Promise<SharedOut> {
  return new Sharing(options).run();
}

/** Shares being given out. */
class Sharing {
  readonly #options: ShareOptions;
  readonly #made = new Map<string, Shared>();
  readonly #failures = new Map<string, Error>();
  /** Of those that have had their turn, or need none, and of those that are kept. */
  readonly #needs = new Map<string, Needs>();
  readonly #failed: Set<string>;
  /** Dirty, and not compiled yet. */
  readonly #pending: Set<string>;
  /** In the order of their turns. */
  readonly #waiting: Set<string>;
  /** By a shape that is kept: those for which it is. */
  readonly #keptFor = new Map<string, Set<string>>();
  readonly #turns: WorkBudget;
  readonly #changes: WorkBudget;
  readonly #mostRows: number;

  constructor(options: ShareOptions) {
    this.#options = options;
    const { users, dirty, work } = options;
    this.#waiting = new Set(users.keys().filter((shape) => dirty.has(shape) && options.mayWait(shape)));
    const others = new Set(users.keys()).difference(this.#waiting);
    for (const shape of users.keys()) {
      const needs = options.needs(shape);
      // What waits and is in force counts as what it was compiled to last.
      if (others.has(shape) || needs !== NO_NEEDS) this.#needs.set(shape, needs);
    }
    this.#pending = others.intersection(dirty);
    this.#failed = new Set(users.keys().filter((shape) => !dirty.has(shape) && options.failing(shape)));
    for (const shape of this.#waiting.union(this.#failed)) this.#keep(shape);
    this.#turns = new WorkBudget(work);
    this.#changes = new WorkBudget(work);
    this.#mostRows = options.mostRows ?? MOST_ROWS;
  }

  async run(): Promise<SharedOut> {
    const { dirty } = this.#options;
    for (;;) {
      const shares = sharesOf((shape) => this.#namespaces(shape), this.#needs, this.#mostRows);
      const off = this.#off(shares);
      const urgent = [...this.#pending.union(new Set(off.filter((shape) => dirty.has(shape))))];
      // Until the needs of dirty ones are known, the share of the others is another.
      const due = urgent.length > 0 ? urgent : off.filter((shape) => this.#allows(this.#changes, shape));
      if (due.length === 0 && !this.#admit()) {
        return { made: this.#made, failed: this.#failures, waiting: this.#waiting.union(new Set(off)) };
      }
      for (const shape of due) {
        if (!dirty.has(shape) && !this.#allows(this.#changes, shape)) continue;
        await this.#compile(shape, shares.get(shape) ?? this.#mostRows);
      }
    }
  }

  /** Shapes that have another share than they are to have, and are not content with either. */
  #off(shares: ReadonlyMap<string, number>): string[] {
    const out: string[] = [];
    for (const [shape, { rows, most }] of this.#needs) {
      const share = shares.get(shape) ?? this.#mostRows;
      if (this.#failed.has(shape) || this.#waiting.has(shape)) continue;
      if (most !== share && rows.some((count) => count > share)) out.push(shape);
    }
    return out;
  }

  /** One more of each namespace has its turn; whether there is any. */
  #admit(): boolean {
    const busy = new Set<string>();
    for (const shape of this.#waiting) {
      const namespaces = this.#namespaces(shape);
      if (!busy.isDisjointFrom(namespaces) || !this.#allows(this.#turns, shape)) continue;
      for (const namespace of namespaces) busy.add(namespace);
      this.#waiting.delete(shape);
      this.#letGo(shape);
      if (!this.#needs.has(shape)) this.#needs.set(shape, UNKNOWN);
      this.#pending.add(shape);
    }
    return busy.size > 0;
  }

  async #compile(shape: string, most: number): Promise<void> {
    const options = this.#options;
    const compiled = await options.compile(shape, most);
    this.#pending.delete(shape);
    if (compiled instanceof Error) {
      this.#failures.set(shape, compiled);
      this.#failed.add(shape);
      this.#keep(shape);
    } else this.#made.set(shape, { compiled, needs: needsOf(compiled, most) });
    this.#needs.set(shape, this.#made.get(shape)?.needs ?? options.needs(shape));
    const budget = options.dirty.has(shape) ? this.#turns : this.#changes;
    const urgent = options.dirty.has(shape) && !options.mayWait(shape);
    if (urgent) return;
    const work = compiled instanceof Error ? 0 : workOf(compiled.ingress) + workOf(compiled.egress);
    budget.spend(this.#namespaces(shape), work + options.rules(shape) * RULE_WORK);
  }

  #allows(budget: WorkBudget, shape: string): boolean {
    return budget.allows(this.#namespaces(shape));
  }

  /** What endpoints keep in place of the shape counts. */
  #keep(shape: string): void {
    for (const kept of this.#options.kept.get(shape)?.keys() ?? []) {
      const others = this.#keptFor.get(kept) ?? new Set();
      this.#keptFor.set(kept, others.add(shape));
      if (!this.#needs.has(kept)) this.#needs.set(kept, this.#options.needs(kept));
    }
  }

  #letGo(shape: string): void {
    for (const kept of this.#options.kept.get(shape)?.keys() ?? []) {
      const others = this.#keptFor.get(kept);
      others?.delete(shape);
      if (others?.size === 0 && !this.#options.users.has(kept)) this.#needs.delete(kept);
    }
  }

  #namespaces(shape: string): ReadonlySet<string> {
    const { users, kept } = this.#options;
    const keeping = [...(this.#keptFor.get(shape) ?? [])].flatMap((each) => [...(kept.get(each)?.get(shape) ?? [])]);
    return new Set([...(users.get(shape) ?? []), ...keeping]);
  }
}

/** By shape. */
function sharesOf(
  namespacesOf: (shape: string) => ReadonlySet<string>,
  needs: ReadonlyMap<string, Needs>,
  mostRows: number,
): ReadonlyMap<string, number> {
  const users = new Map(Array.from(needs.keys(), (shape) => [shape, namespacesOf(shape)]));
  const ofNamespace = new Map<string, number[]>();
  for (const [shape, { rows }] of needs)
    for (const namespace of users.get(shape) ?? []) {
      const all = ofNamespace.get(namespace) ?? [];
      ofNamespace.set(namespace, all);
      all.push(...rows);
    }
  const shares = new Map(Array.from(ofNamespace, ([namespace, rows]) => [namespace, shareOf(rows, mostRows)]));
  return new Map(
    Array.from(needs.keys(), (shape) => [
      shape,
      Math.max(...Array.from(users.get(shape) ?? [], (namespace) => shares.get(namespace) ?? mostRows)),
    ]),
  );
}
