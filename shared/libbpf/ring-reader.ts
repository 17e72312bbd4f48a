import { ArgumentError } from './errors.ts';
import { RingConsumer, type RingCounts } from './ring.ts';
import type { BpfMap, RingHandler } from './types.ts';

/** Which ring is read, and who is told what was in it. */
export interface RingBufferReaderOptions {
  readonly map: BpfMap;
  readonly handler: RingHandler;
  /** Told of an error that the handler threw (reading goes on), and of a ring that cannot be read (reading ends). */
  readonly onError: (error: unknown) => void;
  /** Milliseconds between two looks at an empty ring, until `pace` changes it. Default 50. */
  readonly intervalMs?: number;
  /** Most records a look; with more waiting the next look comes at once, after other work. Default 1024, about a millisecond. */
  readonly batchRecords?: number;
}

/**
 * Reads a BPF ring buffer by looking at it, in order, each record once. No thread is needed where programs limit their rate; the ring
 * must hold what they can write in one interval. A look costs two memory reads, and what waking an idle process costs: a fifth of a
 * millisecond, which is 0.4 % of a core at 50 ms. `pace` is for readers that are not always in a hurry.
 *
 * Nothing is dropped here: when the handler is slower than the programs, the ring itself fills and `bpf_ringbuf_reserve`
 * fails, which only the program can count. `counts.highWater` against `capacity` shows how near that came.
 */
export class RingBufferReader {
  readonly capacity: number;
  readonly #options: RingBufferReaderOptions;
  readonly #consumer: RingConsumer;
  readonly #batchRecords: number;
  #intervalMs: number;
  #timer: NodeJS.Timeout | undefined;

  /** @throws ArgumentError when the map is not a ring buffer, or a number of the options makes no sense */
  constructor(options: RingBufferReaderOptions) {
    const { info } = options.map;
    if (info.type !== 'ringbuf') throw new ArgumentError(`map "${info.name}" is a ${info.type}, not a ringbuf`);
    const { batchRecords = 1024, intervalMs = 50 } = options;
    wholeNumber('batchRecords', batchRecords);
    wholeNumber('intervalMs', intervalMs);
    this.#batchRecords = batchRecords;
    this.#intervalMs = intervalMs;
    this.capacity = info.maxEntries;
    this.#options = options;
    this.#consumer = new RingConsumer(options.map.fd, this.capacity);
  }

  /** Counts of all that was read. */
  get counts(): RingCounts {
    return this.#consumer.counts;
  }

  /** Looks from now on. Does not keep the process alive. @throws ArgumentError when it looks already */
  start(): void {
    if (this.#timer !== undefined) throw new ArgumentError('the ring buffer reader runs already: stop it first');
    this.#lookAfter(0);
  }

  /** Changes the interval, and looks at once when it looks at all. @throws ArgumentError when that is no whole number of at least 1 */
  pace(intervalMs: number): void {
    wholeNumber('intervalMs', intervalMs);
    this.#intervalMs = intervalMs;
    if (this.#timer !== undefined) this.#lookAfter(0);
  }

  /** Looks no more. Unread records stay in the ring, for the next start. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Reads what is there now. An error of the handler is thrown. @returns records given */
  drain(handler: RingHandler = this.#options.handler): number {
    return this.#consumer.drain(handler);
  }

  /** Stops and unmaps the ring. */
  close(): void {
    this.stop();
    this.#consumer.close();
  }

  #lookAfter(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), ms);
    this.#timer.unref();
  }

  #look(): void {
    try {
      const given = this.#consumer.drain((record) => this.#deliver(record), this.#batchRecords);
      // The handler may have stopped it.
      if (this.#timer !== undefined) this.#lookAfter(given < this.#batchRecords ? this.#intervalMs : 0);
    } catch (error) {
      this.#timer = undefined;
      this.#options.onError(error);
    }
  }

  #deliver(record: Uint8Array): void {
    try {
      this.#options.handler(record);
    } catch (error) {
      this.#options.onError(error);
    }
  }
}

function wholeNumber(field: string, value: number): void {
  if (!Number.isInteger(value) || value < 1) {
    throw new ArgumentError(`${field} must be a whole number of at least 1, got ${value}`);
  }
}
