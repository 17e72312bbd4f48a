/** The programs that measure: the peer in Go, built when Go is there, and our own, each case in a process of its own. */
import { mkdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { assetsFolder } from '../cluster/real/assets.ts';
import { attempt, run, TOOL_PATH } from '../cluster/run.ts';
import type { Measured } from './statedb-measure.ts';

const SOURCE = fileURLToPath(new URL('./peers/statedb', import.meta.url));
const BUILD_LIMIT_MS = 10 * 60_000;
const CASE_LIMIT_MS = 3 * 60_000;

/** Measures one case. */
export type Measure = (name: string) => Promise<readonly Measured[]>;

/** By a program of ours in this folder, with node's own flags added. */
export function own(
  program: 'statedb-own.ts' | 'reconciler-own.ts' | 'agent-own.ts' | 'services-own.ts',
  flags: readonly string[] = [],
): Measure {
  const path = fileURLToPath(new URL(program, import.meta.url));
  return (name) => measure(process.execPath, ['--expose-gc', ...flags, path, name]);
}

/** The peer's, or undefined where Go is absent or cannot build it, which is said. Go's cache makes a second build a matter of a second. */
export async function peer(): Promise<Measure | undefined> {
  const PATH = [TOOL_PATH, '/usr/local/go/bin'].join(delimiter);
  const found = await attempt('go', ['version'], { env: { PATH } }).catch(() => undefined);
  if (found === undefined || found.code !== 0) {
    console.error('Go is not on the PATH: the peer is not measured');
    return undefined;
  }
  const folder = join(assetsFolder(), 'bin');
  mkdirSync(folder, { recursive: true });
  const program = join(folder, 'statedb-peer');
  const built = await attempt('go', ['build', '-C', SOURCE, '-trimpath', '-o', program, '.'], {
    env: { PATH, GOFLAGS: '-mod=readonly -buildvcs=false', CGO_ENABLED: '0' },
    timeoutMs: BUILD_LIMIT_MS,
  });
  if (built.code !== 0) {
    console.error(`the peer is not measured, as it does not build: ${built.stderr.trim()}`);
    return undefined;
  }
  return (name) => measure(program, ['-case', name]);
}

async function measure(program: string, args: readonly string[]): Promise<readonly Measured[]> {
  const { stdout } = await run(program, args, { timeoutMs: CASE_LIMIT_MS });
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Measured);
}
