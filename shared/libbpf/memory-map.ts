import { constants } from 'node:os';
import { mapFlags } from './constants.ts';
import { ArgumentError, BatchError, BpfError } from './errors.ts';
import { checkCreate } from './map.ts';
import { encodedRows } from './map-batch.ts';
import { openStore, type Store } from './memory-store.ts';
import { MapShape } from './shape.ts';
import type { BpfMap, CreateMapOptions, EncodeRow, MapInfo, UpdateMode } from './types.ts';

/**
 * A strict in-memory stand-in for the kernel's maps: the same checks and the same errors, held to the same conformance
 * suite. What it cannot be: pinned, shared with programs, or read by descriptor (`fd` throws).
 */

const { E2BIG, EBADF, EINVAL, ENOSPC, EOPNOTSUPP } = constants.errno;

/** What all handles of one map share. */
interface Shared {
  readonly shape: MapShape;
  readonly store: Store;
  readonly inner: MapInfo | undefined;
  /** Inner maps by id, for maps of maps. */
  readonly held: Map<number, Shared>;
}

let lastId = 0;

class MemoryMap implements BpfMap {
  readonly shared: Shared;
  #closed = false;

  constructor(shared: Shared) {
    this.shared = shared;
  }

  get info(): MapInfo {
    return this.shared.shape.info;
  }

  get fd(): number {
    this.#open();
    throw this.#error('read the descriptor of', EOPNOTSUPP, 'an in-memory map has no descriptor');
  }

  lookup(key: Uint8Array): Uint8Array | undefined {
    this.#begin('look up in', key);
    const value = this.shared.store.get(key);
    return value === undefined ? undefined : new Uint8Array(value);
  }

  update(key: Uint8Array, value: Uint8Array, mode: UpdateMode = 'any'): void {
    this.shared.shape.checkPlainUpdate();
    this.shared.shape.checkValue(value);
    this.#begin('update', key);
    this.#put('update', key, value, mode);
  }

  delete(key: Uint8Array): boolean {
    this.#begin('delete from', key);
    const result = this.shared.store.delete(key);
    if (typeof result === 'number') throw this.#error('delete from', result);
    return result;
  }

  *entries(): Generator<readonly [Uint8Array, Uint8Array]> {
    this.#open();
    this.shared.shape.checkHasEntries('list');
    for (const [key, value] of [...this.shared.store.list()]) {
      this.#open();
      yield [new Uint8Array(key), new Uint8Array(value)];
    }
  }

  *keys(): Generator<Uint8Array> {
    for (const [key] of this.entries()) yield key;
  }

  updateBatch(entries: readonly (readonly [Uint8Array, Uint8Array])[]): void {
    this.#open();
    this.shared.shape.checkPlainUpdate();
    for (const [key, value] of entries) {
      this.shared.shape.checkKey(key);
      this.shared.shape.checkValue(value);
    }
    entries.forEach(([key, value], done) => {
      const errno = this.shared.store.put(key, value, 'any');
      if (errno === 0) return;
      throw new BatchError({ operation: `update ${this.shared.shape.describe()}`, errno, done, count: entries.length });
    });
  }

  updateRows<T>(rows: readonly T[], encode: EncodeRow<T>): void {
    this.updateBatch([...encodedRows(this.shared.shape, rows, encode)]);
  }

  deleteBatch(keys: readonly Uint8Array[]): void {
    this.#open();
    this.shared.shape.checkHasEntries('delete from');
    for (const key of keys) this.shared.shape.checkKey(key);
    for (const key of keys) this.delete(key);
  }

  setInner(key: Uint8Array, inner: BpfMap): void {
    this.shared.shape.checkMapInMap('set an inner map of');
    this.#begin('set an inner map of', key);
    if (!(inner instanceof MemoryMap)) throw new ArgumentError('an in-memory map of maps holds in-memory maps only');
    inner.#open();
    const template = this.shared.inner;
    if (template === undefined || !fits(template, inner.info)) {
      const fix = "the inner map's type, key size, value size and flags must equal the outer map's template";
      throw this.#error(`put ${inner.info.name} (${inner.info.type}) into`, EINVAL, fix);
    }
    const id = Buffer.alloc(4);
    id.writeUInt32LE(inner.info.id);
    this.#put('set an inner map of', key, id, 'any');
    this.shared.held.set(inner.info.id, inner.shared);
  }

  async setInnerAsync(key: Uint8Array, inner: BpfMap): Promise<void> {
    this.setInner(key, inner);
  }

  async deleteInnerAsync(key: Uint8Array): Promise<boolean> {
    this.shared.shape.checkMapInMap('delete an inner map of');
    return this.delete(key);
  }

  openInner(key: Uint8Array): BpfMap | undefined {
    this.shared.shape.checkMapInMap('open an inner map of');
    const id = this.lookup(key);
    const shared = id === undefined ? undefined : this.shared.held.get(Buffer.from(id).readUInt32LE(0));
    return shared === undefined ? undefined : new MemoryMap(shared);
  }

  pin(path: string): void {
    this.#open();
    throw this.#error('pin', EOPNOTSUPP, `an in-memory map cannot be pinned at ${path}: use a map of the kernel`);
  }

  close(): void {
    this.#closed = true;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #open(): void {
    if (!this.#closed) return;
    throw this.#error('use', EBADF, 'it was closed; keep it open for as long as it is used');
  }

  #begin(operation: string, key: Uint8Array): void {
    this.shared.shape.checkHasEntries(operation);
    this.shared.shape.checkKey(key);
    this.#open();
  }

  #put(operation: string, key: Uint8Array, value: Uint8Array, mode: UpdateMode): void {
    const errno = this.shared.store.put(key, value, mode);
    if (errno !== 0) throw this.#error(operation, errno);
  }

  #error(operation: string, errno: number, fix?: string): BpfError {
    return new BpfError({
      operation: `${operation} ${this.shared.shape.describe()}`,
      errno,
      ...(fix === undefined ? {} : { fix }),
    });
  }
}

/** The kernel's rule (bpf_map_meta_equal); arrays must also be equally long unless they carry INNER_MAP. */
function fits(template: MapInfo, inner: MapInfo): boolean {
  const isArray = inner.type === 'array' || inner.type === 'percpu_array';
  const anyLength = !isArray || (template.flags & mapFlags.INNER_MAP) !== 0;
  return (
    template.type === inner.type &&
    template.keySize === inner.keySize &&
    template.valueSize === inner.valueSize &&
    template.flags === inner.flags &&
    (anyLength || template.maxEntries === inner.maxEntries)
  );
}

/**
 * Makes an in-memory map that behaves as `createMap(options)` would.
 * @throws ArgumentError for prog_array, which needs programs, and for what `createMap` refuses itself
 * @throws BpfError EINVAL for sizes and flags that the kernel refuses
 */
export function createMemoryMap(options: CreateMapOptions): BpfMap {
  checkCreate(options);
  if (options.type === 'prog_array') {
    throw new ArgumentError('a prog_array holds programs: it has no in-memory form');
  }
  const problem = sizeProblem(options);
  if (problem !== undefined) {
    throw new BpfError({ operation: `create map "${options.name}" (${options.type})`, errno: EINVAL, fix: problem });
  }
  const { name, type, keySize, valueSize, maxEntries } = options;
  const info: MapInfo = { id: ++lastId, name, type, keySize, valueSize, maxEntries, flags: options.flags ?? 0 };
  const shape = new MapShape(info);
  const store = openStore(info, shape.valueBytes, type === 'lpm_trie' ? ENOSPC : E2BIG);
  const inner = options.inner?.info;
  return new MemoryMap({ shape, store, inner, held: new Map() });
}

/** Why the kernel would refuse these sizes; undefined when it takes them. */
function sizeProblem(options: CreateMapOptions): string | undefined {
  const { type, keySize, valueSize, maxEntries } = options;
  const noPrealloc = ((options.flags ?? 0) & mapFlags.NO_PREALLOC) !== 0;
  if (type === 'ringbuf') {
    if (keySize !== 0 || valueSize !== 0) return 'a ring buffer has key size 0 and value size 0';
    const pages = maxEntries >= 4096 && (maxEntries & (maxEntries - 1)) === 0;
    return pages ? undefined : 'max_entries of a ring buffer is its size: a power of 2, at least one page';
  }
  if (maxEntries < 1 || keySize < 1 || valueSize < 1) return 'max_entries, key size and value size must be at least 1';
  const isArray = type === 'array' || type === 'percpu_array' || type === 'array_of_maps';
  if (isArray && keySize !== 4) return 'the key of an array is a u32 index: key size 4';
  if ((isArray || type === 'lru_hash') && noPrealloc) return 'this map type does not take NO_PREALLOC';
  const isMapInMap = type === 'array_of_maps' || type === 'hash_of_maps';
  if (isMapInMap && valueSize !== 4) return 'the value size of a map of maps is 4';
  if (type === 'lpm_trie') {
    if (!noPrealloc) return 'lpm_trie needs mapFlags.NO_PREALLOC';
    if (keySize < 5 || keySize > 260) return 'the key of an lpm_trie is a u32 prefix length and 1 to 256 bytes';
  }
  return undefined;
}
