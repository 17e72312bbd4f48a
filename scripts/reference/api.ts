/**
 * `npm run docs:api`: writes docs/api/, the reference of the published libraries, from their doc comments. typedoc reads sources by
 * TypeScript's API, which ends with TypeScript 6: both are installed in docs/api alone. `test/api-reference.test.ts` compares names.
 */
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { argv, exit } from 'node:process';
import { fileURLToPath } from 'node:url';
import { LIBRARIES } from '../packages.ts';
import { entriesOf } from './exports.ts';

const ROOT = join(fileURLToPath(import.meta.url), '../../..');
/** With the generator's own manifest. */
const FOLDER = join(ROOT, 'docs/api');

/** Doc comments' tags; typedoc knows no `@fix`. */
const TAGS = ['@defaultValue', '@deprecated', '@example', '@fix', '@param', '@returns', '@see', '@template', '@throws'];

function run(program: string, args: readonly string[]): void {
  const { status, error } = spawnSync(program, args, { cwd: FOLDER, stdio: 'inherit' });
  if (status === 0) return;
  process.stderr.write(`${program} ${args[0]} failed: ${error?.message ?? `exit code ${status}`}\n`);
  exit(1);
}

function generate(library: (typeof LIBRARIES)[number]): void {
  const out = join(FOLDER, library);
  rmSync(out, { recursive: true, force: true });
  run(process.execPath, [
    'node_modules/typedoc/bin/typedoc',
    ...entriesOf(ROOT, library).flatMap((file) => ['--entryPoints', join(ROOT, file)]),
    ...['--tsconfig', join(ROOT, 'tsconfig.json'), '--basePath', join(ROOT, 'shared', library), '--out', out],
    // The project's own TypeScript checks the sources.
    ...['--skipErrorChecking', '--excludeExternals', '--excludePrivate', '--excludeInternal', '--disableSources'],
    ...['--plugin', 'typedoc-plugin-markdown', '--outputFileStrategy', 'modules', '--readme', 'none'],
    ...['--hideBreadcrumbs', '--hidePageHeader', '--parametersFormat', 'table', '--propertiesFormat', 'table'],
    ...['--interfacePropertiesFormat', 'table', '--logLevel', 'Error'],
    ...TAGS.flatMap((tag) => ['--blockTags', tag]),
  ]);
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  run('npm', ['ci', '--no-audit', '--no-fund']);
  for (const library of LIBRARIES) generate(library);
}
