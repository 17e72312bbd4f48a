import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import { crds } from '@weir/kube';
import { ROOT, run } from './cluster/run.ts';

const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');
/** Lines of fenced blocks. */
const blocks = (file: string): string[] =>
  [...text(file).matchAll(/^```(?:text)?\n([\s\S]*?)^```$/gm)].flatMap(([, block]) => (block ?? '').split('\n'));

describe('README.md and ARCHITECTURE.md say what is', () => {
  it('every npm command exists', () => {
    const { scripts } = JSON.parse(text('package.json')) as { readonly scripts: Readonly<Record<string, string>> };
    const named = (file: string): string[] =>
      blocks(file).flatMap((line) => /^npm (?:run )?([\w:]+)/.exec(line)?.[1] ?? []);
    const first = named('README.md');
    const more = named('test/README.md');
    expect(first).toEqual(expect.arrayContaining(['demo', 'test', 'start', 'doctor']));
    expect(more).toEqual(expect.arrayContaining(['bench', 'chaos', 'fuzz', 'busy', 'test:real', 'start:real']));
    for (const name of [...first, ...more]) expect(Object.keys(scripts)).toContain(name);
  });

  it('every weir command exists', async () => {
    const { stdout } = await run(join(ROOT, 'bin/weir'), ['--help']);
    const policy = await run(join(ROOT, 'bin/weir'), ['policy', '--help']);
    for (const name of ['status', 'endpoint', 'policy', 'explain', 'monitor', 'map', 'identity'])
      expect(stdout).toMatch(new RegExp(`^  ${name}`, 'm'));
    for (const name of ['import', 'get', 'delete', 'wait', 'validate', 'diff'])
      expect(policy.stdout).toMatch(new RegExp(`^  ${name}`, 'm'));
  });

  it.each(['README.md', 'docs/status.md'])('the status table of %s has the columns that kubectl prints', (file) => {
    const cnp = crds().find(
      (crd) =>
        (crd as { readonly metadata: { readonly name: string } }).metadata.name === 'ciliumnetworkpolicies.cilium.io',
    );
    const versions = (
      cnp as {
        readonly spec: {
          readonly versions: readonly {
            readonly additionalPrinterColumns: readonly { readonly name: string; readonly priority?: number }[];
          }[];
        };
      }
    ).spec.versions;
    const columns = versions[0]?.additionalPrinterColumns
      .filter(({ priority }) => priority === undefined || priority === 0)
      .map(({ name }) => name.toUpperCase());
    const header = blocks(file).find((line) => line.startsWith('NAME '));
    expect(header?.split(/\s+/)).toEqual(['NAME', ...(columns ?? [])]);
  });

  it.each(['README.md', 'ARCHITECTURE.md', 'test/README.md'])('every file named in %s exists', (file) => {
    const named = [...text(file).matchAll(/`([\w.-]+(?:\/[\w.-]+)+\/?)`/g)]
      .flatMap(([, path]) => path ?? [])
      .filter((path) => /^(operator|node-agent|shared|bpf|charts|test|scripts|bin)\//.test(path));
    expect(named.length).toBeGreaterThan(5);
    for (const path of named) expect([path, existsSync(join(ROOT, path))]).toEqual([path, true]);
  });

  it.each([
    ['README.md', 5],
    ['ARCHITECTURE.md', 20],
  ])('%s has at most %i KiB: a reader ends it', (file, kibibytes) => {
    expect(Buffer.byteLength(text(file))).toBeLessThanOrEqual(kibibytes * 1024);
  });

  it('the example policy is valid', async () => {
    const { stdout } = await run(join(ROOT, 'bin/weir'), ['policy', 'validate', join(ROOT, 'test/story/example.yaml')]);
    expect(stdout).toMatch(/valid/i);
  });
});
