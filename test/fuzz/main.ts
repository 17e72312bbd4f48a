/**
 * `npm run fuzz -- objects --count N --seed S`, `npm run fuzz -- datapath --packets N --seed S`, `npm run fuzz -- policy --worlds N --seed S`: exit code 0 when nothing was found, 1 when something
 * was, 2 for bad arguments.
 */
import { parseArgs } from 'node:util';
import { type FrameFuzzOptions, fuzzFrames, printFrames } from './datapath/run.ts';
import { type FuzzOptions, fuzz, passed, print } from './index.ts';
import { fuzzPolicies, type PolicyFuzzOptions, printPolicies } from './policy/run.ts';

const USAGE =
  'usage: npm run fuzz -- objects [--count N] [--seed S] [--shrink SECONDS] [--quiet]\n' +
  '       npm run fuzz -- datapath [--packets N] [--seed S] [--quiet]\n' +
  '       npm run fuzz -- policy [--worlds N] [--seed S] [--quiet]';

/** Bad arguments. */
class UsageError extends Error {}

function number(flag: string, text: string, from: number, to: number): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isInteger(value) || value < from || value > to)
    throw new UsageError(`--${flag} is "${text}": give a whole number from ${from} to ${to}`);
  return value;
}

type Work =
  | { readonly what: 'objects'; readonly options: Omit<FuzzOptions, 'signal'> }
  | { readonly what: 'datapath'; readonly options: Omit<FrameFuzzOptions, 'signal'> }
  | { readonly what: 'policy'; readonly options: Omit<PolicyFuzzOptions, 'signal'> };

function read(): Work {
  const { values, positionals } = parsed();
  const [what] = positionals;
  if (positionals.length !== 1 || (what !== 'objects' && what !== 'datapath' && what !== 'policy'))
    throw new UsageError(
      `"${positionals.join(' ')}" is nothing that can be fuzzed; there are: objects, datapath, policy`,
    );
  const shared = {
    seed: number('seed', values.seed ?? String(Math.floor(Math.random() * 2 ** 31)), 0, 2 ** 31),
    ...(values.quiet === true ? {} : { log: (line: string) => console.error(`${new Date().toISOString()} ${line}`) }),
  };
  if (what === 'datapath')
    return { what, options: { ...shared, packets: number('packets', values.packets, 1, 1_000_000_000) } };
  if (what === 'policy')
    return { what, options: { ...shared, worlds: number('worlds', values.worlds, 1, 1_000_000_000) } };
  return {
    what,
    options: {
      ...shared,
      count: number('count', values.count, 1, 10_000_000),
      shrinkSeconds: number('shrink', values.shrink, 0, 100_000),
    },
  };
}

function parsed() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        count: { type: 'string', default: '1000' },
        packets: { type: 'string', default: '100000' },
        worlds: { type: 'string', default: '1000' },
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
  const { what, options } = read();
  console.error(`seed ${options.seed}`);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop.abort());
  if (what === 'datapath') {
    const report = await fuzzFrames({ ...options, signal: stop.signal });
    console.log(printFrames(report));
    return report.findings.length === 0 ? 0 : 1;
  }
  if (what === 'policy') {
    const report = await fuzzPolicies({ ...options, signal: stop.signal });
    console.log(printPolicies(report));
    return report.findings.length === 0 ? 0 : 1;
  }
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
