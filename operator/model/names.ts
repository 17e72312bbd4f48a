/** Names of the objects that the operator writes. */
import { createHash } from 'node:crypto';
import type { PolicyObjectKind } from '../types.ts';

/** Longest name of a Kubernetes object. */
const LONGEST = 253;

const PREFIX: Readonly<Record<PolicyObjectKind, string>> = {
  CiliumNetworkPolicy: 'cnp',
  CiliumClusterwideNetworkPolicy: 'ccnp',
  NetworkPolicy: 'knp',
};

/** Key of a policy in tables: `cnp/namespace/name`, `knp/namespace/name` or `ccnp/name`. */
export function policyKey(kind: PolicyObjectKind, namespace: string | undefined, name: string): string {
  const where = kind === 'CiliumClusterwideNetworkPolicy' ? '' : `${namespace ?? ''}/`;
  return `${PREFIX[kind]}/${where}${name}`;
}

/** `cnp-<namespace>.<name>`, `knp-<namespace>.<name>` or `ccnp-<name>`; a name that would be too long ends in a hash. */
export function resolvedName(kind: PolicyObjectKind, namespace: string | undefined, name: string): string {
  const where = kind === 'CiliumClusterwideNetworkPolicy' ? '' : `${namespace ?? ''}.`;
  const full = `${PREFIX[kind]}-${where}${name}`;
  return full.length <= LONGEST ? full : cut(full, full, '-');
}

/** `<hash>` for slice 0, `<hash>-<n>` for the others. */
export function peerSetName(hash: string, slice: number): string {
  return slice === 0 ? hash : `${hash}-${slice}`;
}

/** `ces-<namespace>-<n>`. */
export function sliceName(namespace: string, n: number): string {
  return `ces-${namespace}-${n}`;
}

/** `<policy>.<hash>`: one Event for each reason of each policy object. */
export function eventName(policy: string, uid: string, reason: string): string {
  return cut(policy, `${uid} ${reason}`, '.');
}

/** The beginning of `text` and a hash of `what`, together no longer than a name may be. */
function cut(text: string, what: string, between: string): string {
  const hash = createHash('sha256').update(what).digest('hex').slice(0, 16);
  return `${text.slice(0, LONGEST - 17).replace(/[^a-z0-9]+$/, '')}${between}${hash}`;
}
