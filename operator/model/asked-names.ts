/** The port names of a rule, and whom it asks for them: ingress the selected pods, egress the peers. */
import type { NamedPort, ResolvedRule } from '@weir/policy';

/** Entities that stand for pods. */
const POD_ENTITIES = new Set(['all', 'cluster']);

/** All pods are asked. No set has this hash. */
export const EVERYONE = '*';

/** Hashes of the sets whose members are asked, or EVERYONE. */
export function askedSets({ direction, subject, peers }: ResolvedRule): readonly string[] {
  if (direction === 'ingress') return [subject];
  if (peers?.some((peer) => 'entity' in peer && POD_ENTITIES.has(peer.entity)) ?? true) return [EVERYONE];
  return peers?.flatMap((peer) => ('peerSet' in peer ? [peer.peerSet] : [])) ?? [];
}

export function namedPorts({ ports = [] }: ResolvedRule): readonly NamedPort[] {
  return ports.filter((port) => 'name' in port);
}

/** `TCP/http`. */
export function portNameKey({ protocol, name }: { readonly protocol: string; readonly name: string }): string {
  return `${protocol}/${name}`;
}

/** Rules that name ports. */
export function rulesWithNames({
  resolved,
}: {
  readonly resolved: { readonly rules: readonly ResolvedRule[] } | undefined;
}): readonly ResolvedRule[] {
  return (resolved?.rules ?? []).filter((rule) => namedPorts(rule).length > 0);
}
