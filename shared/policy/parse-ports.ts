import { consequence, type ElementContext } from './context.ts';
import { isNamed, isPortName, uniqueNames } from './port-names.ts';
import { checkFields, isObject, type Json, listOf, member, type Problems, show, textOf } from './problems.ts';
import { LAST_PORT, PORT_PROTOCOLS, RULE_PROTOCOLS, WHOLE_PROTOCOLS } from './protocols.ts';
import type { NamedPort, PortProtocol, PortRange, RulePort, WholeProtocol } from './types.ts';

const MAX_PORTS = 40;

/** `toPorts` of an element: undefined when absent or empty, ports (maybe none: no port at all), or `unsupported`. */
export function parsePorts(
  json: Json,
  context: ElementContext,
  problems: Problems,
): readonly RulePort[] | 'unsupported' | undefined {
  const items = listOf(json, 'toPorts', context.path, problems);
  if (items === undefined || items.length === 0) return undefined;
  let unsupported = false;
  const written: RulePort[] = [];
  items.forEach((item, index) => {
    const path = `${context.path}.toPorts[${index}]`;
    if (!isObject(item)) {
      problems.invalid(path, `${show(item)} is not a port rule: write {ports: [{port: "80", protocol: TCP}]}`);
      return;
    }
    const allows = context.verdict === 'allow';
    if (!allows && (member(item, 'rules') ?? null) !== null) {
      problems.invalid(`${path}.rules`, 'a deny takes no L7 rules, it denies whole ports: remove rules');
    }
    checkFields(item, allows ? ['ports', ...L7_FIELDS] : ['ports'], path, problems, allows ? [] : ['rules']);
    if (allows && refuseL7(item, path, problems)) unsupported = true;
    const ports = listOf(item, 'ports', path, problems) ?? [];
    if (ports.length > MAX_PORTS) {
      problems.invalid(
        `${path}.ports`,
        `there are ${ports.length} ports, at most ${MAX_PORTS} are allowed: split them into several toPorts entries`,
      );
    }
    ports.forEach((port, portIndex) => {
      written.push(...parsePort(port, `${path}.ports[${portIndex}]`, problems));
    });
  });
  return unsupported ? 'unsupported' : canonicalPorts(written);
}

const L7_FIELDS = ['rules', 'terminatingTLS', 'originatingTLS', 'serverNames', 'listener'];

/** Reports the L7 members that are set. An empty list of rules counts as none. */
function refuseL7(item: Json, path: string, problems: Problems): boolean {
  let found = false;
  for (const field of L7_FIELDS) {
    const value = member(item, field);
    if (value === undefined || value === null) continue;
    if (field === 'serverNames' && Array.isArray(value) && value.length === 0) continue;
    if (field === 'rules' && isObject(value) && Object.values(value).every(isNothing)) continue;
    found = true;
    const what =
      field === 'rules' && isObject(value)
        ? `rules.${Object.keys(value).find((key) => !isNothing(value[key]))}`
        : field;
    problems.unsupported(
      `${path}.${field}`,
      `${what} needs a proxy, which Weir does not have yet; ${consequence('allow')}`,
    );
  }
  return found;
}

function isNothing(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}

function parsePort(json: unknown, path: string, problems: Problems): readonly RulePort[] {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a port: write {port: "80", protocol: TCP}`);
    return [];
  }
  checkFields(json, ['port', 'endPort', 'protocol'], path, problems);
  const protocols = parseProtocol(json, path, problems);
  if (typeof protocols === 'string') return parseWhole(protocols, json, path, problems);
  const before = problems.count;
  const port = parseNumber(json, path, problems);
  const endPort = parseEndPort(json, path, problems);
  if (typeof port === 'string') {
    if (endPort !== undefined && endPort !== 0) {
      problems.invalid(
        `${path}.endPort`,
        'endPort beside a port name: the range is not defined, write the port as a number',
      );
    }
    return problems.count > before ? [] : protocols.map((protocol) => ({ protocol, name: port }));
  }
  if (port === undefined || problems.count > before) return [];
  if (endPort !== undefined && endPort !== 0 && endPort < port) {
    problems.warn(
      `${path}.endPort`,
      `${endPort} is less than port ${port}, and the rule is about port ${port} alone: write the lower number as port, or remove endPort`,
    );
  }
  const to = port === 0 && !endPort ? LAST_PORT : Math.max(port, endPort ?? 0);
  return protocols.map((protocol) => ({ protocol, from: port, to }));
}

function parseProtocol(json: Json, path: string, problems: Problems): readonly PortProtocol[] | WholeProtocol {
  const text = textOf(json, 'protocol', path, problems) ?? '';
  const upper = text.toUpperCase();
  if (upper === '' || upper === 'ANY') return PORT_PROTOCOLS;
  const known = PORT_PROTOCOLS.find((protocol) => protocol === upper);
  if (known !== undefined) return [known];
  const whole = WHOLE_PROTOCOLS.find((protocol) => protocol === upper);
  if (whole !== undefined) return whole;
  const hint = upper.startsWith('ICMP') ? 'write ICMP under icmps' : 'write TCP, UDP, SCTP or ANY';
  problems.invalid(`${path}.protocol`, `${show(text)} is no protocol of ports: ${hint}`);
  return [];
}

/** A protocol without ports takes none. */
function parseWhole(protocol: WholeProtocol, json: Json, path: string, problems: Problems): readonly PortRange[] {
  for (const [field, nothing] of [
    ['port', ['', '0']],
    ['endPort', [0]],
  ] as const) {
    const value = member(json, field) ?? undefined;
    if (value === undefined || nothing.some((each) => each === value)) continue;
    problems.invalid(`${path}.${field}`, `${show(value)} beside ${protocol}, which has no ports: remove ${field}`);
  }
  return [{ protocol, from: 0, to: LAST_PORT }];
}

/** A number, or a name in lower case. */
function parseNumber(json: Json, path: string, problems: Problems): number | string | undefined {
  const where = `${path}.port`;
  const value = member(json, 'port');
  if (typeof value === 'number') {
    problems.invalid(where, `${value} is a number: write it in quotes, port: "${value}"`);
    return undefined;
  }
  if (typeof value !== 'string' || value === '') {
    problems.invalid(where, `${show(value)} is no port: write a number in quotes, "0" for all ports`);
    return undefined;
  }
  if (/^\d+$/.test(value)) {
    if (value.length > 1 && value.startsWith('0')) {
      problems.invalid(where, `${show(value)} has a leading zero: write "${value.replace(/^0+(?=\d)/, '')}"`);
      return undefined;
    }
    if (value.length > 5 || Number(value) > 0xffff) {
      problems.invalid(where, `${show(value)} is more than 65535, the highest port`);
      return undefined;
    }
    return Number(value);
  }
  if (isPortName(value)) return value.toLowerCase();
  const hint = /^\d+\s*[-:,]/.test(value)
    ? 'write the last port of a range as endPort'
    : 'write a decimal number in quotes, or a name of at most 15 letters, digits and single hyphens';
  problems.invalid(where, `${show(value)} is neither a port number nor a port name: ${hint}`);
  return undefined;
}

function parseEndPort(json: Json, path: string, problems: Problems): number | undefined {
  const value = member(json, 'endPort');
  if (value === undefined || value === null) return undefined;
  const where = `${path}.endPort`;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffff) return value;
  const hint = typeof value === 'string' ? 'write it without quotes' : 'write a whole number 0..65535';
  problems.invalid(where, `${show(value)} is no last port: ${hint}`);
  return undefined;
}

/** Ranges merged, then names, sorted; each port once. */
export function canonicalPorts(ports: readonly RulePort[]): RulePort[] {
  const named: NamedPort[] = [];
  const ranges: PortRange[] = [];
  for (const port of ports) {
    if (isNamed(port)) named.push(port);
    else ranges.push(port);
  }
  return [...mergeRanges(ranges), ...uniqueNames(named)];
}

/** Sorted by protocol and port or type; overlapping and adjacent ranges joined. */
export function mergeRanges(ranges: readonly PortRange[]): PortRange[] {
  const merged: PortRange[] = [];
  for (const protocol of RULE_PROTOCOLS) {
    const own = ranges.filter((range) => range.protocol === protocol).sort((a, b) => a.from - b.from || a.to - b.to);
    let current: PortRange | undefined;
    for (const range of own) {
      if (current !== undefined && range.from <= current.to + 1) {
        current = { protocol, from: current.from, to: Math.max(current.to, range.to) };
      } else {
        if (current !== undefined) merged.push(current);
        current = range;
      }
    }
    if (current !== undefined) merged.push(current);
  }
  return merged;
}
