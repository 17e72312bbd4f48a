import type { LabelMap, LabelSelector, Requirement } from './types.ts';

/**
 * Whether every requirement holds (spec 2.2). A key of source `any` looks at that key under every source; a positive
 * requirement needs one label that satisfies it, a negative one needs that none violates it. No requirement: true.
 */
export function matches(selector: LabelSelector, labels: LabelMap): boolean {
  const { requirements } = selector;
  // What asks for something is rarely fulfilled.
  for (const requirement of requirements) if (asks(requirement) && !holds(requirement, labels)) return false;
  for (const requirement of requirements) if (!asks(requirement) && !holds(requirement, labels)) return false;
  return true;
}

function asks({ operator }: Requirement): boolean {
  return operator === 'In' || operator === 'Exists';
}

function holds(requirement: Requirement, labels: LabelMap): boolean {
  const { key, operator } = requirement;
  switch (operator) {
    case 'In':
      return some(key, labels, (value) => lists(requirement, value));
    case 'NotIn':
      return !some(key, labels, (value) => lists(requirement, value));
    case 'Exists':
      return some(key, labels, () => true);
    case 'DoesNotExist':
      return !some(key, labels, () => true);
  }
}

/** Values of requirements that list many, for looks that cost the same however many these are: a requirement is asked of very many labels. */
const VALUES = new WeakMap<Requirement, ReadonlySet<string>>();
/** Values that are compared one by one: a set of so few takes more memory, and saves no time. */
const FEW_VALUES = 8;

function lists(requirement: Requirement, value: string): boolean {
  const known = VALUES.get(requirement);
  if (known !== undefined) return known.has(value);
  const { values } = requirement;
  if (values.length <= FEW_VALUES) return values.includes(value);
  const set = new Set(values);
  VALUES.set(requirement, set);
  return set.has(value);
}

function some(key: string, labels: LabelMap, test: (value: string) => boolean): boolean {
  if (!key.startsWith('any:')) {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
    return value !== undefined && test(value);
  }
  const bare = key.slice('any:'.length);
  for (const source of sourcesOf(labels)) {
    const name = source + bare;
    const value = Object.hasOwn(labels, name) ? labels[name] : undefined;
    if (value !== undefined && test(value)) return true;
  }
  return false;
}

/** Sources of the labels, each once and with its colon. Labels are many, sources few; the labels do not change. */
const SOURCES = new WeakMap<LabelMap, readonly string[]>();
/** Those that labels have in common, as one object. */
const SAME_SOURCES = new Map<string, readonly string[]>();
/** Sets of sources that are remembered: in a cluster there are two or three. */
const MOST_SETS = 100;

function sourcesOf(labels: LabelMap): readonly string[] {
  const known = SOURCES.get(labels);
  if (known !== undefined) return known;
  const found = new Set<string>();
  for (const name of Object.keys(labels)) {
    const colon = name.indexOf(':');
    if (colon !== -1) found.add(name.slice(0, colon + 1));
  }
  const text = [...found].join();
  const sources = SAME_SOURCES.get(text) ?? [...found];
  if (SAME_SOURCES.size < MOST_SETS) SAME_SOURCES.set(text, sources);
  SOURCES.set(labels, sources);
  return sources;
}

/** Whether something that claims to be a selector has the shape of one. */
export function isLabelSelector(value: unknown): value is LabelSelector {
  const { requirements } = (value ?? {}) as { readonly requirements?: unknown };
  return Array.isArray(requirements) && requirements.every(isRequirement);
}

function isRequirement(value: unknown): value is Requirement {
  const { key, operator, values } = (value ?? {}) as Partial<Requirement>;
  const texts = [key, operator].every((text) => typeof text === 'string');
  return texts && Array.isArray(values) && values.every((each: unknown) => typeof each === 'string');
}
