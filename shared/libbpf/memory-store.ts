import { constants } from 'node:os';
import type { MapInfo, UpdateMode } from './types.ts';

/** Where an in-memory map keeps its entries: one class for each way in which the kernel finds a key. */
export interface Store {
  get(key: Uint8Array): Uint8Array | undefined;
  /** 0, or the errno of the refusal. */
  put(key: Uint8Array, value: Uint8Array, mode: UpdateMode): number;
  /** Whether the key was there, or the errno of the refusal. */
  delete(key: Uint8Array): boolean | number;
  list(): Iterable<readonly [Uint8Array, Uint8Array]>;
}

const { E2BIG, EEXIST, EINVAL, ENOENT } = constants.errno;

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}

/** The store of a map type. `full` is the errno of an insert into a full map. */
export function openStore(info: MapInfo, valueBytes: number, full: number): Store {
  switch (info.type) {
    case 'array':
    case 'percpu_array':
      return new ArrayStore(info.maxEntries, valueBytes);
    case 'array_of_maps':
      return new SlotStore(info.maxEntries);
    case 'lpm_trie':
      return new TrieStore(info.maxEntries, full);
    default:
      return new HashStore(info.maxEntries, full, info.type === 'lru_hash');
  }
}

class HashStore implements Store {
  readonly #entries = new Map<string, readonly [Uint8Array, Uint8Array]>();
  readonly #limit: number;
  readonly #full: number;
  readonly #evicts: boolean;

  constructor(limit: number, full: number, evicts: boolean) {
    this.#limit = limit;
    this.#full = full;
    this.#evicts = evicts;
  }

  get(key: Uint8Array): Uint8Array | undefined {
    return this.#entries.get(text(key))?.[1];
  }

  put(key: Uint8Array, value: Uint8Array, mode: UpdateMode): number {
    const name = text(key);
    const exists = this.#entries.has(name);
    if (exists && mode === 'noexist') return EEXIST;
    if (!exists && mode === 'exist') return ENOENT;
    if (!exists && this.#entries.size >= this.#limit) {
      const oldest = this.#entries.keys().next().value;
      if (!this.#evicts || oldest === undefined) return this.#full;
      this.#entries.delete(oldest);
    }
    this.#entries.set(name, [new Uint8Array(key), new Uint8Array(value)]);
    return 0;
  }

  delete(key: Uint8Array): boolean {
    return this.#entries.delete(text(key));
  }

  list(): Iterable<readonly [Uint8Array, Uint8Array]> {
    return this.#entries.values();
  }
}

function indexOf(key: Uint8Array): number {
  return new DataView(key.buffer, key.byteOffset, key.byteLength).getUint32(0, true);
}

function keyOf(index: number): Uint8Array {
  const key = new Uint8Array(4);
  new DataView(key.buffer).setUint32(0, index, true);
  return key;
}

/** All elements exist from the start, as zeros. */
class ArrayStore implements Store {
  readonly #values: Uint8Array[];

  constructor(length: number, valueBytes: number) {
    this.#values = Array.from({ length }, () => new Uint8Array(valueBytes));
  }

  get(key: Uint8Array): Uint8Array | undefined {
    return this.#values[indexOf(key)];
  }

  put(key: Uint8Array, value: Uint8Array, mode: UpdateMode): number {
    if (indexOf(key) >= this.#values.length) return E2BIG;
    if (mode === 'noexist') return EEXIST;
    this.#values[indexOf(key)] = new Uint8Array(value);
    return 0;
  }

  delete(): number {
    return EINVAL;
  }

  *list(): Iterable<readonly [Uint8Array, Uint8Array]> {
    for (const [index, value] of this.#values.entries()) yield [keyOf(index), value];
  }
}

/** array_of_maps: slots that may be empty. */
class SlotStore implements Store {
  readonly #slots = new Map<number, Uint8Array>();
  readonly #length: number;

  constructor(length: number) {
    this.#length = length;
  }

  get(key: Uint8Array): Uint8Array | undefined {
    return this.#slots.get(indexOf(key));
  }

  put(key: Uint8Array, value: Uint8Array): number {
    if (indexOf(key) >= this.#length) return E2BIG;
    this.#slots.set(indexOf(key), new Uint8Array(value));
    return 0;
  }

  delete(key: Uint8Array): boolean | number {
    return indexOf(key) >= this.#length ? E2BIG : this.#slots.delete(indexOf(key));
  }

  *list(): Iterable<readonly [Uint8Array, Uint8Array]> {
    for (const [index, value] of this.#slots) yield [keyOf(index), value];
  }
}

/** Longest prefix match. A key is a u32 prefix length and that many significant bits; the other bits are kept as given. */
class TrieStore implements Store {
  readonly #entries = new Map<string, readonly [Uint8Array, Uint8Array]>();
  readonly #limit: number;
  readonly #full: number;

  constructor(limit: number, full: number) {
    this.#limit = limit;
    this.#full = full;
  }

  get(key: Uint8Array): Uint8Array | undefined {
    const length = indexOf(key);
    if (length > maxPrefix(key)) return undefined;
    for (let prefix = length; prefix >= 0; prefix--) {
      const found = this.#entries.get(canonical(key, prefix));
      if (found !== undefined) return found[1];
    }
    return undefined;
  }

  put(key: Uint8Array, value: Uint8Array, mode: UpdateMode): number {
    if (indexOf(key) > maxPrefix(key)) return EINVAL;
    const name = canonical(key, indexOf(key));
    const exists = this.#entries.has(name);
    if (exists && mode === 'noexist') return EEXIST;
    if (!exists && mode === 'exist') return ENOENT;
    if (!exists && this.#entries.size >= this.#limit) return this.#full;
    this.#entries.set(name, [new Uint8Array(key), new Uint8Array(value)]);
    return 0;
  }

  delete(key: Uint8Array): boolean | number {
    if (indexOf(key) > maxPrefix(key)) return EINVAL;
    return this.#entries.delete(canonical(key, indexOf(key)));
  }

  list(): Iterable<readonly [Uint8Array, Uint8Array]> {
    return this.#entries.values();
  }
}

function maxPrefix(key: Uint8Array): number {
  return (key.length - 4) * 8;
}

/** The prefix length and the significant bits alone. */
function canonical(key: Uint8Array, prefix: number): string {
  const masked = new Uint8Array(key.length);
  masked.set(keyOf(prefix));
  const whole = prefix >> 3;
  masked.set(key.subarray(4, 4 + whole), 4);
  const rest = prefix & 7;
  if (rest !== 0) masked[4 + whole] = (key[4 + whole] ?? 0) & (0xff << (8 - rest));
  return text(masked);
}
