import {
  CIDR_BASE,
  CIDR_LAST,
  IdentityAllocator,
  type IdentityRange,
  LOCAL_ENDPOINT_BASE,
  LOCAL_ENDPOINT_LAST,
  NAMES_BASE,
  NAMES_LAST,
  NODE_BASE,
  NODE_LAST,
  nodeNumber,
} from '@weir/identity';
import { hostNameList, type Listeners } from '@weir/policy';
import { type Key, keys, query, type StateDB, type Table } from '@weir/statedb';
import type { NodeNumber } from '../core.ts';
import { Rows } from './working.ts';

/** What is persisted: number by name. */
export interface NumbersState {
  readonly cidrs: Readonly<Record<string, number>>;
  readonly labels: Readonly<Record<string, number>>;
  readonly nodes: Readonly<Record<string, number>>;
  /** Patterns of names, separated by spaces. */
  readonly names?: Readonly<Record<string, number>>;
  /** The same: what a DNS proxy lets pass. */
  readonly listeners?: Readonly<Record<string, number>>;
  /** The last numbers of names and listeners that were given out: a proxy that was away since may still have what they stood for. */
  readonly given?: { readonly names: number; readonly listener: number };
  /** No datapath revision beyond this one was ever given out. */
  readonly revisions: number;
}

const LAST_REVISION = 0xffffffff;
/** Listeners that nothing names are given back once so many were given out, and after a start. */
const SWEEP_AFTER = 4096;
/**
 * Revisions are reserved in blocks, so that a file is written for one in many of them. A start leaves out as many more: those that a
 * file which could not be written does not tell of, and no endpoint has any more.
 */
const REVISION_BLOCK = 1 << 16;

type Kind = NodeNumber['kind'];

const RANGES: Readonly<Record<Kind, IdentityRange>> = {
  cidr: { first: CIDR_BASE + 1, last: CIDR_LAST },
  labels: { first: LOCAL_ENDPOINT_BASE + 1, last: LOCAL_ENDPOINT_LAST },
  node: { first: NODE_BASE + 1, last: NODE_LAST },
  names: { first: NAMES_BASE + 1, last: NAMES_LAST },
  listener: { first: 1, last: 0xffff },
};

/**
 * Numbers of this node: identities of CIDRs (top byte 0x01), of other nodes (0x02), of label sets (0x03) and of names (0x05), and what proxies know rules
 * by (16 bits), which survive a restart, and datapath
 * revisions: each greater than every one before, across restarts and crashes, whatever endpoint they were for. A name keeps its
 * number until it is released. A file keeps them; where it is lost or older, the kernel tells the numbers that are in use (`adoptCidr`,
 * `adoptLabels`, `reserve`, `sawRevision`), and none of those is given to another name.
 */
export class LocalNumbers {
  readonly #numbers: Rows<Pick<NodeNumber, 'kind' | 'name'>, NodeNumber>;
  readonly #allocators: Readonly<Record<Kind, IdentityAllocator>>;
  /** The last one given out, and the last one that `state()` has reserved: counters, which nobody looks up. */
  #revision = 0;
  #reserved = 0;
  readonly #given = { names: 0, listener: 0 };
  /** Listeners that were given out since those that nothing named were given back. */
  #listenersGiven = 0;
  /** Whether `state()` has changed since it was last saved. */
  dirty = false;

  constructor(db: StateDB) {
    const indexes = [{ name: 'id', unique: true, keys: ({ id }: NodeNumber) => [idKey(id)] }];
    this.#numbers = new Rows(db, { name: 'localNumbers', key: keyOf, indexes }, keyOf);
    const isUsed = (id: number): boolean => this.#byId(id) !== undefined;
    this.#allocators = {
      cidr: new IdentityAllocator(RANGES.cidr, isUsed),
      labels: new IdentityAllocator(RANGES.labels, isUsed),
      node: new IdentityAllocator(RANGES.node, isUsed),
      names: new IdentityAllocator(RANGES.names, isUsed),
      listener: new IdentityAllocator(RANGES.listener, isUsed),
    };
  }

  adopt(state: NumbersState): void {
    for (const [prefix, id] of Object.entries(state.cidrs)) this.#adopt({ kind: 'cidr', name: prefix, id });
    for (const [key, id] of Object.entries(state.labels)) this.#adopt({ kind: 'labels', name: key, id });
    for (const [name, id] of Object.entries(state.nodes)) this.#adopt({ kind: 'node', name, id });
    for (const [names, id] of Object.entries(state.names ?? {})) this.#adopt({ kind: 'names', name: names, id });
    for (const [names, id] of Object.entries(state.listeners ?? {})) this.#adopt({ kind: 'listener', name: names, id });
    for (const kind of ['names', 'listener'] as const) {
      const last = state.given?.[kind] ?? 0;
      if (last >= RANGES[kind].first && last <= RANGES[kind].last) this.#allocators[kind].adopt(last);
      this.#given[kind] = last;
    }
    this.#listenersGiven = SWEEP_AFTER;
    this.#revision = Math.max(this.#revision, state.revisions);
  }

  /** Revisions that were given out before this start, and are in the kernel. */
  sawRevisions(revisions: Iterable<number>): void {
    const last = Math.max(0, ...revisions);
    if (last >= this.#revision && last > 0) this.#revision = Math.min(last + REVISION_BLOCK, LAST_REVISION);
  }

  /** The next datapath revision. After 2^32 of them they start again: flows of so long ago have expired. */
  revision(): number {
    if (this.#revision >= LAST_REVISION) {
      this.#revision = 0;
      this.#reserved = 0;
    }
    this.#revision += 1;
    if (this.#revision > this.#reserved) this.dirty = true;
    return this.#revision;
  }

  adoptCidr(prefix: string, id: number): void {
    this.#adopt({ kind: 'cidr', name: prefix, id });
  }

  /** The label set has this number in the kernel. */
  adoptLabels(key: string, id: number): void {
    this.#adopt({ kind: 'labels', name: key, id });
  }

  /** Something in the kernel decides by the number, and nobody knows what it stands for: no name gets it, until all others were given. */
  reserve(id: number): void {
    const number = nodeNumber(id);
    for (const kind of ['cidr', 'labels', 'node', 'names'] as const) {
      const { first, last } = RANGES[kind];
      if (number >= first && number <= last) this.#allocators[kind].adopt(number);
    }
  }

  /** What a number of a label set stands for, as `labelsKey` wrote it. */
  labelsOf(id: number): string | undefined {
    const row = this.#byId(id);
    return row?.kind === 'labels' ? row.name : undefined;
  }

  cidr(prefix: string): number {
    return this.#take('cidr', prefix);
  }

  labels(key: string): number {
    return this.#take('labels', key);
  }

  node(name: string): number {
    return this.#take('node', name);
  }

  /** The number that the node has. */
  numberOfNode(name: string): number | undefined {
    return this.#numbers.get({ kind: 'node', name })?.id;
  }

  /** Every node that has a number. */
  *nodes(): Generator<string> {
    for (const { name } of this.#of('node')) yield name;
  }

  releaseNode(name: string): void {
    if (this.#numbers.delete({ kind: 'node', name }) !== undefined) this.dirty = true;
  }

  /** Every prefix that has a number. */
  *cidrs(): Generator<readonly [prefix: string, id: number]> {
    for (const { name, id } of this.#of('cidr')) yield [name, id];
  }

  /** The number that the prefix has. */
  numberOf(prefix: string): number | undefined {
    return this.#numbers.get({ kind: 'cidr', name: prefix })?.id;
  }

  prefixOf(id: number): string | undefined {
    const row = this.#byId(id);
    return row?.kind === 'cidr' ? row.name : undefined;
  }

  releaseCidr(prefix: string): void {
    if (this.#numbers.delete({ kind: 'cidr', name: prefix }) !== undefined) this.dirty = true;
  }

  /** What a DNS proxy knows the names by that rules let pass. */
  readonly listeners: Listeners = {
    ofNames: (patterns) => {
      try {
        return this.#take('listener', textOf(patterns));
      } catch {
        // All are taken: nothing passes by the rules.
        return 0;
      }
    },
    union: (one, other) => {
      const [some, others] = [this.#byId(one), this.#byId(other)];
      if (some?.kind !== 'listener' || others?.kind !== 'listener') return 0;
      return this.listeners.ofNames([...namesIn(some.name), ...namesIn(others.name)]);
    },
  };

  /** Gives back the listeners that nothing names, when that is due. @param used the others */
  sweepListeners(used: () => Iterable<number>): void {
    if (this.#listenersGiven < SWEEP_AFTER) return;
    this.#listenersGiven = 0;
    const kept = new Set(used());
    for (const row of [...this.#of('listener')]) {
      if (kept.has(row.id)) continue;
      this.#numbers.delete(row);
      this.dirty = true;
    }
  }

  /** Every listener, and the patterns that it lets pass. */
  *eachListener(): Generator<readonly [listener: number, patterns: readonly string[]]> {
    for (const { name, id } of this.#of('listener')) yield [id, namesIn(name)];
  }

  /** The identity of addresses whose names are of these patterns. */
  names(patterns: readonly string[]): number {
    return this.#take('names', textOf(patterns));
  }

  releaseNames(patterns: readonly string[]): void {
    if (this.#numbers.delete({ kind: 'names', name: textOf(patterns) }) !== undefined) this.dirty = true;
  }

  /** Every set of patterns that has an identity. */
  *eachNames(): Generator<readonly [identity: number, patterns: readonly string[]]> {
    for (const { name, id } of this.#of('names')) yield [id, namesIn(name)];
  }

  /** Changes with every number that comes or goes. */
  get table(): Table<NodeNumber> {
    return this.#numbers.table;
  }

  /** What to save. */
  state(): NumbersState {
    this.#reserved = Math.min(this.#revision + REVISION_BLOCK, LAST_REVISION);
    const numbers = (kind: Kind) => Object.fromEntries(Iterator.from(this.#of(kind)).map(({ name, id }) => [name, id]));
    return {
      cidrs: numbers('cidr'),
      labels: numbers('labels'),
      nodes: numbers('node'),
      names: numbers('names'),
      listeners: numbers('listener'),
      given: { ...this.#given },
      revisions: this.#reserved,
    };
  }

  /** The number of the name, a new one when it has none. */
  #take(kind: Kind, name: string): number {
    const known = this.#numbers.get({ kind, name });
    if (known !== undefined) return known.id;
    const id = this.#allocators[kind].allocate();
    if (kind === 'listener') this.#listenersGiven += 1;
    if (kind === 'names' || kind === 'listener') this.#given[kind] = id;
    this.#numbers.set({ kind, name, id });
    this.dirty = true;
    return id;
  }

  /** Takes over a known pair; one that contradicts what is known is left out. */
  #adopt(row: NodeNumber): void {
    const { first, last } = RANGES[row.kind];
    if (row.id < first || row.id > last) return;
    if (this.#numbers.has(row) || this.#byId(row.id) !== undefined) return;
    this.#allocators[row.kind].adopt(row.id);
    this.#numbers.set(row);
  }

  #byId(id: number): NodeNumber | undefined {
    const [row] = this.#numbers.list('id', idKey(id));
    return row;
  }

  #of(kind: Kind): Iterable<NodeNumber> {
    return this.#numbers.select(query.prefix(this.#numbers.table, keys.join(kind)));
  }
}

/** Of a list of patterns, which have no spaces. */
function textOf(patterns: readonly string[]): string {
  return hostNameList(patterns).join(' ');
}

function namesIn(text: string): readonly string[] {
  return text === '' ? [] : text.split(' ');
}

function keyOf({ kind, name }: Pick<NodeNumber, 'kind' | 'name'>): Key {
  return keys.join(kind, name);
}

function idKey(id: number): Key {
  return keys.uint(id, 32);
}

/** @throws Error with a sentence when it is not a NumbersState. */
export function decodeNumbers(json: unknown): NumbersState {
  if (typeof json !== 'object' || json === null || !('cidrs' in json) || !('labels' in json)) {
    throw new Error('holds no numbers of cidrs and labels');
  }
  // Files of agents that did not count revisions have none; the kernel's endpoints tell theirs.
  const revisions = 'revisions' in json ? json.revisions : 0;
  if (typeof revisions !== 'number' || !Number.isInteger(revisions) || revisions < 0 || revisions > LAST_REVISION) {
    throw new Error(`has ${JSON.stringify(revisions)} as the last revision, which is none`);
  }
  const known = json as Readonly<Record<string, unknown>>;
  // Nor of these before there were any.
  const later = (field: string): Record<string, number> => (known[field] === undefined ? {} : numbersOf(known[field]));
  return {
    cidrs: numbersOf(json.cidrs),
    labels: numbersOf(json.labels),
    nodes: later('nodes'),
    names: later('names'),
    listeners: later('listeners'),
    given: { names: 0, listener: 0, ...later('given') },
    revisions,
  };
}

function numbersOf(json: unknown): Record<string, number> {
  if (typeof json !== 'object' || json === null) throw new Error('holds numbers that are no object');
  const out: Record<string, number> = {};
  for (const [name, id] of Object.entries(json)) {
    if (typeof id !== 'number' || !Number.isInteger(id)) throw new Error(`gives ${JSON.stringify(name)} no number`);
    out[name] = id;
  }
  return out;
}
