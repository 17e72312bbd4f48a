/**
 * What a published library exports, read from its sources: TypeScript 7 has no stable API to ask. Throws on a form of export that it does
 * not know, so that none is passed over.
 */
import { readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

export interface PublicExport {
  readonly name: string;
  /** Source that declares it, from the root of the repository. */
  readonly file: string;
  readonly documented: boolean;
}

const DECLARED =
  /^export (?:declare )?(?:abstract )?(?:async )?(?:const|let|function\*?|class|interface|type|enum|namespace) (\w+)/;
const NAMED = /^export (?:type )?\{([^}]*)\}(?: from '([^']+)')?/;
const ALL = /^export \* from '([^']+)'/;

/** Files of the library that its manifest exports, from the root of the repository. */
export function entriesOf(root: string, library: string): readonly string[] {
  const folder = join('shared', library);
  const { exports } = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8')) as {
    readonly exports: string | Readonly<Record<string, string>>;
  };
  return (typeof exports === 'string' ? [exports] : Object.values(exports))
    .filter((file) => file.endsWith('.ts'))
    .map((file) => join(folder, file));
}

/** Each name once per file that declares it. */
export function publicExports(root: string, library: string): readonly PublicExport[] {
  const found = entriesOf(root, library).flatMap((entry) => exportsOf(root, join(root, entry)));
  return [...new Map(found.map((each) => [`${each.file} ${each.name}`, each])).values()];
}

function exportsOf(root: string, file: string): readonly PublicExport[] {
  const text = readFileSync(file, 'utf8');
  return Array.from(text.matchAll(/^export /gm)).flatMap(({ index }) => {
    const rest = text.slice(index);
    const declared = DECLARED.exec(rest)?.[1];
    if (declared !== undefined)
      return [{ name: declared, file: relative(root, file), documented: isDocumented(text, declared) }];
    const all = ALL.exec(rest)?.[1];
    if (all !== undefined) return exportsOf(root, join(dirname(file), all));
    const named = NAMED.exec(rest);
    if (named === null) throw new Error(`${relative(root, file)}: unknown form of export: ${rest.split('\n', 1)[0]}`);
    const [, names = '', from] = named;
    // Of another package: documented there.
    if (from?.startsWith('.') === false) return [];
    const source = from === undefined ? file : join(dirname(file), from);
    return names
      .split(',')
      .map((each) => each.trim().replace(/^type /, ''))
      .filter((each) => each !== '')
      .map((each) => {
        const name = each.split(' as ')[0] ?? each;
        return from === undefined
          ? { name, file: relative(root, file), documented: isDocumented(text, name) }
          : (exportsOf(root, source).find((other) => other.name === name) ?? missing(root, source, name));
      });
  });
}

/** An overload may carry the comment for all. */
function isDocumented(text: string, name: string): boolean {
  return new RegExp(
    `\\*/\\n(?:// biome-ignore .*\\n)?(?:export )?(?:declare )?(?:abstract )?(?:async )?(?:const|let|function\\*?|class|interface|type|enum|namespace) ${name}\\b`,
  ).test(text);
}

function missing(root: string, file: string, name: string): never {
  throw new Error(`${relative(root, file)} does not export ${name} in a form that is known`);
}
