import {
  CIDR_BASE,
  CIDR_LAST,
  IdentityAllocator,
  type IdentityRange,
  LOCAL_ENDPOINT_BASE,
  LOCAL_ENDPOINT_LAST,
} from '@weir/identity';
import { type Key, keys, query, type StateDB } from '@weir/statedb';
import { Rows } from './working.ts';

/** What is persisted: number by name. */
export interface NumbersState {
  readonly cidrs: Readonly<Record<string, number>>;
  readonly labels: Readonly<Record<string, number>>;
  /** No datapath revision beyond this one was ever given out. */
  readonly revisions: number;
}

const LAST_REVISION = 0xffffffff;
/**
 * Revisions are reserved in blocks, so that a file is written for one in many of them. A start leaves out as many more: those that a
 * file which could not be written does not tell of, and no endpoint has any more.
 */
const REVISION_BLOCK = 1 << 16;

type Kind = 'cidr' | 'labels';

/** A number of this node, and what it stands for. */
interface LocalNumber {
  readonly kind: Kind;
  readonly name: string;
  readonly id: number;
}

const RANGES: Readonly<Record<Kind, IdentityRange>> = {
  cidr: { first: CIDR_BASE + 1, last: CIDR_LAST },
  labels: { first: LOCAL_ENDPOINT_BASE + 1, last: LOCAL_ENDPOINT_LAST },
};

/**
 * Numbers of this node: identities of CIDRs (top byte 0x01) and of label sets (0x03), which survive a restart, and datapath
 * revisions: each greater than every one before, across restarts and crashes, whatever endpoint they were for. A name keeps its
 * number until it is released. A file keeps them; where it is lost or older, the kernel tells the numbers that are in use (`adoptCidr`,
 * `adoptLabels`, `reserve`, `sawRevision`), and none of those is given to another name.
 */
export class LocalNumbers {
  readonly #numbers: Rows<Pick<LocalNumber, 'kind' | 'name'>, LocalNumber>;
  readonly #allocators: Readonly<Record<Kind, IdentityAllocator>>;
  /** The last one given out, and the last one that `state()` has reserved: counters, which nobody looks up. */
  #revision = 0;
  #reserved = 0;
  /** Whether `state()` has changed since it was last saved. */
  dirty = false;

  constructor(db: StateDB) {
    const indexes = [{ name: 'id', unique: true, keys: ({ id }: LocalNumber) => [idKey(id)] }];
    this.#numbers = new Rows(db, { name: 'localNumbers', key: keyOf, indexes }, keyOf);
    const isUsed = (id: number): boolean => this.#byId(id) !== undefined;
    this.#allocators = {
      cidr: new IdentityAllocator(RANGES.cidr, isUsed),
      labels: new IdentityAllocator(RANGES.labels, isUsed),
    };
  }

  adopt(state: NumbersState): void {
    for (const [prefix, id] of Object.entries(state.cidrs)) this.#adopt({ kind: 'cidr', name: prefix, id });
    for (const [key, id] of Object.entries(state.labels)) this.#adopt({ kind: 'labels', name: key, id });
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
    for (const kind of ['cidr', 'labels'] as const) {
      const { first, last } = RANGES[kind];
      if (id >= first && id <= last) this.#allocators[kind].adopt(id);
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

  /** What to save. */
  state(): NumbersState {
    this.#reserved = Math.min(this.#revision + REVISION_BLOCK, LAST_REVISION);
    const numbers = (kind: Kind) => Object.fromEntries(Iterator.from(this.#of(kind)).map(({ name, id }) => [name, id]));
    return { cidrs: numbers('cidr'), labels: numbers('labels'), revisions: this.#reserved };
  }

  /** The number of the name, a new one when it has none. */
  #take(kind: Kind, name: string): number {
    const known = this.#numbers.get({ kind, name });
    if (known !== undefined) return known.id;
    const id = this.#allocators[kind].allocate();
    this.#numbers.set({ kind, name, id });
    this.dirty = true;
    return id;
  }

  /** Takes over a known pair; one that contradicts what is known is left out. */
  #adopt(row: LocalNumber): void {
    const { first, last } = RANGES[row.kind];
    if (row.id < first || row.id > last) return;
    if (this.#numbers.has(row) || this.#byId(row.id) !== undefined) return;
    this.#allocators[row.kind].adopt(row.id);
    this.#numbers.set(row);
  }

  #byId(id: number): LocalNumber | undefined {
    const [row] = this.#numbers.list('id', idKey(id));
    return row;
  }

  #of(kind: Kind): Iterable<LocalNumber> {
    return this.#numbers.select(query.prefix(this.#numbers.table, keys.join(kind)));
  }
}

function keyOf({ kind, name }: Pick<LocalNumber, 'kind' | 'name'>): Key {
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
  return { cidrs: numbersOf(json.cidrs), labels: numbersOf(json.labels), revisions };
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
