import { closeSync, writeSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { ArgumentError, BpfError } from './errors.ts';
import { duplicateFd } from './fd.ts';
import { lastErrno, libcFunction } from './native.ts';
import { RingConsumer, type RingCounts } from './ring.ts';
import { ACKED, type RingBatch, type RingWorkerData, recordsOf, STOP } from './ring-protocol.ts';
import type { BpfMap, RingHandler } from './types.ts';

export interface RingBufferReaderOptions {
  readonly map: BpfMap;
  readonly handler: RingHandler;
  /** Told of an error that the handler threw (reading goes on) and of the end of the thread by an error (it does not). */
  readonly onError: (error: unknown) => void;
  /** Most records a batch, default 1024. */
  readonly batchRecords?: number;
  /** Batches that may wait for the handler before the thread stops reading, default 8. */
  readonly maxOutstanding?: number;
  /** The thread's file. Needed only where a bundle puts `ring-worker` elsewhere than beside the bundle's own file. */
  readonly worker?: URL;
}

const NO_COUNTS: RingCounts = { records: 0, bytes: 0, discarded: 0, highWater: 0 };
const EFD_CLOEXEC = 0o2000000;
const EFD_NONBLOCK = 0o4000;

interface Running {
  readonly worker: Worker;
  readonly control: Int32Array<SharedArrayBuffer>;
  readonly fd: number;
  readonly wakeFd: number;
  readonly ended: Promise<void>;
}

/**
 * Reads a BPF ring buffer in a thread of its own and hands the records to `handler` on this one, in order, each once.
 *
 * Nothing is dropped here: when the handler is slower than the programs, the ring itself fills and `bpf_ringbuf_reserve`
 * fails, which only the program can count. `counts.highWater` against `capacity` shows how near that came.
 */
export class RingBufferReader {
  readonly capacity: number;
  readonly #options: RingBufferReaderOptions;
  #running: Running | undefined;
  #stopping: Promise<void> | undefined;
  #counts: RingCounts = NO_COUNTS;

  /** @throws ArgumentError when the map is not a ring buffer */
  constructor(options: RingBufferReaderOptions) {
    const { info } = options.map;
    if (info.type !== 'ringbuf') throw new ArgumentError(`map "${info.name}" is a ${info.type}, not a ringbuf`);
    for (const field of ['batchRecords', 'maxOutstanding'] as const) {
      const value = options[field] ?? 1;
      if (!Number.isInteger(value) || value < 1) {
        throw new ArgumentError(`${field} must be a whole number of at least 1, got ${value}`);
      }
    }
    this.capacity = info.maxEntries;
    this.#options = options;
  }

  /** Counts of all that was read, by the thread and by `drain`, as of the last batch. */
  get counts(): RingCounts {
    return this.#counts;
  }

  /** @throws ArgumentError when it runs already */
  start(): void {
    if (this.#running !== undefined) throw new ArgumentError('the ring buffer reader runs already: stop it first');
    const fd = duplicateFd(this.#options.map.fd, 'a ring buffer');
    const wakeFd = Number(libcFunction('int eventfd(unsigned int initial, int flags)')(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wakeFd < 0) {
      closeSync(fd);
      throw new BpfError({ operation: 'make an eventfd for a ring buffer reader', errno: lastErrno() });
    }
    const control = new Int32Array(new SharedArrayBuffer(8));
    const workerData: RingWorkerData = {
      fd,
      wakeFd,
      size: this.capacity,
      control: control.buffer,
      batchRecords: this.#options.batchRecords ?? 1024,
      maxOutstanding: this.#options.maxOutstanding ?? 8,
    };
    const worker = new Worker(this.#options.worker ?? workerFile(), { workerData, execArgv: [] });
    const before = this.#counts;
    worker.on('message', (batch: RingBatch) => {
      try {
        for (const record of recordsOf(batch)) this.#deliver(record);
        this.#counts = add(before, batch.counts);
      } finally {
        Atomics.add(control, ACKED, 1);
        Atomics.notify(control, ACKED);
      }
    });
    worker.on('error', (error) => this.#options.onError(error));
    const ended = new Promise<void>((resolve) => {
      worker.on('exit', () => {
        closeSync(fd);
        closeSync(wakeFd);
        if (this.#running?.worker === worker) this.#running = undefined;
        resolve();
      });
    });
    this.#running = { worker, control, fd, wakeFd, ended };
  }

  /** Ends the thread. Records that it has read are handled before this resolves; unread ones stay in the ring. */
  stop(): Promise<void> {
    const running = this.#running;
    if (running === undefined) return Promise.resolve();
    if (this.#stopping === undefined) {
      Atomics.store(running.control, STOP, 1);
      Atomics.notify(running.control, ACKED);
      const one = Buffer.alloc(8);
      one.writeBigUInt64LE(1n);
      writeSync(running.wakeFd, one);
      this.#stopping = running.ended.finally(() => {
        this.#stopping = undefined;
      });
    }
    return this.#stopping;
  }

  /**
   * Reads what is there now, on this thread, without `start`. For tests and for the last records after `stop`.
   * @returns records given
   * @throws ArgumentError while the thread runs, as only one may read
   */
  drain(handler: RingHandler = this.#options.handler): number {
    if (this.#running !== undefined)
      throw new ArgumentError('drain() and a started reader exclude each other: stop it first');
    const consumer = new RingConsumer(this.#options.map.fd, this.capacity);
    const before = this.#counts;
    try {
      return consumer.drain(handler);
    } finally {
      this.#counts = add(before, consumer.counts);
      consumer.close();
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

function add(a: RingCounts, b: RingCounts): RingCounts {
  return {
    records: a.records + b.records,
    bytes: a.bytes + b.bytes,
    discarded: a.discarded + b.discarded,
    highWater: Math.max(a.highWater, b.highWater),
  };
}

/** Beside this file, with its ending: a bundle emits `ring-worker.js` (or .mjs) as an entry of its own. */
function workerFile(): URL {
  const ending = /\.[cm]?[jt]s$/.exec(new URL(import.meta.url).pathname)?.[0] ?? '.js';
  return new URL(`./ring-worker${ending}`, import.meta.url);
}
