/**
 * Gives back to the system what a load needed and nothing needs any more. V8 keeps its heap as large as a load made it: its own reducer of
 * memory takes a program for busy whose last collection was under load, however long ago. In V8's memory saver mode it collects in
 * steps and returns the pages; under load that mode multiplies collections and their pauses, so it is on only after a load, while
 * the event loop rests.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8';

const CHECK_MS = 5000;
/** At most this share of the time the thread computes while it rests. */
const REST = 0.1;
/** Looks at a loop that rests, one after another, before memory is given back: two reports of a slow load are no rest. */
const RESTS = 2;
/** For how many looks the mode is on: V8's reducer looks every 8 s. */
const SAVING = 4;
/** What is less than this above the last rest is not worth a collection. */
const WORTH = 1.1;
/** Heaps in use above this are left as they are: to move them together takes longer than the event loop may stand still. */
const LARGEST = 128 * 2 ** 20;

/** What is asked of V8, and told. */
export interface Heap {
  /** Bytes that V8 holds and, of them, that objects take, garbage included. */
  size(): { readonly total: number; readonly used: number };
  /** Share of the time since the last call that the thread computed: 0 to 1. What it waited for a core is none of it. */
  work(): number;
  save(on: boolean): void;
}

export class MemoryReturn {
  readonly #heap: Heap;
  readonly #checkMs: number;
  #timer: NodeJS.Timeout | undefined;
  #rests = 0;
  #saving = 0;
  /** Bytes that V8 held when the loop last rested; 0 before. */
  #atRest = 0;

  constructor(options: { readonly heap?: Heap; readonly checkMs?: number } = {}) {
    this.#heap = options.heap ?? new V8Heap();
    this.#checkMs = options.checkMs ?? CHECK_MS;
  }

  /** Keeps no process alive. */
  start(): void {
    this.#timer ??= setInterval(() => this.check(), this.#checkMs).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#end();
  }

  /** One look, as the timer has it taken. */
  check(): void {
    const rests = this.#heap.work() <= REST;
    this.#rests = rests ? this.#rests + 1 : 0;
    if (this.#saving > 0) {
      this.#saving -= 1;
      if (rests && this.#saving > 0) return;
      this.#end();
      if (rests) this.#atRest = this.#heap.size().total;
      return;
    }
    if (this.#rests < RESTS) return;
    const { total, used } = this.#heap.size();
    if (total <= WORTH * this.#atRest || used > LARGEST) return;
    this.#saving = SAVING;
    this.#heap.save(true);
  }

  #end(): void {
    this.#saving = 0;
    this.#heap.save(false);
  }
}

export class V8Heap implements Heap {
  #at = performance.now();
  #used = process.threadCpuUsage();

  size(): { readonly total: number; readonly used: number } {
    const { total_heap_size: total, used_heap_size: used } = getHeapStatistics();
    return { total, used };
  }

  work(): number {
    const [now, { user, system }] = [performance.now(), process.threadCpuUsage()];
    const share = (user + system - this.#used.user - this.#used.system) / 1000 / (now - this.#at);
    [this.#at, this.#used] = [now, { user, system }];
    return share;
  }

  save(on: boolean): void {
    setFlagsFromString(on ? '--memory-saver-mode' : '--no-memory-saver-mode');
  }
}
