/**
 * Labels and selectors (spec section 2, 7). A label is (source, key, value), printed `source:key=value`.
 */
export interface Label {
  /** `k8s`, `reserved`, `cidr`, `unspec`, ... never `any` (which is for selectors only). */
  readonly source: string;
  readonly key: string;
  readonly value: string;
}

/** A label set as Cilium prints it: `source:key` -> value (CiliumIdentity `security-labels`). Keys sorted when canonical. */
export type LabelMap = Readonly<Record<string, string>>;

export type Operator = 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';

/** One requirement. `key` carries its source: `k8s:app`, `any:app`, `reserved:host`. Values sorted and unique. */
export interface Requirement {
  readonly key: string;
  readonly operator: Operator;
  readonly values: readonly string[];
}

/** Canonical selector: requirements sorted, equalities written as In with one value. Empty = matches everything. Plain JSON. */
export interface LabelSelector {
  readonly requirements: readonly Requirement[];
}
