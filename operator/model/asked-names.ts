/** The port names of a rule, and whom it asks for them: ingress the selected pods, egress the peers. */
import type { NamedPort, ResolvedRule } from '@weir/policy';

/** Entities that stand for pods. */
const POD_ENTITIES = new Set(['all', 'cluster']);

export interface Asked {
  /** Peer sets whose members are asked. */
  readonly hashes: readonly string[];
  /** All pods are asked. */
  readonly everyone: boolean;
}

export function askedBy(rule: ResolvedRule): Asked {
  if (rule.direction === 'ingress') return { hashes: [rule.subject], everyone: false };
  return {
    hashes: (rule.peers ?? []).flatMap((peer) => ('peerSet' in peer ? [peer.peerSet] : [])),
    everyone: rule.peers?.some((peer) => 'entity' in peer && POD_ENTITIES.has(peer.entity)) ?? true,
  };
}

export function namedPorts(rule: ResolvedRule): NamedPort[] {
  return (rule.ports ?? []).filter((port): port is NamedPort => 'name' in port);
}

/** `TCP/http`. */
export function portNameKey({ protocol, name }: { readonly protocol: string; readonly name: string }): string {
  return `${protocol}/${name}`;
}
