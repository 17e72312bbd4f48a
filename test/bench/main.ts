/** `npm run bench -- SUITE [--json FILE]`: measures, prints ratios, writes rows. Exit code 2 for bad arguments; figures never fail it. */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { agent } from './agent.ts';
import { dns } from './dns.ts';
import { path } from './path.ts';
import { policy } from './policy.ts';
import { real } from './real.ts';
import { reconciler } from './reconciler.ts';
import { print, type Row, row } from './report.ts';
import { services } from './services.ts';
import { soak } from './soak.ts';
import { statedb } from './statedb.ts';
import type { Suite } from './suite.ts';

const SUITES: Readonly<Record<string, Suite>> = { path, real, statedb, reconciler, agent, services, policy, dns, soak };

const USAGE = `usage: npm run bench -- SUITE [--json FILE]\nsuites: ${Object.keys(SUITES).join(', ')}`;

/** Bad arguments: exit code 2. */
class UsageError extends Error {}

function given() {
  try {
    return parseArgs({ allowPositionals: true, options: { json: { type: 'string' }, help: { type: 'boolean' } } });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

async function main(): Promise<number> {
  const { values, positionals } = given();
  const [name = ''] = positionals;
  if (values.help === true) {
    console.log(USAGE);
    return 0;
  }
  const suite = SUITES[name];
  if (suite === undefined || positionals.length !== 1) {
    throw new UsageError(`"${positionals.join(' ')}" is not a suite`);
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
    const usage = error instanceof UsageError;
    console.error(usage ? `${error.message}\n${USAGE}` : error);
    process.exitCode = usage ? 2 : 1;
  },
);
