/** docs/api, which `npm run docs:api` makes from doc comments: the generator needs a TypeScript of its own, so names are compared here. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from '@jest/globals';
import { LIBRARIES } from '../scripts/packages.ts';
import { publicExports } from '../scripts/reference/exports.ts';
import { ROOT } from './cluster/run.ts';

it.each(LIBRARIES)('each export of %s has a doc comment', (library) => {
  const all = publicExports(ROOT, library);
  expect(all.length).toBeGreaterThan(5);
  expect(all.filter(({ documented }) => !documented).map(({ name, file }) => `${file}: ${name}`)).toEqual([]);
});

it.each(LIBRARIES)('the reference of %s has a section for each export, and no other (npm run docs:api)', (library) => {
  const pages = globSync(`docs/api/${library}/**/*.md`, { cwd: ROOT }).map((file) =>
    readFileSync(join(ROOT, file), 'utf8'),
  );
  // typedoc marks abstract classes, ends functions with `()`, and escapes underscores.
  const sections = pages.flatMap((page) =>
    Array.from(page.matchAll(/^### (?:`?abstract`? )?([\w\\]+)(?:\(\))?$/gm), ([, name = '']) =>
      name.replaceAll('\\', ''),
    ),
  );
  const names = new Set(publicExports(ROOT, library).map(({ name }) => name));
  expect([...new Set(sections)].sort()).toEqual([...names].sort());
});
