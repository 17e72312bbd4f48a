import { CIDR_BASE, CIDR_LAST, IdentityAllocator, LOCAL_ENDPOINT_BASE, LOCAL_ENDPOINT_LAST } from '@weir/identity';

/** What is persisted: number by name. */
export interface NumbersState {
  readonly cidrs: Readonly<Record<string, number>>;
  readonly labels: Readonly<Record<string, number>>;
  /** No datapath revision beyond this one was ever given out. */
  readonly revisions: number;
}

const LAST_REVISION = 0xffffffff;
/** Revisions are reserved in blocks, so that a file is written for one in many of them. */
const REVISION_BLOCK = 1 << 16;

/** One range of node-local numbers, by name. A name keeps its number until it is released. */
class Numbering {
  readonly #byName = new Map<string, number>();
  readonly #byId = new Map<number, string>();
  readonly #allocator: IdentityAllocator;

  constructor(first: number, last: number) {
    this.#allocator = new IdentityAllocator({ first, last });
  }

  /** Takes over a known pair; a pair that contradicts what is known is left out. */
  adopt(name: string, id: number): void {
    if (id < this.#allocator.first || id > this.#allocator.last) return;
    if (this.#byName.has(name) || this.#byId.has(id)) return;
    this.#allocator.adopt(id);
    this.#byName.set(name, id);
    this.#byId.set(id, name);
  }

  get(name: string): number | undefined {
    return this.#byName.get(name);
  }

  nameOf(id: number): string | undefined {
    return this.#byId.get(id);
  }

  /** The number of the name, a new one when it has none; `true` when new. */
  take(name: string): readonly [id: number, isNew: boolean] {
    const known = this.#byName.get(name);
    if (known !== undefined) return [known, false];
    const id = this.#allocator.allocate();
    this.#byName.set(name, id);
    this.#byId.set(id, name);
    return [id, true];
  }

  release(name: string): boolean {
    const id = this.#byName.get(name);
    if (id === undefined) return false;
    this.#byName.delete(name);
    this.#byId.delete(id);
    return this.#allocator.release(id);
  }

  toJSON(): Record<string, number> {
    return Object.fromEntries(this.#byName);
  }
}

/**
 * Numbers of this node: identities of CIDRs (top byte 0x01) and of label sets (0x03), which survive a restart, and datapath
 * revisions: each greater than every one before, across restarts and crashes, whatever endpoint they were for.
 */
export class LocalNumbers {
  readonly #cidrs = new Numbering(CIDR_BASE + 1, CIDR_LAST);
  readonly #labels = new Numbering(LOCAL_ENDPOINT_BASE + 1, LOCAL_ENDPOINT_LAST);
  #revision = 0;
  #reserved = 0;
  /** Whether `state()` must be saved before any number given out may reach the kernel. */
  dirty = false;

  adopt(state: NumbersState): void {
    for (const [prefix, id] of Object.entries(state.cidrs)) this.#cidrs.adopt(prefix, id);
    for (const [key, id] of Object.entries(state.labels)) this.#labels.adopt(key, id);
    this.sawRevision(state.revisions);
  }

  /** A revision that was given out before this start. */
  sawRevision(revision: number): void {
    this.#revision = Math.max(this.#revision, revision);
  }

  /** The next datapath revision. After 2^32 of them they start anew: flows of so long ago have expired. */
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
    this.#cidrs.adopt(prefix, id);
  }

  cidr(prefix: string): number {
    const [id, isNew] = this.#cidrs.take(prefix);
    if (isNew) this.dirty = true;
    return id;
  }

  labels(key: string): number {
    const [id, isNew] = this.#labels.take(key);
    if (isNew) this.dirty = true;
    return id;
  }

  /** The number that the prefix has; undefined when none was given out. */
  knownCidr(prefix: string): number | undefined {
    return this.#cidrs.get(prefix);
  }

  prefixOf(id: number): string | undefined {
    return this.#cidrs.nameOf(id);
  }

  releaseCidr(prefix: string): void {
    if (this.#cidrs.release(prefix)) this.dirty = true;
  }

  releaseLabels(key: string): void {
    if (this.#labels.release(key)) this.dirty = true;
  }

  /** What to save. */
  state(): NumbersState {
    this.#reserved = Math.min(this.#revision + REVISION_BLOCK, LAST_REVISION);
    return { cidrs: this.#cidrs.toJSON(), labels: this.#labels.toJSON(), revisions: this.#reserved };
  }
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
