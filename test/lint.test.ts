/** What lint holds of imports: each rule refuses a file that breaks it, so that no pattern is there that fits nothing. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, expect, test } from '@jest/globals';

const ROOT = join(import.meta.dirname, '..');
const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

test('modules that import each other are refused, types included', () => {
  const said = lint({
    'shared/a/one.ts': "import type { Two } from './two.ts';\n\nexport interface One {\n  readonly two: Two;\n}\n",
    'shared/a/two.ts': "import type { One } from './one.ts';\n\nexport interface Two {\n  readonly one?: One;\n}\n",
  });

  expect(
    said
      .filter(({ code }) => code === 'import(no-cycle)')
      .map(({ filename }) => filename)
      .sort(),
  ).toEqual(['shared/a/one.ts', 'shared/a/two.ts']);
});

interface Diagnostic {
  readonly code: string;
  readonly filename: string;
  readonly message: string;
  readonly help?: string;
}

/** What oxlint says of these files, by the repository's configuration. */
function lint(files: Readonly<Record<string, string>>): readonly Diagnostic[] {
  const folder = mkdtempSync(join(tmpdir(), 'weir-lint-'));
  folders.push(folder);
  copyFileSync(join(ROOT, '.oxlintrc.json'), join(folder, '.oxlintrc.json'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  const { stdout } = spawnSync(join(ROOT, 'node_modules/.bin/oxlint'), ['--format', 'json'], {
    cwd: folder,
    encoding: 'utf8',
  });
  return (JSON.parse(stdout) as { readonly diagnostics: readonly Diagnostic[] }).diagnostics;
}
