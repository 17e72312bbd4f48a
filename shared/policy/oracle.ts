/**
 * The slow, obvious reading of the language (spec 5.2): rules, labels and addresses in, a verdict out. No identities, no hashes,
 * no classes: it shares nothing with the compiler but the parsed rules, and everything fast must equal it.
 */
import { type LabelMap, matches } from '@weir/labels';
import { addressIn, formatAddress, parseAddress, parsePrefix } from '@weir/net';
import { ANY_NAME } from './decision.ts';
import { OracleInputError } from './errors.ts';
import { canonicalHostName, hostNameList, hostNameMatches } from './host-names.ts';
import { nodeLabels, selectsNodes } from './nodes.ts';
import { isNamed } from './port-names.ts';
import type {
  CidrPeer,
  Direction,
  Entity,
  NamedPort,
  PortProtocol,
  Rule,
  RuleElement,
  RulePeer,
  RuleProtocol,
  Verdict,
} from './types.ts';

export interface OracleEndpoint {
  readonly name: string;
  /** Identity labels, as `podIdentityLabels` gives them. */
  readonly labels: LabelMap;
  readonly addresses: readonly string[];
  /** Name of its node. */
  readonly node: string;
  /** Its container ports that have a name. Default none. */
  readonly namedPorts?: readonly { readonly name: string; readonly port: number; readonly protocol: PortProtocol }[];
}

export interface OracleNode {
  readonly name: string;
  readonly addresses: readonly string[];
  /** Default none. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Runs the API server. */
  readonly kubeApiserver?: boolean;
}

/** All that verdicts depend on. Every address that belongs to no endpoint and no node is outside. */
export interface OracleWorld {
  readonly endpoints: readonly OracleEndpoint[];
  readonly nodes: readonly OracleNode[];
  /** Outside addresses of an API server. */
  readonly externalApiServers?: readonly string[];
}

/** `unknown`: a peer that the datapath has no entry for. `reserved`: health, init, ingress, unmanaged. */
export type OraclePeer =
  /** `address`: by which it is met. Default: its first. */
  | { readonly kind: 'endpoint'; readonly endpoint: OracleEndpoint; readonly address?: string }
  | { readonly kind: 'node'; readonly node: OracleNode; readonly address?: string }
  /** `names`: those that it has been looked up by. */
  | {
      readonly kind: 'outside';
      readonly address: string;
      readonly kubeApiserver?: boolean;
      readonly names?: readonly string[];
    }
  | { readonly kind: 'reserved'; readonly name: 'health' | 'init' | 'ingress' | 'unmanaged' }
  | { readonly kind: 'unknown' };

export interface OracleOptions {
  /** Default `default`. */
  readonly mode?: 'default' | 'always' | 'never';
  /** Default true. */
  readonly allowLocalhost?: boolean;
  /** Everyone who gives port names a meaning on egress. Default: subject and peer alone. */
  readonly endpoints?: readonly OracleEndpoint[];
}

export interface OracleTraffic {
  /** IP protocol number: 6, 17, 132 have ports; 1 and 58 have types; others have neither. */
  readonly protocol: number;
  /** Destination port or ICMP type. */
  readonly port: number;
}

export type OracleReason =
  | 'not-enforced'
  | 'explicit-deny'
  | 'asks-authentication'
  | 'asks-proxy'
  | 'asks-names'
  | 'rule-allows'
  | 'localhost'
  | 'no-default-deny'
  | 'no-match';

export interface OracleVerdict {
  readonly verdict: Verdict;
  readonly reason: OracleReason;
  /** Of `asks-names`: patterns of names that the DNS proxy lets pass. */
  readonly dns?: readonly string[];
  /** Every element that hit, allows and denies, in order of the rules. */
  readonly hits: readonly RuleElement[];
}

/** Names of protocol numbers, as IANA assigns them. */
const ORACLE_PROTOCOLS: Readonly<Record<number, RuleProtocol>> = {
  1: 'ICMP',
  2: 'IGMP',
  4: 'IPIP',
  6: 'TCP',
  17: 'UDP',
  41: 'IPV6',
  47: 'GRE',
  50: 'ESP',
  51: 'AH',
  58: 'ICMPv6',
  112: 'VRRP',
  132: 'SCTP',
};

/** What an address is. @throws NetError when it is no address */
export function peerAt(world: OracleWorld, address: string): OraclePeer {
  const text = formatAddress(parseAddress(address).bytes);
  const has = (addresses: readonly string[]) =>
    addresses.some((own) => formatAddress(parseAddress(own).bytes) === text);
  const endpoint = world.endpoints.find((candidate) => has(candidate.addresses));
  if (endpoint !== undefined) return { kind: 'endpoint', endpoint, address: text };
  const node = world.nodes.find((candidate) => has(candidate.addresses));
  if (node !== undefined) return { kind: 'node', node, address: text };
  return { kind: 'outside', address: text, ...(has(world.externalApiServers ?? []) ? { kubeApiserver: true } : {}) };
}

/** Verdict of one direction at one endpoint, for a new flow. `rules`: those of all policies; the subject is matched here. */
export function oracleVerdict(
  rules: readonly Rule[],
  direction: Direction,
  subject: OracleEndpoint,
  peer: OraclePeer,
  traffic: OracleTraffic,
  options: OracleOptions = {},
): OracleVerdict {
  const mode = options.mode ?? 'default';
  const selecting = rules.filter((rule) => rule.has[direction] && matches(rule.subject, subject.labels));
  if (mode === 'never' || (mode === 'default' && selecting.length === 0)) {
    return { verdict: 'allow', reason: 'not-enforced', hits: [] };
  }
  const hits = selecting.flatMap((rule) =>
    rule.elements.filter(
      (element) =>
        element.direction === direction &&
        hitsPeer(element, subject, peer) &&
        hitsPorts(metAs(element, subject, peer), subject, peer, traffic, options),
    ),
  );
  const isHost = peer.kind === 'node' && peer.node.name === subject.node;
  const localhost = direction === 'ingress' && isHost && options.allowLocalhost !== false;
  const defaultDeny = mode === 'always' || selecting.some((rule) => rule.defaultDeny[direction]);
  const has = (verdict: Verdict): boolean => hits.some((element) => element.verdict === verdict);
  if (has('deny')) return { verdict: 'deny', reason: 'explicit-deny', hits };
  if (has('authenticate')) return { verdict: 'authenticate', reason: 'asks-authentication', hits };
  // A proxy lets everything pass where nothing is denied by default, and from the host.
  // What is told by names is judged apart: nothing else widens it.
  if (hits.some((element) => element.verdict === 'redirect' && isByNames(element)))
    return { verdict: 'redirect', reason: 'asks-proxy', hits };
  const isFree = !defaultDeny || localhost;
  const [ofDns, ofNone] = redirects(hits, peer);
  const widened = (asked: readonly RuleElement[]) => isWidened(hits, asked, subject, peer, traffic, options);
  const freed = ofNone.length > 0 && widened(ofNone);
  if (ofNone.length > 0 && !isFree && !freed) return { verdict: 'redirect', reason: 'asks-proxy', hits };
  if (ofDns.length > 0 && !freed) {
    const any = isFree || widened(ofDns) ? ANY_NAME : [];
    const dns = hostNameList([...ofDns.flatMap((element) => element.dns ?? []), ...any]);
    return { verdict: 'redirect', reason: 'asks-names', dns, hits };
  }
  if (hits.length > 0) return { verdict: 'allow', reason: 'rule-allows', hits };
  if (localhost) return { verdict: 'allow', reason: 'localhost', hits };
  return defaultDeny
    ? { verdict: 'deny', reason: 'no-match', hits }
    : { verdict: 'allow', reason: 'no-default-deny', hits };
}

function isByNames({ peers }: RuleElement): boolean {
  return peers !== 'any' && peers.some(({ kind }) => kind === 'names');
}

/** Those to a DNS proxy, and those to none. Of an unknown peer it is not known whether it may be asked. */
function redirects(hits: readonly RuleElement[], peer: OraclePeer): readonly [RuleElement[], RuleElement[]] {
  const isAsked = ({ dns, peers }: RuleElement): boolean =>
    dns !== undefined &&
    (peer.kind !== 'unknown' ||
      peers === 'any' ||
      peers.some((each) => each.kind === 'entity' && each.entity === 'all'));
  const all = hits.filter(({ verdict }) => verdict === 'redirect');
  return [all.filter(isAsked), all.filter((element) => !isAsked(element))];
}

/** Whether a plain allow has the same peer and port as one that is redirected, and the flow is of both (spec 5.1, item 4). */
function isWidened(
  hits: readonly RuleElement[],
  asked: readonly RuleElement[],
  subject: OracleEndpoint,
  peer: OraclePeer,
  traffic: OracleTraffic,
  options: OracleOptions,
): boolean {
  const pairsOf = (elements: readonly RuleElement[]): readonly string[] =>
    elements.flatMap((element) => {
      const everybody: readonly RulePeer[] = [{ kind: 'entity', entity: 'all' }];
      const peers = (element.peers === 'any' ? everybody : element.peers).filter((written) =>
        hitsPeer({ ...element, peers: [written] }, subject, peer),
      );
      const ports = (element.ports === 'any' ? [] : element.ports).filter((written) =>
        hitsPorts({ ...element, ports: [written] }, subject, peer, traffic, options),
      );
      return peers.flatMap((one) => ports.map((other) => JSON.stringify([one, other])));
    });
  const redirected = new Set(pairsOf(asked));
  return pairsOf(hits.filter(({ verdict }) => verdict === 'allow')).some((pair) => redirected.has(pair));
}

export interface ConnectionVerdict {
  readonly verdict: Verdict;
  /** The end that denied. */
  readonly deniedAt?: Direction;
  /** Undefined at an end that is no endpoint, and at the destination when the source denied. */
  readonly egress?: OracleVerdict;
  readonly ingress?: OracleVerdict;
}

/** Verdict of a new connection between two addresses: egress at the source, then ingress at the destination. */
export function oracleConnection(
  world: OracleWorld,
  rules: readonly Rule[],
  flow: OracleTraffic & { readonly from: string; readonly to: string },
  options: OracleOptions = {},
): ConnectionVerdict {
  const from = peerAt(world, flow.from);
  const to = peerAt(world, flow.to);
  const everyone = { endpoints: world.endpoints, ...options };
  if (from.kind !== 'endpoint' && to.kind !== 'endpoint') {
    throw new OracleInputError(`neither ${flow.from} nor ${flow.to} is an endpoint of the world: name one that is`);
  }
  const egress =
    from.kind === 'endpoint' ? oracleVerdict(rules, 'egress', from.endpoint, to, flow, everyone) : undefined;
  if (egress !== undefined && !passes(egress)) return { verdict: egress.verdict, deniedAt: 'egress', egress };
  const ingress =
    to.kind === 'endpoint' ? oracleVerdict(rules, 'ingress', to.endpoint, from, flow, everyone) : undefined;
  const stopped = ingress !== undefined && !passes(ingress);
  return {
    // What a proxy takes it sends on.
    verdict: egress?.verdict === 'redirect' && !stopped ? 'redirect' : (ingress?.verdict ?? 'allow'),
    ...(stopped ? { deniedAt: 'ingress' as const } : {}),
    ...(egress === undefined ? {} : { egress }),
    ...(ingress === undefined ? {} : { ingress }),
  };
}

/** Whether packets pass: what asks for names does, and the DNS proxy answers some of them. */
export function passes({ verdict, reason }: OracleVerdict): boolean {
  return verdict === 'allow' || reason === 'asks-names';
}

function hitsPeer(element: RuleElement, subject: OracleEndpoint, peer: OraclePeer): boolean {
  if (element.peers === 'any') return true;
  if (peer.kind === 'unknown') return hitsUnknown(element.verdict, element.peers);
  return element.peers.some((written) => isPeer(written, subject, peer));
}

/** A port name is a pod's: of whom only an ipBlock of an egress rule selects it says nothing. */
function metAs(element: RuleElement, subject: OracleEndpoint, peer: OraclePeer): RuleElement {
  const { peers, ports, direction } = element;
  if (direction === 'ingress' || peers === 'any' || ports === 'any') return element;
  const others = peers.filter((written) => written.kind !== 'cidr' || written.everyone !== true);
  if (others.length === peers.length || hitsPeer({ ...element, peers: others }, subject, peer)) return element;
  return { ...element, ports: ports.filter((port) => !isNamed(port)) };
}

function isPeer(written: RulePeer, subject: OracleEndpoint, peer: OraclePeer): boolean {
  switch (written.kind) {
    case 'endpoints':
      return selectsNodes(written.selector)
        ? isOtherNode(peer, subject) && matches(written.selector, nodeLabels(peer.node.labels ?? {}))
        : matches(written.selector, labelsOf(peer, subject));
    case 'cidr':
      if (written.everyone !== true) return peer.kind === 'outside' && inCidr(written.cidr, peer.address);
      return addressOf(peer).some((address) => inCidr(written.cidr, address));
    case 'names':
      return (
        peer.kind === 'outside' &&
        peer.names?.some((name) => hostNameMatches(written.pattern, canonicalHostName(name))) === true
      );
    case 'entity':
      return inEntity(written.entity, labelsOf(peer, subject), peer);
  }
}

function isOtherNode(peer: OraclePeer, subject: OracleEndpoint): peer is Extract<OraclePeer, { kind: 'node' }> {
  return peer.kind === 'node' && peer.node.name !== subject.node;
}

/** By which the peer is met; none: nobody knows. */
export function addressOf(peer: OraclePeer): readonly string[] {
  if (peer.kind === 'outside') return [peer.address];
  if (peer.kind !== 'endpoint' && peer.kind !== 'node') return [];
  const [first] = peer.kind === 'endpoint' ? peer.endpoint.addresses : peer.node.addresses;
  const address = peer.address ?? first;
  return address === undefined ? [] : [address];
}

/** An unknown peer may be anyone: nothing but `all` allows it, and whatever denies someone denies it. */
function hitsUnknown(verdict: Verdict, peers: readonly RulePeer[]): boolean {
  if (verdict === 'allow') return peers.some((written) => written.kind === 'entity' && written.entity === 'all');
  // Names have outside addresses, which are known.
  return peers.some((written) => written.kind !== 'names' && (written.kind !== 'entity' || written.entity !== 'none'));
}

/** Labels of the peer as the subject's node sees it (spec 3.1). */
function labelsOf(peer: OraclePeer, subject: OracleEndpoint): LabelMap {
  switch (peer.kind) {
    case 'endpoint':
      return peer.endpoint.labels;
    case 'node':
      return {
        [peer.node.name === subject.node ? 'reserved:host' : 'reserved:remote-node']: '',
        ...(peer.node.kubeApiserver ? { 'reserved:kube-apiserver': '' } : {}),
      };
    case 'outside':
      return {
        'reserved:world': '',
        [parseAddress(peer.address).family === 4 ? 'reserved:world-ipv4' : 'reserved:world-ipv6']: '',
        ...(peer.kubeApiserver ? { 'reserved:kube-apiserver': '' } : {}),
      };
    case 'reserved':
      return { [`reserved:${peer.name}`]: '' };
    case 'unknown':
      return {};
  }
}

function inEntity(entity: Entity, labels: LabelMap, peer: OraclePeer): boolean {
  const has = (name: string) => Object.hasOwn(labels, `reserved:${name}`);
  switch (entity) {
    case 'all':
      return true;
    case 'none':
      return false;
    case 'cluster':
      return (
        peer.kind === 'endpoint' ||
        ['host', 'remote-node', 'init', 'ingress', 'health', 'unmanaged', 'kube-apiserver'].some(has)
      );
    default:
      return has(entity);
  }
}

function inCidr(cidr: CidrPeer, address: string): boolean {
  const { bytes } = parseAddress(address);
  return (
    addressIn(parsePrefix(cidr.cidr), bytes) && !cidr.except.some((except) => addressIn(parsePrefix(except), bytes))
  );
}

function hitsPorts(
  element: RuleElement,
  subject: OracleEndpoint,
  peer: OraclePeer,
  traffic: OracleTraffic,
  options: OracleOptions,
): boolean {
  if (element.ports === 'any') return true;
  const protocol = ORACLE_PROTOCOLS[traffic.protocol];
  return element.ports.some((port) => {
    if (port.protocol !== protocol) return false;
    if (!('name' in port)) return !hasPorts(traffic) || (port.from <= traffic.port && traffic.port <= port.to);
    return element.direction === 'ingress'
      ? ownNumber(subject, port) === traffic.port
      : port.each === true
        ? peer.kind === 'endpoint' && ownNumber(peer.endpoint, port) === traffic.port
        : hitsNameOfPeer(element.verdict, port, peer, traffic.port, options.endpoints ?? [subject]);
  });
}

/** Whether the protocol has ports or types. */
function hasPorts({ protocol }: OracleTraffic): boolean {
  return [1, 6, 17, 58, 132].includes(protocol);
}

/** The first container port of the name: port names are unique in a pod. */
function ownNumber(subject: OracleEndpoint, { name, protocol }: NamedPort): number | undefined {
  return subject.namedPorts?.find((own) => own.name === name && own.protocol === protocol)?.port;
}

/**
 * Egress by name (spec section 4). The datapath tells pods of equal labels apart by nothing: what one of them means by the name,
 * any of them may mean. An unknown peer may be any pod of all.
 */
function hitsNameOfPeer(
  verdict: Verdict,
  { name, protocol }: NamedPort,
  peer: OraclePeer,
  port: number,
  endpoints: readonly OracleEndpoint[],
): boolean {
  if (peer.kind !== 'endpoint' && peer.kind !== 'unknown') return false;
  const alike =
    peer.kind === 'unknown' ? endpoints : [peer.endpoint, ...endpoints.filter((one) => sameLabels(one, peer.endpoint))];
  const numbers = new Set<number>();
  for (const { namedPorts } of alike) {
    for (const own of namedPorts ?? []) if (own.name === name && own.protocol === protocol) numbers.add(own.port);
  }
  if (verdict !== 'allow') return numbers.has(port);
  return peer.kind === 'endpoint' && numbers.size === 1 && numbers.has(port);
}

function sameLabels(a: OracleEndpoint, b: OracleEndpoint): boolean {
  const keys = Object.keys(a.labels);
  return keys.length === Object.keys(b.labels).length && keys.every((key) => a.labels[key] === b.labels[key]);
}
