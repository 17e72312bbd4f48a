/**
 * What `kubectl apply` says of a policy, by the same parser as its status.
 *
 * Guarantee: only a new or changed spec is refused. Whatever else is written of a policy that is invalid already (its metadata, its finalizers) passes,
 * and so does its removal.
 */
import { isDeepStrictEqual } from 'node:util';
import { type DemandLimits, demandOf, demandProblem, type PolicyProblem, parsePolicy } from '@weir/policy';
import { clipped } from '@weir/process/printable';
import type { AdmissionAnswer, AdmissionRequest } from '../parts/contract.ts';

const KINDS = ['CiliumNetworkPolicy', 'CiliumClusterwideNetworkPolicy'] as const;
/** Lines of a refusal, and warnings; beyond them only how many there are. */
const MOST = 20;
/** Characters of a warning. */
const LONGEST_WARNING = 256;

const PASSES: AdmissionAnswer = { allowed: true };

type Json = Readonly<Record<string, unknown>>;

export function reviewPolicy(request: AdmissionRequest, limits: DemandLimits): AdmissionAnswer {
  const { operation, object, oldObject } = request;
  const kind = KINDS.find((each) => each === request.kind?.kind);
  if (kind === undefined || !isObject(object)) return PASSES;
  if (operation !== 'CREATE' && !(operation === 'UPDATE' && changesSpec(object, oldObject))) return PASSES;
  const tooMuch = demandProblem(demandOf(object, kind), limits);
  if (tooMuch !== undefined) return answerOf([tooMuch]);
  return answerOf(problemsOf(object, kind));
}

/** Who answers may not know the nodes: of what depends on their families of addresses only what holds in every cluster is told. */
function problemsOf(object: Json, kind: (typeof KINDS)[number]): readonly PolicyProblem[] {
  const { problems, byStack } = parsePolicy(object, kind, { stack: 'dual' });
  if (!byStack) return problems;
  const { problems: others } = parsePolicy(object, kind, { stack: 'single' });
  return problems.filter((problem) => others.some((other) => isDeepStrictEqual(other, problem)));
}

function changesSpec(object: Json, before: unknown): boolean {
  if (!isObject(before)) return true;
  return !isDeepStrictEqual([object.spec, object.specs], [before.spec, before.specs]);
}

function answerOf(problems: readonly PolicyProblem[]): AdmissionAnswer {
  const errors = problems.filter(({ code }) => code === 'InvalidSpec' || code === 'BudgetExceeded');
  const rest = problems.filter(({ code }) => code === 'UnsupportedField' || code === 'Warning');
  const warnings = rest.length === 0 ? {} : { warnings: told(rest, warningOf) };
  if (errors.length === 0) return { allowed: true, ...warnings };
  return { allowed: false, message: ['the policy is not valid:', ...told(errors, textOf)].join('\n'), ...warnings };
}

/** As many as are told, and how many there are beside them. */
function told(problems: readonly PolicyProblem[], text: (problem: PolicyProblem) => string): readonly string[] {
  const left = problems.slice(MOST).reduce((sum, { count = 1 }) => sum + count, 0);
  return [...problems.slice(0, MOST).map(text), ...(left === 0 ? [] : [`and ${left} more`])];
}

function textOf({ path, message }: PolicyProblem): string {
  return path === '$' ? message : `${path}: ${message}`;
}

function warningOf(problem: PolicyProblem): string {
  const text = problem.code === 'UnsupportedField' ? `not enforced: ${textOf(problem)}` : textOf(problem);
  return clipped(text, LONGEST_WARNING);
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
