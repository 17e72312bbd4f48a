import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import * as reconciler from './index.ts';

const text = readFileSync(new URL('README.md', import.meta.url), 'utf8');
const examples = [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map(([, code]) => code ?? '');

describe('README.md', () => {
  it('has examples', () => {
    expect(examples.length).toBeGreaterThanOrEqual(4);
  });

  it.each(examples.map((code, i) => [i + 1, code] as const))('example %i runs', async (_i, code) => {
    const args = ['--disable-warning=ExperimentalWarning', '--input-type=module-typescript', '--eval', code];
    const { stderr } = await promisify(execFile)(process.execPath, args, { cwd: import.meta.dirname });
    expect(stderr).toBe('');
  });

  it('lists every error with its code', () => {
    const listed = [...text.matchAll(/^\| `(\w+)` \| `(\w+)` \|/gm)].map(([, name, code]) => `${name} ${code}`);
    const errors = readFileSync(new URL('errors.ts', import.meta.url), 'utf8');
    const defined = [...errors.matchAll(/class (\w+) extends ReconcilerError \{\n {2}readonly code = '(\w+)'/g)];
    expect(listed.sort()).toEqual(defined.map(([, name, code]) => `${name} ${code}`).sort());
    for (const [, name] of defined) expect(reconciler).toHaveProperty(name ?? '');
  });
});
