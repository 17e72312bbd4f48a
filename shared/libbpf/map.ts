import { constants } from 'node:os';
import { openPin, pinFd } from './bpffs.ts';
import { cmd, MAX_NAME, mapTypeName, mapTypeNumbers, updateFlags } from './constants.ts';
import { ArgumentError, BpfError } from './errors.ts';
import { duplicateFd, infoByFd, OwnedFd } from './fd.ts';
import { BATCH_TYPES, batchDelete, batchEntries, batchUpdate, batchUpdateRows, encodedRows } from './map-batch.ts';
import { MapShape } from './shape.ts';
import { Attr } from './syscall.ts';
import type { BpfMap, CreateMapOptions, EncodeRow, MapInfo, UpdateMode } from './types.ts';

const MAP_INFO_SIZE = 96;

function readInfo(fd: number): MapInfo {
  const info = infoByFd(fd, MAP_INFO_SIZE, 'a map');
  return {
    id: info.readUInt32LE(4),
    name: info.toString('latin1', 24, 24 + MAX_NAME + 1).replace(/\0.*$/s, ''),
    type: mapTypeName(info.readUInt32LE(0)),
    keySize: info.readUInt32LE(8),
    valueSize: info.readUInt32LE(12),
    maxEntries: info.readUInt32LE(16),
    flags: info.readUInt32LE(20),
  };
}

/** A map of the kernel. Key and value pass through two buffers made once, so that a call allocates only its answer. */
export class KernelMap implements BpfMap {
  readonly info: MapInfo;
  readonly #shape: MapShape;
  readonly #fd: OwnedFd;
  readonly #key: Buffer;
  readonly #value: Buffer;
  readonly #element: Attr;
  /** Deletion wants nothing after the key. */
  readonly #deletion: Attr;

  /** Takes ownership of the descriptor. `name` overrides the kernel's, which is cut to 15 characters. */
  constructor(fd: number, name?: string) {
    this.#fd = new OwnedFd(fd, `map ${name ?? fd}`);
    try {
      const info = readInfo(fd);
      this.info = name === undefined ? info : { ...info, name };
      this.#shape = new MapShape(this.info);
    } catch (error) {
      this.#fd.close();
      throw error;
    }
    this.#key = Buffer.alloc(Math.max(this.info.keySize, 1));
    this.#value = Buffer.alloc(Math.max(this.#shape.valueBytes, this.info.keySize, 1));
    this.#element = new Attr(32).u32(0, fd).pointer(8, this.#key).pointer(16, this.#value);
    this.#deletion = new Attr(16).u32(0, fd).pointer(8, this.#key);
  }

  get fd(): number {
    return this.#fd.value;
  }

  lookup(key: Uint8Array): Uint8Array | undefined {
    this.#begin('look up in', key, 0);
    const result = this.#element.try(cmd.MAP_LOOKUP_ELEM);
    if (result === -constants.errno.ENOENT) return undefined;
    this.#check(result, 'look up in');
    return new Uint8Array(this.#value.subarray(0, this.#shape.valueBytes));
  }

  update(key: Uint8Array, value: Uint8Array, mode: UpdateMode = 'any'): void {
    this.#shape.checkPlainUpdate();
    this.#shape.checkValue(value);
    this.#begin('update', key, updateFlags[mode]);
    this.#value.set(value);
    this.#check(this.#element.try(cmd.MAP_UPDATE_ELEM), 'update');
  }

  delete(key: Uint8Array): boolean {
    this.#begin('delete from', key, 0);
    const result = this.#deletion.try(cmd.MAP_DELETE_ELEM);
    if (result === -constants.errno.ENOENT) return false;
    this.#check(result, 'delete from');
    return true;
  }

  *entries(): Generator<readonly [Uint8Array, Uint8Array]> {
    this.#shape.checkHasEntries('list');
    if (BATCH_TYPES.has(this.info.type)) {
      yield* batchEntries(this.#shape, () => this.fd);
      return;
    }
    for (const key of this.#listKeys()) {
      const value = this.lookup(key);
      if (value !== undefined) yield [key, value];
    }
  }

  *keys(): Generator<Uint8Array> {
    for (const [key] of this.entries()) yield key;
  }

  updateBatch(entries: readonly (readonly [Uint8Array, Uint8Array])[]): void {
    this.#shape.checkPlainUpdate();
    for (const [key, value] of entries) {
      this.#shape.checkKey(key);
      this.#shape.checkValue(value);
    }
    if (BATCH_TYPES.has(this.info.type)) batchUpdate(this.#shape, this.fd, entries);
    else for (const [key, value] of entries) this.update(key, value);
  }

  updateRows<T>(rows: readonly T[], encode: EncodeRow<T>): void {
    this.#shape.checkPlainUpdate();
    if (BATCH_TYPES.has(this.info.type)) batchUpdateRows(this.#shape, this.fd, rows, encode);
    else for (const [key, value] of encodedRows(this.#shape, rows, encode)) this.update(key, value);
  }

  deleteBatch(keys: readonly Uint8Array[]): void {
    this.#shape.checkHasEntries('delete from');
    for (const key of keys) this.#shape.checkKey(key);
    const isArray = this.info.type === 'array' || this.info.type === 'percpu_array';
    if (BATCH_TYPES.has(this.info.type) && !isArray) batchDelete(this.#shape, this.fd, keys);
    else for (const key of keys) this.delete(key);
  }

  setInner(key: Uint8Array, inner: BpfMap): void {
    this.#shape.checkMapInMap('set an inner map of');
    const value = Buffer.alloc(4);
    value.writeUInt32LE(inner.fd);
    this.#begin('set an inner map of', key, 0);
    this.#value.set(value);
    const result = this.#element.try(cmd.MAP_UPDATE_ELEM);
    if (result === -constants.errno.EINVAL) {
      throw new BpfError({
        operation: `put ${inner.info.name} (${inner.info.type}) into ${this.#shape.describe()}`,
        errno: -result,
        fix: "the inner map's type, key size, value size and flags must equal the outer map's template",
      });
    }
    this.#check(result, 'set an inner map of');
  }

  async setInnerAsync(key: Uint8Array, inner: BpfMap): Promise<void> {
    // A descriptor of its own: the caller may close its one meanwhile, and its number be another's by then.
    const fd = new OwnedFd(duplicateFd(inner.fd, inner.info.name), inner.info.name);
    try {
      const value = Buffer.alloc(4);
      value.writeUInt32LE(fd.value);
      if (await this.#elementOnThread(cmd.MAP_UPDATE_ELEM, 'set an inner map of', key, value)) return;
    } finally {
      fd.close();
    }
    // Once more, to say why not.
    this.setInner(key, inner);
  }

  async deleteInnerAsync(key: Uint8Array): Promise<boolean> {
    if (await this.#elementOnThread(cmd.MAP_DELETE_ELEM, 'delete an inner map of', key)) return true;
    return this.delete(key);
  }

  openInner(key: Uint8Array): BpfMap | undefined {
    this.#shape.checkMapInMap('open an inner map of');
    const value = this.lookup(key);
    if (value === undefined) return undefined;
    return openMapById(Buffer.from(value).readUInt32LE(0));
  }

  pin(path: string): void {
    pinFd(this.fd, path, this.#shape.describe());
  }

  close(): void {
    this.#fd.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Checks and stores the key, the flags and (again) the descriptor, so that a closed map is noticed. */
  #begin(operation: string, key: Uint8Array, flags: number): void {
    this.#shape.checkHasEntries(operation);
    this.#shape.checkKey(key);
    this.#element.u32(0, this.#fd.value).u32(24, flags);
    this.#key.set(key);
  }

  /** An element of a map of maps, changed on another thread; whether the kernel did it. */
  async #elementOnThread(command: number, operation: string, key: Uint8Array, value?: Uint8Array): Promise<boolean> {
    this.#shape.checkMapInMap(operation);
    this.#shape.checkKey(key);
    const outer = new OwnedFd(duplicateFd(this.fd, this.#shape.describe()), this.#shape.describe());
    try {
      const attr = new Attr().u32(0, outer.value).pointer(8, Buffer.from(key));
      if (value !== undefined) attr.pointer(16, value);
      return await attr.tryOnThread(command);
    } finally {
      outer.close();
    }
  }

  #check(result: number, operation: string): void {
    if (result < 0) throw new BpfError({ operation: `${operation} ${this.#shape.describe()}`, errno: -result });
  }

  /** All keys at once, each once: GET_NEXT_KEY starts over when its cursor was deleted meanwhile. */
  #listKeys(): Uint8Array[] {
    const keySize = this.info.keySize;
    const cursor = Buffer.alloc(keySize);
    const next = Buffer.alloc(keySize);
    const attr = new Attr().u32(0, this.fd).pointer(16, next);
    const seen = new Map<string, Uint8Array>();
    for (;;) {
      const result = attr.try(cmd.MAP_GET_NEXT_KEY);
      if (result === -constants.errno.ENOENT) return [...seen.values()];
      this.#check(result, 'list');
      if (seen.size === 0) attr.pointer(8, cursor);
      next.copy(cursor);
      seen.set(next.toString('latin1'), new Uint8Array(next));
    }
  }
}

/**
 * Makes a map in the kernel; it lives while a descriptor, a pin, a program or an outer map holds it.
 * @throws ArgumentError when the name is longer than 15 bytes or the template of inner maps is missing
 * @throws BpfError EINVAL when the sizes do not suit the type, EPERM without CAP_BPF
 */
export function createMap(options: CreateMapOptions): BpfMap {
  checkCreate(options);
  const attr = new Attr()
    .u32(0, mapTypeNumbers[options.type])
    .u32(4, options.keySize)
    .u32(8, options.valueSize)
    .u32(12, options.maxEntries)
    .u32(16, options.flags ?? 0)
    .u32(20, options.inner?.fd ?? 0)
    .text(28, options.name, MAX_NAME + 1);
  const sizes = `key ${options.keySize}, value ${options.valueSize}, max_entries ${options.maxEntries}`;
  return new KernelMap(attr.call(cmd.MAP_CREATE, `create map "${options.name}" (${options.type}, ${sizes})`));
}

/** The checks that need no kernel. */
export function checkCreate(options: CreateMapOptions): void {
  if (!/^[A-Za-z0-9_.]{1,15}$/.test(options.name)) {
    throw new ArgumentError(
      `map name ${JSON.stringify(options.name)} must be 1 to ${MAX_NAME} letters, digits, "_" or ".": the kernel keeps no more`,
    );
  }
  const holdsMaps = options.type === 'array_of_maps' || options.type === 'hash_of_maps';
  if (holdsMaps !== (options.inner !== undefined)) {
    throw new ArgumentError(
      holdsMaps
        ? `map "${options.name}" (${options.type}) needs "inner", a template of the maps that it will hold`
        : `map "${options.name}" (${options.type}) holds no maps: leave "inner" out`,
    );
  }
}

/** @throws BpfError ENOENT when nothing is pinned at the path, EINVAL when it is not a map */
export function openPinnedMap(path: string): BpfMap {
  return new KernelMap(openPin(path, 'map'));
}

/** @throws BpfError ENOENT when no map has this id */
export function openMapById(id: number): BpfMap {
  return new KernelMap(new Attr().u32(0, id).call(cmd.MAP_GET_FD_BY_ID, `open the map with id ${id}`));
}
