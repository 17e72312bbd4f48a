import { constants } from 'node:os';
import { BpfError } from './errors.ts';
import { lastErrno, libcFunction, memoryView } from './native.ts';
import type { RingHandler } from './types.ts';

/**
 * The user-space side of a BPF ring buffer (Documentation/bpf/ringbuf.rst): one page with the consumer's position, one with
 * the producers', then the data, mapped twice in a row so that a record never breaks at the end.
 */

const BUSY = 0x8000_0000;
const DISCARD = 0x4000_0000;
const HEADER = 8;
const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_SHARED = 1;
/** Addresses of user space are below this; MAP_FAILED is far above. */
const USER_SPACE_END = 2 ** 52;

const MMAP = 'uintptr_t mmap(void *address, size_t length, int protection, int flags, int fd, long offset)';
const MUNMAP = 'int munmap(uintptr_t address, size_t length)';

interface Views {
  readonly consumer: BigUint64Array;
  readonly producer: BigUint64Array;
  readonly headers: Uint32Array;
  readonly data: Uint8Array;
  readonly mappings: readonly (readonly [address: bigint, length: number])[];
}

/** Counts since the consumer was opened. */
export interface RingCounts {
  readonly records: number;
  readonly bytes: number;
  /** Records that programs reserved and threw away. */
  readonly discarded: number;
  /** Most bytes that ever waited at the start of a drain. Near the ring's size, programs were or will be refused room. */
  readonly highWater: number;
}

/** Reads the records of one ring. Only one consumer may read a ring at a time. */
export class RingConsumer {
  readonly size: number;
  #views: Views | undefined;
  #position: number;
  #records = 0;
  #bytes = 0;
  #discarded = 0;
  #highWater = 0;

  /** @param size the ring map's max_entries, in bytes. The descriptor is only used here and not kept. */
  constructor(fd: number, size: number) {
    this.size = size;
    const page = Number(libcFunction('int getpagesize()')());
    const consumer = map(fd, page, PROT_READ | PROT_WRITE, 0);
    const rest = page + 2 * size;
    let producer: bigint;
    try {
      producer = map(fd, rest, PROT_READ, page);
    } catch (error) {
      unmap(consumer, page);
      throw error;
    }
    const readOnly = memoryView(producer, rest);
    this.#views = {
      consumer: new BigUint64Array(memoryView(consumer, page), 0, 1),
      producer: new BigUint64Array(readOnly, 0, 1),
      headers: new Uint32Array(readOnly, page, (2 * size) / 4),
      data: new Uint8Array(readOnly, page, 2 * size),
      mappings: [
        [consumer, page],
        [producer, rest],
      ],
    };
    this.#position = Number(Atomics.load(this.#views.consumer, 0));
  }

  get counts(): RingCounts {
    return { records: this.#records, bytes: this.#bytes, discarded: this.#discarded, highWater: this.#highWater };
  }

  /**
   * Gives up to `limit` finished records, oldest first, to the handler. Stops early at a record that a program is still
   * writing: it comes with a later call. A record counts as read before its handler runs, so that a handler that throws
   * does not see it twice.
   * @returns records given
   */
  drain(handler: RingHandler, limit: number = Number.POSITIVE_INFINITY): number {
    const views = this.#open();
    let given = 0;
    let end = this.#produced(views);
    this.#highWater = Math.max(this.#highWater, end - this.#position);
    while (given < limit) {
      // Asked again after the position was published: a record that came meanwhile sends no wake-up.
      if (this.#position >= end) {
        end = this.#produced(views);
        if (this.#position >= end) break;
      }
      const offset = this.#position % this.size;
      const header = Atomics.load(views.headers, offset / 4);
      if ((header & BUSY) !== 0) break;
      const length = (header & ~(BUSY | DISCARD)) >>> 0;
      const step = (HEADER + length + 7) & ~7;
      if (step > this.size || this.#position + step > end) {
        throw corrupt(`a record of ${length} bytes at position ${this.#position} passes the end at ${end}`);
      }
      const kept = (header & DISCARD) === 0;
      const record = kept ? views.data.slice(offset + HEADER, offset + HEADER + length) : undefined;
      this.#position += step;
      Atomics.store(views.consumer, 0, BigInt(this.#position));
      if (record === undefined) {
        this.#discarded += 1;
        continue;
      }
      this.#records += 1;
      this.#bytes += length;
      given += 1;
      handler(record);
    }
    return given;
  }

  /** Unmaps the ring; unread records stay for the next consumer. */
  close(): void {
    const views = this.#views;
    this.#views = undefined;
    for (const [address, length] of views?.mappings ?? []) unmap(address, length);
  }

  #open(): Views {
    if (this.#views !== undefined) return this.#views;
    throw new BpfError({
      operation: 'read a ring buffer',
      errno: constants.errno.EBADF,
      fix: 'the reader was closed; make a new one',
    });
  }

  #produced(views: Views): number {
    const produced = Number(Atomics.load(views.producer, 0));
    if (produced < this.#position || produced - this.#position > this.size) {
      throw corrupt(`producers are at ${produced}, the consumer at ${this.#position}, the ring has ${this.size} bytes`);
    }
    return produced;
  }
}

function map(fd: number, length: number, protection: number, offset: number): bigint {
  const address = Number(libcFunction(MMAP)(null, length, protection, MAP_SHARED, fd, offset));
  if (address < USER_SPACE_END) return BigInt(address);
  throw new BpfError({
    operation: `map ${length} bytes of a ring buffer`,
    errno: lastErrno(),
    fix: "the descriptor must be that of a ringbuf map, and its size the map's max_entries",
  });
}

function unmap(address: bigint, length: number): void {
  if (Number(libcFunction(MUNMAP)(address, length)) === 0) return;
  throw new BpfError({ operation: `unmap ${length} bytes of a ring buffer`, errno: lastErrno() });
}

function corrupt(what: string): BpfError {
  return new BpfError({
    operation: 'read a ring buffer',
    errno: constants.errno.EIO,
    fix: `${what}: another consumer reads the same ring; only one may`,
  });
}
