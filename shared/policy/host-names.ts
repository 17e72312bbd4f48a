/**
 * Names of hosts, and patterns of them (spec 3.4). Canonical: lower case, no dot at the end. A pattern without `*` is a name. `*` alone is any name; elsewhere
 * it is any number of letters, digits, `-` and `_`; `**.` at the front is one or more labels.
 */

/** Bytes of a name on the wire, less the two around it (RFC 1035, 2.3.4). */
const LONGEST = 253;
const ANY_LABELS = '**.';

/** As names are compared: `API.Example.com.` is `api.example.com`. The root is the empty text. */
export function canonicalHostName(name: string): string {
  const lower = name.toLowerCase();
  return lower.endsWith('.') ? lower.slice(0, -1) : lower;
}

/** A list of canonical patterns: in order, each once; `*` alone where it is among them. */
export function hostNameList(patterns: readonly string[]): readonly string[] {
  return patterns.includes('*') ? ['*'] : [...new Set(patterns)].sort();
}

/** Whether a canonical pattern is of this canonical name. Takes at most time in proportion to both lengths' product. */
export function hostNameMatches(pattern: string, name: string): boolean {
  if (pattern === '*') return true;
  if (!pattern.includes('*')) return pattern === name;
  if (name.length > LONGEST) return false;
  if (!pattern.startsWith(ANY_LABELS)) return matchesLabels(pattern, name);
  // The last labels are the pattern's, one each: what stands before them must be labels, too.
  const rest = pattern.slice(ANY_LABELS.length);
  let dot = name.length;
  for (let at = 0; at >= 0 && dot > 0; at = rest.indexOf('.', at) + 1 || -1) dot = name.lastIndexOf('.', dot - 1);
  return dot > 0 && matchesLabels(rest, name.slice(dot + 1)) && isOfLabels(name.slice(0, dot));
}

/** `*` is of characters of labels, not of dots: so each label of the pattern is of one label of the name. */
function matchesLabels(pattern: string, name: string): boolean {
  const [patterns, labels] = [pattern.split('.'), name.split('.')];
  return patterns.length === labels.length && patterns.every((each, index) => matchesLabel(each, labels[index] ?? ''));
}

/** Greedy: what follows the last `*` that was met decides how much it takes. */
function matchesLabel(pattern: string, label: string): boolean {
  let [at, star, taken] = [0, -1, 0];
  for (let index = 0; index < label.length; ) {
    if (pattern[at] === '*') {
      star = at;
      taken = index;
      at += 1;
    } else if (pattern[at] === label[index]) {
      at += 1;
      index += 1;
    } else {
      if (star < 0 || !isOfLabels(label[taken] ?? '')) return false;
      taken += 1;
      index = taken;
      at = star + 1;
    }
  }
  return /^\**$/.test(pattern.slice(at));
}

function isOfLabels(text: string): boolean {
  return /^[-a-z0-9_]+(\.[-a-z0-9_]+)*$/.test(text);
}

/** The labels at the end of a pattern that every name of it has: `example.com` of `*.example.com`; none of `*` and `*com`. */
export function fixedSuffix(pattern: string): string {
  const labels = pattern.split('.');
  const last = labels.findLastIndex((label) => label.includes('*'));
  return labels.slice(last + 1).join('.');
}

/** Which of many patterns a name is of. It is held against those alone that end as it does. */
export class HostNames<Key> {
  readonly #names = new Map<string, Set<Key>>();
  /** By their fixed suffix, and then by themselves. */
  readonly #patterns = new Map<string, Map<string, Set<Key>>>();

  add(pattern: string, key: Key): void {
    let into = this.#names;
    if (pattern.includes('*')) {
      const suffix = fixedSuffix(pattern);
      into = this.#patterns.get(suffix) ?? new Map();
      this.#patterns.set(suffix, into);
    }
    const keys = into.get(pattern) ?? new Set<Key>();
    into.set(pattern, keys.add(key));
  }

  delete(pattern: string, key: Key): void {
    const suffix = fixedSuffix(pattern);
    const from = pattern.includes('*') ? this.#patterns.get(suffix) : this.#names;
    const keys = from?.get(pattern);
    keys?.delete(key);
    if (keys?.size === 0) from?.delete(pattern);
    if (from?.size === 0 && from !== this.#names) this.#patterns.delete(suffix);
  }

  /** Keys of the patterns that are of the canonical name. */
  *of(name: string): Generator<Key> {
    yield* this.#names.get(name) ?? [];
    yield* this.#ending('', name);
    for (let dot = name.lastIndexOf('.'); dot >= 0; dot = dot === 0 ? -1 : name.lastIndexOf('.', dot - 1))
      yield* this.#ending(name.slice(dot + 1), name);
  }

  *#ending(suffix: string, name: string): Generator<Key> {
    for (const [pattern, keys] of this.#patterns.get(suffix) ?? []) if (hostNameMatches(pattern, name)) yield* keys;
  }

  has(name: string): boolean {
    return this.of(name).next().done !== true;
  }
}
