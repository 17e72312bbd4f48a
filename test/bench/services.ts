/** Suite `services`: what Services cost a connect(), and the agent. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NODE_ADDRESSES, PODS, World } from '../../node-agent/services/testing/world.ts';
import { NODE_FLAGS } from '../../scripts/images/catalog.ts';
import { run } from '../cluster/run.ts';
import { type Figure, quantile } from './report.ts';
import { addressOf, fill } from './services-loads.ts';
import { own } from './statedb-programs.ts';
import type { Suite } from './suite.ts';

const SIZES = [10, 1000, 10_000];
const ROUNDS = 7;
const CALLS = 200_000;
/** Of issue 38, in nanoseconds and milliseconds. */
const GOALS = { over: 1000, whole: 2000, change: 5 };

export const services: Suite = async function* () {
  yield* connects();
  const measure = own('services-own.ts', NODE_FLAGS);
  for (const size of SIZES.slice(1)) {
    for (const { case: what, value, unit } of await measure(String(size))) {
      const goal = what.endsWith('p99') ? GOALS.change : what.startsWith('into') ? GOALS.whole : undefined;
      const figure: Figure = { case: `${size} Services, ${size * 10} backends: ${what}`, value, unit };
      yield goal === undefined ? figure : { ...figure, goal };
    }
  }
};

/** UDP, in turn in one run: without the hooks, to an address that is no Service's, and to a Service. */
async function* connects(): AsyncGenerator<Figure> {
  const folder = mkdtempSync(join(tmpdir(), 'weir-bench-'));
  const program = join(folder, 'connect');
  await run('gcc', ['-O2', '-o', program, join(import.meta.dirname, 'connect.c')]);
  const world = await World.start();
  const connect = async (address: string, port: number, hooked: boolean): Promise<number> => {
    const child = spawn('nsenter', [`--net=${world.lab.netns}`, program, address, String(port), String(CALLS)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    if (hooked && child.pid !== undefined) world.lab.cgroup({ pid: child.pid });
    let text = '';
    child.stdout.on('data', (data) => {
      text += String(data);
    });
    child.stdin.end('go\n');
    const [code] = (await once(child, 'close')) as [number];
    if (code !== 0) throw new Error(`connect to ${address} ended with ${code}`);
    return Number(text);
  };
  try {
    for (const size of SIZES) {
      fill(world.db, world.services.tables, size, () => [PODS[4][0]]);
      await world.services.settled();
      const times = { none: [] as number[], miss: [] as number[], service: [] as number[] };
      for (let round = 0; round < ROUNDS; round += 1) {
        times.none.push(await connect(PODS[4][0], 8080, false));
        times.miss.push(await connect(NODE_ADDRESSES[0], 8080, true));
        times.service.push(await connect(addressOf(round), 80, true));
      }
      const none = quantile(times.none, 0.5);
      yield { case: `connect, no hook, beside ${size} Services`, value: none, unit: 'ns' };
      for (const what of ['miss', 'service'] as const) {
        const value = quantile(times[what], 0.5);
        yield { case: `connect, ${what} among ${size} Services`, value, unit: 'ns', peer: none };
        yield {
          case: `connect, ${what} among ${size}, over no hook`,
          value: value - none,
          unit: 'ns',
          goal: GOALS.over,
        };
      }
    }
  } finally {
    await world.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
