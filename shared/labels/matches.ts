import type { LabelMap, LabelSelector, Requirement } from './types.ts';

/**
 * Whether every requirement holds (spec 2.2). A key of source `any` looks at that key under every source; a positive
 * requirement needs one label that satisfies it, a negative one needs that none violates it. No requirement: true.
 */
export function matches(selector: LabelSelector, labels: LabelMap): boolean {
  return selector.requirements.every((requirement) => holds(requirement, labels));
}

function holds({ key, operator, values }: Requirement, labels: LabelMap): boolean {
  switch (operator) {
    case 'In':
      return some(key, labels, (value) => values.includes(value));
    case 'NotIn':
      return !some(key, labels, (value) => values.includes(value));
    case 'Exists':
      return some(key, labels, () => true);
    case 'DoesNotExist':
      return !some(key, labels, () => true);
  }
}

function some(key: string, labels: LabelMap, test: (value: string) => boolean): boolean {
  if (!key.startsWith('any:')) {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
    return value !== undefined && test(value);
  }
  const bare = key.slice('any:'.length);
  for (const name in labels) {
    const value = labels[name];
    if (value === undefined || name.length <= bare.length || !name.endsWith(bare)) continue;
    if (name.indexOf(':') === name.length - bare.length - 1 && test(value)) return true;
  }
  return false;
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
