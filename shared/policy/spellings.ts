/** Selectors that mean something else in Cilium than they show (spec 2.2): refused by name, so that nobody is selected by surprise. */
import { NAMESPACE_KEY, NAMESPACE_LABEL_PREFIX } from '@weir/labels';
import { isObject, type Json, member, show } from './problems.ts';
import type { StackWords } from './stack.ts';

export interface OddSpelling {
  /** Where in the selector: `.matchLabels["app"]`. */
  readonly path: string;
  readonly message: string;
}

/** What is odd about a selector that can be read; undefined: nothing. */
export function oddSpelling(selector: unknown, stack: StackWords): OddSpelling | undefined {
  if (!isObject(selector)) return undefined;
  const labels = member(selector, 'matchLabels');
  const expressions = member(selector, 'matchExpressions');
  const twice = isObject(labels) ? oneKeyTwice(labels) : undefined;
  if (twice !== undefined) return twice;
  for (const [key, path] of [
    ...(isObject(labels) ? Object.keys(labels).map((key) => [key, `.matchLabels[${show(key)}]`] as const) : []),
    ...(Array.isArray(expressions)
      ? expressions.map((each: Json, index) => [String(each.key), `.matchExpressions[${index}].key`] as const)
      : []),
  ]) {
    const message = oddKey(key) ?? (key === 'reserved:world' ? stack.refusal(key) : undefined);
    if (message !== undefined) return { path, message };
  }
  return undefined;
}

function oddKey(key: string): string | undefined {
  const plain = plainOf(key);
  if (key.startsWith('unspec:') && (plain === NAMESPACE_KEY || plain.startsWith(NAMESPACE_LABEL_PREFIX)))
    return `${show(key)} does not free the selector from the policy's own namespace in Cilium, as its source is unspec: write "k8s:${plain}"`;
  if (key.startsWith('reserved.'))
    return `${show(key)} stands for the label "reserved:${key.slice('reserved.'.length)}" in Cilium: write that, or an entity`;
  return undefined;
}

/** Cilium keeps one of two labels that have one key, whatever their sources: the other is not asked for. */
function oneKeyTwice(labels: Json): OddSpelling | undefined {
  const known = new Map<string, string>();
  for (const key of Object.keys(labels)) {
    const plain = plainOf(key);
    const other = known.get(plain);
    if (other !== undefined)
      return {
        path: `.matchLabels[${show(key)}]`,
        message: `${show(key)} and ${show(other)} are one key, of which Cilium asks for one label alone: keep one of them, or write the other under matchExpressions`,
      };
    known.set(plain, key);
  }
  return undefined;
}

function plainOf(key: string): string {
  return key.slice(key.indexOf(':') + 1);
}
