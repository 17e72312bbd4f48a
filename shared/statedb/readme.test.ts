/** The README's code compiles and does what its comments say, in one go from top to bottom; its tables are complete. */
import { execFile } from 'node:child_process';
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from '@jest/globals';

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = join(HERE, '../..');
const readme = readFileSync(join(HERE, 'README.md'), 'utf8');
const run = promisify(execFile);

/** `x; // => y` becomes a check, `x; // throws Y` too; text after a bare `// =>` is what the comments below it say. */
function checked(code: string): string {
  const lines: string[] = [];
  const source = code.split('\n');
  for (let i = 0; i < source.length; i++) {
    const line = source[i] ?? '';
    const found = /^(\s*)(.+); \/\/ (=>|throws) ?(.*)$/.exec(line);
    if (found === null) {
      lines.push(line);
      continue;
    }
    const [, indent = '', expression = '', kind, rest = ''] = found;
    let wanted = rest;
    if (kind === '=>' && rest === '') {
      const text: string[] = [];
      for (let next = /^\s*\/\/ (.*)$/.exec(source[i + 1] ?? ''); next !== null; i++) {
        text.push(next[1] ?? '');
        next = /^\s*\/\/ (.*)$/.exec(source[i + 2] ?? '');
      }
      wanted = JSON.stringify(text.join('\n'));
    }
    const check =
      kind === 'throws'
        ? `assert.throws(() => ${expression}, { name: ${JSON.stringify(wanted)} });`
        : `assert.deepEqual(${expression}, ${wanted});`;
    lines.push(`${indent}${check} checks++;`);
  }
  return lines.join('\n');
}

describe('the README', () => {
  const folder = (() => {
    mkdirSync(join(ROOT, '.cache'), { recursive: true });
    return mkdtempSync(join(ROOT, '.cache/readme-'));
  })();
  afterAll(() => rmSync(folder, { recursive: true }));

  const blocks = Array.from(readme.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm), ([, language, code = '']) => ({
    language,
    code,
  }));
  const program = blocks.map(({ code }) => checked(code)).join('\n');
  writeFileSync(
    join(folder, 'readme.ts'),
    `import { strict as assert } from 'node:assert';\nlet checks = 0;\n${program}\nprocess.stdout.write(String(checks));\n`,
  );
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({ extends: join(ROOT, 'tsconfig.json'), include: ['readme.ts'] }),
  );

  it('is all in TypeScript', () => {
    expect(new Set(blocks.map(({ language }) => language))).toEqual(new Set(['ts']));
    expect(blocks.length).toBeGreaterThan(10);
  });

  it('compiles', async () => {
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    const failed = await run(process.execPath, [tsc, '-p', folder]).then(
      () => '',
      ({ stdout }: { readonly stdout: string }) => stdout,
    );
    expect(failed).toBe('');
  });

  it('does what it says', async () => {
    const { stdout } = await run(process.execPath, [join(folder, 'readme.ts')]);
    expect(Number(stdout)).toBe(readme.match(/; \/\/ (=>|throws)/g)?.length);
    expect(Number(stdout)).toBeGreaterThan(25);
  });

  it('has every error with its code', () => {
    const listed = Array.from(
      readme.matchAll(/^\| `(\w+Error)` \| `(\w+)` \|/gm),
      ([, name, code]) => `${name} ${code}`,
    );
    const sources = globSync('**/*.ts', { cwd: HERE }).map((file) => readFileSync(join(HERE, file), 'utf8'));
    const declared = sources.flatMap((source) =>
      Array.from(
        source.matchAll(/^export class (\w+) extends StateDBError \{\n {2}readonly code = '(\w+)'/gm),
        ([, name, code]) => `${name} ${code}`,
      ),
    );
    expect(listed.toSorted()).toEqual(declared.toSorted());
  });
});
