/** Whom and which ports a comparison of policies asks about: one of each kind that the rules can tell apart. */
import {
  CLUSTER_KEY,
  type LabelMap,
  type LabelSelector,
  labelsKey,
  NAMESPACE_KEY,
  NAMESPACE_LABEL,
  podIdentityLabels,
} from '@weir/labels';
import { addressIn, formatAddress, intToAddress, type Prefix, parsePrefix } from '@weir/net';
import {
  type Direction,
  type OracleEndpoint,
  type OraclePeer,
  PROTOCOL_NUMBERS,
  type Rule,
  type RuleElement,
  type RuleProtocol,
  selectsNodes,
} from '@weir/policy';
import { unnamedAddress } from './explain-files.ts';
import type { FileWorld } from './world.ts';

export interface Party {
  readonly name: string;
  readonly peer: OraclePeer;
}

/** Pods of equal labels and port names, as one. */
export interface PodParty extends Party {
  readonly endpoint: OracleEndpoint;
}

/** Ports that no rule tells apart. For protocols without ports 0..0. */
export interface PortBlock {
  readonly protocol: RuleProtocol;
  readonly from: number;
  readonly to: number;
}

const PROTOCOLS = Object.keys(PROTOCOL_NUMBERS) as RuleProtocol[];
/** `host` of a pod of any node. */
export const ANY_NODE = 'node';
/** Labels of a namespace or pod that nothing selects. */
const NOBODY = 'other';

/** The files' pods; without any, one for each selector and one that none selects in each of their namespaces. */
export function podParties(world: FileWorld, rules: readonly Rule[]): readonly PodParty[] {
  const real = world.endpoints.length > 0;
  const endpoints = real ? world.endpoints : samples(rules);
  const alike = new Map<string, OracleEndpoint[]>();
  for (const endpoint of endpoints) {
    const key = JSON.stringify([labelsKey(endpoint.labels), endpoint.namedPorts]);
    alike.set(key, [...(alike.get(key) ?? []), endpoint]);
  }
  return [...alike.values()].flatMap(([first, ...more]) => {
    if (first === undefined) return [];
    const endpoint = { ...first, node: ANY_NODE, addresses: [] };
    const name = more.length === 0 ? first.name : `${first.name} and ${more.length} like it`;
    return [{ name, endpoint, peer: { kind: 'endpoint', endpoint } as const }];
  });
}

function samples(rules: readonly Rule[]): readonly OracleEndpoint[] {
  const selectors = rules.flatMap(({ subject, elements }) => [
    subject,
    ...elements
      .flatMap(({ peers }) => (peers === 'any' ? [] : peers))
      .flatMap((peer) => (peer.kind === 'endpoints' && !selectsNodes(peer.selector) ? [peer.selector] : [])),
  ]);
  const found = new Map<string, LabelMap>();
  const add = (labels: LabelMap): unknown => found.set(labelsKey(labels), labels);
  for (const selector of selectors) {
    const labels = sampleOf(selector);
    add(labels);
    add(podIdentityLabels({ namespace: labels[`k8s:${NAMESPACE_KEY}`] ?? NOBODY }));
  }
  add(podIdentityLabels({ namespace: NOBODY }));
  return [...found.values()].map((labels) => ({ name: textOf(labels), labels, addresses: [], node: ANY_NODE }));
}

/** Labels that a selector selects, as few as it takes. */
function sampleOf({ requirements }: LabelSelector): LabelMap {
  const wanted: Record<string, string> = { ...podIdentityLabels({ namespace: NOBODY }) };
  for (const { key, operator, values } of requirements) {
    const label = key.replace(/^any:/, 'k8s:');
    if (operator === 'In') wanted[label] = values[0] ?? '';
    if (operator === 'Exists') wanted[label] ??= 'any';
  }
  return wanted;
}

/** `namespace/{app=web}`. */
function textOf(labels: LabelMap): string {
  const own = Object.entries(labels).filter(([key]) => key !== NAMESPACE_LABEL && key !== `k8s:${CLUSTER_KEY}`);
  return `${labels[NAMESPACE_LABEL]}/{${own.map(([key, value]) => `${key.replace(/^k8s:/, '')}=${value}`).join(', ')}}`;
}

/** Peers that are no pods: entities, a node for each selector of nodes, an address of each pattern of names, and one of each CIDR that is in no narrower one. */
export function otherParties(rules: readonly Rule[]): readonly Party[] {
  const node = (name: string, kubeApiserver = false): OraclePeer => ({
    kind: 'node',
    node: { name, addresses: [], kubeApiserver },
  });
  const named = new Set(peersIn(rules).flatMap((peer) => (peer.kind === 'entity' ? [peer.entity] : [])));
  const reserved = (['health', 'init', 'ingress', 'unmanaged'] as const).filter(
    (name) => named.has(name) || named.has('cluster') || named.has('all'),
  );
  return [
    { name: 'world', peer: { kind: 'outside', address: unnamedAddress(rules) } },
    { name: 'world (IPv6)', peer: { kind: 'outside', address: unnamedIpv6(rules) } },
    { name: 'host', peer: node(ANY_NODE) },
    { name: 'remote-node', peer: node('another node') },
    { name: 'kube-apiserver', peer: node('another node', true) },
    ...nodeParties(rules),
    ...nameParties(rules),
    ...reserved.map((name): Party => ({ name, peer: { kind: 'reserved', name } })),
    ...cidrParties(rules),
  ];
}

function nodeParties(rules: readonly Rule[]): readonly Party[] {
  const found = new Map<string, Party>();
  for (const peer of peersIn(rules)) {
    if (peer.kind !== 'endpoints' || !selectsNodes(peer.selector)) continue;
    const own = Object.entries(sampleOf(peer.selector)).filter(([key]) => key.startsWith('node:'));
    const labels = Object.fromEntries(own.map(([key, value]) => [key.slice('node:'.length), value]));
    const name = `node {${Object.entries(labels)
      .map(([key, value]) => `${key}=${value}`)
      .join(', ')}}`;
    found.set(name, { name, peer: { kind: 'node', node: { name: 'another node', addresses: [], labels } } });
  }
  return [...found.values()];
}

function nameParties(rules: readonly Rule[]): readonly Party[] {
  const patterns = new Set(peersIn(rules).flatMap((peer) => (peer.kind === 'names' ? [peer.pattern] : [])));
  const address = unnamedAddress(rules);
  return Array.from(patterns, (pattern) => {
    const name = pattern.replace(/^\*\*\./, 'any.').replaceAll('*', 'any');
    return { name: pattern, peer: { kind: 'outside', address, names: [name] } };
  });
}

function peersIn(rules: readonly Rule[]) {
  return rules.flatMap(({ elements }) => elements.flatMap(({ peers }) => (peers === 'any' ? [] : peers)));
}

function cidrsIn(rules: readonly Rule[]): readonly { readonly text: string; readonly prefix: Prefix }[] {
  const texts = peersIn(rules).flatMap((peer) => (peer.kind === 'cidr' ? [peer.cidr.cidr, ...peer.cidr.except] : []));
  return [...new Set(texts)].sort().map((text) => ({ text, prefix: parsePrefix(text) }));
}

function cidrParties(rules: readonly Rule[]): readonly Party[] {
  const all = cidrsIn(rules);
  return all.flatMap(({ text, prefix }): readonly Party[] => {
    if (prefix.bits === 0) return [];
    const within = all.filter(
      (other) =>
        other.prefix.family === prefix.family &&
        other.prefix.bits > prefix.bits &&
        addressIn(prefix, other.prefix.bytes),
    );
    const address = [prefix.bytes, ...within.map((each) => after(each.prefix))].find(
      (candidate) => addressIn(prefix, candidate) && !within.some((each) => addressIn(each.prefix, candidate)),
    );
    return address === undefined ? [] : [{ name: text, peer: { kind: 'outside', address: formatAddress(address) } }];
  });
}

function unnamedIpv6(rules: readonly Rule[]): string {
  const cidrs = cidrsIn(rules).filter(({ prefix }) => prefix.family === 6 && prefix.bits > 0);
  const candidates = [parsePrefix('2001:db8::1').bytes, ...cidrs.map(({ prefix }) => after(prefix))];
  const free = candidates.find((candidate) => !cidrs.some(({ prefix }) => addressIn(prefix, candidate)));
  return formatAddress(free ?? parsePrefix('2001:db8::1').bytes);
}

/** The first address after the prefix; the last address of all has the first one after it. */
function after({ family, bytes, bits }: Prefix): Uint8Array {
  const width = BigInt(bytes.length * 8);
  const value = bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  return intToAddress(family, (value + (1n << (width - BigInt(bits)))) % (1n << width));
}

/** Blocks of ports that none of the rules tells apart, in order. */
export function blocksOf(
  rules: readonly Rule[],
  endpoints: readonly OracleEndpoint[],
  direction?: Direction,
): readonly PortBlock[] {
  const elements = rules
    .flatMap((rule) => rule.elements)
    .filter((each) => direction === undefined || each.direction === direction);
  return PROTOCOLS.flatMap((protocol) => {
    const last = protocol.startsWith('ICMP') ? 255 : ['TCP', 'UDP', 'SCTP'].includes(protocol) ? 65_535 : 0;
    const starts = new Set(
      [0, ...elements.flatMap((element) => startsIn(element, protocol, endpoints))].filter((start) => start <= last),
    );
    const sorted = [...starts].sort((a, b) => a - b);
    return sorted.map((from, at) => ({ protocol, from, to: (sorted[at + 1] ?? last + 1) - 1 }));
  });
}

function startsIn(
  { ports }: RuleElement,
  protocol: RuleProtocol,
  endpoints: readonly OracleEndpoint[],
): readonly number[] {
  if (ports === 'any') return [];
  return ports.flatMap((port) => {
    if (port.protocol !== protocol) return [];
    if (!('name' in port)) return [port.from, port.to + 1];
    const numbers = endpoints.flatMap(({ namedPorts = [] }) =>
      namedPorts.filter((own) => own.name === port.name && own.protocol === protocol),
    );
    return numbers.flatMap((own) => [own.port, own.port + 1]);
  });
}
