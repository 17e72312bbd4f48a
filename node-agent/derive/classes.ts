import { scopeOf } from '@weir/identity';
import type { CompiledPolicy, Direction } from '@weir/policy';
import type { SlotRow } from '../tables.ts';
import { DIRECTIONS, rowsKey } from './rows.ts';

/** First class number that is no scope class (datapath contract). */
export const FIRST_CLASS = 16;
const LAST_CLASS = 0xffff;

export type ClassMaps = SlotRow['classes'];

/**
 * Gives classes numbers. A number stands for its rows: it is kept only by a class with the same rows, so that no row of a
 * number in use is ever rewritten, and moving an identity from one number to another is one atomic change of decision.
 */
export class ClassNumbers {
  readonly #byRows: Record<Direction, Map<string, number>> = { ingress: new Map(), egress: new Map() };

  /** Starts from what the kernel holds (number by rows key). */
  adopt(direction: Direction, byRows: ReadonlyMap<string, number>): void {
    for (const [key, number] of byRows) this.#byRows[direction].set(key, number);
  }

  /** identity -> number of each direction. Numbers that nothing uses any more are forgotten by the next call, not by this. */
  assign(compiled: CompiledPolicy): ClassMaps {
    return { ingress: this.#direction(compiled, 'ingress'), egress: this.#direction(compiled, 'egress') };
  }

  #direction(compiled: CompiledPolicy, direction: Direction): Map<number, number> {
    const classes = new Map<number, number>();
    const { enforced, classes: made } = compiled[direction];
    if (!enforced) return classes;
    const known = this.#byRows[direction];
    const wanted = made.map((each) => rowsKey(each.rows));
    const used = new Set(known.values());
    const next = new Map<string, number>();
    let candidate = FIRST_CLASS;
    for (const [index, { members }] of made.entries()) {
      const key = wanted[index] ?? '';
      let number = known.get(key) ?? next.get(key);
      if (number === undefined) {
        // A number that was in use until now is not given to other rows at once: its old rows are still in the kernel.
        while (used.has(candidate)) candidate += 1;
        if (candidate > LAST_CLASS)
          throw new RangeError(`a policy makes more than ${LAST_CLASS - FIRST_CLASS + 1} classes`);
        number = candidate;
        used.add(number);
      }
      next.set(key, number);
      for (const member of members) classes.set(member, number);
    }
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
