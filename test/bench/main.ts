/** `npm run bench -- SUITE [--json FILE]`: measures, prints ratios, writes rows. Exit code 2 for bad arguments; figures never fail it. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { path } from './path.ts';
import { real } from './real.ts';
import { reconciler } from './reconciler.ts';
import { print, type Row, row } from './report.ts';
import { soak } from './soak.ts';
import { statedb } from './statedb.ts';
import type { Suite } from './suite.ts';

const SUITES: Readonly<Record<string, Suite>> = { path, real, statedb, reconciler, soak };

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { json: { type: 'string' } } });
  const [name = ''] = positionals;
  const suite = SUITES[name];
  if (suite === undefined || positionals.length !== 1) {
    console.error(
      `usage: npm run bench -- SUITE [--json FILE]\n"${positionals.join(' ')}" is not a suite; suites: ${Object.keys(SUITES).join(', ')}`,
    );
    return 2;
  }
  const rows: Row[] = [];
  for await (const figure of suite()) {
    const made = row(name, figure);
    rows.push(made);
    console.error(`${made.case}: ${made.value} ${made.unit}`);
  }
  console.log(print(rows));
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(rows, undefined, 2)}\n`);
  return 0;
}

main().then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  },
);
