import type { ElementContext } from './context.ts';
import { type Asked, L7_FIELDS, mayAsk, parseL7 } from './parse-l7.ts';
import { isNamed, isPortName, uniqueNames } from './port-names.ts';
import { checkFields, isObject, type Json, listOf, member, type Problems, show, textOf } from './problems.ts';
import { LAST_PORT, PORT_PROTOCOLS, PROTOCOL_NUMBERS, RULE_PROTOCOLS, WHOLE_PROTOCOLS } from './protocols.ts';
import type { NamedPort, PortProtocol, PortRange, RuleElement, RulePort, Verdict, WholeProtocol } from './types.ts';

const MAX_PORTS = 40;

/** What `toPorts` or `icmps` of an element say. */
export interface ReadPorts {
  /** Undefined: any port, as there is no list or an empty one. An empty list: no port at all. Of an allow what can be read, of a deny all that it may mean. */
  readonly listed: RuleElement['ports'] | undefined;
  /** It cannot be read what they list: it might restrict the element. */
  readonly refused: boolean;
}

/** Every port of every protocol that `toPorts` can name: what an item means in a deny that cannot be read. */
const EVERY_PORT: readonly PortRange[] = [...PORT_PROTOCOLS, ...WHOLE_PROTOCOLS].map((protocol) => wholeOf(protocol));

function wholeOf(protocol: PortProtocol | WholeProtocol): PortRange {
  return { protocol, from: 0, to: LAST_PORT };
}

export function parsePorts(
  json: Json,
  context: ElementContext,
  problems: Problems,
): ReadPorts & { readonly asking: readonly AskingPorts[]; readonly lacks: boolean } {
  const { value: items, lacks } = problems.lacking(() => listOf(json, 'toPorts', context.path, problems));
  if (lacks) return { listed: 'any', refused: true, asking: [], lacks };
  if (items === undefined || items.length === 0) return { listed: undefined, refused: false, asking: [], lacks };
  const plain: RulePort[] = [];
  const asking: AskingPorts[] = [];
  let someLack = false;
  for (const [index, item] of items.entries()) {
    const path = `${context.path}.toPorts[${index}]`;
    const { ports, asked, lacks: thisLacks } = parsePortRule(item, path, context, problems);
    someLack ||= thisLacks;
    if (asked === undefined) plain.push(...ports);
    else asking.push(...askingOf(ports, asked, path));
  }
  // An item that is no object says nothing of what the list was to be: a deny may mean everything.
  if (context.verdict !== 'allow' && !items.every(isObject))
    return { listed: 'any', refused: true, asking, lacks: true };
  return { listed: canonicalPorts(plain), refused: false, asking, lacks: someLack };
}

/** Ports whose flows are to be handed to a proxy. */
export interface AskingPorts extends Asked {
  readonly path: string;
  readonly ports: readonly RulePort[];
}

/** DNS is spoken by TCP and UDP alone. */
function askingOf(ports: readonly RulePort[], { dns }: Asked, path: string): readonly AskingPorts[] {
  if (dns === undefined) return [{ path, ports: canonicalPorts(ports) }];
  const isDns = ({ protocol }: RulePort): boolean => protocol === 'TCP' || protocol === 'UDP';
  const others = ports.filter((port) => !isDns(port));
  return [
    { path, ports: canonicalPorts(ports.filter(isDns)), dns },
    ...(others.length === 0 ? [] : [{ path, ports: canonicalPorts(others) }]),
  ];
}

/** Of an item that cannot be read, an allow takes no port, as it might be restricted by what it says, and a deny all that it may mean. */
function parsePortRule(
  item: unknown,
  path: string,
  context: ElementContext,
  problems: Problems,
): {
  readonly ports: readonly RulePort[];
  readonly asked?: Asked | undefined /** Some port cannot be read. */;
  readonly lacks: boolean;
} {
  const { verdict } = context;
  const allows = verdict === 'allow';
  if (!isObject(item)) {
    problems.invalid(path, `${show(item)} is not a port rule: write {ports: [{port: "80", protocol: TCP}]}`);
    return { ports: allows ? [] : EVERY_PORT, lacks: true };
  }
  const more = problems.lacking(() => {
    if (!allows && (member(item, 'rules') ?? null) !== null) {
      problems.invalid(`${path}.rules`, 'a deny takes no L7 rules, it denies whole ports: remove rules');
    }
    checkFields(item, allows ? ['ports', ...L7_FIELDS] : ['ports'], path, problems, allows ? [] : ['rules']);
  });
  const { value: ports, lacks } = problems.lacking(() => parsePortList(item, path, verdict, problems));
  if (!allows) {
    // What it names more may be its ports, misspelt.
    return { ports: ports === undefined || (more.lacks && ports.length === 0) ? EVERY_PORT : ports, lacks };
  }
  const l7 = problems.lacking(() => parseL7(item, ports ?? [], path, context, problems));
  // No proxy does what cannot be read.
  const unread = l7.value !== undefined || ((l7.lacks || more.lacks) && mayAsk(item)) ? {} : undefined;
  const asked = more.lacks ? unread : (l7.value ?? unread);
  const allowsNone = ports === undefined || ((more.lacks || l7.lacks) && asked === undefined);
  return { ports: allowsNone ? [] : ports, asked, lacks };
}

/** Undefined: they cannot be read. */
function parsePortList(
  item: Json,
  path: string,
  verdict: Verdict,
  problems: Problems,
): readonly RulePort[] | undefined {
  const { value: ports, lacks } = problems.lacking(() => listOf(item, 'ports', path, problems));
  if (lacks) return undefined;
  const written = (ports ?? []).flatMap((port, index) => {
    const read = problems.lacking(() => parsePort(port, `${path}.ports[${index}]`, problems));
    if (!read.lacks) return read.value;
    return verdict === 'allow' ? [] : widestOf(port);
  });
  if (ports === undefined || ports.length <= MAX_PORTS) return written;
  problems.invalid(
    `${path}.ports`,
    `there are ${ports.length} ports, at most ${MAX_PORTS} are allowed: split them into several toPorts entries`,
  );
  return verdict === 'allow' ? undefined : written;
}

/** What an item may mean that cannot be read: all ports of its protocol, if that can. */
function widestOf(port: unknown): readonly PortRange[] {
  const text = isObject(port) ? member(port, 'protocol') : undefined;
  const protocol = typeof text === 'string' ? protocolOf(text) : undefined;
  return protocol === undefined ? EVERY_PORT : protocol.map(wholeOf);
}

function parsePort(json: unknown, path: string, problems: Problems): readonly RulePort[] {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a port: write {port: "80", protocol: TCP}`);
    return [];
  }
  checkFields(json, ['port', 'endPort', 'protocol'], path, problems);
  const named = parseProtocol(json, path, problems);
  const [whole] = named.filter(isWhole);
  if (whole !== undefined) return parseWhole(whole, json, path, problems);
  const protocols = named.filter((protocol) => !isWhole(protocol));
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

function parseProtocol(json: Json, path: string, problems: Problems): readonly (PortProtocol | WholeProtocol)[] {
  const text = textOf(json, 'protocol', path, problems) ?? '';
  const known = protocolOf(text);
  if (known !== undefined) return known;
  problems.invalid(
    `${path}.protocol`,
    () => `${show(text)} is no protocol of ports: write ${protocolMeant(text.toUpperCase())}`,
  );
  return [];
}

/** The protocols that a name stands for: of ANY, and of none, all that have ports. Undefined: no such name. */
function protocolOf(text: string): readonly (PortProtocol | WholeProtocol)[] | undefined {
  const upper = text.toUpperCase();
  if (upper === '' || upper === 'ANY') return PORT_PROTOCOLS;
  const found = [...PORT_PROTOCOLS, ...WHOLE_PROTOCOLS].find((protocol) => protocol === upper);
  return found === undefined ? undefined : [found];
}

function isWhole(protocol: PortProtocol | WholeProtocol): protocol is WholeProtocol {
  return WHOLE_PROTOCOLS.some((whole) => whole === protocol);
}

/** @param text a name, or the protocol's number */
function protocolMeant(text: string): string {
  const name = RULE_PROTOCOLS.find((protocol) => String(PROTOCOL_NUMBERS[protocol]) === text) ?? text;
  if (name.startsWith('ICMP')) return 'ICMP under icmps';
  if (name !== text) return name;
  return `TCP, UDP, SCTP or ANY, or without a port ${WHOLE_PROTOCOLS.slice(0, -1).join(', ')} or ${WHOLE_PROTOCOLS.at(-1)}`;
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
  return [wholeOf(protocol)];
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

/** Ranges, then names, sorted, each once. Ranges stay as they are written: what a proxy is asked for is compared with plain allows by them. */
export function canonicalPorts(ports: readonly RulePort[]): RulePort[] {
  const named: NamedPort[] = [];
  const ranges: PortRange[] = [];
  for (const port of ports) {
    if (isNamed(port)) named.push(port);
    else ranges.push(port);
  }
  return [...uniqueRanges(ranges), ...uniqueNames(named)];
}

function uniqueRanges(ranges: readonly PortRange[]): PortRange[] {
  const sorted = ranges.toSorted(
    (a, b) => RULE_PROTOCOLS.indexOf(a.protocol) - RULE_PROTOCOLS.indexOf(b.protocol) || a.from - b.from || a.to - b.to,
  );
  return sorted.filter(({ protocol, from, to }, index) => {
    const before = sorted[index - 1];
    return before?.protocol !== protocol || before.from !== from || before.to !== to;
  });
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
