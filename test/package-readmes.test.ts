/** READMEs of packages: their code compiles and does what its comments say, and their tables of errors are complete. */
import { execFile } from 'node:child_process';
import { existsSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from '@jest/globals';
import { LIBRARIES } from '../scripts/packages.ts';
import { errorCodes } from '../scripts/reference/errors.ts';
import { ROOT } from './cluster/run.ts';
import { examplesOf, languagesOf } from './readme-examples.ts';

const run = promisify(execFile);
const FILES = globSync('{bpf,shared/*}/README.md', { cwd: ROOT }).sort();
const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

// Within the repository, so that packages are found by their names.
mkdirSync(join(ROOT, '.cache'), { recursive: true });
const folder = mkdtempSync(join(ROOT, '.cache/readme-'));
afterAll(() => rmSync(folder, { recursive: true }));

const examples = FILES.flatMap((file) =>
  examplesOf(text(file)).map(({ source, checks }, index) => ({
    file,
    checks,
    program: `${file.replaceAll('/', '-')}-${index + 1}.ts`,
    source,
  })),
);
for (const { program, source } of examples) writeFileSync(join(folder, program), source);
writeFileSync(
  join(folder, 'tsconfig.json'),
  JSON.stringify({ extends: join(ROOT, 'tsconfig.json'), include: ['*.ts'] }),
);

it('are those of every package that others use, or that has a contract of its own', () => {
  expect(FILES).toEqual(
    expect.arrayContaining(
      ['bpf', 'shared/kube', 'shared/policy', ...LIBRARIES.map((name) => `shared/${name}`)].map(
        (name) => `${name}/README.md`,
      ),
    ),
  );
});

it('have TypeScript only', () => {
  for (const file of FILES) expect([file, [...languagesOf(text(file))]]).toEqual([file, ['ts']]);
});

it('compile', async () => {
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
  const failed = await run(process.execPath, [tsc, '-p', folder]).then(
    () => '',
    ({ stdout }: { readonly stdout: string }) => stdout,
  );
  expect(failed).toBe('');
});

it.each(examples.map(({ program, checks, file }) => [program, checks, file] as const))(
  '%s does what it says, in %i checks',
  async (program, checks, file) => {
    expect([file, checks > 1]).toEqual([file, true]);
    const { stdout } = await run(process.execPath, ['--disable-warning=ExperimentalWarning', join(folder, program)], {
      cwd: dirname(join(ROOT, file)),
    });
    expect(Number(stdout)).toBe(checks);
  },
);

describe.each(LIBRARIES)('%s', (library) => {
  const own = join('shared', library);

  it('lists every error with its code', () => {
    const listed = Array.from(
      text(join(own, 'README.md')).matchAll(/^\| `(\w+Error)` \| `(\w+)` \|/gm),
      ([, name, code]) => `${name} ${code}`,
    );
    const declared = errorCodes(ROOT).filter(({ file }) => file.startsWith(`${own}/`));
    expect(listed.toSorted()).toEqual(declared.map(({ class: name, code }) => `${name} ${code}`).toSorted());
  });

  it('is described for who looks for it', () => {
    const manifest = JSON.parse(text(join(own, 'package.json'))) as {
      readonly description?: string;
      readonly keywords?: readonly string[];
      readonly version: string;
    };
    expect(manifest.description).toMatch(/^\S.{30,}$/);
    expect(manifest.keywords?.length).toBeGreaterThan(4);
    expect(existsSync(join(ROOT, own, 'CHANGELOG.md'))).toBe(true);
    expect(text(join(own, 'CHANGELOG.md'))).toContain(`## ${manifest.version}`);
  });
});
