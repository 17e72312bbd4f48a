/** The part of the policy language that a run writes, and the objects that say it to the API server. */

export type Labels = Readonly<Record<string, string>>;
export type Protocol = 'TCP' | 'UDP';
export type Direction = 'ingress' | 'egress';

/** Keys that a pod's identity has beside its own labels. */
export const NAMESPACE_KEY = 'k8s:io.kubernetes.pod.namespace';
export const NAMESPACE_LABELS = 'k8s:io.cilium.k8s.namespace.labels.';

export interface Requirement {
  readonly key: string;
  readonly operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
  readonly values?: readonly string[];
}

export interface Selector {
  readonly matchLabels?: Labels;
  readonly matchExpressions?: readonly Requirement[];
}

export interface Port {
  readonly port: number;
  readonly protocol: Protocol | 'ANY';
}

/** Of one kind: pods by selector, addresses by prefix, anybody (ports only), or nobody (`{}`). */
export interface Element {
  readonly endpoints?: readonly Selector[];
  readonly cidrs?: readonly string[];
  readonly ports?: readonly Port[];
}

export interface Rule {
  readonly subject: Selector;
  readonly allow: Readonly<Partial<Record<Direction, readonly Element[]>>>;
  readonly deny: Readonly<Partial<Record<Direction, readonly Element[]>>>;
  /** A direction that is false here has no default deny. */
  readonly defaultDeny?: Readonly<Partial<Record<Direction, boolean>>>;
}

export interface PolicyName {
  readonly name: string;
  /** Of a CiliumNetworkPolicy; a clusterwide one has none. */
  readonly namespace: string | undefined;
}

export const keyOf = ({ name, namespace }: PolicyName): string => `${namespace ?? ''}/${name}`;

function elementSpec(direction: Direction, { endpoints, cidrs, ports }: Element): object {
  const from = direction === 'ingress' ? 'from' : 'to';
  return {
    ...(endpoints === undefined ? {} : { [`${from}Endpoints`]: endpoints }),
    ...(cidrs === undefined ? {} : { [`${from}CIDR`]: cidrs }),
    ...(ports === undefined
      ? {}
      : { toPorts: [{ ports: ports.map(({ port, protocol }) => ({ port: String(port), protocol })) }] }),
  };
}

/** `spec` of the object. */
export function specOf({ subject, allow, deny, defaultDeny }: Rule): object {
  const lists = (['ingress', 'egress'] as const).flatMap((direction) => [
    [direction, allow[direction]?.map((element) => elementSpec(direction, element))],
    [`${direction}Deny`, deny[direction]?.map((element) => elementSpec(direction, element))],
  ]);
  return {
    endpointSelector: subject,
    ...Object.fromEntries(lists.filter(([, list]) => list !== undefined)),
    ...(defaultDeny === undefined ? {} : { enableDefaultDeny: defaultDeny }),
  };
}
