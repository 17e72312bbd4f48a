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
import {
  addChild,
  Branch,
  CROWDED,
  dropChild,
  END,
  type Leaf,
  LOWER,
  PLACES,
  SEARCH,
  type Slots,
  slotOf,
  startOf,
  type Tree,
  toSearch,
  unit,
} from './branch.ts';
import type { Key } from './types.ts';

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
