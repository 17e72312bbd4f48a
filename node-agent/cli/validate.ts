import {
  DEFAULT_POLICY_LIMITS,
  demandOf,
  demandProblem,
  type ParseResult,
  type PolicyProblem,
  parseBareRules,
  parsePolicy,
  resolve,
  sizeProblem,
} from '@weir/policy';
import { clipped } from '@weir/process/printable';
import type { PolicyDocument } from './documents.ts';

const KINDS = ['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy', 'NetworkPolicy'] as const;

export interface Validation {
  readonly name: string;
  /** As condition `Valid` has it: false when some problem rejects the policy, and when some element is not enforced as it is written. */
  readonly valid: boolean;
  /** The condition's reason. */
  readonly reason: 'Valid' | 'InvalidSpec' | 'BudgetExceeded' | 'UnsupportedField';
  /** Elements, as RULES of the policy's status counts them. */
  readonly rules: number;
  readonly problems: readonly PolicyProblem[];
}

/**
 * Judges each document as the operator, or an import, would: by itself, with the operator's default limits. What selectors match,
 * and whether pods have the ports that are named, nobody knows without a cluster. Pure.
 *
 * @param namespace where a CiliumNetworkPolicy or NetworkPolicy that names none would be applied, as with kubectl
 */
export function validateDocuments(documents: readonly PolicyDocument[], namespace = 'default'): readonly Validation[] {
  return documents.map(({ name, value: written }) => {
    const value = inNamespace(written, namespace);
    const kind = kindOf(value);
    const demand = kind === undefined ? undefined : demandProblem(demandOf(value, kind), DEFAULT_POLICY_LIMITS);
    const { rules, problems: found } = demand === undefined ? parseAny(value) : { rules: [], problems: [demand] };
    const resolved = resolve(rules, { cookieOf: () => 0 });
    const size = kind === undefined ? undefined : sizeProblem(resolved.rules, resolved.selectors);
    const problems = size === undefined ? found : [...found, size];
    const reason = reasonOf(problems);
    return {
      name: title(value) ?? name,
      valid: reason === 'Valid',
      reason,
      rules: resolved.rules.length,
      problems,
    };
  });
}

function reasonOf(problems: readonly PolicyProblem[]): Validation['reason'] {
  const has = (code: PolicyProblem['code']): boolean => problems.some((problem) => problem.code === code);
  const reasons = ['InvalidSpec', 'BudgetExceeded', 'UnsupportedField'] as const;
  return reasons.find(has) ?? 'Valid';
}

type Kind = (typeof KINDS)[number];

/** Undefined: bare rules, or nothing that is known. */
function kindOf(value: unknown): Kind | undefined {
  return KINDS.find((kind) => typeof value === 'object' && value !== null && 'kind' in value && value.kind === kind);
}

function parseAny(value: unknown): ParseResult {
  const known = kindOf(value);
  if (known !== undefined) return parsePolicy(value, known);
  const kind = typeof value === 'object' && value !== null && 'kind' in value ? value.kind : undefined;
  if (kind === undefined) return parseBareRules(value);
  return {
    rules: [],
    services: [],
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
