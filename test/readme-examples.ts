/** Code of a README as programs that check themselves. */

/** How many of its lines are checks, too. */
export interface Example {
  readonly source: string;
  readonly checks: number;
}

/**
 * The TypeScript of a README: all its blocks are one program, from top to bottom, but for those that import `node:assert`, which stand for
 * themselves. `x; // => y` becomes a check, `x; // throws Y` too; after a bare `// =>` the comments below are the text that `x` gives.
 */
export function examplesOf(readme: string): readonly Example[] {
  const blocks = Array.from(readme.matchAll(/^```ts\n([\s\S]*?)^```$/gm), ([, code = '']) => code);
  const alone = blocks.filter((code) => code.includes("from 'node:assert"));
  const rest = blocks.filter((code) => !alone.includes(code)).join('\n');
  const checks = rest.match(/; \/\/ (=>|throws)/g)?.length ?? 0;
  const program = `import { strict as assert } from 'node:assert';\nlet checks = 0;\n${checked(rest)}\nprocess.stdout.write(String(checks));\n`;
  return [
    ...(rest === '' ? [] : [{ source: program, checks }]),
    ...alone.map((code) => ({
      source: `${code}process.stdout.write('${asserts(code)}');\n`,
      checks: asserts(code),
    })),
  ];
}

/** Languages of the blocks; '' for pictures. */
export function languagesOf(readme: string): ReadonlySet<string> {
  const fences = readme.matchAll(/^```(.*)$/gm);
  return new Set(Array.from(fences, ([, language = '']) => language).filter((_, index) => index % 2 === 0));
}

function asserts(code: string): number {
  return code.match(/^ *assert\./gm)?.length ?? 0;
}

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
