/**
 * docs/errors.md, from the doc comments of the error classes: the text is the cause, the tag `@fix` says what to do. Every class that is
 * exported has a code of one scheme: ERR_STATEDB_, ERR_RECONCILER_ and ERR_BPF_ in the published packages, ERR_WEIR_ everywhere else.
 */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

export interface ErrorCode {
  readonly code: string;
  readonly class: string;
  /** Source, from the root of the repository. */
  readonly file: string;
  readonly cause: string;
  readonly fix: string;
}

/** Title and folders of each section. A folder belongs to the first section that names it, or one of those above it. */
const SECTIONS: readonly (readonly [title: string, folders: readonly string[]])[] = [
  ['Agent', ['node-agent/config', 'node-agent/kubernetes', 'node-agent/routing', 'node-agent']],
  ['API of the agent', ['node-agent/api']],
  ['Command `weir`', ['node-agent/cli']],
  ['CNI plugin', ['node-agent/cni']],
  ['Operator', ['operator']],
  ['Both programs', ['shared/process', 'shared/kube']],
  ['Policy language', ['shared/policy', 'shared/labels', 'shared/identity', 'shared/net']],
  ['Datapath', ['bpf']],
  ['`libbpf-ts`', ['shared/libbpf']],
  ['`@weir/statedb`', ['shared/statedb']],
  ['`@weir/reconciler`', ['shared/reconciler']],
  ['Scripts', ['scripts']],
];

const CLASS =
  /(?:^\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n)?^export (abstract )?class (\w+) extends (\w+) \{((?:(?!^export )[\s\S])*?)^\}$/gm;

interface Found extends ErrorCode {
  readonly parent: string;
  readonly abstract: boolean;
}

/** Sources that may define errors: all but tests. */
export function sources(root: string): readonly string[] {
  return globSync('{bpf,node-agent,operator,scripts,shared}/**/*.ts', { cwd: root })
    .filter((file) => !/node_modules|\.test\.ts$|(^|\/)testing\/(?!incremental)/.test(file))
    .sort();
}

/** Every exported class that is an Error, and can be made. Without a code, cause or fix these are ''. */
export function errorCodes(root: string): readonly ErrorCode[] {
  const found = sources(root).flatMap((file) => classesOf(file, readFileSync(join(root, file), 'utf8')));
  const byName = Map.groupBy(found, (each) => each.class);
  const isError = (name: string, file: string): boolean => {
    if (name === 'Error') return true;
    const all = byName.get(name) ?? [];
    const parent = all.find((each) => each.file === file) ?? all[0];
    return parent !== undefined && isError(parent.parent, parent.file);
  };
  return found
    .filter((each) => !each.abstract && isError(each.parent, each.file))
    .map(({ parent: _parent, abstract: _abstract, ...each }) => each);
}

function classesOf(file: string, text: string): Found[] {
  return Array.from(text.matchAll(CLASS), ([, comment = '', abstract, name = '', parent = '', body = '']) => {
    const [cause = '', fix = ''] = comment
      .replace(/^ *\* ?/gm, '')
      .replace(/\s+/g, ' ')
      .trim()
      .split(/ ?@fix /);
    const code = /\bcode(?:: string)? = '(\w+)'/.exec(body)?.[1] ?? /\bsuper\(\s*'(\w+)'/.exec(body)?.[1] ?? '';
    return { code, class: name, file, cause, fix, parent, abstract: abstract !== undefined };
  });
}

/** The whole page. */
export function errorsPage(root: string): string {
  const all = errorCodes(root);
  const lines = [
    '# Error codes',
    '',
    'Written by `npm run docs` from the doc comments of the error classes. An error of Weir has a `code`, which is stable; its message names the value',
    'that is wrong. Logs have it as `err.code`. Reasons of conditions, such as `NodeFailed`, are in [troubleshooting.md](troubleshooting.md).',
  ];
  for (const [title, folders] of SECTIONS) {
    const rows = all.filter(({ file }) => sectionOf(file) === title);
    lines.push('', `## ${title}`, '', `In ${folders.map((folder) => `\`${folder}/\``).join(', ')}.`, '');
    lines.push('| code | class | cause | fix |', '|---|---|---|---|');
    for (const { code, class: name, cause, fix } of rows.toSorted((a, b) => (a.code < b.code ? -1 : 1)))
      lines.push(`| \`${code}\` | \`${name}\` | ${cause} | ${fix} |`);
  }
  return `${lines.join('\n')}\n`;
}

/** Undefined where no section has the folder. */
export function sectionOf(file: string): string | undefined {
  for (let folder = dirname(file); folder !== '.'; folder = dirname(folder))
    for (const [title, folders] of SECTIONS) if (folders.includes(folder)) return title;
  return undefined;
}
