/** Names of hosts: `toFQDNs`, and DNS rules (spec 1.3, item 13; 3.4). */
import { canonicalHostName, hostNameList } from './host-names.ts';
import { checkFields, isObject, type Problems, show, textOf } from './problems.ts';

const LONGEST = 255;
const NAME = /^[-a-zA-Z0-9_.]+$/;
const PATTERN = /^[-a-zA-Z0-9_.*]+$/;
const URL_LIKE = /^([a-z]+:\/\/)?([^/:*?#]+)(:\d+)?([/?#].*)?$/i;
/** Of TLS: a host name, below a wildcard of one or more labels at most. */
export const SERVER_NAME = /^(?:\*{1,2}\.)?[-a-zA-Z0-9_]+(?:\.[-a-zA-Z0-9_]+)*\.?$/;

/** The patterns of items that name hosts, canonical, in order, each once; of those that cannot be read nothing, but a problem. */
export function parseNames(items: readonly unknown[], path: string, problems: Problems): readonly string[] {
  const patterns = items.flatMap((item, index) => parseName(item, `${path}[${index}]`, problems) ?? []);
  return hostNameList(patterns);
}

export function parseName(json: unknown, path: string, problems: Problems): string | undefined {
  const before = problems.count;
  if (!isObject(json)) {
    problems.invalid(
      path,
      `${show(json)} names no host: write {matchName: example.com} or {matchPattern: "*.example.com"}`,
    );
    return undefined;
  }
  checkFields(json, ['matchName', 'matchPattern'], path, problems);
  const [name, pattern] = [textOf(json, 'matchName', path, problems), textOf(json, 'matchPattern', path, problems)];
  if (Boolean(name) === Boolean(pattern)) {
    const found = name ? 'both' : 'neither';
    problems.invalid(path, `the item has ${found} of matchName and matchPattern: write one of them`);
  }
  if (name)
    check(name, NAME, `${path}.matchName`, 'letters, digits, "-", "_" and "."; "*" stands in matchPattern', problems);
  if (pattern) check(pattern, PATTERN, `${path}.matchPattern`, 'letters, digits, "-", "_", "." and "*"', problems);
  if (/^\d+(\.\d+){3}$/.test(name ?? ''))
    problems.warn(
      `${path}.matchName`,
      `${show(name)} is an address, and DNS gives names addresses: use toCIDR ${name}/32`,
    );
  if (pattern?.slice(1).includes('**') === true)
    problems.warn(
      `${path}.matchPattern`,
      '"**" stands for several labels at the front alone, as "**."; elsewhere it is "*"',
    );
  const canonical = canonicalHostName(name || pattern || '');
  if (problems.count === before && canonical === '')
    problems.invalid(path, 'the root is no name of a host: write a name, or "*" for any');
  return problems.count > before ? undefined : canonical;
}

function check(text: string, allowed: RegExp, path: string, characters: string, problems: Problems): void {
  if (text.length > LONGEST) problems.invalid(path, `${text.length} characters are no name: at most ${LONGEST} are`);
  else if (!allowed.test(text))
    problems.invalid(path, `${show(text)} is no name: ${meant(text) ?? `use ${characters}`}`);
}

/** What somebody meant who wrote a URL, a port, or letters beyond ASCII; undefined: something else. */
function meant(text: string): string | undefined {
  const [, scheme = '', host = '', port = '', path = ''] = URL_LIKE.exec(text) ?? [];
  if (!URL.canParse(`http://${host}`)) return undefined;
  const ascii = new URL(`http://${host}`).hostname;
  if (!NAME.test(ascii)) return undefined;
  if (port !== '') return `write ${show(ascii)}, and the port under toPorts`;
  return scheme + path !== '' || ascii !== host ? `write ${show(ascii)}` : undefined;
}
