import { isLocalCidr, plainNode, scopeOf } from '@weir/identity';
import {
  type ClassRows,
  type CompiledDirection,
  type CompiledPolicy,
  DENY,
  type Direction,
  type Pieces,
} from '@weir/policy';
import { IdsExhaustedError } from '../errors.ts';
import type { PerDirection, SlotContent, SlotRow, VerdictBlock } from '../tables.ts';
import { GRACE_MS } from './grace.ts';
import { patched } from './patched-map.ts';
import { blocksOf, both, DIRECTIONS, passingKey, rowsKey } from './rows.ts';

/** First class number that is no scope class (datapath contract). */
export const FIRST_CLASS = 16;
const LAST_CLASS = 0xffff;
/** How many there are. A slot in use has no more classes than rows, which are fewer. */
export const CLASS_NUMBERS = LAST_CLASS - FIRST_CLASS + 1;
/** Peers of whom nothing passes: a number of no scope class, that never has rows. So there is always one for them. */
const CLOSED_CLASS = 3;
/** Classes of addresses are numbered from here on. */
export const ADDRESS_CLASSES = 0x1_0000;
/** The number of the prefixes whose addresses have them. */
export const ADDRESSES = 0x2_0000;
/** Identities of a piece: some ten microseconds. */
export const PIECE = 256;
/** The kernel keeps the rows of a number for GRACE_MS and takes them away in the round after that. */
const REUSE_MS = 2 * GRACE_MS;

export type ClassMaps = SlotRow['classes'];

interface DirectionNumbers {
  /** Number of each class in use, by its rows key. */
  readonly byRows: ReadonlyMap<string, number>;
  readonly retired: ReadonlyMap<number, Retired>;
}

/** A number that was in use. */
interface Retired {
  /** Of the rows that packets may still read. */
  readonly key: string;
  /** Until when it was: milliseconds. */
  readonly since: number;
}

/**
 * The numbers of one slot's classes. A number stands for its rows: it is kept only by a class with the same rows, so that no row
 * of a number in use is ever rewritten, and moving an identity from one number to another is one atomic change of decision. A
 * number that was in use is given to other rows only after REUSE_MS, as packets may still read its old ones, and to the same rows at any time.
 */
export type ClassNumbers = Readonly<Record<Direction, DirectionNumbers>>;

const UNUSED: DirectionNumbers = { byRows: new Map(), retired: new Map() };
export const NO_NUMBERS: ClassNumbers = { ingress: UNUSED, egress: UNUSED };

/** Numbers as the kernel holds them: rows key by number. `now`: milliseconds. */
export function adoptNumbers(
  rows: Readonly<Record<Direction, ReadonlyMap<number, string>>>,
  now: number,
): ClassNumbers {
  const one = (direction: Direction): DirectionNumbers => {
    const byRows = new Map<string, number>();
    const retired = new Map<number, Retired>();
    for (const [number, key] of rows[direction]) {
      if (byRows.has(key)) retired.set(number, { key, since: now });
      else byRows.set(key, number);
    }
    return { byRows, retired };
  };
  return { ingress: one('ingress'), egress: one('egress') };
}

/** What a slot's classes were, and the numbers that its identities had. */
export type Assigned = Pick<SlotRow, 'compiled' | 'classes'>;

/** Of each direction, identities that have another number than before. */
export type Moved = PerDirection<readonly number[]>;

/**
 * The numbers that the classes have next, and from them identity -> number of each direction. `before`: what `numbers` were given to; classes
 * that are the same objects there are not looked at. `now`: milliseconds.
 *
 * @throws IdsExhaustedError: too many numbers were in use within REUSE_MS; never where none was before
 */
export function* assignNumbers(
  numbers: ClassNumbers,
  compiled: CompiledPolicy,
  now: number,
  before?: Assigned,
  count = CLASS_NUMBERS,
): Pieces<{ readonly numbers: ClassNumbers; readonly classes: ClassMaps; readonly moved: Moved }> {
  const one = (direction: Direction) => {
    const had = before && { made: before.compiled[direction].classes, classes: before.classes[direction] };
    return assign(numbers[direction], compiled[direction], now, count, had);
  };
  const ingress = yield* one('ingress');
  const egress = yield* one('egress');
  return {
    numbers: { ingress: ingress.numbers, egress: egress.numbers },
    classes: { ingress: ingress.classes, egress: egress.classes },
    moved: { ingress: ingress.moved, egress: egress.moved },
  };
}

type Made = CompiledPolicy[Direction]['classes'];
interface Had {
  readonly made: Made;
  readonly classes: ReadonlyMap<number, number>;
}
const NOTHING: Had = { made: [], classes: new Map() };

function* assign(
  numbers: DirectionNumbers,
  { enforced, classes: made }: CompiledPolicy[Direction],
  now: number,
  count: number,
  had = NOTHING,
): Pieces<{
  readonly numbers: DirectionNumbers;
  readonly classes: ReadonlyMap<number, number>;
  readonly moved: readonly number[];
}> {
  if (!enforced) return { numbers, classes: new Map(), moved: [...had.classes.keys()] };
  const [stay, last] = [new Set(had.made), new Set(made)];
  const fresh = made.filter((one) => !stay.has(one));
  const gone = had.made.filter((one) => !last.has(one));
  const retired = new Map<number, Retired>();
  const resting = new Map<string, number>([['', CLOSED_CLASS]]);
  for (const [number, was] of numbers.retired) {
    if (now - was.since >= REUSE_MS) continue;
    retired.set(number, was);
    resting.set(was.key, number);
  }
  const used = new Set([...numbers.byRows.values(), ...retired.keys()]);
  const changes = new Map<number, number | undefined>();
  let done = 0;
  const successors = succeeding(gone, fresh);
  for (const one of gone)
    for (const member of without(one, successors.get(one))) {
      changes.set(member, undefined);
      if (++done % PIECE === 0) yield;
    }
  const named = new Map<string, number>();
  let candidate = FIRST_CLASS;
  const predecessors = new Map(Array.from(successors, ([before, after]) => [after, before]));
  for (const one of fresh) {
    const key = rowsKey(one.rows);
    let number = numbers.byRows.get(key) ?? named.get(key) ?? resting.get(key);
    if (number === undefined) {
      while (used.has(candidate)) candidate += 1;
      if (candidate >= FIRST_CLASS + count) throw new IdsExhaustedError('class numbers of a slot', count);
      number = candidate;
      used.add(number);
    }
    retired.delete(number);
    named.set(key, number);
    for (const member of without(one, predecessors.get(one))) {
      changes.set(member, number);
      if (++done % PIECE === 0) yield;
    }
  }
  const moved: number[] = [];
  for (const [member, number] of changes) {
    if (had.classes.get(member) === number) changes.delete(member);
    else moved.push(member);
    if (++done % PIECE === 0) yield;
  }
  const classes = patched(had.classes, changes);
  const kept = new Set(made.map(({ members }) => classes.get(members[0] ?? 0)));
  const byRows = new Map<string, number>();
  for (const [key, number] of numbers.byRows)
    if (kept.has(number)) byRows.set(key, number);
    else retired.set(number, { key, since: now });
  for (const [key, number] of named) byRows.set(key, number);
  return { numbers: { byRows, retired }, classes, moved };
}

/** Of classes that are gone, those of which there is a fresh one with the same rows: it has their number, and most of their members. */
function succeeding(gone: Made, fresh: Made): ReadonlyMap<Made[number], Made[number]> {
  const byRows = new Map(gone.map((one) => [rowsKey(one.rows), one]));
  return new Map(
    fresh.flatMap((one) => {
      const before = byRows.get(rowsKey(one.rows));
      return before === undefined ? [] : [[before, one]];
    }),
  );
}

/** Members of the one class, in ascending order, that the other has not. */
function without({ members }: Made[number], other: Made[number] | undefined): readonly number[] {
  if (other === undefined) return members;
  const out: number[] = [];
  let at = 0;
  for (const member of members) {
    while ((other.members[at] ?? Infinity) < member) at += 1;
    if (other.members[at] !== member) out.push(member);
  }
  return out;
}

/**
 * The identity that a CIDR's addresses would have without it: of the next shorter CIDR around it, or the world's. Each call is nearer to the
 * world.
 */
export type Around = (identity: number) => number;

/** Class of an identity as the datapath finds it: of a CIDR that is not named, that of the longest one around it that is; of such a node, that of all. */
export function classOf(classes: ReadonlyMap<number, number>, identity: number, around: Around): number {
  const own = classes.get(identity);
  if (own !== undefined) return own;
  if (isLocalCidr(identity)) return classOf(classes, around(identity), around);
  if (plainNode(identity) !== identity) return classOf(classes, plainNode(identity), around);
  switch (scopeOf(identity)) {
    case 'pod':
      return 1;
    case 'world':
      return 2;
    default:
      return 0;
  }
}

/**
 * Returns whether the slot may let a packet of one identity through and not the same packet of the other. Which rule decides does not count: an
 * entry of conntrack goes on naming the rule that opened its flow. What the slot allows a class is looked up once.
 */
export function distinguisher(slot: SlotRow, around: Around): (a: number, b: number) => boolean {
  const directions = DIRECTIONS.filter((direction) => slot.compiled[direction].enforced).map((direction) => {
    const allowed = new Map<number, string | undefined>();
    let rows: ReturnType<typeof rowsByClass> | undefined;
    const allowedOf = (number: number): string | undefined => {
      if (!allowed.has(number)) {
        rows ??= rowsByClass(slot, direction);
        const found = rows.get(number);
        allowed.set(number, found && passingKey(found));
      }
      return allowed.get(number);
    };
    return { classes: slot.classes[direction], allowedOf };
  });
  return (a, b) =>
    directions.some(({ classes, allowedOf }) => {
      const [one, other] = [classOf(classes, a, around), classOf(classes, b, around)];
      if (one === other) return false;
      const known = allowedOf(one);
      return known === undefined || known !== allowedOf(other);
    });
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

/** What the kernel is to hold of a slot. */
export function contentOf(row: SlotRow): SlotContent {
  return {
    elements: both((direction) => row.classes[direction]),
    rows: both(
      (direction) =>
        new Map([
          ...rowsByClass(row, direction)
            .entries()
            .map(([number, rows]) => [number, blocksOf(rows)] as const),
          ...addressBlocks(row.compiled[direction]),
        ]),
    ),
  };
}

/** Of addresses: blocks of each class, and the prefixes last, so that a packet that finds one finds its rows. */
function addressBlocks({
  addresses,
}: CompiledDirection): (readonly [number: number, blocks: readonly VerdictBlock[]])[] {
  const classes = new Map<ClassRows, number>();
  const prefixes = addresses.map(({ rows, ...address }) => {
    const number = classes.get(rows) ?? classes.size;
    classes.set(rows, number);
    return { protocol: 0, port: 0, bits: 0, ...DENY, cookie: number, ...address };
  });
  if (prefixes.length === 0) return [];
  const blocks = classes.entries().map(([rows, number]) => [ADDRESS_CLASSES + number, blocksOf(rows)] as const);
  return [...blocks, [ADDRESSES, prefixes]];
}
