/** Names of the objects that the operator writes, and of the peer sets that its rules name. */
import { createHash } from 'node:crypto';
import type { ResolvedRule } from '@weir/policy';
import type { PolicyObjectKind } from './types.ts';

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

/** Namespace in a key that `policyKey` made; '': there is none. */
export function namespaceOfKey(key: string): string {
  const [, namespace = '', name] = key.split('/');
  return name === undefined ? '' : namespace;
}

/**
 * `cnp-<namespace>.<name>`, `knp-<namespace>.<name>` or `ccnp-<name>`. A name that would be too long is `cnp.<its beginning>-<SHA-256>`:
 * no other policy's, whatever it is called.
 */
export function resolvedName(kind: PolicyObjectKind, namespace: string | undefined, name: string): string {
  const where = `${kind === 'CiliumClusterwideNetworkPolicy' ? '' : `${namespace ?? ''}.`}${name}`;
  const full = `${PREFIX[kind]}-${where}`;
  return full.length <= LONGEST ? full : cut(`${PREFIX[kind]}.${where}`, `-${sha256(full)}`);
}

/** `<hash>` for slice 0, `<hash>-<n>` for the others. */
export function peerSetName(hash: string, slice: number): string {
  return slice === 0 ? hash : `${hash}-${slice}`;
}

/** `ces-<namespace>-<n>`. */
export function sliceName(namespace: string, n: number): string {
  return `ces-${namespace}-${n}`;
}

/** `<policy>.<hash>`: one Event for each reason of each policy object. Whoever meets another's 64 bits tells of it in its own namespace. */
export function eventName(policy: string, uid: string, reason: string): string {
  return cut(policy, `.${sha256(`${uid} ${reason}`).slice(0, 16)}`);
}

/** Hashes of every peer set that rules name, subjects too. */
export function hashesOf(rules: readonly ResolvedRule[]): Set<string> {
  const hashes = new Set<string>();
  for (const rule of rules) {
    hashes.add(rule.subject);
    for (const peer of rule.peers ?? []) if ('peerSet' in peer) hashes.add(peer.peerSet);
  }
  return hashes;
}

/** The beginning of `text`, and `end`, together no longer than a name may be. */
function cut(text: string, end: string): string {
  return `${text.slice(0, LONGEST - end.length).replace(/[^a-z0-9]+$/, '')}${end}`;
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
