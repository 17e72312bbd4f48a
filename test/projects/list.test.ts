/** The projects of jest name files that exist, have every test file, and tell tests with an API server from the others. */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from '@jest/globals';
import { PATTERNS, projectOf, testFiles } from './list.ts';

const ROOT = join(import.meta.dirname, '../..');

/** Who imports one of these has an API server, or a cluster with one. A unit test may have one that does not listen. */
const SERVERS = ['test/cluster/apiserver/index.ts', 'test/cluster/apiserver/http.ts', 'shared/kube/fake-server.ts'];

const imports = new Map<string, readonly string[]>();

/** Files that a file names by their path in imports of values. */
function importsOf(file: string): readonly string[] {
  const known = imports.get(file);
  if (known !== undefined) return known;
  const source = readFileSync(join(ROOT, file), 'utf8');
  const found = source.matchAll(/^(?:import|export) (?!type )(?:[^'";]*? from )?'(\.[^']+\.ts)';/gm);
  const files = Array.from(found, ([, path = '']) => join(dirname(file), path));
  imports.set(file, files);
  return files;
}

function importsServer(test: string): boolean {
  const reached = new Set([test]);
  for (const file of reached) for (const each of importsOf(file)) reached.add(each);
  return SERVERS.some((file) => reached.has(file));
}

it('every test file is in a project, but for those of a real Kubernetes', () => {
  const all = globSync('**/*.test.ts', {
    cwd: ROOT,
    exclude: ['**/node_modules/**', '.cache/**', 'test/{real,cluster/real}/**'],
  });
  expect(testFiles()).toEqual(all.sort());
});

it.each(Object.entries(PATTERNS))('each pattern of %s fits a file of it', (project, patterns) => {
  const vain = patterns.filter(
    (pattern) => !globSync(`${pattern}.test.ts`, { cwd: ROOT }).some((file) => projectOf(file) === project),
  );
  expect(vain).toEqual([]);
});

it('what imports an API server and needs the machine is in cluster, and nothing else is', () => {
  const wrong = testFiles().filter((file) => {
    const project = projectOf(file);
    return (project === 'kernel' || project === 'cluster') && importsServer(file) !== (project === 'cluster');
  });
  expect(wrong).toEqual([]);
});
