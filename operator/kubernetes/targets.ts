/** The kinds of objects that the operator writes. */
import {
  type CiliumEndpointSlice,
  type CiliumIdentity,
  type CiliumPolicyObject,
  type KubeClient,
  type KubeObject,
  type PeerSet,
  type PolicyStatus,
  type ReflectorSink,
  type ResolvedPolicyObject,
  type Resource,
  resources,
} from '@weir/kube';
import type { StateDB, Table } from '@weir/statedb';
import { hashesOf, policyKey } from '../names.ts';
import type { Source } from '../parts/contract.ts';
import { type Desired, type Tables, touch } from '../tables.ts';
import type { Adopted, PolicyObjectKind } from '../types.ts';
import { adoptedIdentity, adoptedSlice, content, type ResolvedPolicyWithStatus } from './objects.ts';
import { readable } from './shapes.ts';
import { ObjectTarget, type TargetOptions } from './target.ts';

export interface Targets {
  readonly identities: ObjectTarget<CiliumIdentity>;
  readonly peerSets: ObjectTarget<PeerSet>;
  /** Index `peer-set`: the hashes that an object names. */
  readonly resolved: ObjectTarget<ResolvedPolicyObject>;
  /** Index `identity`: the numbers that an object names. */
  readonly slices: ObjectTarget<CiliumEndpointSlice>;
  readonly statuses: Readonly<Record<CiliumKind, ObjectTarget<CiliumPolicyObject>>>;
  /** Of NetworkPolicies, by name of the ResolvedPolicy. */
  readonly resolvedStatuses: ObjectTarget<ResolvedPolicyWithStatus>;
}

/** Policies that have a status of their own. */
export type CiliumKind = Exclude<PolicyObjectKind, 'NetworkPolicy'>;

export interface TargetsOptions {
  readonly db: StateDB;
  readonly client: Pick<KubeClient, 'apply' | 'replace' | 'delete'>;
  readonly tables: Pick<Tables, 'identities' | 'peerSets' | 'resolved' | 'slices'>;
  /** Another hand has changed the status of this policy. */
  readonly onStatusDrift: (policy: string) => void;
  readonly onWrite: (verb: 'apply' | 'update' | 'delete', resource: string) => void;
}

/** Whoever brings a desired table makes its target: a row whose object another hand has changed is looked at again. */
export function targetOf<T extends KubeObject>(
  { db, client, onWrite }: Pick<TargetsOptions, 'db' | 'client' | 'onWrite'>,
  table: Table<Desired<never>>,
  options: Omit<TargetOptions<T>, 'db' | 'client' | 'onWrite' | 'onDrift'>,
): ObjectTarget<T> {
  return new ObjectTarget<T>({ ...options, db, client, onWrite, onDrift: (key) => touch(db, table, key) });
}

export function createTargets({ db, client, tables, onStatusDrift, onWrite }: TargetsOptions): Targets {
  const shared = { db, client, onWrite };
  const status = <T extends CiliumPolicyObject | ResolvedPolicyWithStatus>(
    resource: Resource<T>,
    keyOf: (key: string) => string | undefined,
    kept: (object: T) => T,
  ): ObjectTarget<T> =>
    new ObjectTarget<T>({
      ...shared,
      resource,
      content: content.status,
      subresource: 'status',
      kept,
      replacement: (answer, wanted) => ({
        ...answer,
        ...(wanted.status === undefined ? {} : { status: wanted.status }),
      }),
      onDrift: (key) => {
        const policy = keyOf(key);
        if (policy !== undefined) onStatusDrift(policy);
      },
    });
  const resolved = targetOf<ResolvedPolicyObject>(shared, tables.resolved, {
    resource: resources.ResolvedPolicy,
    content: content.resolved,
    readable: readable.resolved,
    indexes: [{ name: 'peer-set', keys: ({ object }) => hashesOf(object.spec.rules) }],
  });
  const networkPolicyOf = (name: string): string | undefined => {
    const source = resolved.get(name)?.spec.source;
    return source?.kind === 'NetworkPolicy' ? policyKey(source.kind, source.namespace, source.name) : undefined;
  };
  return {
    identities: targetOf(shared, tables.identities, {
      resource: resources.CiliumIdentity,
      content: content.identity,
      readable: readable.identity,
    }),
    peerSets: targetOf(shared, tables.peerSets, {
      resource: resources.PeerSet,
      content: content.peerSet,
      readable: readable.peerSet,
    }),
    resolved,
    slices: targetOf(shared, tables.slices, {
      resource: resources.CiliumEndpointSlice,
      content: content.slice,
      readable: readable.slice,
      indexes: [{ name: 'identity', keys: ({ object }) => identitiesOf(object) }],
    }),
    statuses: {
      CiliumNetworkPolicy: status(resources.CiliumNetworkPolicy, (key) => `cnp/${key}`, statusAlone),
      CiliumClusterwideNetworkPolicy: status(
        resources.CiliumClusterwideNetworkPolicy,
        (key) => `ccnp/${key}`,
        statusAlone,
      ),
    },
    resolvedStatuses: status<ResolvedPolicyWithStatus>(resources.ResolvedPolicy, networkPolicyOf, statusAndSource),
  };
}

/** Tenants' rules are kept once, in table `policies`. */
function statusAlone<T extends KubeObject & { readonly status?: PolicyStatus }>(object: T): T {
  const { apiVersion, kind, metadata, status } = object;
  const { name, namespace, uid } = metadata;
  const given = { ...(namespace === undefined ? {} : { namespace }), ...(uid === undefined ? {} : { uid }) };
  return { apiVersion, kind, metadata: { name, ...given }, ...(status === undefined ? {} : { status }) } as T;
}

function statusAndSource({ spec, ...object }: ResolvedPolicyWithStatus): ResolvedPolicyWithStatus {
  return { ...statusAlone(object), ...(spec === undefined ? {} : { spec: { source: spec.source, rules: [] } }) };
}

/** What tells what the API holds, and who changed it. */
export function targetSources(targets: Targets): readonly Source[] {
  const { CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy } = targets.statuses;
  return [
    { resource: resources.CiliumIdentity, sink: targets.identities },
    { resource: resources.PeerSet, sink: targets.peerSets },
    { resource: resources.ResolvedPolicy, sink: targets.resolved },
    { resource: resources.ResolvedPolicy, sink: networkPoliciesOnly(targets.resolvedStatuses) },
    { resource: resources.CiliumEndpointSlice, sink: targets.slices },
    { resource: resources.CiliumNetworkPolicy, sink: CiliumNetworkPolicy },
    { resource: resources.CiliumClusterwideNetworkPolicy, sink: CiliumClusterwideNetworkPolicy },
  ];
}

function networkPoliciesOnly(sink: ReflectorSink<ResolvedPolicyWithStatus>): ReflectorSink<ResolvedPolicyWithStatus> {
  const mine = (object: ResolvedPolicyWithStatus): boolean =>
    readable.resolved(object) && object.spec?.source.kind === 'NetworkPolicy';
  return {
    replace: (items, version) => sink.replace(items.filter(mine), version),
    upsert: (item) => {
      if (mine(item)) sink.upsert(item);
      else sink.delete(item);
    },
    delete: (item) => sink.delete(item),
  };
}

/** Numbers that the slice names; as somebody else may have written it. */
function identitiesOf({ endpoints = [] }: Partial<CiliumEndpointSlice>): ReadonlySet<string> {
  return new Set(endpoints.map(({ identity }) => String(identity)));
}

/** What the API holds, for a model that starts. In the order of keys, so that a start is repeatable; identities, oldest first. */
export function adopted(targets: Targets): Adopted {
  return {
    identities: targets.identities.objects().toSorted(byAge).map(adoptedIdentity),
    peerSets: targets.peerSets
      .objects()
      .map(({ spec: { hash, selector, identities } }) => ({ hash, selector, identities })),
    resolved: targets.resolved.objects().map(({ metadata: { name }, spec: { source, rules } }) => ({
      name,
      source,
      rules,
    })),
    slices: targets.slices.objects().map(adoptedSlice),
    statuses: [
      ...(['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy'] as const).flatMap((kind) =>
        targets.statuses[kind]
          .objects()
          .flatMap(({ metadata: { namespace, name, uid = '' }, status }) =>
            status === undefined ? [] : [{ key: policyKey(kind, namespace, name), uid, status }],
          ),
      ),
      ...targets.resolvedStatuses.objects().flatMap(({ spec, status }) => {
        if (status === undefined || spec?.source.kind !== 'NetworkPolicy') return [];
        const { kind, namespace, name, uid } = spec.source;
        return [{ key: policyKey(kind, namespace, name), uid, status }];
      }),
    ],
  };
}

/** Of those of one second, in the order of their numbers. */
function byAge({ metadata: a }: CiliumIdentity, { metadata: b }: CiliumIdentity): number {
  const [first, second] = [a.creationTimestamp ?? '', b.creationTimestamp ?? ''];
  return first === second ? Number(a.name) - Number(b.name) : first < second ? -1 : 1;
}
