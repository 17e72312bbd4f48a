/** By which labels a rule is known, whatever its policy is called there (spec 2.6). */
import { compareText } from '@weir/labels';
import type { PolicyKind } from './types.ts';

export interface RuleSource {
  readonly kind: PolicyKind;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
}

/** What the rule is derived from, and its own labels, as `source:key=value`, sorted. Imported rules have their own alone. */
export function ruleLabels({ kind, namespace, name, uid }: RuleSource, own: readonly string[] = []): readonly string[] {
  const derived =
    kind === 'BareRules'
      ? []
      : [
          `derived-from=${kind}`,
          `name=${name}`,
          ...(namespace === undefined ? [] : [`namespace=${namespace}`]),
          `uid=${uid}`,
        ].map((text) => `k8s:io.cilium.k8s.policy.${text}`);
  return [...new Set([...derived, ...own])].sort(compareText);
}
