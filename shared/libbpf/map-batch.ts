import { constants } from 'node:os';
import { cmd } from './constants.ts';
import { BatchError, BpfError } from './errors.ts';
import type { MapShape } from './shape.ts';
import { Attr } from './syscall.ts';
import type { EncodeRow, MapInfo } from './types.ts';

/** Map types with all of the kernel's batch operations. The others go element by element. */
export const BATCH_TYPES: ReadonlySet<MapInfo['type']> = new Set([
  'hash',
  'array',
  'percpu_hash',
  'percpu_array',
  'lru_hash',
  'lpm_trie',
]);

/** Elements a system call: past some hundreds the call's own cost is gone, and the buffers stay small. */
const CHUNK = 1024;
/** Bound on the buffers of one call, for maps of very large values. */
const CHUNK_BYTES = 1 << 20;

function chunkSize(shape: MapShape): number {
  return Math.max(1, Math.min(CHUNK, Math.floor(CHUNK_BYTES / (shape.keySize + shape.valueBytes))));
}

/** Elements that a failed call got through. It leaves the count as it was when it did not get as far as the elements. */
function processed(attr: Attr, asked: number): number {
  const count = attr.getU32(32);
  return count >= asked ? 0 : count;
}

/** Up to so many bytes a loop is faster than the call of `set`. */
const SHORT = 32;

function copy(from: Uint8Array, to: Uint8Array, at: number): void {
  if (from.length > SHORT) to.set(from, at);
  else for (let i = 0; i < from.length; i++) to[at + i] = from[i] as number;
}

/** Updates all entries in order, in as many calls as needed. Lengths are checked by the caller. */
export function batchUpdate(
  shape: MapShape,
  fd: number,
  entries: readonly (readonly [Uint8Array, Uint8Array])[],
): void {
  const size = Math.min(chunkSize(shape), entries.length);
  if (size === 0) return;
  // Every byte that the kernel reads is written first.
  const keys = Buffer.allocUnsafeSlow(size * shape.keySize);
  const values = Buffer.allocUnsafeSlow(size * shape.valueBytes);
  sendUpdates(shape, fd, { keys, values, size, total: entries.length }, (start, count) => {
    for (let at = 0; at < count; at++) {
      const [key, value] = entries[start + at] as readonly [Uint8Array, Uint8Array];
      copy(key, keys, at * shape.keySize);
      copy(value, values, at * shape.valueBytes);
    }
  });
}

/** The same for rows that `encode` writes. */
export function batchUpdateRows<T>(shape: MapShape, fd: number, rows: readonly T[], encode: EncodeRow<T>): void {
  const { keySize, valueBytes } = shape;
  const size = Math.min(chunkSize(shape), rows.length);
  if (size === 0) return;
  const keys = Buffer.alloc(size * keySize);
  const values = Buffer.alloc(size * valueBytes);
  const keyView = viewOf(keys);
  const valueView = viewOf(values);
  sendUpdates(shape, fd, { keys, values, size, total: rows.length }, (start, count) => {
    if (start > 0) {
      keys.fill(0);
      values.fill(0);
    }
    for (let at = 0; at < count; at++) {
      encode(rows[start + at] as T, keyView, at * keySize, valueView, at * valueBytes);
    }
  });
}

/** Each row's key and value in arrays of their own, for maps without the kernel's batches. */
export function* encodedRows<T>(
  { keySize, valueBytes }: MapShape,
  rows: readonly T[],
  encode: EncodeRow<T>,
): Generator<readonly [Uint8Array, Uint8Array]> {
  for (const row of rows) {
    const key = new Uint8Array(keySize);
    const value = new Uint8Array(valueBytes);
    encode(row, viewOf(key), 0, viewOf(value), 0);
    yield [key, value];
  }
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

interface Updates {
  readonly keys: Buffer;
  readonly values: Buffer;
  /** Elements that the buffers hold. */
  readonly size: number;
  readonly total: number;
}

/** Sends `total` elements, as many a call as the buffers hold; `fill` writes the next `count` of them, from `start` on. */
function sendUpdates(
  shape: MapShape,
  fd: number,
  { keys, values, size, total }: Updates,
  fill: (start: number, count: number) => void,
): void {
  const attr = new Attr().pointer(16, keys).pointer(24, values).u32(36, fd);
  for (let start = 0; start < total; start += size) {
    const count = Math.min(size, total - start);
    fill(start, count);
    const result = attr.u32(32, count).try(cmd.MAP_UPDATE_BATCH);
    if (result < 0) {
      throw new BatchError({
        operation: `update ${shape.describe()}`,
        errno: -result,
        done: start + processed(attr, count),
        count: total,
      });
    }
  }
}

/** Deletes all keys that are there. The kernel stops at an absent key: the rest is sent again. */
export function batchDelete(shape: MapShape, fd: number, keys: readonly Uint8Array[]): void {
  const size = Math.min(chunkSize(shape), keys.length);
  if (size === 0) return;
  const buffer = Buffer.alloc(size * shape.keySize);
  const attr = new Attr().pointer(16, buffer).u32(36, fd);
  let start = 0;
  while (start < keys.length) {
    const chunk = keys.slice(start, start + size);
    chunk.forEach((key, at) => {
      buffer.set(key, at * shape.keySize);
    });
    const result = attr.u32(32, chunk.length).try(cmd.MAP_DELETE_BATCH);
    if (result >= 0) {
      start += chunk.length;
    } else if (result === -constants.errno.ENOENT) {
      start += processed(attr, chunk.length) + 1;
    } else {
      const done = start + processed(attr, chunk.length);
      throw new BatchError({ operation: `delete from ${shape.describe()}`, errno: -result, done, count: keys.length });
    }
  }
}

/**
 * Every entry once. The cursor of a hash is a bucket, so that deletions meanwhile do no harm; other types start over when
 * the cursor's key is gone, so theirs are compared with what was seen.
 */
export function* batchEntries(shape: MapShape, fd: () => number): Generator<readonly [Uint8Array, Uint8Array]> {
  const { keySize, valueBytes } = shape;
  const seen = shape.info.type === 'lpm_trie' ? new Set<string>() : undefined;
  let size = Math.min(chunkSize(shape), Math.max(shape.info.maxEntries, 1));
  let keys = Buffer.alloc(size * keySize);
  let values = Buffer.alloc(size * valueBytes);
  const cursorIn = Buffer.alloc(Math.max(keySize, 8));
  const cursorOut = Buffer.alloc(Math.max(keySize, 8));
  let started = false;
  for (;;) {
    const attr = new Attr().pointer(8, cursorOut).pointer(16, keys).pointer(24, values).u32(32, size).u32(36, fd());
    if (started) attr.pointer(0, cursorIn);
    const result = attr.try(cmd.MAP_LOOKUP_BATCH);
    if (result === -constants.errno.ENOSPC) {
      // One bucket of the hash holds more than fits: nothing was returned, ask again with more room.
      size *= 2;
      keys = Buffer.alloc(size * keySize);
      values = Buffer.alloc(size * valueBytes);
      continue;
    }
    // Entries vanished faster than the kernel could follow, or another CPU had the bucket: the same part again, none of it was given out.
    if (result === -constants.errno.EINTR || result === -constants.errno.EAGAIN) continue;
    const last = result === -constants.errno.ENOENT;
    if (result < 0 && !last) throw new BpfError({ operation: `list ${shape.describe()}`, errno: -result });
    const count = Math.min(attr.getU32(32), size);
    for (let at = 0; at < count; at++) {
      const key = new Uint8Array(keys.subarray(at * keySize, (at + 1) * keySize));
      if (seen !== undefined) {
        const text = Buffer.from(key).toString('latin1');
        if (seen.has(text)) continue;
        seen.add(text);
      }
      yield [key, new Uint8Array(values.subarray(at * valueBytes, (at + 1) * valueBytes))];
    }
    if (last) return;
    cursorOut.copy(cursorIn);
    started = true;
  }
}
