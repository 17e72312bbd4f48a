/** `npm run docs`: writes the pages of docs/ that are generated. A test compares, so that they never lag behind. */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';
import { errorsPage } from './reference/errors.ts';
import { flagsPage } from './reference/flags.ts';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

/** By file, from the root of the repository. */
export const GENERATED: Readonly<Record<string, () => string>> = {
  'docs/errors.md': () => errorsPage(ROOT),
  'docs/flags.md': () => flagsPage(),
};

if (argv[1] === fileURLToPath(import.meta.url))
  for (const [file, page] of Object.entries(GENERATED)) writeFileSync(join(ROOT, file), page());
