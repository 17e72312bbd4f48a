/** What `weir explain` is asked: the two ends, and port and protocol. */
import { FLOW_ENDS, type FlowEnd } from '@weir/identity';
import { readAddress, Unreadable } from '@weir/net';
import { canonicalHostName, PROTOCOL_NUMBERS } from '@weir/policy';
import { UsageError } from './errors.ts';

/** One end as it is written. */
export type EndText =
  | { readonly kind: 'pod'; readonly namespace: string; readonly name: string }
  | { readonly kind: 'node'; readonly name: string }
  | { readonly kind: 'entity'; readonly entity: FlowEnd }
  | { readonly kind: 'address'; readonly address: string }
  /** Addresses that this name has; canonical. */
  | { readonly kind: 'host'; readonly host: string };

/** `port` is a type for ICMP; by name: as pods name it. */
export interface TrafficText {
  readonly protocol: keyof typeof PROTOCOL_NUMBERS;
  readonly port: number | string;
}

/** With a dot, and a letter in what follows the last one: not an address with a slip in it. */
const HOST_NAME = /^(?=.{1,254}$)([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)+([a-z0-9-]*[a-z][a-z0-9-]*)?$/i;

/** `pod/NS/NAME`, `NS/NAME`, `node/NAME`, an address, the name of a host outside, an entity. @throws UsageError */
export function parseEnd(text: string): EndText {
  const entity = FLOW_ENDS.find((known) => known === text);
  if (entity !== undefined) return { kind: 'entity', entity };
  const parts = text.split('/');
  if (parts.length === 1) {
    if (HOST_NAME.test(text)) return { kind: 'host', host: canonicalHostName(text) };
    if (readAddress(text) instanceof Unreadable)
      throw usage(
        `"${text}" is no end of a flow: write pod/NAMESPACE/NAME, NAMESPACE/NAME, node/NAME, an address, a host name with a dot, or one of ${FLOW_ENDS.join(', ')}`,
      );
    return { kind: 'address', address: text };
  }
  if (parts.some((part) => part === '')) throw usage(`"${text}" has an empty part: write NAMESPACE/NAME`);
  const [first = '', second = '', third] = parts;
  if (parts.length === 2 && first === 'node') return { kind: 'node', name: second };
  if (parts.length === 2) return { kind: 'pod', namespace: first, name: second };
  if (parts.length === 3 && first === 'pod' && third !== undefined)
    return { kind: 'pod', namespace: second, name: third };
  throw usage(`"${text}" is no end of a flow: write pod/NAMESPACE/NAME`);
}

/** `80`, `80/UDP`, `http/TCP`, `8/ICMP`, `GRE`. Default TCP. @throws UsageError */
export function parseTraffic(text: string): TrafficText {
  const [port = '', name, more] = text.split('/');
  const protocolOf = (given: string) =>
    (Object.keys(PROTOCOL_NUMBERS) as TrafficText['protocol'][]).find(
      (known) => known.toLowerCase() === given.toLowerCase(),
    );
  const alone = name === undefined ? protocolOf(port) : undefined;
  if (alone !== undefined && !hasPorts(alone)) return { protocol: alone, port: 0 };
  const protocol = protocolOf(name ?? 'TCP');
  if (protocol === undefined || more !== undefined)
    throw usage(`"${text}" is no port: write PORT or PORT/PROTOCOL, of ${Object.keys(PROTOCOL_NUMBERS).join(', ')}`);
  if (/^(0|[1-9]\d*)$/.test(port)) {
    const most = protocol.startsWith('ICMP') ? 255 : 65_535;
    if (Number(port) > most) throw usage(`${port} is no ${protocol} ${most === 255 ? 'type' : 'port'}: 0 to ${most}`);
    return { protocol, port: Number(port) };
  }
  if (!['TCP', 'UDP', 'SCTP'].includes(protocol) || !/^[a-z0-9-]{1,15}$/i.test(port))
    throw usage(`"${port}" is no port of ${protocol}: write a number, or the name of a container port`);
  return { protocol, port };
}

function hasPorts(protocol: TrafficText['protocol']): boolean {
  return ['TCP', 'UDP', 'SCTP', 'ICMP', 'ICMPv6'].includes(protocol);
}

function usage(message: string): UsageError {
  return new UsageError(message, 64);
}
