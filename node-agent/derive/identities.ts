import { LOCAL_ENDPOINT_BASE } from '@weir/identity';
import { PORT_EXCESS_FIX } from '@weir/kube';
import { type LabelMap, labelsKey, NAMESPACE_LABEL, podIdentityLabels } from '@weir/labels';
import { sameAddresses } from '@weir/net';
import type { Tables } from '../core.ts';
import { tableKey } from '../create-tables.ts';
import type {
  ContainerPort,
  EndpointRow,
  IdentityRow,
  KernelEndpoint,
  LocalPodRow,
  NamespaceRow,
  PolicyRow,
} from '../tables.ts';
import type { Inputs } from './inputs.ts';
import type { LocalNumbers } from './numbers.ts';
import type { Policies } from './policies.ts';

/** Numbers up to here mean the same in every cluster. */
const RESERVED_LAST = 99;
/**
 * How long a pod that the API server has no more is judged as before, in milliseconds: ordinarily its sandbox goes first, and a watch that
 * restarts may miss a pod for a moment.
 */
export const DELETED_GRACE_MS = 5_000;
/**
 * How long a pod that waits for an identity of its new labels, and is in no slice any more, is judged as before, in milliseconds: the operator takes
 * it out of its slice when it refuses the labels one, as there are too many of them or of its namespace's identities.
 */
export const REFUSED_GRACE_MS = 2_000;
/** The same of a pod that no slice has had: perhaps nobody leads the operators. */
export const UNLISTED_GRACE_MS = 30_000;
const NOT_NUMBERED = 'the operator has not given its labels an identity yet';
const NOBODY = 'nobody knows whose interface this is';
const RULES_AWAITED = 'which rules select it is not known yet: closed until every policy has been read';
const INIT_LABELS: LabelMap = { 'reserved:init': '' };
const INIT = 5;

/** What is computed of one local endpoint. */
export interface EndpointIdentity {
  readonly row: EndpointRow;
  /** 0 while it waits. */
  readonly identity: number;
  readonly labels: LabelMap;
  /** Of the pod's containers. While it waits nothing is known of them, and nothing is allowed. */
  readonly namedPorts: readonly ContainerPort[];
  readonly ready: boolean;
  readonly reason?: string;
  /** Since when its pod has been gone, though it was known before, by the clock of `EndpointContext`. */
  readonly deletedAt?: number;
  /** Since when its labels have waited for an identity of the cluster, by the same clock. */
  readonly unnumberedSince?: number;
  /** Since when, while they have, no slice has had the pod. */
  readonly unlistedSince?: number | undefined;
  /** Whether a slice has had the pod. */
  readonly listed?: boolean;
  /** Since when it has had no identity, by the same clock. */
  readonly closedSince?: number;
}

export interface IdentitiesOptions {
  readonly tables: Pick<Tables, 'identities'>;
  readonly inputs: Pick<Inputs, 'snapshot'>;
}

/** Identities of the cluster, and which of them are known. */
export class Identities {
  readonly #options: IdentitiesOptions;

  constructor(options: IdentitiesOptions) {
    this.#options = options;
  }

  get(id: number): IdentityRow | undefined {
    const { inputs, tables } = this.#options;
    return id < LOCAL_ENDPOINT_BASE ? inputs.snapshot.get(tables.identities, tableKey.identity(id)) : undefined;
  }

  /** Lowest number with these labels (spec 7: in a race the lowest wins). */
  byLabels(key: string): number | undefined {
    const { inputs, tables } = this.#options;
    for (const { id } of inputs.snapshot.list(tables.identities, 'labels', key))
      return id < LOCAL_ENDPOINT_BASE ? id : undefined;
    return undefined;
  }

  /** Whether it is known what the number means: then it is known, too, which rules are about it. */
  settled(id: number): boolean {
    return (id >= 1 && id <= RESERVED_LAST) || this.get(id) !== undefined;
  }
}

export interface EndpointContext {
  readonly clusterName: string;
  readonly identities: Identities;
  readonly numbers: LocalNumbers;
  readonly policies: Pick<Policies, 'outstanding'>;
  /** Whether every policy has been read. */
  readonly rules: boolean;
  /** How the endpoint was found in the kernel, and is still, until the first plan that knows rules. */
  found(id: number): KernelEndpoint | undefined;
  /** The pods of this node, as of a complete list. */
  pod(key: string): LocalPodRow | undefined;
  namespace(name: string): NamespaceRow | undefined;
  /** Whether the operator has the endpoint's pod in a slice, as far as is known. */
  listed(row: EndpointRow): boolean;
  /** Milliseconds; any clock that only grows. */
  now(): number;
}

/** What an endpoint's pod gives it: the labels that its identity stands for, and names of its ports. */
type Identified = Pick<EndpointIdentity, 'labels' | 'namedPorts'>;
const INIT_IDENTIFIED: Identified = { labels: INIT_LABELS, namedPorts: [] };

/** Labels and state of the endpoint, or why they are not known yet. */
function identified(row: EndpointRow, context: EndpointContext): Identified | string {
  if (row.pod === undefined) {
    if (row.labels && Object.keys(row.labels).length > 0) return { labels: row.labels, namedPorts: [] };
    if (row.found === undefined || row.found.identity === INIT) return INIT_IDENTIFIED;
    const labels = context.identities.get(row.found.identity)?.labels;
    return labels === undefined ? NOBODY : { labels, namedPorts: [] };
  }
  const { namespace, name, uid } = row.pod;
  const pod = context.pod(`${namespace}/${name}`);
  if (pod === undefined) return `pod ${namespace}/${name} is not known on this node yet`;
  if (uid !== undefined && pod.uid !== uid)
    return `pod ${namespace}/${name} has uid ${pod.uid}, the endpoint is of ${uid}`;
  const refusal = refusalOf(row, context);
  if (refusal !== undefined) return refusal;
  const ns = context.namespace(namespace);
  if (ns === undefined) return `namespace ${namespace} is not known yet`;
  const labels = podIdentityLabels({
    namespace,
    namespaceLabels: ns.labels,
    podLabels: pod.labels,
    serviceAccount: pod.serviceAccount,
    cluster: context.clusterName,
  });
  return { labels, namedPorts: pod.namedPorts };
}

/** Why nobody may know the endpoint's pod, though its labels are known. The operator gives it no identity either. */
function refusalOf({ pod }: EndpointRow, context: EndpointContext): string | undefined {
  const known = pod === undefined ? undefined : context.pod(`${pod.namespace}/${pod.name}`);
  if (pod === undefined || known?.portExcess === undefined) return undefined;
  if (pod.uid !== undefined && pod.uid !== known.uid) return undefined;
  return `pod ${pod.namespace}/${pod.name} has ${known.portExcess}: ${PORT_EXCESS_FIX}`;
}

/** Whether the API server does not have the endpoint's pod. */
function podless({ pod }: EndpointRow, context: EndpointContext): boolean {
  if (pod === undefined) return false;
  const known = context.pod(`${pod.namespace}/${pod.name}`);
  return known === undefined || (pod.uid !== undefined && pod.uid !== known.uid);
}

/** Whether the number of what was computed means other labels now. */
function renumbered({ identity, labels }: EndpointIdentity, identities: Identities): boolean {
  const now = identities.get(identity)?.labelsKey;
  return now !== undefined && now !== labelsKey(labels);
}

/** What an agent before this one had computed of the endpoint, as far as the kernel tells: the number, and by that the labels. */
function foundAs(row: EndpointRow, context: EndpointContext): EndpointIdentity | undefined {
  const kernel = context.found(row.id);
  if (kernel === undefined || row.pod === undefined) return undefined;
  if (kernel.ifindex !== row.ifindex || !sameAddresses(kernel.addresses, row.addresses)) return undefined;
  const labels = context.identities.get(kernel.identity)?.labels;
  const { namespace, name } = row.pod;
  if (labels?.[NAMESPACE_LABEL] !== namespace) return undefined;
  const namedPorts = context.pod(`${namespace}/${name}`)?.namedPorts ?? [];
  return { row, identity: kernel.identity, labels, namedPorts, ready: true };
}

/**
 * Identity of an endpoint. One that was ready keeps its identity until the new one is known: neither a change of labels nor a restart
 * of the agent in the middle of one leaves a gap. One that was not ready also waits until every policy that may select it is in force
 * here: a policy that cannot be judged yet must not count as none.
 *
 * A pod that is deleted keeps its identity for a grace time; then it is nobody, whatever runs on in its sandbox. So is one that the operator
 * refuses an identity of its new labels: rules select by those, and would never reach it.
 */
export function endpointIdentity(
  row: EndpointRow,
  last: EndpointIdentity | undefined,
  context: EndpointContext,
): EndpointIdentity {
  const info = computed(row, last, context);
  return row.pod === undefined ? info : { ...info, listed: wasListed(row, last, context) };
}

/** Whether a slice has the endpoint's pod, or had it. */
function wasListed(row: EndpointRow, last: EndpointIdentity | undefined, context: EndpointContext): boolean {
  return context.listed(row) || (last?.listed === true && last.row.pod?.uid === row.pod?.uid);
}

/** When the endpoint loses its identity by the passing of time, if it does: milliseconds. */
export function closesAt(info: Pick<EndpointIdentity, 'deletedAt' | 'unlistedSince' | 'listed'>): number | undefined {
  if (info.deletedAt !== undefined) return Math.ceil(info.deletedAt + DELETED_GRACE_MS);
  if (info.unlistedSince === undefined) return undefined;
  return Math.ceil(info.unlistedSince + (info.listed === true ? REFUSED_GRACE_MS : UNLISTED_GRACE_MS));
}

function computed(row: EndpointRow, last: EndpointIdentity | undefined, context: EndpointContext): EndpointIdentity {
  const closed = (reason: string, labels: LabelMap = {}): EndpointIdentity => ({
    ...{ row, labels, reason },
    ...{ identity: 0, namedPorts: [], ready: false },
    closedSince: last?.closedSince ?? context.now(),
  });
  const refusal = refusalOf(row, context);
  // What it was before does not count: its names are not known, and a deny by one of them would open.
  if (refusal !== undefined) return closed(refusal);
  const before = last ?? foundAs(row, context);
  const same =
    before?.ready &&
    before.row.ifindex === row.ifindex &&
    before.row.pod?.uid === row.pod?.uid &&
    sameAddresses(before.row.addresses, row.addresses);
  const waiting = (reason: string, labels: LabelMap = {}): EndpointIdentity => {
    if (!same || renumbered(before, context.identities)) return closed(reason, labels);
    const { deletedAt: _, unnumberedSince: __, unlistedSince: ___, ...kept } = before;
    return { ...kept, row, reason };
  };
  const ready = (identity: number, what: Identified): EndpointIdentity => {
    const found = context.found(row.id);
    // What was found judges whom it was found for, and nobody else.
    if (!context.rules && found?.identity !== identity) return closed(RULES_AWAITED, what.labels);
    const missing = same || found !== undefined ? undefined : context.policies.outstanding(what.labels);
    return missing === undefined
      ? { row, identity, ...what, ready: true }
      : waiting(notInForce(missing.policy, missing.hashes), what.labels);
  };
  const saying = identified(row, context);
  if (typeof saying === 'string') {
    const known = same === true || last?.deletedAt !== undefined;
    if (!known || !podless(row, context)) return waiting(saying);
    const deletedAt = last?.deletedAt ?? context.now();
    const kept = waiting(saying);
    if (kept.ready && context.now() - deletedAt < DELETED_GRACE_MS) return { ...kept, deletedAt };
    return { ...closed(deleted(row)), deletedAt };
  }
  if (saying === INIT_IDENTIFIED) return ready(INIT, saying);
  const { labels } = saying;
  const key = labelsKey(labels);
  const cluster = context.identities.byLabels(key);
  if (cluster !== undefined) return ready(cluster, saying);
  if (row.pod !== undefined) {
    const now = context.now();
    const unnumberedSince = last?.unnumberedSince ?? now;
    const unlistedSince = context.listed(row) ? undefined : (last?.unlistedSince ?? now);
    const kept = {
      ...waiting(NOT_NUMBERED, labels),
      unnumberedSince,
      unlistedSince,
      listed: wasListed(row, last, context),
    };
    const at = closesAt(kept);
    return at === undefined || now < at ? kept : { ...kept, ...closed(NOT_NUMBERED, labels) };
  }
  return ready(context.numbers.labels(key), saying);
}

function deleted({ pod }: EndpointRow): string {
  const uid = pod?.uid === undefined ? '' : ` (uid ${pod.uid})`;
  return `pod ${pod?.namespace}/${pod?.name}${uid} was deleted, but its sandbox runs on: closed until kubelet has taken it away`;
}

function notInForce({ kind, namespace, name }: PolicyRow, hashes: readonly string[]): string {
  const policy = `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
  const more = hashes.length > 1 ? ` and ${hashes.length - 1} more` : '';
  return `${policy} may select it and is not in force here: PeerSet ${hashes[0]}${more} has not come from the operator`;
}
