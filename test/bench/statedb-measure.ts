/** How the cases of statedb-own.ts are timed and weighed: the same steps as peers/statedb/measure.go. */
import { setImmediate as turn } from 'node:timers/promises';
import { quantile } from './report.ts';

/** One figure, as a case's program prints it: a line of JSON. */
export interface Measured {
  readonly case: string;
  readonly value: number;
  readonly unit: string;
}

export type Cases = Readonly<Record<string, () => AsyncGenerator<Measured>>>;

export const RUNS = 5;
const WARM_UP_MS = 250;
const RUN_MS = 60;

/** Runs the workload's round so often. */
export type Rounds = (count: number) => void | Promise<void>;

/** Measures the case that the command line names, and prints a line of JSON a figure. */
export async function printCase(cases: Cases): Promise<void> {
  const [, program, name = ''] = process.argv;
  const measure = cases[name];
  if (measure === undefined) {
    console.error(
      `usage: node --expose-gc ${program} CASE\n"${name}" is not a case; cases: ${Object.keys(cases).join(', ')}`,
    );
    process.exitCode = 2;
    return;
  }
  // The timers of what is measured keep no process alive.
  const alive = setInterval(() => {}, 60_000);
  try {
    for await (const measured of measure()) console.log(JSON.stringify(measured));
  } finally {
    clearInterval(alive);
  }
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Collects all garbage, and lets what waits for that run. Needs --expose-gc. */
export async function collect(): Promise<void> {
  if (globalThis.gc === undefined) throw new Error('run node with --expose-gc');
  for (let time = 0; time < 2; time++) {
    globalThis.gc();
    await turn();
  }
}

/** Bytes that the heap, and buffers outside it, hold after a collection. */
export async function liveBytes(): Promise<number> {
  await collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Milliseconds that a number of rounds takes. */
async function time(rounds: Rounds, count: number): Promise<number> {
  const began = performance.now();
  await rounds(count);
  return performance.now() - began;
}

/** Warms up, and returns how many rounds make a run. */
async function calibrate(rounds: Rounds): Promise<number> {
  const began = performance.now();
  for (let count = 1; ; ) {
    const took = await time(rounds, count);
    if (took < RUN_MS / 2) count *= 2;
    else if (performance.now() - began >= WARM_UP_MS) return Math.max(1, Math.floor((count * RUN_MS) / took));
  }
}

/** Median nanoseconds of one of the `units` that a round has. */
export async function nsPerUnit(name: string, unit: string, units: number, rounds: Rounds): Promise<Measured> {
  const count = await calibrate(rounds);
  const figures: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    await collect();
    figures.push(((await time(rounds, count)) * 1e6) / count / units);
  }
  return { case: name, value: median(figures), unit };
}
