/**
 * An ordered map that never changes: a radix tree over the code units of its keys, with copies of the changed path.
 *
 * A branch names the one position at which its keys differ and has a child for each code unit found there (END for keys
 * that end there); what lies between two positions is not stored, the leaf's own key confirms it. Finding a key costs one
 * step for each branch on its way, whatever the number of keys.
 *
 * `edit` is the token of whoever writes: nodes that carry it were made by this writer since it took the token, nobody else
 * has seen them, and they are changed in place. All others are copied. Whoever hands a tree out takes a new token.
 */
import type { Key } from './types.ts';

/** What a tree holds. Leaves with one key are one leaf: the later replaces the earlier. */
export interface Leaf {
  /** Below zero: tells a leaf from a branch. */
  readonly at: number;
  readonly key: Key;
}

export type Tree<L extends Leaf> = Branch<L> | L;

const END = -1;
/** More children than this are found by place instead of search; fewer than half of it by search again. */
const CROWDED = 40;
/** Place 0 is for END, the others for the sixteen halves of a unit. */
const PLACES = 17;
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
const SEARCH: Kind = 0;
const UPPER: Kind = 1;
const LOWER: Kind = 2;

type Slots<L extends Leaf> = (number | Tree<L> | undefined)[];

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

function unit(key: Key, at: number): number {
  return at < key.length ? key.charCodeAt(at) : END;
}

/** Where the child for `code` is among the slots; `~slot` when there is none and it would belong at `slot`. */
function slotOf<L extends Leaf>(branch: Branch<L>, code: number): number {
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

/** The leaf that shares more of its beginning with `key` than any other, or as much. */
function nearest<L extends Leaf>(tree: Tree<L>, key: Key): L {
  let node = tree;
  while (node.at >= 0) {
    const branch = node as Branch<L>;
    const slot = slotOf(branch, unit(key, branch.at));
    if (slot < 0) return first(branch);
    node = branch.slots[slot] as Tree<L>;
  }
  return node as L;
}

/** The first position at which the keys differ; -1 when they are equal. */
function difference(a: Key, b: Key): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) if (a.charCodeAt(at) !== b.charCodeAt(at)) return at;
  return a.length === b.length ? -1 : length;
}

export function find<L extends Leaf>(tree: Tree<L> | undefined, key: Key): L | undefined {
  let node = tree;
  while (node !== undefined && node.at >= 0) {
    const branch = node as Branch<L>;
    const slot = slotOf(branch, unit(key, branch.at));
    if (slot < 0) return undefined;
    node = branch.slots[slot] as Tree<L>;
  }
  return node !== undefined && (node as L).key === key ? (node as L) : undefined;
}

/** The leaf with the smallest key. */
export function first<L extends Leaf>(tree: Tree<L>): L {
  let node = tree;
  while (node.at >= 0) node = (node as Branch<L>).slots[startOf(node as Branch<L>)] as Tree<L>;
  return node as L;
}

/** The slot of the first child. */
function startOf<L extends Leaf>(branch: Branch<L>): number {
  if (branch.kind === SEARCH) return 1;
  let slot = 0;
  while (branch.slots[slot] === undefined) slot++;
  return slot;
}

function editable<L extends Leaf>(branch: Branch<L>, edit: number): Branch<L> {
  if (branch.edit === edit) return branch;
  return new Branch(branch.at, edit, branch.slots.slice(), branch.kind, branch.size);
}

function fork<L extends Leaf>(node: Tree<L>, code: number, leaf: L, at: number, edit: number): Branch<L> {
  const added = unit(leaf.key, at);
  return new Branch<L>(at, edit, code < added ? [code, node, added, leaf] : [added, leaf, code, node], SEARCH, 2);
}

/** The tree with the leaf in it. */
export function put<L extends Leaf>(tree: Tree<L> | undefined, leaf: L, edit: number): Tree<L> {
  if (tree === undefined) return leaf;
  const { key } = leaf;
  const near = nearest(tree, key);
  const differs = difference(near.key, key);
  const code = unit(near.key, differs);
  if (tree.at < 0) return differs < 0 ? leaf : fork(tree, code, leaf, differs, edit);
  if (differs >= 0 && differs < tree.at) return fork(tree, code, leaf, differs, edit);
  const top = editable(tree as Branch<L>, edit);
  let branch = top;
  let upper = top;
  for (;;) {
    const slot = slotOf(branch, unit(key, branch.at));
    if (slot < 0) {
      if (branch.kind === LOWER) upper.size++;
      addChild(branch, ~slot, leaf);
      return top;
    }
    const child = branch.slots[slot] as Tree<L>;
    if (child.at < 0 || (differs >= 0 && differs < child.at)) {
      branch.slots[slot] = differs < 0 ? leaf : fork(child, code, leaf, differs, edit);
      return top;
    }
    const own = editable(child as Branch<L>, edit);
    if (own !== child) branch.slots[slot] = own;
    upper = branch;
    branch = own;
  }
}

/** Adds the leaf at a slot that `slotOf` named. */
function addChild<L extends Leaf>(branch: Branch<L>, slot: number, leaf: L): void {
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
function toSearch<L extends Leaf>(branch: Branch<L>): void {
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

/** The tree without the key: the same tree when the key is not in it, undefined when nothing is left. */
export function remove<L extends Leaf>(tree: Tree<L> | undefined, key: Key, edit: number): Tree<L> | undefined {
  if (tree === undefined || find(tree, key) === undefined) return tree;
  if (tree.at < 0) return undefined;
  const top = editable(tree as Branch<L>, edit);
  let parent: Branch<L> | undefined;
  let parentSlot = 0;
  let branch = top;
  for (;;) {
    const slot = slotOf(branch, unit(key, branch.at));
    const child = branch.slots[slot] as Tree<L>;
    if (child.at < 0) {
      dropChild(branch, slot);
      if (branch.kind === LOWER && parent !== undefined) {
        if (branch.size === 0) parent.slots[parentSlot] = undefined;
        parent.size--;
        if (parent.size < CROWDED / 2) toSearch(parent);
        return top;
      }
      if (branch.size > 1) return top;
      const last = branch.slots[startOf(branch)] as Tree<L>;
      if (parent === undefined) return last;
      parent.slots[parentSlot] = last;
      return top;
    }
    const own = editable(child as Branch<L>, edit);
    if (own !== child) branch.slots[slot] = own;
    parent = branch;
    parentSlot = slot;
    branch = own;
  }
}

function dropChild<L extends Leaf>(branch: Branch<L>, slot: number): void {
  branch.size--;
  if (branch.kind === SEARCH) {
    branch.slots = branch.slots.toSpliced(slot - 1, 2);
    return;
  }
  branch.slots[slot] = undefined;
  if (branch.kind === UPPER && branch.size < CROWDED / 2) toSearch(branch);
}

/** The part of the tree whose keys start with `prefix`. */
export function under<L extends Leaf>(tree: Tree<L> | undefined, prefix: Key): Tree<L> | undefined {
  let node = tree;
  while (node !== undefined && node.at >= 0 && node.at < prefix.length) {
    const slot = slotOf(node as Branch<L>, prefix.charCodeAt(node.at));
    node = slot < 0 ? undefined : ((node as Branch<L>).slots[slot] as Tree<L>);
  }
  return node !== undefined && first(node).key.startsWith(prefix) ? node : undefined;
}

/** What is shown leaves; one that answers false ends it. */
export interface Visitor<L extends Leaf> {
  leaf(leaf: L): boolean;
}

/** Deeper than this a walk keeps its way on the heap: keys that begin with each other make a branch for each unit. */
const DEEP = 100;

/** Shows the leaves in key order until `visitor` answers false; returns false then. */
export function walk<L extends Leaf>(tree: Tree<L> | undefined, visitor: Visitor<L>): boolean {
  return tree === undefined || descend(tree, visitor, 0);
}

function descend<L extends Leaf>(tree: Tree<L>, visitor: Visitor<L>, depth: number): boolean {
  if (tree.at < 0) return visitor.leaf(tree as L);
  if (depth > DEEP) {
    const cursor = Cursor.all(tree);
    for (let leaf = cursor.next(); leaf !== undefined; leaf = cursor.next()) if (!visitor.leaf(leaf)) return false;
    return true;
  }
  const { slots, kind } = tree as Branch<L>;
  const step = kind === SEARCH ? 2 : 1;
  for (let slot = step - 1; slot < slots.length; slot += step) {
    const child = slots[slot] as Tree<L> | undefined;
    if (child === undefined) continue;
    if (!(child.at < 0 ? visitor.leaf(child as L) : descend(child, visitor, depth + 1))) return false;
  }
  return true;
}

/** Walks leaves in key order. */
export class Cursor<L extends Leaf> {
  /** The slots of the branches above, each followed by where to go on in them. */
  readonly #above: (Slots<L> | number)[] = [];
  #slots: Slots<L> = [];
  #slot = 0;
  #step = 2;

  /** Before the first leaf of `tree`. */
  static all<L extends Leaf>(tree: Tree<L> | undefined): Cursor<L> {
    const cursor = new Cursor<L>();
    if (tree !== undefined) cursor.#enter(tree);
    return cursor;
  }

  /** Over the leaves whose keys start with `prefix`. */
  static prefix<L extends Leaf>(tree: Tree<L> | undefined, prefix: Key): Cursor<L> {
    return Cursor.all(under(tree, prefix));
  }

  /** Before the first leaf whose key is >= `from`. */
  static from<L extends Leaf>(tree: Tree<L> | undefined, from: Key): Cursor<L> {
    const cursor = new Cursor<L>();
    if (tree === undefined) return cursor;
    const near = nearest(tree, from);
    const differs = difference(near.key, from);
    let node = tree;
    while (node.at >= 0 && (differs < 0 || node.at < differs)) {
      const branch = node as Branch<L>;
      const slot = slotOf(branch, unit(from, branch.at));
      cursor.#push(branch, slot + (branch.kind === SEARCH ? 2 : 1));
      node = branch.slots[slot] as Tree<L>;
    }
    if (node.at >= 0 && node.at === differs) {
      // No child for the unit of `from`: on from the next larger one.
      let branch = node as Branch<L>;
      let slot = slotOf(branch, unit(from, differs));
      if (slot >= 0) {
        cursor.#push(branch, slot + 1);
        branch = branch.slots[slot] as Branch<L>;
        slot = slotOf(branch, unit(from, differs));
      }
      cursor.#push(branch, ~slot);
    } else if (differs < 0 || unit(near.key, differs) > unit(from, differs)) {
      cursor.#enter(node);
    }
    return cursor;
  }

  /** The next leaf; undefined at the end. */
  next(): L | undefined {
    for (;;) {
      const slots = this.#slots;
      let slot = this.#slot;
      let child = slots[slot];
      if (this.#step === 1) while (child === undefined && ++slot < slots.length) child = slots[slot];
      if (child === undefined) {
        if (!this.#pop()) return undefined;
        continue;
      }
      this.#slot = slot + this.#step;
      if ((child as Tree<L>).at < 0) return child as L;
      this.#push(child as Branch<L>, (child as Branch<L>).kind === SEARCH ? 1 : 0);
    }
  }

  #enter(node: Tree<L>): void {
    const branch = node.at < 0 ? new Branch<L>(0, 0, [END, node], SEARCH, 1) : (node as Branch<L>);
    this.#push(branch, branch.kind === SEARCH ? 1 : 0);
  }

  #push(branch: Branch<L>, slot: number): void {
    this.#above.push(this.#slots, this.#slot);
    this.#slots = branch.slots;
    this.#slot = slot;
    this.#step = branch.kind === SEARCH ? 2 : 1;
  }

  #pop(): boolean {
    const slot = this.#above.pop();
    if (slot === undefined) return false;
    this.#slot = slot as number;
    this.#slots = this.#above.pop() as Slots<L>;
    this.#step = this.#slots.length === PLACES ? 1 : 2;
    return true;
  }
}
