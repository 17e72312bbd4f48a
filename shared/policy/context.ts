import { isIdentityLabel, type LabelSelector, readSelector as read, type SelectorOptions } from '@weir/labels';
import { type Problems, show } from './problems.ts';
import type { Direction, RulePeer, Verdict } from './types.ts';

/** Where a rule comes from: decides what is injected into its selectors (spec 2.3, 2.4). */
export type RuleScope =
  | { readonly kind: 'CiliumNetworkPolicy'; readonly namespace: string }
  | { readonly kind: 'CiliumClusterwideNetworkPolicy' }
  | { readonly kind: 'BareRules' };

/** The element that a part is parsed for. */
export interface ElementContext {
  readonly path: string;
  readonly direction: Direction;
  readonly verdict: Verdict;
  readonly scope: RuleScope;
  readonly known: Known;
}

/** Of one policy. */
export interface Known {
  /** What its selectors of peers have been read as, by their JSON. */
  readonly peers: Map<string, RulePeer>;
  readonly services: {
    /** Peers of an item of `toServices`. */
    read(item: unknown, context: ElementContext, path: string, problems: Problems): readonly RulePeer[];
  };
}

/** What an unsupported part does to its element; ends a message. */
export function consequence(verdict: Verdict): string {
  return verdict === 'allow'
    ? 'until then the element that it stands in allows nothing, its other peers and ports included'
    : 'until then the element that it stands in denies every peer or port that it might mean';
}

/** `parseSelector` with its problems reported. */
export function readSelector(
  json: unknown,
  path: string,
  problems: Problems,
  options: SelectorOptions = {},
): LabelSelector | undefined {
  const { selector, problems: found } = read(json, path, options);
  for (const problem of found) problems.invalid(problem.path, problem.message, problem.count);
  return selector;
}

/** Sources whose labels come from pods and namespaces. */
const POD_SOURCES = ['k8s:', 'any:'];

/** Whether a selector's key may be of a label that pods have, by its source. */
export function isOfPods(key: string): boolean {
  return POD_SOURCES.some((source) => key.startsWith(source));
}

/** Warns of keys of which no identity has a label (spec section 7): Cilium has such a selector select nothing, silently. */
export function warnOfUnseenLabels({ requirements }: LabelSelector, path: string, problems: Problems): void {
  for (const { key } of requirements) {
    const source = POD_SOURCES.find((each) => key.startsWith(each));
    const plain = source === undefined ? undefined : key.slice(source.length);
    if (plain === undefined || isIdentityLabel(plain)) continue;
    problems.warn(
      path,
      `the label ${show(plain)} is part of no identity: what asks for it selects nobody, what excludes it excludes nobody; use another label`,
    );
  }
}
