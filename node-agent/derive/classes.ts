import { scopeOf } from '@weir/identity';
import type { CompiledPolicy, Direction } from '@weir/policy';
import type { SlotRow } from '../tables.ts';
import { GRACE_MS } from './grace.ts';
import { DIRECTIONS, rowsKey } from './rows.ts';

/** First class number that is no scope class (datapath contract). */
export const FIRST_CLASS = 16;
const LAST_CLASS = 0xffff;
/** The kernel keeps the rows of a number for GRACE_MS and takes them away in the round after that. */
const REUSE_MS = 2 * GRACE_MS;

export type ClassMaps = SlotRow['classes'];

/**
 * Gives classes numbers. A number stands for its rows: it is kept only by a class with the same rows, so that no row of a
 * number in use is ever rewritten, and moving an identity from one number to another is one atomic change of decision. A
 * number that was in use is given to other rows only after REUSE_MS: packets may still read its old ones.
 */
export class ClassNumbers {
  readonly #byRows: Record<Direction, Map<string, number>> = { ingress: new Map(), egress: new Map() };
  /** Numbers that were in use, and until when (milliseconds). */
  readonly #retired: Record<Direction, Map<number, number>> = { ingress: new Map(), egress: new Map() };
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Starts from what the kernel holds: rows key by number. */
  adopt(direction: Direction, rows: ReadonlyMap<number, string>): void {
    for (const [number, key] of rows) {
      if (this.#byRows[direction].has(key)) this.#retired[direction].set(number, this.#now());
      else this.#byRows[direction].set(key, number);
    }
  }

  /** identity -> number of each direction. */
  assign(compiled: CompiledPolicy): ClassMaps {
    return { ingress: this.#direction(compiled, 'ingress'), egress: this.#direction(compiled, 'egress') };
  }

  #direction(compiled: CompiledPolicy, direction: Direction): Map<number, number> {
    const classes = new Map<number, number>();
    const { enforced, classes: made } = compiled[direction];
    if (!enforced) return classes;
    const known = this.#byRows[direction];
    const wanted = made.map((each) => rowsKey(each.rows));
    const retired = this.#retired[direction];
    for (const [number, since] of retired) if (this.#now() - since >= REUSE_MS) retired.delete(number);
    const used = new Set([...known.values(), ...retired.keys()]);
    const next = new Map<string, number>();
    let candidate = FIRST_CLASS;
    for (const [index, { members }] of made.entries()) {
      const key = wanted[index] ?? '';
      let number = known.get(key) ?? next.get(key);
      if (number === undefined) {
        while (used.has(candidate)) candidate += 1;
        if (candidate > LAST_CLASS)
          throw new RangeError(`a policy makes more than ${LAST_CLASS - FIRST_CLASS + 1} classes`);
        number = candidate;
        used.add(number);
      }
      next.set(key, number);
      for (const member of members) classes.set(member, number);
    }
    const kept = new Set(next.values());
    for (const number of known.values()) if (!kept.has(number)) retired.set(number, this.#now());
    this.#byRows[direction] = next;
    return classes;
  }
}

/** Class of an identity as the datapath finds it. */
export function classOf(classes: ReadonlyMap<number, number>, identity: number): number {
  const own = classes.get(identity);
  if (own !== undefined) return own;
  switch (scopeOf(identity)) {
    case 'pod':
      return 1;
    case 'world':
      return 2;
    default:
      return 0;
  }
}

/** Whether the slot may decide differently for the two identities. */
export function distinguishes(slot: SlotRow, a: number, b: number): boolean {
  return DIRECTIONS.some(
    (direction) =>
      slot.compiled[direction].enforced && classOf(slot.classes[direction], a) !== classOf(slot.classes[direction], b),
  );
}

/** Rows of each class number of a direction, by number. */
export function rowsByClass(
  row: SlotRow,
  direction: Direction,
): Map<number, SlotRow['compiled']['ingress']['classes'][number]['rows']> {
  const compiled = row.compiled[direction];
  const out = new Map<number, (typeof compiled.classes)[number]['rows']>();
  if (!compiled.enforced) return out;
  out.set(0, compiled.scope.unknown);
  out.set(1, compiled.scope.pod);
  out.set(2, compiled.scope.world);
  for (const { members, rows } of compiled.classes) {
    const number = members[0] === undefined ? undefined : row.classes[direction].get(members[0]);
    if (number !== undefined) out.set(number, rows);
  }
  return out;
}
