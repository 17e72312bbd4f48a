/** Names of the objects that the operator writes. */
import { createHash } from 'node:crypto';
import type { PolicyObjectKind } from './types.ts';

/** Longest name of a Kubernetes object. */
const LONGEST = 253;

/** Key of a policy in tables: `cnp/namespace/name` or `ccnp/name`. */
export function policyKey(kind: PolicyObjectKind, namespace: string | undefined, name: string): string {
  return kind === 'CiliumNetworkPolicy' ? `cnp/${namespace ?? ''}/${name}` : `ccnp/${name}`;
}

/** `cnp-<namespace>.<name>` or `ccnp-<name>`; a name that would be too long ends in a hash instead. */
export function resolvedName(kind: PolicyObjectKind, namespace: string | undefined, name: string): string {
  const full = kind === 'CiliumNetworkPolicy' ? `cnp-${namespace ?? ''}.${name}` : `ccnp-${name}`;
  if (full.length <= LONGEST) return full;
  const hash = createHash('sha256').update(full).digest('hex').slice(0, 16);
  return `${full.slice(0, LONGEST - 17).replace(/[^a-z0-9]+$/, '')}-${hash}`;
}

/** `<hash>` for slice 0, `<hash>-<n>` for the others. */
export function peerSetName(hash: string, slice: number): string {
  return slice === 0 ? hash : `${hash}-${slice}`;
}

/** `ces-<namespace>-<n>`. */
export function sliceName(namespace: string, n: number): string {
  return `ces-${namespace}-${n}`;
}
