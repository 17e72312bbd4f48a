/** Error codes: each exported error has one, of one scheme, with cause and fix; docs/errors.md has them all (test/docs.test.ts). */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import { errorCodes, errorsPage, sectionOf, sources } from '../scripts/reference/errors.ts';
import { ROOT } from './cluster/run.ts';

const PUBLISHED: Readonly<Record<string, string>> = {
  'shared/statedb/': 'ERR_STATEDB_',
  'shared/reconciler/': 'ERR_RECONCILER_',
  'shared/libbpf/': 'ERR_BPF_',
};

const codes = errorCodes(ROOT);

describe('error codes', () => {
  it('are of one scheme, by package', () => {
    expect(codes.length).toBeGreaterThan(90);
    for (const { code, class: name, file } of codes) {
      const prefix = Object.entries(PUBLISHED).find(([folder]) => file.startsWith(folder))?.[1] ?? 'ERR_WEIR_';
      expect([file, name, code]).toEqual([file, name, expect.stringMatching(`^${prefix}[A-Z][A-Z0-9_]+$`)]);
    }
  });

  it('are of one class each', () => {
    const all = codes.map(({ code }) => code);
    expect(all.filter((code, index) => all.indexOf(code) !== index)).toEqual([]);
  });

  it('have a cause and a fix, each one or more sentences', () => {
    for (const { code, cause, fix } of codes)
      expect([code, cause, fix]).toEqual([
        code,
        expect.stringMatching(/^\S.{9,}\.$/),
        expect.stringMatching(/^\S.{9,}\.$/),
      ]);
  });

  it('have a section', () => {
    for (const { code, file } of codes) expect([code, sectionOf(file)]).toEqual([code, expect.any(String)]);
  });

  it('are found, wherever they stand', () => {
    const known = new Set(codes.flatMap(({ code, file, class: name }) => [code, `${file} ${name}`]));
    for (const file of sources(ROOT)) {
      const text = readFileSync(join(ROOT, file), 'utf8');
      for (const [, code = ''] of text.matchAll(/'(ERR_(?:WEIR|BPF|STATEDB|RECONCILER)_[A-Z0-9_]+)'/g))
        expect([file, code, known.has(code)]).toEqual([file, code, true]);
      for (const [, name = ''] of text.matchAll(/^ *export class (\w+) extends (?:\w+\.)?\w*Error\b/gm))
        expect([file, name, known.has(`${file} ${name}`)]).toEqual([file, name, true]);
    }
  });
});

describe('the page', () => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-errors-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const write = (file: string, text: string): void => {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  };

  it('has what the doc comments say, and leaves out bases and what is no error', () => {
    write(
      'operator/errors.ts',
      `/** A base. */
export abstract class Base extends Error {
  abstract readonly code: string;
}

/**
 * The lock is held
 * by another.
 * @fix Release it.
 */
export class LockError extends Base {
  readonly code = 'ERR_WEIR_LOCK';
}

export class SilentError extends LockError {
  constructor() {
    super('ERR_WEIR_SILENT', 'no comment');
  }
}

export class ShortError extends LockError {}

/** No error. */
export class Lock extends Door {
}
`,
    );
    write('operator/lock.test.ts', "export class TestError extends Error {\n  code = 'ERR_WEIR_TEST';\n}\n");
    expect(errorCodes(folder)).toEqual([
      {
        file: 'operator/errors.ts',
        class: 'LockError',
        code: 'ERR_WEIR_LOCK',
        cause: 'The lock is held by another.',
        fix: 'Release it.',
      },
      { file: 'operator/errors.ts', class: 'SilentError', code: 'ERR_WEIR_SILENT', cause: '', fix: '' },
    ]);
    expect(errorsPage(folder)).toContain(
      '| `ERR_WEIR_LOCK` | `LockError` | The lock is held by another. | Release it. |',
    );
  });
});
