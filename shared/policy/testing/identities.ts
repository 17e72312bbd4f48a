/** Numbers for the things of an oracle world, as an operator and a node agent would give them. For tests. */
import { CIDR_BASE, NODE_BASE, RESERVED_ID, withApiServer } from '@weir/identity';
import { type LabelSelector, labelsKey, matches } from '@weir/labels';
import { addressIn, formatPrefix, parseAddress, parsePrefix } from '@weir/net';
import { nodeLabels, selectsNodes } from '../nodes.ts';
import type { OracleEndpoint, OraclePeer, OracleWorld } from '../oracle.ts';
import type { PeerIdentity, PeerSetView, PortNames, Rule, SelectorHash } from '../types.ts';

export interface IdentityWorld {
  /** What `compile` takes: reserved and CIDR identities. */
  readonly identities: readonly PeerIdentity[];
  /** Prefix -> identity of everything outside, the /0 entries included: rows of an ipcache. */
  readonly cidrs: ReadonlyMap<string, number>;
  /** The number of a peer as seen on a node. */
  identityOf(peer: OraclePeer, node: string): number;
  /** Peer sets of the given selectors over the world's pods. */
  peerSets(selectors: ReadonlyMap<SelectorHash, LabelSelector>): PeerSetView;
  /** Named ports of the world's pods, as the subject sees them. */
  portNames(subject: OracleEndpoint): PortNames;
}

/** Equal label sets share a number; each CIDR and exception of the rules, and each outside API server, gets one of its own. */
export function identityWorld(world: OracleWorld, rules: readonly Rule[]): IdentityWorld {
  const pods = new Map<string, { id: number; endpoint: OracleEndpoint }>();
  for (const endpoint of world.endpoints) {
    const key = labelsKey(endpoint.labels);
    if (!pods.has(key)) pods.set(key, { id: 256 + pods.size, endpoint });
  }
  const peersOf = rules.flatMap(({ elements }) => elements.flatMap(({ peers }) => (peers === 'any' ? [] : peers)));
  // Nodes have numbers of their own where some rule tells them apart.
  const told = peersOf.some((peer) => peer.kind === 'endpoints' && selectsNodes(peer.selector));
  const nodes = (told ? world.nodes : []).map(({ name, labels = {}, kubeApiserver = false }, at) => {
    const id = NODE_BASE + 1 + at;
    return { name, labels: nodeLabels(labels), id: kubeApiserver ? withApiServer(id) : id };
  });
  const apiServers = new Set((world.externalApiServers ?? []).map((text) => fullPrefix(text)));
  const texts = new Set<string>(apiServers);
  for (const peer of peersOf)
    if (peer.kind === 'cidr') for (const text of [peer.cidr.cidr, ...peer.cidr.except]) texts.add(text);
  const cidrs = new Map<string, number>([
    ['0.0.0.0/0', RESERVED_ID.world],
    ['::/0', RESERVED_ID['world-ipv6']],
  ]);
  const identities: PeerIdentity[] = [];
  for (const text of [...texts].sort()) {
    if (cidrs.has(text)) continue;
    const id = CIDR_BASE + 1 + identities.length;
    cidrs.set(text, id);
    identities.push({ id, cidr: text, ...(apiServers.has(text) ? { kubeApiserver: true } : {}) });
  }
  for (let id = 1; id <= 11; id += 1) identities.push({ id });
  const prefixes = [...cidrs].map(([text, id]) => ({ prefix: parsePrefix(text), id }));
  prefixes.sort((a, b) => b.prefix.bits - a.prefix.bits);

  return {
    identities,
    cidrs,
    identityOf(peer, node) {
      switch (peer.kind) {
        case 'endpoint':
          return pods.get(labelsKey(peer.endpoint.labels))?.id ?? RESERVED_ID.unknown;
        case 'node':
          if (peer.node.name === node) return RESERVED_ID.host;
          if (told) return nodes.find(({ name }) => name === peer.node.name)?.id ?? RESERVED_ID.unknown;
          return peer.node.kubeApiserver ? RESERVED_ID['kube-apiserver'] : RESERVED_ID['remote-node'];
        case 'outside': {
          const { bytes } = parseAddress(peer.address);
          return prefixes.find(({ prefix }) => addressIn(prefix, bytes))?.id ?? RESERVED_ID.unknown;
        }
        case 'reserved':
          return RESERVED_ID[peer.name];
        case 'unknown':
          return RESERVED_ID.unknown;
      }
    },
    portNames(subject) {
      const of = (endpoint: OracleEndpoint, name: string, protocol: string) =>
        (endpoint.namedPorts ?? []).filter((port) => port.name === name && port.protocol === protocol);
      return {
        own: (name, protocol) => of(subject, name, protocol)[0]?.port,
        *addresses(name, protocol) {
          const peers = this.peers(name, protocol);
          for (const endpoint of world.endpoints) {
            const identity = pods.get(labelsKey(endpoint.labels))?.id ?? RESERVED_ID.unknown;
            const [own] = of(endpoint, name, protocol);
            if (own === undefined || (peers.get(identity)?.length ?? 0) < 2) continue;
            for (const address of endpoint.addresses) yield { prefix: fullPrefix(address), identity, port: own.port };
          }
        },
        peers(name, protocol) {
          const found = new Map<number, readonly number[]>();
          for (const endpoint of world.endpoints) {
            const id = pods.get(labelsKey(endpoint.labels))?.id ?? RESERVED_ID.unknown;
            const numbers = new Set([
              ...(found.get(id) ?? []),
              ...of(endpoint, name, protocol).map(({ port }) => port),
            ]);
            if (numbers.size > 0)
              found.set(
                id,
                [...numbers].sort((a, b) => a - b),
              );
          }
          return found;
        },
      };
    },
    peerSets(selectors) {
      const sets = new Map<SelectorHash, readonly number[]>();
      return {
        identities(hash) {
          const known = sets.get(hash);
          if (known !== undefined) return known;
          const selector = selectors.get(hash);
          if (selector === undefined) return undefined;
          const all = selectsNodes(selector)
            ? nodes
            : [...pods.values()].map(({ id, endpoint: { labels } }) => ({ id, labels }));
          const ids = all.flatMap(({ id, labels }) => (matches(selector, labels) ? [id] : [])).sort((a, b) => a - b);
          sets.set(hash, ids);
          return ids;
        },
      };
    },
  };
}

/** `identities` of a world, the own node flagged when the API server runs there. */
export function identitiesOn(world: OracleWorld, identities: readonly PeerIdentity[], node: string): PeerIdentity[] {
  const local = world.nodes.some((candidate) => candidate.name === node && candidate.kubeApiserver);
  return identities.map((identity) =>
    identity.id === RESERVED_ID.host && local ? { ...identity, kubeApiserver: true } : identity,
  );
}

function fullPrefix(address: string): string {
  return formatPrefix(parsePrefix(address));
}
