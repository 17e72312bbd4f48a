/** `npm run chaos -- cluster --minutes N --seed S`: exit code 0 when no packet was judged wrongly, 1 when one was, 2 for bad arguments. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { type ChaosOptions, chaos, passed, print, UnknownActionError } from './index.ts';

const USAGE =
  'usage: npm run chaos -- cluster [--minutes N] [--seed S] [--nodes N] [--operators N] [--pods N] [--only ACTIONS] [--without ACTIONS] [--json FILE] [--quiet]';

/** Bad arguments. */
class UsageError extends Error {}

function number(flag: string, text: string, from: number, to: number): number {
  const value = Number(text);
  if (text.trim() === '' || !(value >= from && value <= to))
    throw new UsageError(`--${flag} is "${text}": give a number from ${from} to ${to}`);
  return value;
}

function read(): { readonly options: Omit<ChaosOptions, 'signal'>; readonly json: string | undefined } {
  const { values, positionals } = parsed();
  if (positionals.length !== 1 || positionals[0] !== 'cluster')
    throw new UsageError(`"${positionals.join(' ')}" is not what to play on; there is: cluster`);
  const names = (text: string): readonly string[] => text.split(',').map((name) => name.trim());
  const seed = values.seed ?? String(Math.floor(Math.random() * 2 ** 31));
  return {
    json: values.json,
    options: {
      minutes: number('minutes', values.minutes, 0.1, 10_000),
      seed: Math.floor(number('seed', seed, 0, 2 ** 32)),
      nodes: Math.floor(number('nodes', values.nodes, 1, 5)),
      operators: Math.floor(number('operators', values.operators, 1, 3)),
      pods: Math.floor(number('pods', values.pods, 2, 10)),
      ...(values.only === undefined ? {} : { only: names(values.only) }),
      ...(values.without === undefined ? {} : { without: names(values.without) }),
      ...(values.quiet === true ? {} : { log: (line: string) => console.error(`${new Date().toISOString()} ${line}`) }),
    },
  };
}

function parsed() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        minutes: { type: 'string', default: '5' },
        seed: { type: 'string' },
        nodes: { type: 'string', default: '3' },
        operators: { type: 'string', default: '2' },
        pods: { type: 'string', default: '7' },
        only: { type: 'string' },
        without: { type: 'string' },
        json: { type: 'string' },
        quiet: { type: 'boolean' },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

async function main(): Promise<number> {
  const { options, json } = read();
  console.error(`seed ${options.seed}`);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stop.abort());
  const report = await chaos({ ...options, signal: stop.signal });
  console.log(print(report));
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(report, undefined, 2)}\n`);
  return passed(report) ? 0 : 1;
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    const usage = error instanceof UsageError || error instanceof UnknownActionError;
    console.error(usage ? `${error.message}\n${USAGE}` : error);
    process.exitCode = usage ? 2 : 1;
  },
);
