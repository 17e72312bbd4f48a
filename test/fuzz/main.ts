/** `npm run fuzz -- objects --count N --seed S`: exit code 0 when nothing was found, 1 when something was, 2 for bad arguments. */
import { parseArgs } from 'node:util';
import { type FuzzOptions, fuzz, passed, print } from './index.ts';

const USAGE = 'usage: npm run fuzz -- objects [--count N] [--seed S] [--shrink SECONDS] [--quiet]';

/** Bad arguments. */
class UsageError extends Error {}

function number(flag: string, text: string, from: number, to: number): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isInteger(value) || value < from || value > to)
    throw new UsageError(`--${flag} is "${text}": give a whole number from ${from} to ${to}`);
  return value;
}

function read(): Omit<FuzzOptions, 'signal'> {
  const { values, positionals } = parsed();
  if (positionals.length !== 1 || positionals[0] !== 'objects')
    throw new UsageError(`"${positionals.join(' ')}" is nothing that can be fuzzed; there is: objects`);
  const seed = values.seed ?? String(Math.floor(Math.random() * 2 ** 31));
  return {
    count: number('count', values.count, 1, 10_000_000),
    seed: number('seed', seed, 0, 2 ** 31),
    shrinkSeconds: number('shrink', values.shrink, 0, 100_000),
    ...(values.quiet === true ? {} : { log: (line: string) => console.error(`${new Date().toISOString()} ${line}`) }),
  };
}

function parsed() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        count: { type: 'string', default: '1000' },
        seed: { type: 'string' },
        shrink: { type: 'string', default: '120' },
        quiet: { type: 'boolean' },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

async function main(): Promise<number> {
  const options = read();
  console.error(`seed ${options.seed}`);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop.abort());
  const report = await fuzz({ ...options, signal: stop.signal });
  console.log(print(report));
  return passed(report) ? 0 : 1;
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    const usage = error instanceof UsageError;
    console.error(usage ? `${error.message}\n${USAGE}` : error);
    process.exitCode = usage ? 2 : 1;
  },
);
