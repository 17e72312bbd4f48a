import { isLocalCidr } from '@weir/identity';
import type { CompiledDirection, CompiledPolicy, Pieces } from '@weir/policy';
import { type Key, keys, type StateDB } from '@weir/statedb';
import { IdsExhaustedError } from '../errors.ts';
import type { PerDirection, SlotRow } from '../tables.ts';
import {
  type Around,
  adoptNumbers,
  assignNumbers,
  CLASS_NUMBERS,
  type ClassMaps,
  type ClassNumbers,
  NO_NUMBERS,
  PIECE,
} from './classes.ts';
import { both, DIRECTIONS, sameScopes } from './rows.ts';
import { differs, type Edited, type KernelSlot, mayStay, type Numbered, numbered, sameFrame } from './slot-rows.ts';
import { Rows } from './working.ts';

/** Highest slot number; 0 is "no policy". */
const LAST_SLOT = 4095;

export interface SlotPlacesOptions {
  readonly db: StateDB;
  readonly around: Around;
  /** Whether some address has the identity. */
  addressed(identity: number): boolean;
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Numbers that the classes of a slot may have. Default CLASS_NUMBERS. */
  readonly classNumbers?: number | undefined;
}

/** A slot number that is not free. */
interface SlotNumber {
  readonly slot: number;
  /** What the kernel held there at the start, until a shape takes it over. */
  readonly found?: KernelSlot;
}

/** What a shape was compiled to, and what it has until now. */
export interface Placing {
  readonly shape: string;
  readonly compiled: CompiledPolicy;
  readonly before: Numbered | undefined;
  /** Kernel slots that its endpoints have. */
  readonly candidates: Iterable<number>;
  /** Endpoints point at the slot and go elsewhere: for them it stays as it was. */
  readonly leaving: boolean;
  /** The kernel cannot edit the slot any more. */
  readonly outgrown: boolean;
  /** A slot that may differ little. */
  readonly like: Numbered | undefined;
}

export interface Placed extends Numbered {
  /** What becomes of the slot that it leaves, until nobody points at it. */
  readonly left?: SlotRow;
  /** It judges unknown peers or whole scopes otherwise than the slot that it leaves: peers gave port names other numbers. */
  readonly reframed?: boolean;
}

/** The slots of the node: a shape keeps the one that it has while that can be edited, takes over one that was found in the kernel, or gets a free one. */
export class SlotPlaces {
  readonly #options: SlotPlacesOptions;
  readonly #slots: Rows<number, SlotNumber>;
  readonly #classNumbers: number;

  constructor(options: SlotPlacesOptions) {
    this.#options = options;
    this.#classNumbers = options.classNumbers ?? CLASS_NUMBERS;
    const spec = { name: 'slotNumbers', key: ({ slot }: SlotNumber) => slotKey(slot) };
    this.#slots = new Rows<number, SlotNumber>(options.db, spec, slotKey);
  }

  /** Slots found in the kernel; each may be taken over by the shape that means the same. */
  adopt(slots: ReadonlyMap<number, KernelSlot>): void {
    for (const [slot, found] of slots) this.#slots.set({ slot, found });
  }

  /** The slot may be given out again. */
  release(slot: number): void {
    this.#slots.delete(slot);
  }

  /** @throws IdsExhaustedError: all are in use */
  *place(placing: Placing): Pieces<Placed> {
    const { compiled, before, leaving, outgrown } = placing;
    const now = this.#options.now();
    if (before === undefined) return (yield* this.#found(placing)) ?? (yield* this.#free(placing));
    const reframed = !sameScopes(before.row.compiled, compiled);
    if (!reframed && !outgrown && (yield* mayStay(before.row, compiled, leaving))) {
      const edit = yield* numbered(before, compiled, now, this.#classNumbers);
      if (edit !== undefined) return { row: yield* this.edited(before.row, edit), numbers: edit.numbers };
    }
    return { ...(yield* this.#free({ ...placing, like: before })), left: before.row, reframed };
  }

  /** The edit's row, of a new epoch where it decides of an address otherwise. */
  *edited({ classes, epoch }: SlotRow, { row, moved }: Edited): Pieces<SlotRow> {
    const after = epoch + (yield* this.#differs(classes, row.classes, moved));
    return after === row.epoch ? row : { ...row, epoch: after };
  }

  /** A slot found in the kernel that means the same. */
  *#found({ shape, compiled, candidates }: Placing): Pieces<Numbered | undefined> {
    const now = this.#options.now();
    for (const slot of candidates) {
      const known = this.#slots.get(slot)?.found;
      if (known === undefined || !sameFrame(known, compiled)) continue;
      const { numbers, classes } = yield* assignNumbers(adoptNumbers(known.rows, now), compiled, now);
      const either = both((direction) => new Set([...known.classes[direction].keys(), ...classes[direction].keys()]));
      // Epoch 1 tells endpoints that had this slot already: something differs from what the kernel decided.
      const epoch = yield* this.#differs(known.classes, classes, either);
      // Addresses in a CIDR that has no number in the kernel yet are judged by that of what is around it, which must stay as it is till then.
      if (epoch === 1 && (yield* this.#cidrsCome(classes))) continue;
      this.#slots.set({ slot });
      return { row: { slot, shape, compiled, classes, epoch }, numbers };
    }
    return undefined;
  }

  /** The lowest free one: a slot that was emptied lately still has its maps in the kernel. */
  *#free({ shape, compiled, like }: Placing): Pieces<Numbered> {
    const now = this.#options.now();
    // With the numbers of a slot that differs little, what identities have in common is in memory once. Its own it has retired none of.
    const given =
      like !== undefined && DIRECTIONS.every((direction) => alike(like.row.compiled[direction], compiled[direction]))
        ? yield* assignNumbers(unretired(like.numbers), compiled, now, like.row)
        : yield* assignNumbers(NO_NUMBERS, compiled, now);
    const [classes, numbers] = [given.classes, unretired(given.numbers)];
    let slot = 1;
    for (const { slot: used } of this.#slots.values()) {
      if (used !== slot) break;
      slot += 1;
    }
    if (slot > LAST_SLOT) throw new IdsExhaustedError('policy slots', LAST_SLOT);
    this.#slots.set({ slot });
    return { row: { slot, shape, compiled, classes, epoch: 0 }, numbers };
  }

  /** 1 when some address is decided otherwise. */
  *#differs(before: ClassMaps, after: ClassMaps, moved: PerDirection<Iterable<number>>): Pieces<0 | 1> {
    return (yield* differs(before, after, moved, this.#options)) ? 1 : 0;
  }

  /** Whether some CIDR identity of theirs is not in the ipcache yet. */
  *#cidrsCome(classes: ClassMaps): Pieces<boolean> {
    let done = 0;
    for (const direction of DIRECTIONS)
      for (const id of classes[direction].keys()) {
        if (isLocalCidr(id) && !this.#options.addressed(id)) return true;
        if (++done % PIECE === 0) yield;
      }
    return false;
  }
}

export function slotKey(slot: number): Key {
  return keys.uint(slot, 16);
}

/** As of a slot that nothing has read yet. */
function unretired(numbers: ClassNumbers): ClassNumbers {
  return both((direction) => ({ byRows: numbers[direction].byRows, retired: new Map() }));
}

/** Whether most identities are in classes that both have, and there are numbers for the others of both. */
function alike(a: CompiledDirection, b: CompiledDirection): boolean {
  if (a.classes.length + b.classes.length > CLASS_NUMBERS) return false;
  const known = new Set(a.classes);
  const counts = { same: 0, other: 0 };
  for (const one of b.classes) counts[known.has(one) ? 'same' : 'other'] += one.members.length;
  return counts.same >= counts.other;
}
