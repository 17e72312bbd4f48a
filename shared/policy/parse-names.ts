/** Names of hosts: `toFQDNs`, and DNS rules (spec 1.3, item 13; 3.4). */
import { canonicalHostName, hostNameList } from './host-names.ts';
import { checkFields, isObject, type Problems, show, textOf } from './problems.ts';

const LONGEST = 255;
const NAME = /^[-a-zA-Z0-9_.]+$/;
const PATTERN = /^[-a-zA-Z0-9_.*]+$/;
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
  const canonical = canonicalHostName(name || pattern || '');
  if (problems.count === before && canonical === '')
    problems.invalid(path, 'the root is no name of a host: write a name, or "*" for any');
  return problems.count > before ? undefined : canonical;
}

function check(text: string, allowed: RegExp, path: string, characters: string, problems: Problems): void {
  if (text.length > LONGEST) problems.invalid(path, `${text.length} characters are no name: at most ${LONGEST} are`);
  else if (!allowed.test(text)) problems.invalid(path, `${show(text)} is no name: use ${characters}`);
}
