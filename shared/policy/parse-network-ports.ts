/** `ports` of a NetworkPolicy element (spec section 6). What Kubernetes itself refuses is refused here too. */
import { canonicalPorts } from './parse-ports.ts';
import { isPortName } from './port-names.ts';
import { checkFields, isObject, type Json, listOf, member, type Problems, show } from './problems.ts';
import { LAST_PORT, PORT_PROTOCOLS } from './protocols.ts';
import type { PortProtocol, RulePort } from './types.ts';

/** Absent, null and empty lists mean every port and protocol. What cannot be read is no port. */
export function parseNetworkPorts(json: Json, path: string, problems: Problems): 'any' | readonly RulePort[] {
  const { value: items = [], lacks } = problems.lacking(() => listOf(json, 'ports', path, problems));
  if (lacks) return [];
  if (items.length === 0) return 'any';
  return canonicalPorts(
    items.flatMap((item, index) => {
      const read = problems.lacking(() => parsePort(item, `${path}.ports[${index}]`, problems));
      return read.lacks ? [] : read.value;
    }),
  );
}

function parsePort(json: unknown, path: string, problems: Problems): readonly RulePort[] {
  if (!isObject(json)) {
    problems.invalid(path, `${show(json)} is not a port: write {port: 80, protocol: TCP}`);
    return [];
  }
  checkFields(json, ['protocol', 'port', 'endPort'], path, problems);
  const protocols = parseProtocol(json, path, problems);
  const before = problems.count;
  const port = parseNumberOrName(member(json, 'port') ?? undefined, `${path}.port`, problems);
  const last = parseEndPort(member(json, 'endPort') ?? undefined, `${path}.endPort`, port, problems);
  if (problems.count > before) return [];
  return protocols.map((protocol) => {
    if (typeof port === 'string') return { protocol, name: port, each: true };
    return port === undefined ? { protocol, from: 0, to: LAST_PORT } : { protocol, from: port, to: last ?? port };
  });
}

/** Left out: TCP. Empty: any of them. */
function parseProtocol(json: Json, path: string, problems: Problems): readonly PortProtocol[] {
  const written = member(json, 'protocol') ?? 'TCP';
  if (written === '') return PORT_PROTOCOLS;
  const protocol = PORT_PROTOCOLS.find((known) => known === written);
  if (protocol !== undefined) return [protocol];
  problems.invalid(`${path}.protocol`, `${show(written)} is no protocol: write TCP, UDP or SCTP`);
  return [];
}

/** A name stays as written: Kubernetes does not fold its case. Undefined: every port, or reported. */
function parseNumberOrName(value: unknown, path: string, problems: Problems): number | string | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'string') {
    if (isPortName(value)) return value;
    if (/^[1-9]\d{0,4}$/.test(value)) return parseNumberOrName(Number(value), path, problems);
  }
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= 0xffff) return value;
  problems.invalid(
    path,
    `${show(value)} is neither a port number nor a port name: write 1..65535, a name such as http, or remove port for every port`,
  );
  return undefined;
}

function parseEndPort(
  value: unknown,
  path: string,
  port: number | string | undefined,
  problems: Problems,
): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 1 || value > 0xffff) {
    const hint = typeof value === 'string' ? 'write it without quotes' : 'write a whole number 1..65535';
    problems.invalid(path, `${show(value)} is no last port: ${hint}`);
  } else if (typeof port === 'string') {
    problems.invalid(path, 'endPort beside a port name: the range is not defined, write the port as a number');
  } else if (port === undefined) {
    problems.invalid(path, 'endPort without port: write the first port of the range as port');
  } else if (value < port) {
    problems.invalid(path, `${value} is less than port ${port}: write the last port of the range`);
  } else return value;
  return undefined;
}
