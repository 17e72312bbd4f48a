import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import { type Heap, MemoryReturn } from './index.ts';
import { V8Heap } from './memory.ts';

const MB = 2 ** 20;

/** A heap that is told what it is like, and notes what it is told. */
class FakeHeap implements Heap {
  total = 20 * MB;
  used = 10 * MB;
  busy = 0;
  saves = false;

  size() {
    return { total: this.total, used: this.used };
  }
  work() {
    return this.busy;
  }
  save(on: boolean) {
    this.saves = on;
  }
}

/** What each of the next looks leaves: whether the memory saver is on. */
function looks(memory: MemoryReturn, heap: FakeHeap, count: number): readonly boolean[] {
  return Array.from({ length: count }, () => {
    memory.check();
    return heap.saves;
  });
}

describe('MemoryReturn', () => {
  it('saves once the event loop rests, for a while, and again only when the heap has grown', () => {
    const heap = new FakeHeap();
    const memory = new MemoryReturn({ heap });
    expect(looks(memory, heap, 7)).toEqual([false, true, true, true, true, false, false]);
    expect(looks(memory, heap, 10)).not.toContain(true);
    heap.total = 40 * MB;
    heap.busy = 0.5;
    expect(looks(memory, heap, 3)).toEqual([false, false, false]);
    heap.busy = 0;
    expect(looks(memory, heap, 3)).toEqual([false, true, true]);
  });

  it('stops saving at the first look at a loop that works again, and begins anew when it rests', () => {
    const heap = new FakeHeap();
    const memory = new MemoryReturn({ heap });
    expect(looks(memory, heap, 3)).toEqual([false, true, true]);
    heap.busy = 0.2;
    expect(looks(memory, heap, 2)).toEqual([false, false]);
    heap.busy = 0;
    expect(looks(memory, heap, 3)).toEqual([false, true, true]);
    memory.stop();
    expect(heap.saves).toBe(false);
  });

  it('leaves a large heap in use as it is', () => {
    const heap = new FakeHeap();
    heap.used = 200 * MB;
    heap.total = 300 * MB;
    expect(looks(new MemoryReturn({ heap }), heap, 5)).not.toContain(true);
  });

  it('takes no waiting for work: on a machine that gives it no core a program that does nothing rests', async () => {
    const heap = new V8Heap();
    const elsewhere = new Int32Array(new SharedArrayBuffer(4));
    heap.work();
    // In a callback, as the event loop's own account has it.
    await new Promise<void>((resolve) =>
      setImmediate(() => {
        Atomics.wait(elsewhere, 0, 0, 500);
        resolve();
      }),
    );
    expect(heap.work()).toBeLessThan(0.1);
    const { user } = process.threadCpuUsage();
    while (process.threadCpuUsage().user < user + 20_000);
    expect(heap.work()).toBeGreaterThan(0);
  });

  it('has V8 give back what a load made it take', async () => {
    // Objects that live long enough to leave the young generation, and are garbage soon after.
    const script = `
      import { MemoryReturn } from ${JSON.stringify(new URL('./index.ts', import.meta.url).href)};
      const rows = new Map();
      for (let at = 0; at < 600_000; at++) rows.set(at % 100_000, { at, text: 'row ' + at, list: [at] });
      rows.clear();
      const most = process.memoryUsage().heapTotal;
      new MemoryReturn({ checkMs: 1000 }).start();
      const began = performance.now();
      const left = () => process.memoryUsage().heapTotal / most;
      while (left() > 0.4 && performance.now() - began < 120_000) await new Promise((r) => setTimeout(r, 50));
      console.log(left());
    `;
    const flags = [
      '--max-semi-space-size=1',
      '--gc-memory-reducer-start-delay-ms=300',
      '--input-type=module',
      '-e',
      script,
    ];
    // What V8 does without it depends on the moment: mostly it keeps the memory, now and then it gives it back by itself.
    expect(Number((await promisify(execFile)(process.execPath, flags)).stdout)).toBeLessThan(0.4);
  });
});
