/**
 * Loaded by `--import` into the programs that the soak test watches (and idle in every other): once a second a line with the memory of the
 * process and how its event loop was blocked. SIGUSR2 collects all garbage first, so that the next line tells what is retained.
 */
import { appendFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Milliseconds between two looks at the clock: blocks are known to this precision. */
const TICK_MS = 2;
const LINE_MS = 1000;
const folder = process.env.WEIR_SOAK_FOLDER;
const program = basename(process.argv[1] ?? '', '.mjs');

if (folder !== undefined && ['agent', 'operator'].includes(program)) watch(join(folder, `${program}.jsonl`));

/** Writes to `file` until the process ends. */
function watch(file) {
  let blocks = [];
  let collections = [];
  let at = performance.now();
  let cpu = process.threadCpuUsage();
  setInterval(() => {
    const now = performance.now();
    const used = process.threadCpuUsage();
    const blocked = now - at - TICK_MS;
    // What the thread computed in that time: the rest it waited, for the kernel or for a core.
    if (blocked > 5) blocks.push([blocked, (used.user + used.system - cpu.user - cpu.system) / 1000]);
    at = now;
    cpu = used;
  }, TICK_MS).unref();
  new PerformanceObserver((list) => {
    for (const { duration, detail } of list.getEntries()) {
      if ((detail.flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) === 0) collections.push(duration);
    }
  }).observe({ entryTypes: ['gc'] });
  let collected = false;
  process.on('SIGUSR2', () => {
    setFlagsFromString('--expose-gc');
    runInNewContext('gc')();
    collected = true;
  });
  setInterval(() => {
    const { user, system } = process.cpuUsage();
    const line = {
      at: Date.now(),
      ...process.memoryUsage(),
      cpu: (user + system) / 1e6,
      collected,
      blocks,
      collections,
    };
    appendFileSync(file, `${JSON.stringify(line)}\n`);
    blocks = [];
    collections = [];
  }, LINE_MS).unref();
}
