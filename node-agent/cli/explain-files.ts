/** `weir explain` from files: the oracle's answer at both ends, with the places of the rules. */
import { matches } from '@weir/labels';
import { formatAddress, parseAddress, parsePrefix, prefixContains } from '@weir/net';
import {
  type Direction,
  type OracleEndpoint,
  type OraclePeer,
  type OracleVerdict,
  oracleVerdict,
  PROTOCOL_NUMBERS,
  passes,
  peerAt,
  type Rule,
  type RuleElement,
} from '@weir/policy';
import type { EndExplanation, FlowExplanation, RuleRef } from '../api/models.ts';
import { UsageError } from './errors.ts';
import type { EndText, TrafficText } from './flow-arguments.ts';
import type { FilePolicies } from './policies-in-files.ts';
import type { FileWorld } from './world.ts';

/** Addresses for documentation: none of them is anybody's. */
const OUTSIDE = ['203.0.113.1', '198.51.100.1', '192.0.2.1'];

export interface FileQuestion {
  readonly source: EndText;
  readonly destination: EndText;
  readonly traffic: TrafficText;
}

/** @throws UsageError where the files have no such end */
export function explainInFiles(
  question: FileQuestion,
  world: FileWorld,
  policies: FilePolicies,
  options: { readonly allowLocalhost?: boolean } = {},
): FlowExplanation {
  const { rules } = policies;
  const source = endOf(question.source, world, rules);
  const destination = endOf(question.destination, world, rules);
  if (source.kind !== 'endpoint' && destination.kind !== 'endpoint')
    throw new UsageError('neither end is a pod, and policies judge at pods only: name one that is', 64);
  const port = portAt(question.traffic, destination);
  const protocol = PROTOCOL_NUMBERS[question.traffic.protocol];
  const at = (direction: Direction, subject: OraclePeer, peer: OraclePeer): EndExplanation | undefined => {
    if (subject.kind !== 'endpoint') return undefined;
    const { endpoint } = subject;
    const seen = peer.kind === 'node' && peer.node.name === HOST ? onNode(peer, endpoint) : peer;
    const verdict = oracleVerdict(
      rules,
      direction,
      endpoint,
      seen,
      { protocol, port },
      { endpoints: world.endpoints, ...options },
    );
    return explained(direction, endpoint, verdict, policies);
  };
  const ends = [at('egress', source, destination), at('ingress', destination, source)].filter(
    (end) => end !== undefined,
  );
  return {
    verdict: ends.some(({ verdict }) => verdict === 'denied') ? 'denied' : 'allowed',
    source: nameOf(source, question.source),
    destination: nameOf(destination, question.destination),
    protocol: question.traffic.protocol,
    port,
    ends,
  };
}

/** `host` is the node of the other end, whatever its name. */
const HOST = '\u0000host';

function onNode(peer: Extract<OraclePeer, { kind: 'node' }>, { node }: OracleEndpoint): OraclePeer {
  return { kind: 'node', node: { ...peer.node, name: node } };
}

function endOf(end: EndText, world: FileWorld, rules: readonly Rule[]): OraclePeer {
  switch (end.kind) {
    case 'pod': {
      const key = `${end.namespace}/${end.name}`;
      const endpoint = world.pods.get(key);
      if (endpoint !== undefined) return { kind: 'endpoint', endpoint };
      const node = world.hostPods.get(key);
      if (node !== undefined) return nodeNamed(node, world);
      throw new UsageError(`no file has pod ${key}${known([...world.pods.keys(), ...world.hostPods.keys()])}`, 64);
    }
    case 'node': {
      if (!world.nodes.some(({ name }) => name === end.name))
        throw new UsageError(`no file has node ${end.name}${known(world.nodes.map(({ name }) => name))}`, 64);
      return nodeNamed(end.name, world);
    }
    case 'address': {
      const address = formatAddress(parseAddress(end.address).bytes);
      const service = world.serviceAddresses.get(address);
      if (service !== undefined)
        throw new UsageError(
          `${address} is an address of Service ${service}: policies judge its backends, name one of them`,
          64,
        );
      return peerAt(world, address);
    }
    case 'host':
      return { kind: 'outside', address: unnamedAddress(rules), names: [end.host] };
    case 'entity':
      return entityOf(end.entity, rules);
  }
}

function entityOf(entity: Extract<EndText, { kind: 'entity' }>['entity'], rules: readonly Rule[]): OraclePeer {
  const node = (name: string, kubeApiserver = false): OraclePeer => ({
    kind: 'node',
    node: { name, addresses: [], kubeApiserver },
  });
  switch (entity) {
    case 'world':
      return { kind: 'outside', address: unnamedAddress(rules) };
    case 'host':
      return node(HOST);
    case 'remote-node':
      return node('another node');
    case 'kube-apiserver':
      return node('another node', true);
    case 'unknown':
      return { kind: 'unknown' };
    default:
      return { kind: 'reserved', name: entity };
  }
}

/** An address outside that no rule names by a CIDR, but for those of everything. */
export function unnamedAddress(rules: readonly Rule[]): string {
  const cidrs = rules
    .flatMap(({ elements }) => elements.flatMap(({ peers }) => (peers === 'any' ? [] : peers)))
    .flatMap((peer) => (peer.kind === 'cidr' ? [peer.cidr.cidr, ...peer.cidr.except] : []))
    .map((text) => parsePrefix(text))
    .filter(({ family, bits }) => family === 4 && bits > 0);
  const after = cidrs.map(({ bytes, bits }) => {
    const first = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
    const next = (first + 2 ** (32 - bits)) % 2 ** 32;
    return [24, 16, 8, 0].map((shift) => Math.floor(next / 2 ** shift) % 256).join('.');
  });
  const free = [...OUTSIDE, ...after].find(
    (address) => !cidrs.some((cidr) => prefixContains(cidr, parsePrefix(address))),
  );
  return free ?? '203.0.113.1';
}

function nodeNamed(name: string, world: FileWorld): OraclePeer {
  return { kind: 'node', node: world.nodes.find((node) => node.name === name) ?? { name, addresses: [] } };
}

function portAt({ protocol, port }: TrafficText, destination: OraclePeer): number {
  if (typeof port === 'number') return port;
  const named = destination.kind === 'endpoint' ? (destination.endpoint.namedPorts ?? []) : [];
  const found = named.find((own) => own.name === port && own.protocol === protocol);
  if (found !== undefined) return found.port;
  const who = destination.kind === 'endpoint' ? `pod ${destination.endpoint.name}` : 'the destination';
  throw new UsageError(`${who} has no ${protocol} port ${port}${known(named.map(({ name }) => name))}`, 64);
}

function explained(
  direction: Direction,
  subject: OracleEndpoint,
  answer: OracleVerdict,
  policies: FilePolicies,
): EndExplanation {
  const { verdict, reason, hits } = answer;
  // What asks for a proxy passes as an allow where a proxy would let everything pass.
  const plain = hits.some((element) => element.verdict === verdict);
  const decides = (element: RuleElement): boolean => element.verdict === verdict || (verdict === 'allow' && !plain);
  const ref = (element: RuleElement): RuleRef => ({ ...policies.originOf(element), says: element.verdict });
  const selecting = policies.rules.filter((rule) => rule.has[direction] && matches(rule.subject, subject.labels));
  return {
    direction,
    at: subject.name,
    verdict: passes(answer) ? 'allowed' : 'denied',
    reason,
    deciding: hits.filter(decides).map(ref),
    others: hits.filter((element) => !decides(element)).map(ref),
    selecting: selecting.map((rule) => policies.originOf(rule)),
  };
}

function nameOf(peer: OraclePeer, end: EndText): string {
  if (end.kind === 'entity') return end.entity;
  if (end.kind === 'host') return end.host;
  switch (peer.kind) {
    case 'endpoint':
      return peer.endpoint.name;
    case 'node':
      return `node ${peer.node.name}`;
    case 'outside':
      return peer.address;
    default:
      return peer.kind;
  }
}

/** The first of those that there are. */
function known(names: readonly string[]): string {
  if (names.length === 0) return '; there is none';
  return `; there ${names.length === 1 ? 'is' : 'are'} ${names.slice(0, 5).join(', ')}${names.length > 5 ? ` and ${names.length - 5} more` : ''}`;
}
