/**
 * The language, read from its specification (sections 2.3 to 2.5, 2.7, 3.3, 4 and 5.2) and independent of `shared/policy`, so that a fault there
 * does not hide itself.
 */
import {
  type Direction,
  type Element,
  NAMESPACE_KEY,
  NAMESPACE_LABELS,
  type Port,
  type Protocol,
  type Requirement,
  type Rule,
  type Selector,
} from '../world/policy.ts';

/** Somebody at one end of a packet. `labels` holds the namespace and its labels, too (policy.ts). */
export type Who =
  | { readonly kind: 'pod'; readonly labels: Readonly<Record<string, string>> }
  /** A pod that this node does not know yet. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'outside'; readonly address: string };

export interface Question {
  readonly direction: Direction;
  readonly subject: Extract<Who, { kind: 'pod' }>;
  readonly peer: Who;
  readonly protocol: Protocol;
  readonly port: number;
}

/** What one policy has to say to a packet. */
export interface Outcome {
  /** It selects the subject and has a rule of this direction. */
  readonly enforced: boolean;
  readonly defaultDeny: boolean;
  readonly allow: boolean;
  readonly deny: boolean;
}

export const SILENT: Outcome = { enforced: false, defaultDeny: false, allow: false, deny: false };

function meets({ key, operator, values = [] }: Requirement, labels: Readonly<Record<string, string>>): boolean {
  const value = labels[key];
  switch (operator) {
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
  }
}

function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Readonly<Record<string, string>>) {
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every((requirement) => meets(requirement, labels))
  );
}

/** Whether a selector says itself which namespaces it means. */
function namesNamespace({ matchLabels = {}, matchExpressions = [] }: Selector): boolean {
  return [...Object.keys(matchLabels), ...matchExpressions.map(({ key }) => key)].some(
    (key) => key === NAMESPACE_KEY || key.startsWith(NAMESPACE_LABELS),
  );
}

const inNamespace = (namespace: string | undefined, labels: Readonly<Record<string, string>>): boolean =>
  namespace === undefined || labels[NAMESPACE_KEY] === namespace;

function number(address: string): number {
  return address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
}

function inPrefix(address: string, prefix: string): boolean {
  const [base = '', bits = '32'] = prefix.split('/');
  const size = 2 ** (32 - Number(bits));
  return Math.floor(number(address) / size) === Math.floor(number(base) / size);
}

const onPort = (ports: readonly Port[] | undefined, protocol: Protocol, port: number): boolean =>
  ports === undefined ||
  ports.some((each) => each.port === port && (each.protocol === 'ANY' || each.protocol === protocol));

/** Who is unknown is hit by every deny, and by no allow that names a peer. */
function matchesPeer(element: Element, verdict: 'allow' | 'deny', namespace: string | undefined, peer: Who): boolean {
  const { endpoints, cidrs, ports } = element;
  if (endpoints === undefined && cidrs === undefined) return ports !== undefined;
  if (peer.kind === 'unknown') return verdict === 'deny';
  if (peer.kind === 'outside') return cidrs?.some((prefix) => inPrefix(peer.address, prefix)) === true;
  return (
    endpoints?.some(
      (selector) => selects(selector, peer.labels) && (namesNamespace(selector) || inNamespace(namespace, peer.labels)),
    ) === true
  );
}

/** @param namespace of the policy; undefined: a clusterwide one */
export function evaluate(rule: Rule, namespace: string | undefined, question: Question): Outcome {
  const { direction, subject, peer, protocol, port } = question;
  const allow = rule.allow[direction] ?? [];
  const deny = rule.deny[direction] ?? [];
  if (allow.length + deny.length === 0) return SILENT;
  if (!selects(rule.subject, subject.labels) || !inNamespace(namespace, subject.labels)) return SILENT;
  const hit = (elements: readonly Element[], verdict: 'allow' | 'deny'): boolean =>
    elements.some((element) => matchesPeer(element, verdict, namespace, peer) && onPort(element.ports, protocol, port));
  return {
    enforced: true,
    defaultDeny: rule.defaultDeny?.[direction] !== false,
    allow: hit(allow, 'allow'),
    deny: hit(deny, 'deny'),
  };
}
