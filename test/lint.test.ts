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

/** What each file of the left column may not import. */
const REFUSED: readonly (readonly [file: string, ...imports: string[]])[] = [
  ['node-agent/tables.ts', './derive/contract.ts', './core/create-core.ts'],
  ['node-agent/core.ts', './state/state-files.ts', './datapath/index.ts'],
  ['node-agent/agent.ts', './part-list.ts', './cni/names.ts'],
  ['node-agent/core/thing.ts', '../routing/part.ts', '../cni/names.ts', '../part-list.ts', '../run.ts'],
  ['node-agent/state/thing.ts', '../routing/part.ts', '../cni/names.ts'],
  ['node-agent/new/thing.ts', '../derive/index.ts', '../core/create-core.ts', '../cni/names.ts', '../main.ts'],
  ['node-agent/host/thing.ts', '../core.ts'],
  ['node-agent/config/thing.ts', '../cni/part.ts', '../part-list.ts'],
  [
    'node-agent/derive/thing.ts',
    '../datapath/index.ts',
    '../kubernetes/index.ts',
    '../run.ts',
    'libbpf-ts',
    '@weir/bpf',
  ],
  [
    'node-agent/datapath/thing.ts',
    '../derive/index.ts',
    '../derive/model.ts',
    '../cni/names.ts',
    '../core/kernel-side.ts',
  ],
  ['node-agent/flows/thing.ts', '../datapath/index.ts'],
  ['node-agent/dns/proxy/thing.ts', '../part.ts', '../../core.ts'],
  [
    'node-agent/realised/thing.ts',
    '../derive/model.ts',
    '../core/create-core.ts',
    '../kubernetes/node-policy-status.ts',
  ],
  ['node-agent/api/thing.ts', '../datapath/index.ts', '../derive/index.ts', '../cni/service.ts', '../main.ts'],
  ['node-agent/cli/thing.ts', '../core.ts', '../api/server.ts'],
  ['node-agent/cni/thing.ts', '../routing/routing.ts', '../state/state-files.ts', '../api/server.ts'],
  ['node-agent/uninstall/thing.ts', '../cni/install.ts', '../core/remove-datapath.ts'],
  ['node-agent/parts/thing.ts', '../core/create-core.ts', '../cni/service.ts', '../core/part.ts'],
  ['operator/types.ts', './model/status.ts'],
  ['operator/model/thing.ts', '../kubernetes/writers.ts', '../operator.ts'],
  ['operator/kubernetes/thing.ts', '../model/model.ts', '../operator.ts'],
  ['operator/model/thing-part.ts', '../kubernetes/targets-part.ts', '../kubernetes/targets.ts'],
  ['operator/kubernetes/thing-part.ts', '../model-part.ts', '../model/model.ts'],
  ['operator/parts/thing.ts', '../part-list.ts', '../kubernetes/writers.ts', '../tables-part.ts'],
  ['operator/uninstall/thing.ts', '../operator.ts'],
  ['operator/webhooks/thing.ts', '../model/model.ts', '../kubernetes/targets-part.ts'],
];

const ALLOWED: typeof REFUSED = [
  ['node-agent/core.ts', './tables.ts'],
  ['node-agent/core/thing.ts', '../derive/index.ts', '../datapath/index.ts'],
  [
    'node-agent/new/thing.ts',
    '../core.ts',
    '../host/command.ts',
    '../cni/part.ts',
    '../parts/contract.ts',
    './more.ts',
  ],
  ['node-agent/derive/thing.ts', '../core.ts', '@weir/policy'],
  ['node-agent/datapath/thing.ts', '../derive/contract.ts', 'libbpf-ts'],
  ['node-agent/realised/thing.ts', '../derive/index.ts', '../datapath/index.ts', '../core.ts'],
  ['node-agent/cli/thing.ts', '../api/models.ts'],
  ['node-agent/derive/thing.test.ts', '../datapath/index.ts'],
  ['operator/kubernetes/thing.ts', '../names.ts'],
  ['operator/kubernetes/thing-part.ts', '../tables-part.ts', '../parts/contract.ts'],
  ['operator/thing-part.ts', './model/model.ts', './kubernetes/targets-part.ts'],
];

test.each([
  ['values', (from: string, at: number) => `import { a${at} } from '${from}';\n\na${at}();\n`],
  ['types', (from: string, at: number) => `import type { A${at} } from '${from}';\n\nexport type B${at} = A${at};\n`],
])('folders import by their contracts: %s', (_, text) => {
  const files = (table: typeof REFUSED): Record<string, string> =>
    Object.fromEntries(table.map(([file, ...imports]) => [file, imports.map(text).join('')]));

  const refused = lint(files(REFUSED)).filter(({ code }) => code === 'eslint(no-restricted-imports)');
  expect(refused.map(({ filename, message }) => `${filename}: ${/'(.*?)'/.exec(message)?.[1]}`).sort()).toEqual(
    REFUSED.flatMap(([file, ...imports]) => imports.map((from) => `${file}: ${from}`)).sort(),
  );
  expect(refused.filter(({ help }) => help === undefined)).toEqual([]);
  expect(lint(files(ALLOWED)).filter(({ code }) => code === 'eslint(no-restricted-imports)')).toEqual([]);
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
