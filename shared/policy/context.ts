import { isIdentityLabel, type LabelSelector, readSelector as read, type SelectorOptions } from '@weir/labels';
import { type Json, type Problems, show } from './problems.ts';
import type { StackWords } from './stack.ts';
import type { Direction, RulePeer, Verdict } from './types.ts';

/** Where a rule comes from: decides what is injected into its selectors (spec 2.3, 2.4). */
export type RuleScope =
  | { readonly kind: 'CiliumNetworkPolicy'; readonly namespace: string }
  /** `init`: of a rule whose subject asks for reserved:init. */
  | { readonly kind: 'CiliumClusterwideNetworkPolicy'; readonly init?: true }
  | { readonly kind: 'BareRules' };

/** The element that a part is parsed for. */
export interface ElementContext {
  readonly path: string;
  readonly direction: Direction;
  readonly verdict: Verdict;
  readonly scope: RuleScope;
  readonly known: Known;
}

/** Reads what refers to objects that come and go, such as an item of `toServices`. */
export interface ReferenceReader<Item> {
  /** The peers that it stands for now. */
  read(item: Item, context: ElementContext, path: string, problems: Problems): readonly RulePeer[];
}

/** Of one policy. */
export interface Known {
  /** What its selectors of peers have been read as, by their JSON. */
  readonly peers: Map<string, RulePeer>;
  readonly services: ReferenceReader<unknown>;
  readonly cidrGroups: ReferenceReader<Json>;
  readonly stack: StackWords;
}

/** What an unsupported part does to its element; ends a message. */
export function consequence(verdict: Verdict): string {
  return verdict === 'allow'
    ? 'until then it allows nothing'
    : 'until then it denies every peer and port that it might mean';
}

/** What happens to flows of which a part of a policy asks more than to let them pass; ends a message. */
export const ASKING = 'until then the flows that it is about are denied, also where a broader rule allows them';

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

/** Warns of keys of a subject of which no identity has a label (spec section 7): Cilium has such a selector select nothing, silently. */
export function warnOfUnseenLabels({ requirements }: LabelSelector, path: string, problems: Problems): void {
  for (const { key } of requirements) {
    if (!isOfPods(key) || !isUnseen(key)) continue;
    problems.warn(
      path,
      `the label ${show(plainOf(key))} is part of no identity: what asks for it selects nobody, what excludes it excludes nobody; use another label`,
    );
  }
}

/** Sources of which peers have labels, or are told by other members. */
const OTHER_SOURCES = ['reserved:', 'cidr:', 'cidrgroup:', 'fqdn:', 'node:'];

/** Whether no identity has a label of the key: it is left out of identities, or pods have none of its source. */
function isUnseen(key: string): boolean {
  if (isOfPods(key)) return !isIdentityLabel(plainOf(key));
  return !OTHER_SOURCES.some((source) => key.startsWith(source));
}

function plainOf(key: string): string {
  return key.slice(key.indexOf(':') + 1);
}

/**
 * A peer's selector by labels that identities have. By others nobody can be told: an allow selects nobody by them, a deny whomever the other labels
 * select, as each of these may have them.
 */
export function seenSelector(
  selector: LabelSelector,
  path: string,
  { verdict }: Pick<ElementContext, 'verdict'>,
  problems: Problems,
): LabelSelector | 'unsupported' {
  const unseen = selector.requirements.find(({ key }) => isUnseen(key));
  if (unseen === undefined) return selector;
  const key = isOfPods(unseen.key) ? plainOf(unseen.key) : unseen.key;
  const why = isOfPods(unseen.key) ? 'is part of no identity' : 'is of a source that pods have no labels of';
  if (verdict === 'allow') {
    problems.unsupported(path, `the label ${show(key)} ${why}: use another; ${consequence(verdict)}`);
    return 'unsupported';
  }
  problems.warn(path, `the label ${show(key)} ${why}: all are denied that the others select; use another label`);
  return { requirements: selector.requirements.filter((requirement) => !isUnseen(requirement.key)) };
}
