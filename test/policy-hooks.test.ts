/** The pre-commit hook and the GitHub action, run as these tools run them. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { load } from 'js-yaml';
import { ROOT } from './cluster/run.ts';

const policy = (spec: string) =>
  `apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p}\nspec: {endpointSelector: {}, ${spec}}\n`;
const yaml = (file: string): unknown => load(readFileSync(join(ROOT, file), 'utf8'));

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-hooks-'));
  writeFileSync(join(folder, 'good file.yaml'), policy('ingress: [{}]'));
  writeFileSync(join(folder, 'groups.yaml'), policy('egress: [{toGroups: [{aws: {}}]}]').replace('p}', 'q}'));
  writeFileSync(join(folder, 'bad.yaml'), policy('ingres: [{}]').replace('p}', 'r}'));
});
afterAll(() => rmSync(folder, { recursive: true }));

it('the hook judges the files that it is given', () => {
  const [hook] = yaml('.pre-commit-hooks.yaml') as [{ id: string; entry: string; language: string }];
  expect(hook).toMatchObject({ id: 'weir-policy-validate', language: 'script', require_serial: true });
  const run = (...files: string[]) => spawnSync(join(ROOT, hook.entry), files, { cwd: folder, encoding: 'utf8' });
  expect(run('good file.yaml').status).toBe(0);
  expect(run('good file.yaml', 'bad.yaml')).toMatchObject({
    status: 1,
    stdout: expect.stringMatching(/^bad\.yaml:4:\d+: error: spec\.ingres: unknown field/),
  });
});

describe('the action', () => {
  const { inputs, runs } = yaml('action.yml') as {
    readonly inputs: Readonly<Record<string, { readonly default: string }>>;
    readonly runs: {
      readonly steps: readonly [{ readonly env: Readonly<Record<string, string>>; readonly run: string }];
    };
  };
  const act = (given: Readonly<Record<string, string>>) => {
    const [{ env, run }] = runs.steps;
    const values = Object.fromEntries(
      Object.entries(env).map(([name, text]) => {
        const input = /^\$\{\{ inputs\.([\w-]+) \}\}$/.exec(text)?.[1] ?? '';
        return [name, given[input] ?? inputs[input]?.default];
      }),
    );
    const options = {
      cwd: folder,
      encoding: 'utf8',
      env: { ...process.env, ...values, GITHUB_ACTION_PATH: ROOT },
    } as const;
    return spawnSync('bash', ['--noprofile', '--norc', '-e', '-o', 'pipefail', '-c', run], options);
  };

  it('judges the whole repository by default', () => {
    expect(act({})).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('3 judged: 1 valid, 1 invalid, 1 not'),
    });
  });
  it('takes one path a line', () => {
    expect(act({ files: 'good file.yaml\n\n' }).status).toBe(0);
    expect(act({ files: 'good file.yaml\ngroups.yaml\n' }).status).toBe(2);
  });
  it('lets pass what is not enforced, where that is allowed', () => {
    expect(act({ files: 'groups.yaml', 'allow-unsupported': 'true' }).status).toBe(0);
    expect(act({ files: 'bad.yaml', 'allow-unsupported': 'true' }).status).toBe(1);
  });
  it('writes SARIF, and fails all the same', () => {
    expect(act({ files: '.', 'sarif-file': 'weir.sarif' }).status).toBe(1);
    const log = JSON.parse(readFileSync(join(folder, 'weir.sarif'), 'utf8')) as {
      readonly runs: readonly [{ readonly results: readonly { readonly level: string }[] }];
    };
    expect(log.runs[0].results.map(({ level }) => level)).toEqual(['error', 'warning']);
  });
});
