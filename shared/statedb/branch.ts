/** Branches of a tree (see tree.ts), and how they keep their children. */
import type { Key } from './types.ts';

/** What a tree holds. Leaves with one key are one leaf: the later replaces the earlier. */
export interface Leaf {
  /** Below zero: tells a leaf from a branch. */
  readonly at: number;
  readonly key: Key;
}

export type Tree<L extends Leaf> = Branch<L> | L;

export const END = -1;
/** More children than this are found by place instead of search; fewer than half of it by search again. */
export const CROWDED = 40;
/** Place 0 is for END, the others for the sixteen halves of a unit. */
export const PLACES = 17;
/** Units from here on have no place. */
const BEYOND = 256;

/** How a branch finds its children. */
type Kind =
  /** [unit, child, unit, child, ...] in order. */
  | 0
  /** PLACES places by the upper half of the unit: END's child, and branches of the next kind at the same position. */
  | 1
  /** PLACES places by the lower half of the unit; the first stays empty. */
  | 2;
export const SEARCH: Kind = 0;
const UPPER: Kind = 1;
export const LOWER: Kind = 2;

export type Slots<L extends Leaf> = (number | Tree<L> | undefined)[];

export class Branch<L extends Leaf> {
  readonly at: number;
  readonly edit: number;
  slots: Slots<L>;
  kind: Kind;
  /** Children; of an UPPER branch those of its LOWER ones. */
  size: number;

  constructor(at: number, edit: number, slots: Slots<L>, kind: Kind, size: number) {
    this.at = at;
    this.edit = edit;
    this.slots = slots;
    this.kind = kind;
    this.size = size;
  }
}

export function unit(key: Key, at: number): number {
  return at < key.length ? key.charCodeAt(at) : END;
}

/** Where the child for `code` is among the slots; `~slot` when there is none and it would belong at `slot`. */
export function slotOf<L extends Leaf>(branch: Branch<L>, code: number): number {
  const { slots, kind } = branch;
  if (kind !== SEARCH) {
    const place = kind === LOWER ? (code & 15) + 1 : code < BEYOND ? (code >> 4) + 1 : PLACES;
    return slots[place] === undefined ? ~place : place;
  }
  let low = 0;
  let high = slots.length >> 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    const there = slots[middle << 1] as number;
    if (there === code) return (middle << 1) + 1;
    if (there < code) low = middle + 1;
    else high = middle;
  }
  return ~((low << 1) + 1);
}

/** The slot of the first child. */
export function startOf<L extends Leaf>(branch: Branch<L>): number {
  if (branch.kind === SEARCH) return 1;
  let slot = 0;
  while (branch.slots[slot] === undefined) slot++;
  return slot;
}

/** Adds the leaf at a slot that `slotOf` named. */
export function addChild<L extends Leaf>(branch: Branch<L>, slot: number, leaf: L): void {
  const code = unit(leaf.key, branch.at);
  branch.size++;
  if (branch.kind === UPPER && slot < PLACES) {
    branch.slots[slot] = code === END ? leaf : lower(branch, code, leaf);
  } else if (branch.kind === LOWER) {
    branch.slots[slot] = leaf;
  } else {
    if (branch.kind === UPPER) toSearch(branch);
    insertPair(branch, code, leaf);
    if (branch.size > CROWDED && (branch.slots.at(-2) as number) < BEYOND) toPlaces(branch);
  }
}

/** Puts a unit and its child into the order of a SEARCH branch. */
function insertPair<L extends Leaf>(branch: Branch<L>, code: number, leaf: L): void {
  const { slots } = branch;
  const at = ~slotOf(branch, code) - 1;
  // In one step, and exactly as long as needed: push(), splice() and a literal with spreads leave room for more.
  branch.slots = slots.toSpliced(at, 0, code, leaf);
}

function places<L extends Leaf>(): Slots<L> {
  return Array.from<undefined>({ length: PLACES });
}

/** A LOWER branch with one child. */
function lower<L extends Leaf>({ at, edit }: Branch<L>, code: number, child: Tree<L>): Branch<L> {
  const branch = new Branch<L>(at, edit, places(), LOWER, 1);
  branch.slots[(code & 15) + 1] = child;
  return branch;
}

/** From SEARCH to UPPER. */
function toPlaces<L extends Leaf>(branch: Branch<L>): void {
  const pairs = branch.slots;
  branch.slots = places();
  branch.kind = UPPER;
  for (let i = 0; i < pairs.length; i += 2) {
    const code = pairs[i] as number;
    const child = pairs[i + 1] as Tree<L>;
    const place = (code >> 4) + 1;
    const there = branch.slots[place] as Branch<L> | undefined;
    if (code === END) {
      branch.slots[place] = child;
    } else if (there === undefined) {
      branch.slots[place] = lower(branch, code, child);
    } else {
      there.slots[(code & 15) + 1] = child;
      there.size++;
    }
  }
}

/** From UPPER to SEARCH. */
export function toSearch<L extends Leaf>(branch: Branch<L>): void {
  const pairs: Slots<L> = [];
  branch.slots.forEach((child, place) => {
    if (child === undefined) return;
    if (place === 0) pairs.push(END, child);
    else {
      (child as Branch<L>).slots.forEach((kid, half) => {
        if (kid !== undefined) pairs.push(((place - 1) << 4) | (half - 1), kid);
      });
    }
  });
  branch.slots = pairs;
  branch.kind = SEARCH;
}

export function dropChild<L extends Leaf>(branch: Branch<L>, slot: number): void {
  branch.size--;
  if (branch.kind === SEARCH) {
    branch.slots = branch.slots.toSpliced(slot - 1, 2);
    return;
  }
  branch.slots[slot] = undefined;
  if (branch.kind === UPPER && branch.size < CROWDED / 2) toSearch(branch);
}
