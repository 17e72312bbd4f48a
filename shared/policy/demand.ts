/**
 * What a policy asks for, counted in its JSON before it is read: to read a selector, to name it and to find out whom it matches costs a
 * thousand times as much as to count it.
 */
import { depthIn } from '@weir/process/depth';
import { ELEMENT_LISTS } from './parse-rule.ts';
import { isObject, type Json, member } from './problems.ts';
import type { PolicyKind } from './types.ts';

/** Fields that select the pods that a rule is about. */
const SUBJECTS = ['endpointSelector', 'podSelector'] as const;

export interface Demand {
  /** Distinct selectors of subjects and peers, as they are written. */
  readonly selectors: number;
  /** Entries of all lists, those that repeat others too: peers, ports, values, CIDRs, rules. */
  readonly entries: number;
  /** Elements of `ingress`, `egress` and their denies, of all rules. */
  readonly rules: number;
}

/** Counts whatever the object is, in time that grows with its size alone. What `parsePolicy` refuses anyway may count as nothing. */
export function demandOf(object: unknown, kind: Exclude<PolicyKind, 'BareRules'>): Demand {
  const selectors = new Set<string>();
  let rules = 0;
  if (!isObject(object) || depthIn(object) !== undefined) return { selectors: 0, entries: 0, rules };
  const peersOf = kind === 'NetworkPolicy' ? networkSelectors : peerSelectors;
  for (const rule of [member(object, 'spec'), ...itemsOf(object, 'specs')]) {
    if (!isObject(rule)) continue;
    for (const field of SUBJECTS) {
      const subject = member(rule, field);
      if (subject !== undefined) selectors.add(JSON.stringify(subject));
    }
    for (const { field, direction } of ELEMENT_LISTS) {
      const elements = itemsOf(rule, field);
      rules += elements.length;
      for (const element of elements) {
        if (!isObject(element)) continue;
        for (const selector of peersOf(element, direction)) selectors.add(JSON.stringify(selector));
      }
    }
  }
  return { selectors: selectors.size, entries: entriesIn([member(object, 'spec'), member(object, 'specs')]), rules };
}

/** Of all lists within the value, which is of bounded depth. */
function entriesIn(values: readonly unknown[]): number {
  let entries = 0;
  for (const value of values) {
    if (typeof value !== 'object' || value === null) continue;
    if (Array.isArray(value)) entries += value.length + entriesIn(value);
    else entries += entriesIn(Object.values(value));
  }
  return entries;
}

/** Of Services and CIDR groups too: each is compared with all that there are. */
function peerSelectors(element: Json, direction: 'ingress' | 'egress'): readonly unknown[] {
  const word = direction === 'ingress' ? 'from' : 'to';
  return [
    ...itemsOf(element, `${word}Endpoints`),
    ...itemsOf(element, `${word}Nodes`),
    ...membersOf(itemsOf(element, `${word}CIDRSet`), 'cidrGroupSelector'),
    ...membersOf(itemsOf(element, 'toServices'), 'k8sServiceSelector'),
  ];
}

function membersOf(items: readonly unknown[], field: string): readonly unknown[] {
  return items.flatMap((item) => (isObject(item) ? (member(item, field) ?? []) : []));
}

function networkSelectors(element: Json, direction: 'ingress' | 'egress'): readonly unknown[] {
  return itemsOf(element, direction === 'ingress' ? 'from' : 'to').filter(
    (peer) => isObject(peer) && (member(peer, 'podSelector') ?? member(peer, 'namespaceSelector')) !== undefined,
  );
}

function itemsOf(object: Json, field: string): readonly unknown[] {
  const value = member(object, field);
  return Array.isArray(value) ? value : [];
}
