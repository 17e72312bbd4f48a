/** What the row of a slot may become while endpoints point at it, and what a slot found in the kernel means. */
import type { CompiledPolicy, Direction, Pieces } from '@weir/policy';
import { IdsExhaustedError } from '../errors.ts';
import type { PerDirection, SlotRow } from '../tables.ts';
import {
  type Around,
  assignNumbers,
  type ClassMaps,
  type ClassNumbers,
  classOf,
  type Moved,
  PIECE,
} from './classes.ts';
import { addressesKey, DIRECTIONS, rowsKey } from './rows.ts';

/** What a slot found in the kernel means. */
export interface KernelSlot {
  /** Rows keys of the scope classes unknown, pod, world. */
  readonly scope: Readonly<Record<Direction, readonly [string, string, string]>>;
  readonly classes: ClassMaps;
  /** Of `addressesKey`. */
  readonly addresses: Readonly<Record<Direction, string>>;
  /** Rows key of each class number from 16 on. */
  readonly rows: Readonly<Record<Direction, ReadonlyMap<number, string>>>;
}

/** A slot's row, and the numbers that its classes have. */
export interface Numbered {
  readonly row: SlotRow;
  readonly numbers: ClassNumbers;
}

/** An edit of a slot in place. */
export interface Edited extends Numbered {
  readonly moved: Moved;
}

/** Whether the slot may be edited in place: nobody leaves it, or there is nothing to edit. */
export function* mayStay(before: SlotRow, compiled: CompiledPolicy, leaving: boolean): Pieces<boolean> {
  if (!leaving) return true;
  for (const direction of DIRECTIONS) {
    const [had, has] = [before.compiled[direction].classes, compiled[direction].classes];
    if (had.length !== has.length) return false;
    for (const [at, a] of had.entries()) {
      yield;
      const b = has[at];
      if (b === undefined || rowsKey(a.rows) !== rowsKey(b.rows) || a.members.length !== b.members.length) return false;
      if (!a.members.every((id, index) => id === b.members[index])) return false;
    }
  }
  return true;
}

/** The slot with other classes in the same scope; undefined when there are no numbers for them until some have rested. */
export function* numbered(
  { row, numbers }: Numbered,
  compiled: CompiledPolicy,
  now: number,
  classNumbers: number,
): Pieces<Edited | undefined> {
  try {
    const next = yield* assignNumbers(numbers, compiled, now, row, classNumbers);
    // A peer may be denied for another reason than before.
    const same = nobody(next.moved) && sameExcess(row.compiled, compiled);
    return { ...next, row: same ? row : { ...row, compiled, classes: next.classes } };
  } catch (error) {
    if (error instanceof IdsExhaustedError) return undefined;
    throw error;
  }
}

function nobody({ ingress, egress }: Moved): boolean {
  return ingress.length === 0 && egress.length === 0;
}

/** Whether some address is decided otherwise. `moved`: identities whose numbers may differ. */
export function* differs(
  before: ClassMaps,
  after: ClassMaps,
  moved: PerDirection<Iterable<number>>,
  { addressed, around }: { readonly addressed: (identity: number) => boolean; readonly around: Around },
): Pieces<boolean> {
  let done = 0;
  for (const direction of DIRECTIONS) {
    const [a, b] = [before[direction], after[direction]];
    for (const id of moved[direction]) {
      if (classOf(a, id, around) !== classOf(b, id, around) && addressed(id)) return true;
      if (++done % PIECE === 0) yield;
    }
  }
  return false;
}

/** Whether both directions have the same excess of rows. */
function sameExcess(a: CompiledPolicy, b: CompiledPolicy): boolean {
  return DIRECTIONS.every((direction) => {
    return a[direction].excess?.message === b[direction].excess?.message;
  });
}

/** Whether the kernel's slot may be taken over. */
export function sameFrame(known: KernelSlot, compiled: CompiledPolicy): boolean {
  return DIRECTIONS.every((direction) => {
    const { enforced, scope } = compiled[direction];
    const [unknown, pod, world] = known.scope[direction];
    // A word may still enforce what is open now: rows of an open direction must not be emptied under it.
    if (known.addresses[direction] !== addressesKey(compiled[direction])) return false;
    if (!enforced) return `${unknown}${pod}${world}` === '' && known.classes[direction].size === 0;
    return unknown === rowsKey(scope.unknown) && pod === rowsKey(scope.pod) && world === rowsKey(scope.world);
  });
}
