/**
 * `npm run busy -- [--runs N] [--hogs N] PATHS...`: test files, run again and again beside processes that keep every core busy. A test that
 * depends on the clock fails here. Exit code 1 when a run failed, 2 for bad arguments.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const USAGE = 'usage: npm run busy -- [--runs N] [--hogs N] PATHS...';

function count(flag: string, text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 1000) return value;
  throw new Error(`--${flag} is "${text}": give a whole number from 1 to 1000`);
}

function read(): { readonly runs: number; readonly hogs: number; readonly paths: readonly string[] } {
  const { values, positionals: paths } = parseArgs({
    allowPositionals: true,
    options: {
      runs: { type: 'string', default: '10' },
      hogs: { type: 'string', default: String(availableParallelism()) },
    },
  });
  if (paths.length === 0) throw new Error('name test files or folders');
  return { runs: count('runs', values.runs), hogs: count('hogs', values.hogs), paths };
}

async function busy({ runs, hogs, paths }: ReturnType<typeof read>): Promise<number> {
  const children: ChildProcess[] = [];
  const end = (): void => {
    for (const child of children.splice(0)) child.kill('SIGKILL');
  };
  process.on('exit', end);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
  for (let hog = 0; hog < hogs; hog += 1)
    children.push(spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
  let failed = 0;
  for (let run = 1; run <= runs; run += 1) {
    const began = performance.now();
    const tests = spawn('npm', ['run', '--silent', 'jest', '--', ...paths], { cwd: root, stdio: 'inherit' });
    const [code] = (await once(tests, 'exit')) as [number | null];
    if (code !== 0) failed += 1;
    const seconds = Math.round((performance.now() - began) / 1000);
    console.log(
      `run ${run} of ${runs} ${code === 0 ? 'passed' : 'failed'} after ${seconds} s beside ${hogs} busy loops`,
    );
  }
  console.log(`${runs - failed} of ${runs} runs passed`);
  return failed === 0 ? 0 : 1;
}

let options: ReturnType<typeof read> | undefined;
try {
  options = read();
} catch (error) {
  console.error(`${error instanceof Error ? error.message : String(error)}\n${USAGE}`);
}
process.exit(options === undefined ? 2 : await busy(options));
