import {
  DEFAULT_POLICY_LIMITS,
  demandOf,
  demandProblem,
  type PolicyProblem,
  parseBareRules,
  parsePolicy,
  type Rule,
  resolve,
  type Stack,
  sizeProblem,
} from '@weir/policy';
import { clipped } from '@weir/process/printable';
import { cidrGroupProblems } from './cidr-group.ts';
import type { PolicyDocument } from './documents.ts';
import { isMap, metadataProblems, show } from './metadata.ts';
import { type JudgedKind, kindOf } from './object-kinds.ts';
import type { Place } from './places.ts';
import type { SourceFile } from './sources.ts';
import { subjectsThatAsk, unaskedNames } from './unasked-names.ts';

export type Severity = 'error' | 'warning' | 'note';

/** `InvalidYaml`: nothing of the file is judged. `OtherKind`: nothing of the document. */
export type FindingCode = PolicyProblem['code'] | 'InvalidYaml' | 'InvalidMetadata' | 'DuplicateName' | 'OtherKind';

/** Something to say of a place in a file. */
export interface Finding extends Place {
  readonly file: string;
  readonly severity: Severity;
  readonly code: FindingCode;
  /** `CiliumNetworkPolicy default/web`; absent: it has no kind and name. */
  readonly object?: string;
  /** JSON path in the object; empty: the whole. */
  readonly path: string;
  readonly message: string;
}

export interface JudgedObject extends Place {
  readonly file: string;
  readonly name: string;
  /** As condition `Valid` has it: false when some problem rejects the policy, and when some element is not enforced as it is written. */
  readonly valid: boolean;
  /** The condition's reason; of wrong metadata and doubles `InvalidSpec`. */
  readonly reason: 'Valid' | 'InvalidSpec' | 'BudgetExceeded' | 'UnsupportedField';
  /** Elements, as RULES of the policy's status counts them. */
  readonly rules: number;
}

export interface Validation {
  readonly objects: readonly JudgedObject[];
  /** In the order of files and documents. */
  readonly findings: readonly Finding[];
}

const SEVERITIES: Readonly<Record<FindingCode, Severity>> = {
  InvalidYaml: 'error',
  InvalidSpec: 'error',
  InvalidMetadata: 'error',
  DuplicateName: 'error',
  BudgetExceeded: 'error',
  UnsupportedField: 'warning',
  Warning: 'warning',
  OtherKind: 'note',
};

/** Bytes that are within the limit of a resolved policy, and of a selector. */
const SMALL = 1_000_000;

/** What is wrong with an object, before it has a place. */
type Problem = { readonly code: FindingCode; readonly path: string; readonly message: string };

/**
 * Judges each document as the API server and the operator, or an import, would: with the operator's default limits, and by itself, but that a rule by names
 * needs one that lets its pods ask for them. What selectors match, and whether pods have the ports that are named, nobody knows without a cluster. Pure.
 *
 * @param namespace where a CiliumNetworkPolicy or NetworkPolicy that names none would be applied, as with kubectl
 * @param stack of the cluster that they are for
 */
export function validateFiles(
  files: readonly SourceFile[],
  namespace = 'default',
  stack: Stack = 'unknown',
): Validation {
  const objects: JudgedObject[] = [];
  const findings: Finding[] = [];
  const seen = new Map<string, Place & { readonly file: string }>();
  const judgements = new Map(
    files.flatMap(({ documents }) => documents.map((each) => [each, judged(each, namespace, stack)] as const)),
  );
  const asking = judgements
    .values()
    .toArray()
    .flatMap(({ rules }) => subjectsThatAsk(rules));
  for (const { name: file, documents, error } of files) {
    if (error !== undefined)
      findings.push({ file, ...error.place, severity: 'error', code: 'InvalidYaml', path: '', message: error.reason });
    for (const document of documents) {
      const judgement = judgements.get(document);
      if (judgement === undefined) continue;
      const { kind, name, problems, rules } = judgement;
      const start = document.place('');
      const add = (problem: Problem, severity = SEVERITIES[problem.code]): void => {
        const path = problem.path === '$' ? '' : problem.path;
        const { code, message } = problem;
        findings.push({ file, ...document.place(path), severity, code, ...(name && { object: name }), path, message });
      };
      for (const problem of [...problems, ...unaskedNames(rules, asking)]) add(problem);
      if (kind === undefined) continue;
      const before = name === undefined ? undefined : seen.get(name);
      if (name !== undefined && before === undefined) seen.set(name, { file, ...start });
      const doubled = before?.file === file;
      if (before !== undefined)
        add(
          {
            code: 'DuplicateName',
            path: 'metadata.name',
            message: `${name} is already at ${before.file}:${before.line}: of two objects of one name the last that is applied replaces the other`,
          },
          doubled ? 'error' : 'warning',
        );
      const reason = doubled ? 'InvalidSpec' : reasonOf(problems);
      const title = name ?? document.name;
      objects.push({ file, ...start, name: title, valid: reason === 'Valid', reason, rules: elementsIn(rules) });
    }
  }
  return { objects, findings };
}

/** 0: as written. 1: something is invalid. 2: something is not fully enforced. */
export function exitCodeOf({ findings }: Pick<Validation, 'findings'>): number {
  if (findings.some(({ severity }) => severity === 'error')) return 1;
  return findings.some(({ code }) => code === 'UnsupportedField') ? 2 : 0;
}

interface Judged {
  /** Undefined: nothing of the document is judged. */
  readonly kind: JudgedKind | undefined;
  readonly name: string | undefined;
  readonly problems: readonly Problem[];
  readonly rules: readonly Rule[];
}

function judged({ value: written }: PolicyDocument, namespace: string, stack: Stack): Judged {
  const found = kindOf(written);
  if ('skip' in found) {
    const problem: Problem = { code: 'OtherKind', path: '', message: `skipped: ${found.skip}` };
    return { kind: undefined, name: undefined, problems: [problem], rules: [] };
  }
  const ofKind: readonly Problem[] = found.wrong === undefined ? [] : [{ code: 'InvalidSpec', ...found.wrong }];
  if (!('kind' in found)) return { kind: 'BareRules', name: titleOf(written), problems: ofKind, rules: [] };
  const { kind } = found;
  if (kind === 'BareRules') {
    const { rules, problems } = parseBareRules(written);
    return { kind, name: undefined, problems, rules };
  }
  const value = inNamespace(written, kind, namespace);
  const ofMetadata = metadataProblems(value.metadata).map(
    ([path, message]): Problem => ({ code: 'InvalidMetadata', path, message }),
  );
  const { rules, problems } = kind === 'CiliumCIDRGroup' ? ofGroup(value) : ofPolicy(value, kind, stack);
  // What is no object at all is told once.
  const told = new Set(problems.map(({ path }) => path));
  const all = [...ofKind, ...ofMetadata.filter(({ path }) => !told.has(path)), ...problems];
  return { kind, name: titleOf(value), problems: all, rules };
}

function ofGroup(value: Readonly<Record<string, unknown>>): Pick<Judged, 'rules' | 'problems'> {
  return { rules: [], problems: cidrGroupProblems(value) };
}

function ofPolicy(
  value: Readonly<Record<string, unknown>>,
  kind: Exclude<JudgedKind, 'BareRules' | 'CiliumCIDRGroup'>,
  stack: Stack,
): Pick<Judged, 'rules' | 'problems'> {
  const demand = demandProblem(demandOf(value, kind), DEFAULT_POLICY_LIMITS);
  if (demand !== undefined) return { rules: [], problems: [demand] };
  const { rules, problems } = parsePolicy(value, kind, { stack });
  if (JSON.stringify(value).length < SMALL / 2 && mostBytes(rules) < SMALL) return { rules, problems };
  const resolved = resolve(rules, { cookieOf: () => 0 });
  const size = sizeProblem(resolved.rules, resolved.selectors);
  return { rules, problems: size === undefined ? problems : [...problems, size] };
}

/** At least the bytes of the rules once they are resolved: to resolve them takes longer than to read them. */
function mostBytes(rules: readonly Rule[]): number {
  let bytes = 0;
  for (const { elements, labels, log = '' } of rules)
    for (const { peers, ports } of elements) {
      bytes +=
        500 +
        6 * log.length +
        labels.reduce((sum, label) => sum + 6 * label.length, 0) +
        (ports === 'any' ? 0 : 100 * ports.length);
      for (const peer of peers === 'any' ? [] : peers)
        bytes += 100 + (peer.kind === 'cidr' ? 60 * peer.cidr.except.length : 0);
    }
  return bytes;
}

function elementsIn(rules: readonly Rule[]): number {
  return rules.reduce((sum, { elements }) => sum + elements.length, 0);
}

function reasonOf(problems: readonly Problem[]): JudgedObject['reason'] {
  const has = (code: FindingCode): boolean => problems.some((problem) => problem.code === code);
  if (has('InvalidSpec') || has('InvalidMetadata')) return 'InvalidSpec';
  return (['BudgetExceeded', 'UnsupportedField'] as const).find(has) ?? 'Valid';
}

/** As kubectl does where an object names no namespace. */
export function inNamespace(value: unknown, kind: JudgedKind, namespace: string): Readonly<Record<string, unknown>> {
  if (!isMap(value)) return {};
  if (kind !== 'CiliumNetworkPolicy' && kind !== 'NetworkPolicy') return value;
  const metadata = value.metadata ?? {};
  if (!isMap(metadata) || 'namespace' in metadata) return value;
  return { ...value, metadata: { ...metadata, namespace } };
}

/** `CiliumNetworkPolicy default/l3-rule`. */
export function titleOf(value: unknown): string | undefined {
  if (!isMap(value) || !isMap(value.metadata)) return undefined;
  const { kind, metadata } = value;
  if (metadata.name === undefined || kind === undefined) return undefined;
  const text = (each: unknown): string => (typeof each === 'string' ? each : show(each));
  const namespace = metadata.namespace === undefined ? '' : `${text(metadata.namespace)}/`;
  return clipped(`${text(kind)} ${namespace}${text(metadata.name)}`, 400);
}
