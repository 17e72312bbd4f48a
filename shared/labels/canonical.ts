import { createHash } from 'node:crypto';
import { compareText } from './label.ts';
import type { LabelSelector, Requirement } from './types.ts';

/** Requirements and values sorted, doubles removed: two spellings of one selector become equal. */
export function canonicalSelector(selector: LabelSelector): LabelSelector {
  const byText = new Map<string, Requirement>();
  for (const { key, operator, values } of selector.requirements) {
    const requirement = { key, operator, values: values.length < 2 ? values : [...new Set(values)].sort(compareText) };
    byText.set(JSON.stringify([key, operator, requirement.values]), requirement);
  }
  const sorted = [...byText.entries()].sort(([a], [b]) => compareText(a, b));
  return { requirements: sorted.map(([, requirement]) => requirement) };
}

/** The canonical JSON of a selector, the text that `selectorHash` hashes. */
export function selectorText(selector: LabelSelector): string {
  return JSON.stringify(
    canonicalSelector(selector).requirements.map(({ key, operator, values }) => [key, operator, values]),
  );
}

/**
 * 64 hex digits that name the selector: the SHA-256 of its canonical JSON, whole, as tenants write selectors and nobody compares what
 * one name stands for.
 */
export function selectorHash(selector: LabelSelector): string {
  return createHash('sha256').update(selectorText(selector)).digest('hex');
}

/** `k8s:app=web, any:tier in (a, b), !any:canary`; `everything` when there is no requirement. */
export function formatSelector(selector: LabelSelector): string {
  return selector.requirements.length === 0 ? 'everything' : selector.requirements.map(formatRequirement).join(', ');
}

function formatRequirement({ key, operator, values }: Requirement): string {
  switch (operator) {
    case 'In':
      return values.length === 1 ? `${key}=${values[0]}` : `${key} in (${values.join(', ')})`;
    case 'NotIn':
      return values.length === 1 ? `${key}!=${values[0]}` : `${key} not in (${values.join(', ')})`;
    case 'Exists':
      return key;
    case 'DoesNotExist':
      return `!${key}`;
  }
}
