/**
 * What the slots of one namespace's endpoints may come to on this node, together. Each fits by itself (`@weir/policy`'s row budget); without
 * this, who may make pods and policies in one namespace could fill the agent's memory with many that fit, and have every edit of others wait
 * while they are compiled. What slots need beyond their share is denied, as beyond the row budget; a namespace whose slots need less loses nothing.
 */
import { type CompiledPolicy, MOST_ROWS, rowsIn } from '@weir/policy';
import { DIRECTIONS } from './rows.ts';

/** Rows of all slots of a namespace's endpoints on a node, both directions: some 140 MB of the agent, 2 s to compile on a busy core. */
export const NAMESPACE_ROWS = 4 * MOST_ROWS;
/** Shares are MOST_ROWS halved so many times at most. */
const HALVINGS = 15;

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
export function limited({ rows, most }: Needs): boolean {
  return most < MOST_ROWS && rows.includes(Infinity);
}

/**
 * The most rows that each direction may have so that all directions fit into `total`. It depends on the needs that are below it and on the number
 * of those above it alone: whoever knows no more than that comes to the same share, whatever was compiled before.
 */
export function shareOf(needs: readonly number[], total = NAMESPACE_ROWS): number {
  if (needs.length * MOST_ROWS <= total) return MOST_ROWS;
  let share = MOST_ROWS >> HALVINGS;
  for (let halvings = HALVINGS - 1; halvings >= 0; halvings -= 1) {
    const next = MOST_ROWS >> halvings;
    const sum = needs.reduce((rows, need) => rows + (need <= share ? need : next), 0);
    if (sum > total) break;
    share = next;
  }
  return share;
}

export interface ShareOptions {
  /** By shape: the namespaces of the endpoints that are to have it. */
  readonly users: ReadonlyMap<string, ReadonlySet<string>>;
  readonly dirty: ReadonlySet<string>;
  /** Of a shape that is not dirty, or cannot be compiled. */
  needs(shape: string): Needs;
  /** Whether it could not be compiled when that was last tried. Its needs are then those of what stays in force. */
  failing(shape: string): boolean;
  /** undefined: it cannot be compiled. */
  compile(shape: string, most: number): Promise<CompiledPolicy | undefined>;
}

/** A shape as it was compiled with the share that it has. */
export interface Shared {
  readonly compiled: CompiledPolicy;
  readonly needs: Needs;
}

/**
 * Compiles the dirty shapes, and those that have another share now, each with its share: the largest of the namespaces that use it. Those of which
 * the needs are not known begin with what fits in any case, and are compiled again while there is more room.
 */
export async function compileByShare(options: ShareOptions): Promise<ReadonlyMap<string, Shared>> {
  const { users, dirty } = options;
  const out = new Map<string, Shared>();
  const needs = new Map<string, Needs>();
  for (const shape of users.keys()) needs.set(shape, dirty.has(shape) ? UNKNOWN : options.needs(shape));
  const failed = new Set(users.keys().filter((shape) => !dirty.has(shape) && options.failing(shape)));
  for (;;) {
    const shares = sharesOf(users, needs);
    const off = [...needs].filter(([shape, { rows, most }]) => {
      const share = shares.get(shape) ?? MOST_ROWS;
      return most !== share && !failed.has(shape) && rows.some((count) => count > share);
    });
    const unknown = off.filter(([shape]) => dirty.has(shape));
    // Until the needs of dirty ones are known, the share of the others is too small.
    const due = unknown.length > 0 ? unknown : off;
    if (due.length === 0) return out;
    for (const [shape] of due) {
      const most = shares.get(shape) ?? MOST_ROWS;
      const compiled = await options.compile(shape, most);
      if (compiled === undefined) failed.add(shape);
      else out.set(shape, { compiled, needs: needsOf(compiled, most) });
      needs.set(shape, out.get(shape)?.needs ?? options.needs(shape));
    }
  }
}

/** By shape. */
function sharesOf(users: ShareOptions['users'], needs: ReadonlyMap<string, Needs>): ReadonlyMap<string, number> {
  const ofNamespace = new Map<string, number[]>();
  for (const [shape, namespaces] of users)
    for (const namespace of namespaces) {
      const all = ofNamespace.get(namespace) ?? [];
      ofNamespace.set(namespace, all);
      all.push(...(needs.get(shape)?.rows ?? []));
    }
  const shares = new Map(Array.from(ofNamespace, ([namespace, rows]) => [namespace, shareOf(rows)]));
  return new Map(
    Array.from(users, ([shape, namespaces]) => [
      shape,
      Math.max(...Array.from(namespaces, (namespace) => shares.get(namespace) ?? MOST_ROWS)),
    ]),
  );
}
