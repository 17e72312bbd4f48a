/** The libraries as somebody has them who installs the tarballs of `npm run packages`: no TypeScript to run, types to check. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { buildLibrary, LIBRARIES, repositoryOf } from '../scripts/packages.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const home = mkdtempSync(join(tmpdir(), 'weir-packages-'));
const modules = join(home, 'node_modules');
const names = { statedb: '@weir/statedb', reconciler: '@weir/reconciler', libbpf: 'libbpf-ts' } as const;

/** What the libraries say they need, and what the consumer's types need. */
const NEEDED = ['immer', 'rxjs', 'koffi', 'fast-check', 'prom-client', '@types/node'];

const CONSUMER = `
import { createReconciler } from '@weir/reconciler';
import { createStateDB, derive, keys, RowExistsError } from '@weir/statedb';
import { createMemoryMap, possibleCpus } from 'libbpf-ts';

interface Route { readonly prefix: string; readonly via: number }

const db = createStateDB();
const routes = db.table<Route>({ name: 'routes', key: ({ prefix }) => prefix });
const hops = db.table<{ readonly via: number }>({ name: 'hops', key: ({ via }) => keys.uint(via, 32) });
const derivation = derive(db, { name: 'hops', into: hops, inputs: [routes], fn: ({ via }) => [{ via }] });
db.write([routes], (txn) => txn.insert(routes, { prefix: '10.0.0.0/8', via: 7 }));
derivation.flush();

const map = createMemoryMap({ name: 'hops', type: 'hash', keySize: 4, valueSize: 4, maxEntries: 8 });
const reconciler = createReconciler({
  name: 'hops',
  db,
  table: hops,
  operations: {
    update: ({ via }) => map.updateRows([via], (row, keyBytes, keyAt) => keyBytes.setUint32(keyAt, row, true)),
    delete: () => {},
  },
});
await reconciler.reconcile();
let refused = '';
try {
  db.write([routes], (txn) => txn.insert(routes, { prefix: '10.0.0.0/8', via: 8 }));
} catch (error) {
  refused = error instanceof RowExistsError ? error.code : String(error);
}
// @ts-expect-error: the types are those of the row.
db.write([routes], (txn) => txn.upsert(routes, { prefix: '10.0.0.0/8', via: 'nowhere' }));
await reconciler.stop();
derivation[Symbol.dispose]();
console.log(JSON.stringify({ keys: [...map.keys()].map((key) => [...key]), refused, cpus: possibleCpus() > 0 }));
`;

beforeAll(async () => {
  for (const name of NEEDED) {
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(join(root, 'node_modules', name), join(modules, name));
  }
  for (const library of LIBRARIES) {
    const into = join(modules, names[library]);
    mkdirSync(dirname(into), { recursive: true });
    await buildLibrary(library, into);
  }
  writeFileSync(join(home, 'package.json'), '{"type":"module"}');
  writeFileSync(join(home, 'consumer.ts'), CONSUMER);
});

afterAll(() => rmSync(home, { recursive: true, force: true }));

describe('the published libraries', () => {
  it('name the repository that publishes them', () => {
    const env = { GITHUB_SERVER_URL: 'https://git.example', GITHUB_REPOSITORY: 'owner/name' };
    expect(repositoryOf('statedb', env)).toEqual({
      type: 'git',
      url: 'git+https://git.example/owner/name.git',
      directory: 'shared/statedb',
    });
    expect(repositoryOf('statedb', {})).toBeUndefined();
  });

  it('type-check, declarations included, and run as JavaScript', async () => {
    const options = ['--module', 'nodenext', '--target', 'es2022', '--lib', 'es2024,esnext.disposable,esnext.iterator'];
    const strict = ['--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', 'false', '--types', 'node'];
    const tsc = join(root, 'node_modules/.bin/tsc');
    const checked = await run(tsc, [...options, ...strict, 'consumer.ts'], { cwd: home }).catch(
      (error: { readonly stdout: string }) => error,
    );
    // What tsc complains about.
    expect(checked.stdout).toBe('');
    const { stdout } = await run(process.execPath, ['--no-experimental-strip-types', 'consumer.js'], { cwd: home });
    expect(JSON.parse(stdout)).toEqual({ keys: [[7, 0, 0, 0]], refused: 'ERR_STATEDB_ROW_EXISTS', cpus: true });
  });

  it.each(LIBRARIES)('%s says what it needs, and gives everything that its sources give', async (library) => {
    const manifest = JSON.parse(readFileSync(join(modules, names[library], 'package.json'), 'utf8')) as {
      readonly private?: boolean;
      readonly repository?: object;
      readonly dependencies: Readonly<Record<string, string>>;
      readonly exports: Readonly<Record<string, unknown>>;
    };
    expect(manifest.private).toBeUndefined();
    expect(manifest.repository).toEqual(repositoryOf(library, process.env));
    const paths = Object.keys(manifest.exports).filter((path) => !path.endsWith('.json'));
    const script = `console.log(JSON.stringify(await Promise.all(${JSON.stringify(paths)}.map(async (path) =>
      Object.keys(await import('${names[library]}' + path.slice(1))).sort()))))`;
    writeFileSync(join(home, `${library}.js`), script);
    const { stdout } = await run(process.execPath, [`${library}.js`], { cwd: home });
    const written = await Promise.all(
      paths.map(async (path) => Object.keys((await import(names[library] + path.slice(1))) as object).sort()),
    );
    expect(JSON.parse(stdout)).toEqual(written);
  });
});
