/**
 * What comes of the cluster's objects, for comparison: one entry for each thing that somebody may rely on, called by names and labels, never by
 * numbers or uids, so that two clusters with the same honest objects have the same entries.
 */
import { type KubeClient, NODE_ANNOTATION, type PolicyStatus, resources } from '@weir/kube';
import { formatLabels, formatSelector, namespaceOf } from '@weir/labels';
import { policyKey } from '../../operator/names.ts';
import type { FuzzNode } from './node.ts';
import { PROBES } from './story.ts';

export interface Entry {
  /** `pod victim/web`. Unique. */
  readonly key: string;
  /** Whose it is: of the objects in this namespace, of this node. */
  readonly namespace?: string;
  readonly node?: string;
  readonly value: Readonly<Record<string, unknown>>;
}

export type Outcome = ReadonlyMap<string, Entry>;

export async function outcomeOf(client: KubeClient, nodes: readonly FuzzNode[]): Promise<Outcome> {
  const entries: Entry[] = [...(await ofOperator(client)), ...nodes.flatMap(ofNode)];
  entries.push(...(await endpoints(client)));
  return new Map(entries.map((entry) => [entry.key, entry]));
}

/** What is enforced on the node, and of whom. */
export function ofNode(node: FuzzNode): Entry[] {
  const pods = node.pods.flatMap((pod): Entry[] => {
    const { namespace, name } = pod;
    const value = node.enforced(pod, PROBES);
    return value === undefined ? [] : [{ key: `enforced ${namespace}/${name}`, namespace, node: node.name, value }];
  });
  const peers = PROBES.addresses.map((address) => [address, node.peer(address)] as const);
  return [...pods, ...peers.map(([address, as]) => ({ key: `${node.name} takes ${address} for`, value: { as } }))];
}

async function ofOperator(client: KubeClient): Promise<Entry[]> {
  const [identities, sets, resolved, slices, cnps, ccnps] = await Promise.all([
    client.list(resources.CiliumIdentity),
    client.list(resources.PeerSet),
    client.list(resources.ResolvedPolicy),
    client.list(resources.CiliumEndpointSlice),
    client.list(resources.CiliumNetworkPolicy),
    client.list(resources.CiliumClusterwideNetworkPolicy),
  ]);
  const labelsOf = new Map(identities.items.map((object) => [object.metadata.name, object['security-labels']]));
  const called = (id: number): string => formatLabels(labelsOf.get(String(id)) ?? {}).join() || `nobody (${id})`;
  const members = Map.groupBy(sets.items, ({ spec }) => spec.hash);
  return [
    ...[...labelsOf.values()].map((labels) => ({
      key: `identity ${formatLabels(labels).join()}`,
      namespace: namespaceOf(labels),
      value: {},
    })),
    ...[...members].flatMap(([, parts]) =>
      parts.slice(0, 1).map(({ spec: { selector } }) => ({
        key: `peer set ${formatSelector(selector)}`,
        value: { members: parts.flatMap(({ spec }) => spec.identities.map(called)).sort() },
      })),
    ),
    ...resolved.items.flatMap(({ spec: { source, rules }, status }): Entry[] => {
      const { kind, namespace, name, generation } = source;
      const key = policyKey(kind, namespace, name);
      const whose = namespace === undefined ? {} : { namespace };
      // Cookies are numbers that are given out.
      const told = rules.map(({ cookie: _, ...rule }) => rule);
      const value = { generation, rules: told };
      return [{ key: `rules of ${key}`, ...whose, value }, ...ofStatus(key, whose, status)];
    }),
    ...slices.items.flatMap(({ namespace, endpoints: pods }) =>
      pods.map(({ name, identity, networking, 'named-ports': ports }) => ({
        key: `pod ${namespace}/${name}`,
        namespace,
        node: networking.node,
        value: { addressing: networking.addressing, labels: called(identity), ports },
      })),
    ),
    ...[...cnps.items, ...ccnps.items].flatMap(({ kind, metadata: { namespace, name }, status }) => {
      const whose = namespace === undefined ? {} : { namespace };
      return ofStatus(policyKey(kind as 'CiliumNetworkPolicy', namespace, name), whose, status);
    }),
  ];
}

/** One entry for each condition: some depend on nodes. */
function ofStatus(policy: string, whose: Pick<Entry, 'namespace'>, status: PolicyStatus | undefined): Entry[] {
  if (status === undefined) return [];
  const { conditions, summary, failures, observedGeneration } = status;
  return [
    ...conditions.map(({ lastTransitionTime: _, type, ...value }) => ({
      key: `${type} of ${policy}`,
      ...whose,
      value,
    })),
    { key: `summary of ${policy}`, ...whose, value: { summary, failures, observedGeneration } },
  ];
}

async function endpoints(client: KubeClient): Promise<Entry[]> {
  const { items } = await client.list(resources.CiliumEndpoint);
  return items.map(({ metadata: { namespace = '', name, annotations = {} }, status }) => {
    const node = annotations[NODE_ANNOTATION] ?? '';
    // An endpoint's id and its identity's are numbers that are given out.
    const value = { ...status, id: 0, identity: status?.identity?.labels };
    return { key: `endpoint ${namespace}/${name}`, namespace, node, value };
  });
}
