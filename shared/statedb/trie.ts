/**
 * Prefixes that never change: a binary tree over the bits of the keys made by `keys.prefix`, with copies of the changed
 * path. A node stands for the bits it names; a node that holds nothing has two children. `edit` is as in tree.ts.
 */
import { parsePrefix } from './keys.ts';
import type { Key } from './types.ts';

/** The first unit of a prefix key is the size of its addresses: so prefixes of different sizes part at the root. */
const SIZE_BITS = 8;

export class Trie<V> {
  readonly edit: number;
  /** The prefix itself when it holds something; else any prefix key that begins with these bits. */
  readonly key: Key;
  readonly bits: number;
  value: V | undefined;
  zero: Trie<V> | undefined;
  one: Trie<V> | undefined;

  constructor(key: Key, bits: number, edit: number, value?: V, zero?: Trie<V>, one?: Trie<V>) {
    this.key = key;
    this.bits = bits;
    this.edit = edit;
    this.value = value;
    this.zero = zero;
    this.one = one;
  }
}

function bitsOf(key: Key): number {
  return SIZE_BITS + parsePrefix(key).bits;
}

function bit(key: Key, at: number): number {
  return (key.charCodeAt(at >> 3) >> (7 - (at & 7))) & 1;
}

/** How many of the first `limit` bits of both are equal before the first that is not. */
function common(a: Key, b: Key, limit: number): number {
  for (let at = 0; at << 3 < limit; at++) {
    const different = a.charCodeAt(at) ^ b.charCodeAt(at);
    if (different !== 0) return Math.min(limit, (at << 3) + Math.clz32(different) - 24);
  }
  return limit;
}

function child<V>(node: Trie<V>, key: Key): Trie<V> | undefined {
  return bit(key, node.bits) === 0 ? node.zero : node.one;
}

function adopt<V>(node: Trie<V>, kid: Trie<V> | undefined, key: Key): void {
  if (bit(key, node.bits) === 0) node.zero = kid;
  else node.one = kid;
}

function editable<V>(node: Trie<V>, key: Key, edit: number): Trie<V> {
  if (node.edit === edit && node.key === key) return node;
  return new Trie(key, node.bits, edit, node.value, node.zero, node.one);
}

/** The bits of `key` that some node on its way has, too. */
function matching<V>(trie: Trie<V>, key: Key, bits: number): number {
  let node = trie;
  while (node.bits < bits) {
    const next = child(node, key);
    if (next === undefined) break;
    node = next;
  }
  return common(node.key, key, Math.min(node.bits, bits));
}

export function findPrefix<V>(trie: Trie<V> | undefined, key: Key): V | undefined {
  const bits = bitsOf(key);
  let node = trie;
  while (node !== undefined && node.bits < bits) node = child(node, key);
  return node?.key === key ? node.value : undefined;
}

/** The trie with `value` at the prefix. */
export function putPrefix<V>(trie: Trie<V> | undefined, key: Key, value: V, edit: number): Trie<V> {
  return putAt(trie, key, bitsOf(key), value, edit);
}

function putAt<V>(node: Trie<V> | undefined, key: Key, bits: number, value: V, edit: number): Trie<V> {
  if (node === undefined) return new Trie(key, bits, edit, value);
  const shared = common(node.key, key, Math.min(node.bits, bits));
  if (shared < node.bits) {
    const above = shared === bits ? new Trie(key, bits, edit, value) : new Trie<V>(key, shared, edit);
    adopt(above, node, node.key);
    if (shared < bits) adopt(above, new Trie(key, bits, edit, value), key);
    return above;
  }
  const own = editable(node, bits === node.bits ? key : node.key, edit);
  if (bits === node.bits) own.value = value;
  else adopt(own, putAt(child(node, key), key, bits, value, edit), key);
  return own;
}

/** The trie without the prefix: the same trie when it holds nothing there, undefined when nothing is left. */
export function removePrefix<V>(trie: Trie<V> | undefined, key: Key, edit: number): Trie<V> | undefined {
  return findPrefix(trie, key) === undefined ? trie : removeAt(trie, key, bitsOf(key), edit);
}

function removeAt<V>(node: Trie<V> | undefined, key: Key, bits: number, edit: number): Trie<V> | undefined {
  if (node === undefined) return undefined;
  const own = editable(node, node.key, edit);
  if (bits === node.bits) own.value = undefined;
  else adopt(own, removeAt(child(node, key), key, bits, edit), key);
  if (own.value !== undefined || (own.zero !== undefined && own.one !== undefined)) return own;
  return own.zero ?? own.one;
}

/** What contains the prefix, from the shortest to the longest that does, itself included. */
export function* covering<V>(trie: Trie<V> | undefined, key: Key): Generator<Trie<V> & { readonly value: V }> {
  const asked = bitsOf(key);
  if (trie === undefined) return;
  const bits = matching(trie, key, asked);
  let node: Trie<V> | undefined = trie;
  while (node !== undefined && node.bits <= bits) {
    if (node.value !== undefined) yield node as Trie<V> & { readonly value: V };
    node = child(node, key);
  }
}

/** The longest prefix that contains `key`, itself included. */
export function longest<V>(trie: Trie<V> | undefined, key: Key): (Trie<V> & { readonly value: V }) | undefined {
  const bits = bitsOf(key);
  if (trie === undefined) return undefined;
  const deepest = last(trie, key, bits);
  if (deepest === undefined) return undefined;
  const shared = common(deepest.key, key, deepest.bits);
  // What lies above it on the way begins with the same bits as it.
  return (shared === deepest.bits ? deepest : last(trie, key, shared)) as (Trie<V> & { readonly value: V }) | undefined;
}

/** The last node that holds something on the way of `key`, of at most `bits` bits. Whether it matches is not looked at. */
function last<V>(trie: Trie<V>, key: Key, bits: number): Trie<V> | undefined {
  let best: Trie<V> | undefined;
  let node: Trie<V> | undefined = trie;
  while (node !== undefined && node.bits <= bits) {
    if (node.value !== undefined) best = node;
    node = child(node, key);
  }
  return best;
}

/** What the prefix contains, itself included, in key order: a shorter prefix before the longer ones within it. */
export function* covered<V>(trie: Trie<V> | undefined, key: Key): Generator<Trie<V> & { readonly value: V }> {
  const bits = bitsOf(key);
  let node = trie;
  while (node !== undefined && node.bits < bits) node = child(node, key);
  if (node === undefined || common(node.key, key, bits) < bits) return;
  const stack: Trie<V>[] = [node];
  for (let top = stack.pop(); top !== undefined; top = stack.pop()) {
    if (top.value !== undefined) yield top as Trie<V> & { readonly value: V };
    if (top.one !== undefined) stack.push(top.one);
    if (top.zero !== undefined) stack.push(top.zero);
  }
}
