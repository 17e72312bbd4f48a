/** What a port rule asks of a proxy (spec 1.2; 1.3, items 8 and 9): L7 rules, TLS, server names, a listener. It is read whole, though there is no proxy yet but for DNS. */
import { ASKING, type ElementContext } from './context.ts';
import { parseNames, SERVER_NAME } from './parse-names.ts';
import { checkFields, isObject, type Json, listOf, member, nearest, type Problems, show, textOf } from './problems.ts';
import type { RulePort } from './types.ts';

export const L7_FIELDS = ['rules', 'terminatingTLS', 'originatingTLS', 'serverNames', 'listener'];

const KINDS = ['http', 'dns', 'kafka', 'l7', 'l7proto'] as const;
const HTTP_FIELDS = ['path', 'method', 'host', 'headers', 'headerMatches'];
const MISMATCHES = ['LOG', 'ADD', 'DELETE', 'REPLACE'];
const CONFIGS = ['CiliumEnvoyConfig', 'CiliumClusterwideEnvoyConfig'];

type Kind = (typeof KINDS)[number];

/**
 * Reads what the item of `toPorts` asks of a proxy; undefined: nothing. What it names and nobody knows is reported, and asks for nothing.
 * @param ports those of the item that can be read
 */
export function parseL7(
  item: Json,
  ports: readonly RulePort[],
  path: string,
  context: ElementContext,
  problems: Problems,
): Asked | undefined {
  const { kind, dns } = parseRules(member(item, 'rules') ?? undefined, `${path}.rules`, context, problems);
  const serverNames = parseServerNames(item, path, problems);
  const terminating = parseTls(item, 'terminatingTLS', path, problems);
  const originating = parseTls(item, 'originatingTLS', path, problems);
  const listener = parseListener(item, path, kind, context, problems);
  if (serverNames && kind === 'http' && !terminating)
    problems.invalid(
      `${path}.serverNames`,
      'serverNames beside HTTP rules: without terminatingTLS nobody can read the requests; write terminatingTLS, or split them',
    );
  const asked = [
    ...(kind === undefined ? [] : [`rules.${kind}`]),
    ...(terminating ? ['terminatingTLS'] : []),
    ...(originating ? ['originatingTLS'] : []),
    ...(serverNames ? ['serverNames'] : []),
    ...(listener ? ['listener'] : []),
  ];
  const [first] = asked;
  if (first === undefined) return undefined;
  const before = problems.count;
  checkPorts(ports, kind, first, path, problems);
  if (kind === 'dns' && asked.length === 1 && context.direction === 'egress')
    return problems.count > before ? {} : { dns };
  for (const what of asked.filter((each) => each !== 'rules.dns'))
    problems.unsupported(
      `${path}.${what.split('.')[0]}`,
      `${what} needs a proxy, which Weir does not have yet; ${ASKING}`,
    );
  return {};
}

/** What a proxy is asked. */
export interface Asked {
  /** The patterns of names that may be asked for, by TCP and UDP. Absent: there is no such proxy. */
  readonly dns?: readonly string[];
}

/** Whether some member of the item says something that has the name, or nearly the name, of what asks for a proxy. */
export function mayAsk(item: Json): boolean {
  return Object.entries(item).some(([field, value]) => {
    if (!L7_FIELDS.includes(nearest(field, ['ports', ...L7_FIELDS]) ?? '')) return false;
    return isObject(value) ? Object.values(value).some((each) => !isNothing(each)) : !isNothing(value);
  });
}

/** A proxy takes TCP, and DNS by UDP too, on ports that are named. */
function checkPorts(
  ports: readonly RulePort[],
  kind: Kind | undefined,
  what: string,
  path: string,
  problems: Problems,
): void {
  const dns = kind === 'dns' && what === 'rules.dns';
  const taken = dns ? ['TCP', 'UDP'] : ['TCP'];
  // ANY is all of them.
  const protocols = new Set(ports.map(({ protocol }) => protocol));
  const any = dns && protocols.size === 3 && protocols.has('SCTP');
  const wrong = any ? undefined : ports.find(({ protocol }) => !taken.includes(protocol));
  if (wrong !== undefined) {
    const isAny = protocols.size === 3;
    const beside = isAny
      ? 'a port without protocol or of protocol ANY, which is more than TCP'
      : `protocol ${wrong.protocol}`;
    problems.invalid(`${path}.ports`, `${what} beside ${beside}: write protocol ${taken.join(' or ')} with each port`);
  }
  if (ports.length === 0) problems.invalid(`${path}.ports`, `${what} without a port: write the ports that it is about`);
  if (ports.some((port) => !('name' in port) && port.from === 0))
    problems.invalid(`${path}.ports`, `${what} for port 0, which is all ports: write the ports that it is about`);
  if (dns && ports.some((port) => !('name' in port) && port.from !== port.to))
    problems.invalid(`${path}.ports`, 'DNS rules for a range of ports: write each port that servers listen at');
}

/** The kind of rules that there are, and those of DNS. An empty list of rules counts as none. */
function parseRules(
  json: unknown,
  path: string,
  { direction }: ElementContext,
  problems: Problems,
): { readonly kind?: Kind; readonly dns: readonly string[] } {
  if (json === undefined) return { dns: [] };
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not {http: [...]} or {dns: [...]}`);
    return { dns: [] };
  }
  checkFields(json, KINDS, path, problems);
  const given = KINDS.filter((kind) => {
    const value = member(json, kind);
    const isList = Array.isArray(value);
    // A value of another type is there: it is reported.
    return !isNothing(value) || (kind === 'l7proto' ? isList : value === '');
  });
  const kinds = given.filter((kind) => kind !== 'l7' || !given.includes('l7proto'));
  const [kind] = kinds;
  if (kinds.length > 1) problems.invalid(path, `${kinds.join(' and ')} in one item of toPorts: write an item for each`);
  const dns = given.flatMap((each) => parseKind(each, json, path, problems));
  if (kind === 'dns' && direction === 'ingress')
    problems.invalid(`${path}.dns`, 'DNS rules are about what pods ask, and stand under egress alone: move them');
  return { ...(kind === undefined ? {} : { kind }), dns };
}

/** Returns what is read of DNS rules. */
function parseKind(kind: Kind, json: Json, path: string, problems: Problems): readonly string[] {
  if (kind === 'l7proto') {
    textOf(json, kind, path, problems);
    return [];
  }
  const where = `${path}.${kind}`;
  const items = listOf(json, kind, path, problems) ?? [];
  if (kind === 'dns') return parseNames(items, where, problems);
  if (kind === 'l7' && isNothing(member(json, 'l7proto')))
    problems.invalid(where, 'rules of l7 without l7proto: write the protocol that they are of');
  if (kind === 'http') for (const [index, item] of items.entries()) parseHttp(item, `${where}[${index}]`, problems);
  return [];
}

function parseHttp(json: unknown, path: string, problems: Problems): void {
  if (!isObject(json)) {
    problems.invalid(
      path,
      `${show(json)} is no HTTP rule: write {method: GET, path: "/public/.*"}; {} is every request`,
    );
    return;
  }
  checkFields(json, HTTP_FIELDS, path, problems);
  for (const field of ['path', 'method', 'host']) {
    const text = textOf(json, field, path, problems);
    if (text !== undefined && !isExpression(text))
      problems.invalid(
        `${path}.${field}`,
        `${show(text)} is no regular expression: close its brackets, or escape them`,
      );
  }
  for (const [index, header] of (listOf(json, 'headers', path, problems) ?? []).entries())
    if (typeof header !== 'string')
      problems.invalid(`${path}.headers[${index}]`, `${show(header)} is not a text: write "NAME: VALUE"`);
  for (const [index, match] of (listOf(json, 'headerMatches', path, problems) ?? []).entries())
    parseHeaderMatch(match, `${path}.headerMatches[${index}]`, problems);
}

function parseHeaderMatch(json: unknown, path: string, problems: Problems): void {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not {name, value}`);
    return;
  }
  checkFields(json, ['name', 'value', 'secret', 'mismatch'], path, problems);
  if (!textOf(json, 'name', path, problems)) problems.invalid(`${path}.name`, 'the header has no name: write one');
  textOf(json, 'value', path, problems);
  parseSecret(json, path, problems);
  const mismatch = textOf(json, 'mismatch', path, problems) ?? '';
  if (mismatch !== '' && !MISMATCHES.includes(mismatch))
    problems.invalid(`${path}.mismatch`, `${show(mismatch)} is no action: write ${MISMATCHES.join(', ')}, or nothing`);
}

/** Whether there are any. */
function parseServerNames(item: Json, path: string, problems: Problems): boolean {
  const names = listOf(item, 'serverNames', path, problems) ?? [];
  for (const [index, name] of names.entries())
    if (typeof name !== 'string' || !SERVER_NAME.test(name))
      problems.invalid(
        `${path}.serverNames[${index}]`,
        `${show(name)} is no server name: write a host name, or "*." or "**." and the domain`,
      );
  return names.length > 0;
}

function parseTls(item: Json, field: string, path: string, problems: Problems): boolean {
  const json = member(item, field) ?? undefined;
  if (json === undefined) return false;
  const where = `${path}.${field}`;
  if (!isObject(json)) {
    problems.invalid(where, `${show(json)} is not {secret: {namespace, name}}`);
    return true;
  }
  checkFields(json, ['secret', 'trustedCA', 'certificate', 'privateKey'], where, problems);
  if (isNothing(member(json, 'secret')))
    problems.invalid(`${where}.secret`, 'the secret is missing: write {namespace, name} of a Secret');
  parseSecret(json, where, problems);
  for (const each of ['trustedCA', 'certificate', 'privateKey']) textOf(json, each, where, problems);
  return true;
}

function parseSecret(json: Json, path: string, problems: Problems): void {
  const secret = member(json, 'secret') ?? undefined;
  if (secret === undefined) return;
  const where = `${path}.secret`;
  if (!isObject(secret)) {
    problems.invalid(where, `${show(secret)} is not {namespace, name}`);
    return;
  }
  checkFields(secret, ['namespace', 'name'], where, problems);
  textOf(secret, 'namespace', where, problems);
  if (!textOf(secret, 'name', where, problems)) problems.invalid(`${where}.name`, 'the Secret has no name: write one');
}

function parseListener(
  item: Json,
  path: string,
  kind: Kind | undefined,
  { direction, scope }: ElementContext,
  problems: Problems,
): boolean {
  const json = member(item, 'listener') ?? undefined;
  if (json === undefined) return false;
  const where = `${path}.listener`;
  if (!isObject(json)) {
    problems.invalid(where, `${show(json)} is not {envoyConfig: {kind, name}, name}`);
    return true;
  }
  if (direction === 'ingress') problems.invalid(where, 'a listener stands under egress alone: remove it');
  if (kind !== undefined) problems.invalid(where, `a listener beside rules.${kind}: the listener has rules of its own`);
  checkFields(json, ['envoyConfig', 'name', 'priority'], where, problems);
  if (!textOf(json, 'name', where, problems)) problems.invalid(`${where}.name`, 'the listener has no name: write one');
  const priority = member(json, 'priority') ?? 0;
  if (typeof priority !== 'number' || !Number.isInteger(priority) || priority < 0 || priority > 100)
    problems.invalid(`${where}.priority`, `${show(priority)} is no priority: write a whole number 1..100`);
  const config = member(json, 'envoyConfig');
  if (!isObject(config)) {
    problems.invalid(`${where}.envoyConfig`, `${show(config)} is not {kind, name} of the object that has the listener`);
    return true;
  }
  checkFields(config, ['kind', 'name'], `${where}.envoyConfig`, problems);
  const of = textOf(config, 'kind', `${where}.envoyConfig`, problems) ?? '';
  if (of !== '' && !CONFIGS.includes(of)) {
    const near = nearest(of, CONFIGS);
    const hint = near === undefined ? `write ${CONFIGS.join(' or ')}` : `did you mean ${near}?`;
    problems.invalid(`${where}.envoyConfig.kind`, `${show(of)} is no kind: ${hint}`);
  }
  if (of === 'CiliumEnvoyConfig' && scope.kind === 'CiliumClusterwideNetworkPolicy')
    problems.invalid(
      `${where}.envoyConfig.kind`,
      'a clusterwide policy has no namespace to look for it: write CiliumClusterwideEnvoyConfig',
    );
  if (!textOf(config, 'name', `${where}.envoyConfig`, problems))
    problems.invalid(`${where}.envoyConfig.name`, 'the object has no name: write one');
  return true;
}

/** Whether it is a regular expression. POSIX's classes, `[[:alpha:]]`, are none of JavaScript's, and pass; flags and names are written otherwise there. */
function isExpression(text: string): boolean {
  try {
    const plain = text.replaceAll(/\(\?[imsU-]+(?=[):])/g, '(?:').replaceAll('(?P<', '(?<');
    return new RegExp(plain) instanceof RegExp;
  } catch {
    return false;
  }
}

export function isNothing(value: unknown): boolean {
  return value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0);
}
