import {
  type ParseResult,
  type PolicyProblem,
  parseBareRules,
  parsePolicy,
  resolve,
  serviceWarnings,
} from '@weir/policy';
import { clipped } from '@weir/process/printable';
import type { PolicyDocument } from './documents.ts';

export interface Validation {
  readonly name: string;
  /** As condition `Valid` has it: false when some problem rejects the policy, and when some element is not enforced as it is written. */
  readonly valid: boolean;
  /** The condition's reason. */
  readonly reason: 'Valid' | 'InvalidSpec' | 'UnsupportedField';
  /** Elements, as RULES of the policy's status counts them. */
  readonly rules: number;
  readonly problems: readonly PolicyProblem[];
}

/**
 * Judges each document as the operator, or an import, would. Pure.
 *
 * @param namespace where a CiliumNetworkPolicy or NetworkPolicy that names none would be applied, as with kubectl
 */
export function validateDocuments(documents: readonly PolicyDocument[], namespace = 'default'): readonly Validation[] {
  return documents.map(({ name, value: written }) => {
    const value = inNamespace(written, namespace);
    const { rules, problems } = parseAny(value);
    const reason = reasonOf(problems);
    return {
      name: title(value) ?? name,
      valid: reason === 'Valid',
      reason,
      rules: resolve(rules, { cookieOf: () => 0 }).rules.length,
      problems: [...problems, ...serviceWarnings(rules)],
    };
  });
}

function reasonOf(problems: readonly PolicyProblem[]): Validation['reason'] {
  const has = (code: PolicyProblem['code']): boolean => problems.some((problem) => problem.code === code);
  return has('InvalidSpec') ? 'InvalidSpec' : has('UnsupportedField') ? 'UnsupportedField' : 'Valid';
}

function parseAny(value: unknown): ParseResult {
  const kind = typeof value === 'object' && value !== null && 'kind' in value ? value.kind : undefined;
  if (kind === 'CiliumNetworkPolicy' || kind === 'CiliumClusterwideNetworkPolicy' || kind === 'NetworkPolicy')
    return parsePolicy(value, kind);
  if (kind === undefined) return parseBareRules(value);
  return {
    rules: [],
    problems: [
      {
        code: 'InvalidSpec',
        path: 'kind',
        message: `is ${clipped(JSON.stringify(kind) ?? 'absent', 80)}: write CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy or NetworkPolicy, or give a list of bare rules`,
      },
    ],
  };
}

function inNamespace(value: unknown, namespace: string): unknown {
  if (typeof value !== 'object' || value === null || !('kind' in value) || !('metadata' in value)) return value;
  const { kind, metadata } = value;
  if (kind !== 'CiliumNetworkPolicy' && kind !== 'NetworkPolicy') return value;
  if (typeof metadata !== 'object' || metadata === null || 'namespace' in metadata) return value;
  return { ...value, metadata: { ...metadata, namespace } };
}

/** `CiliumNetworkPolicy default/l3-rule`. */
function title(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || !('kind' in value) || !('metadata' in value)) return undefined;
  const { kind, metadata } = value;
  if (typeof metadata !== 'object' || metadata === null || !('name' in metadata)) return undefined;
  const namespace = 'namespace' in metadata ? `${String(metadata.namespace)}/` : '';
  return `${String(kind)} ${namespace}${String(metadata.name)}`;
}
