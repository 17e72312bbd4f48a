import { sortLabels } from './label.ts';
import type { LabelMap } from './types.ts';

export const NAMESPACE_KEY = 'io.kubernetes.pod.namespace';
/** The label by which an identity says its pods' namespace. */
export const NAMESPACE_LABEL = `k8s:${NAMESPACE_KEY}`;
export const NAMESPACE_LABEL_PREFIX = 'io.cilium.k8s.namespace.labels.';
export const CLUSTER_KEY = 'io.cilium.k8s.policy.cluster';
export const SERVICE_ACCOUNT_KEY = 'io.cilium.k8s.policy.serviceaccount';

/** Key patterns, matched from the start of a key (spec section 7). */
const INCLUDE = [
  /^io\.kubernetes\.pod\.namespace/,
  /^io\.cilium\.k8s\.namespace\.labels/,
  /^app\.kubernetes\.io/,
  /^io\.cilium\.k8s\.policy\.cluster/,
  /^io\.cilium\.k8s\.policy\.serviceaccount/,
];
const IGNORE = [
  /^io\.kubernetes/,
  /^kubernetes\.io/,
  /^statefulset\.kubernetes\.io\/pod-name/,
  /^apps\.kubernetes\.io\/pod-index/,
  /^batch\.kubernetes\.io\/job-completion-index/,
  /^batch\.kubernetes\.io\/controller-uid/,
  /^.*beta\.kubernetes\.io/,
  /^k8s\.io/,
  /^pod-template-generation/,
  /^pod-template-hash/,
  /^controller-revision-hash/,
  /^controller-uid/,
  /^annotation.*/,
  /^etcd_node/,
  /^topology\.kubernetes\.io/,
];

/** Keys that only the cluster may give a pod: a pod's own label of such a name would let it claim another namespace. */
const SYNTHETIC = ['io.kubernetes.pod.', 'io.cilium.k8s.'];

/** Whether a label key counts for the identity: nothing ignores it, or what includes it matches more of the key. One with a source is none. */
export function isSecurityRelevant(key: string): boolean {
  if (key.includes(':')) return false;
  return longest(IGNORE, key) === 0 || longest(INCLUDE, key) > longest(IGNORE, key);
}

/** Whether a pod's own label of this key counts for its identity: a selector of any other key would see no pod's label. */
export function isPodLabelSeen(key: string): boolean {
  return !SYNTHETIC.some((prefix) => key.startsWith(prefix)) && isSecurityRelevant(key);
}

/** Whether some identity may have a label of this key: a pod's own, or one that only the cluster gives. */
export function isIdentityLabel(key: string): boolean {
  return isPodLabelSeen(key) || isClusterLabel(key);
}

function isClusterLabel(key: string): boolean {
  if (key.startsWith(NAMESPACE_LABEL_PREFIX)) return isNamespaceLabelSeen(key.slice(NAMESPACE_LABEL_PREFIX.length));
  return [NAMESPACE_KEY, CLUSTER_KEY, SERVICE_ACCOUNT_KEY].includes(key);
}

/** Whether a namespace's label of this key counts for the identities of its pods. */
export function isNamespaceLabelSeen(key: string): boolean {
  return isSecurityRelevant(`${NAMESPACE_LABEL_PREFIX}${key}`);
}

function longest(patterns: readonly RegExp[], key: string): number {
  return Math.max(0, ...patterns.map((pattern) => pattern.exec(key)?.[0].length ?? 0));
}

export interface PodLabelSources {
  readonly namespace: string;
  readonly namespaceLabels?: Readonly<Record<string, string>> | undefined;
  readonly podLabels?: Readonly<Record<string, string>> | undefined;
  readonly serviceAccount?: string | undefined;
  /** Name of the local cluster. Default `default`. */
  readonly cluster?: string | undefined;
}

/**
 * The label set that a pod's identity stands for: its security-relevant labels and the synthetic ones (spec 2.1, 7), sorted.
 * A pod cannot forge a synthetic label: its own labels of these names are left out.
 */
export function podIdentityLabels(pod: PodLabelSources): LabelMap {
  const labels: Record<string, string> = {};
  for (const [key, value] of Object.entries(pod.podLabels ?? {})) {
    if (isPodLabelSeen(key)) labels[`k8s:${key}`] = value;
  }
  for (const [key, value] of Object.entries(pod.namespaceLabels ?? {})) {
    if (isNamespaceLabelSeen(key)) labels[`k8s:${NAMESPACE_LABEL_PREFIX}${key}`] = value;
  }
  labels[`k8s:${NAMESPACE_KEY}`] = pod.namespace;
  labels[`k8s:${CLUSTER_KEY}`] = pod.cluster ?? 'default';
  if (pod.serviceAccount) labels[`k8s:${SERVICE_ACCOUNT_KEY}`] = pod.serviceAccount;
  return sortLabels(labels);
}

/** The namespace of an identity's labels; empty where they are no pod's. */
export function namespaceOf(labels: LabelMap): string {
  return labels[NAMESPACE_LABEL] ?? '';
}
