/** The kinds of objects that the operator writes. */
import {
  type CiliumEndpointSlice,
  type CiliumIdentity,
  type CiliumPolicyObject,
  type KubeClient,
  type PeerSet,
  type ResolvedPolicyObject,
  resources,
} from '@weir/kube';
import { policyKey } from './names.ts';
import { adoptedIdentity, content } from './objects.ts';
import { ObjectTarget } from './target.ts';
import type { Adopted, PolicyObjectKind } from './types.ts';

export interface Targets {
  readonly identities: ObjectTarget<CiliumIdentity>;
  readonly peerSets: ObjectTarget<PeerSet>;
  readonly resolved: ObjectTarget<ResolvedPolicyObject>;
  readonly slices: ObjectTarget<CiliumEndpointSlice>;
  readonly statuses: Readonly<Record<PolicyObjectKind, ObjectTarget<CiliumPolicyObject>>>;
}

export type TargetName = 'identities' | 'peerSets' | 'resolved' | 'slices' | 'statuses';

export interface TargetsOptions {
  readonly client: KubeClient;
  /** Key of the desired row whose object changed by another hand. */
  readonly onDrift: (target: TargetName, key: string) => void;
  readonly onWrite: (verb: 'apply' | 'update' | 'delete', resource: string) => void;
}

export function createTargets({ client, onDrift, onWrite }: TargetsOptions): Targets {
  const drift = (target: TargetName) => (key: string) => onDrift(target, key);
  const status = (kind: PolicyObjectKind): ObjectTarget<CiliumPolicyObject> =>
    new ObjectTarget({
      client,
      resource: resources[kind],
      content: content.status,
      subresource: 'status',
      replacement: (answer, wanted) => ({
        ...answer,
        ...(wanted.status === undefined ? {} : { status: wanted.status }),
      }),
      onWrite,
      onDrift: (key) => onDrift('statuses', kind === 'CiliumNetworkPolicy' ? `cnp/${key}` : `ccnp/${key}`),
    });
  return {
    identities: new ObjectTarget({
      client,
      resource: resources.CiliumIdentity,
      content: content.identity,
      onWrite,
      onDrift: drift('identities'),
    }),
    peerSets: new ObjectTarget({
      client,
      resource: resources.PeerSet,
      content: content.peerSet,
      onWrite,
      onDrift: drift('peerSets'),
    }),
    resolved: new ObjectTarget({
      client,
      resource: resources.ResolvedPolicy,
      content: content.resolved,
      onWrite,
      onDrift: drift('resolved'),
    }),
    slices: new ObjectTarget({
      client,
      resource: resources.CiliumEndpointSlice,
      content: content.slice,
      onWrite,
      onDrift: drift('slices'),
    }),
    statuses: {
      CiliumNetworkPolicy: status('CiliumNetworkPolicy'),
      CiliumClusterwideNetworkPolicy: status('CiliumClusterwideNetworkPolicy'),
    },
  };
}

/** What the API holds, for a model that starts. In order of name, so that a start is repeatable. */
export function adopted(targets: Targets): Adopted {
  const byName = <T extends { readonly metadata: { readonly name: string } }>(objects: Iterable<T>): T[] =>
    [...objects].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1));
  return {
    identities: byName(targets.identities.objects()).map(adoptedIdentity),
    peerSets: byName(targets.peerSets.objects()).map(({ spec: { hash, selector } }) => ({ hash, selector })),
    resolved: byName(targets.resolved.objects()).map(({ metadata: { name }, spec: { source, rules } }) => ({
      name,
      source,
      rules,
    })),
    slices: byName(targets.slices.objects()).map(({ metadata: { name }, namespace, endpoints }) => ({
      name,
      namespace,
      pods: (endpoints ?? []).map((endpoint) => endpoint.name),
    })),
    statuses: (['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy'] as const).flatMap((kind) =>
      byName(targets.statuses[kind].objects()).flatMap(({ metadata: { namespace, name, uid = '' }, status }) =>
        status === undefined ? [] : [{ key: policyKey(kind, namespace, name), uid, status }],
      ),
    ),
  };
}
