/** Policies of files as rules, each element with the place where it is written. */
import {
  type PolicyProblem,
  parseBareRules,
  parsePolicy,
  type Referents,
  type Rule,
  type RuleElement,
} from '@weir/policy';
import { kindOf } from './object-kinds.ts';
import type { Place } from './places.ts';
import type { SourceFile } from './sources.ts';
import { inNamespace, titleOf } from './validate.ts';

/** Where an element, or a rule, comes from. */
export interface Origin extends Place {
  readonly file: string;
  /** `CiliumNetworkPolicy default/web`. */
  readonly policy: string;
  readonly path: string;
}

export interface FilePolicies {
  readonly rules: readonly Rule[];
  originOf(part: Rule | RuleElement): Origin;
  /** The first problem of each policy of which something is not as written, and whatever policies refer to and no file has. */
  readonly doubts: readonly Doubt[];
}

export interface Doubt extends Origin {
  /** Of a problem, or the reason of condition `ResolvedRefs`. */
  readonly code: PolicyProblem['code'] | 'CIDRGroupNotFound' | 'ServiceNotFound';
  readonly message: string;
}

/** @param namespace of what names none. Of two policies of one name the last counts, as where files are applied in order. */
export function policiesIn(
  files: readonly SourceFile[],
  referents: Partial<Referents>,
  namespace: string,
): FilePolicies {
  const byName = new Map<string, readonly Rule[]>();
  const origins = new Map<Rule | RuleElement, Origin>();
  const doubts: Doubt[] = [];
  for (const { name: file, documents } of files)
    for (const document of documents) {
      const found = kindOf(document.value);
      if (!('kind' in found) || found.kind === 'CiliumCIDRGroup') continue;
      const { kind } = found;
      const value = kind === 'BareRules' ? document.value : inNamespace(document.value, kind, namespace);
      const parsed = kind === 'BareRules' ? parseBareRules(value) : parsePolicy(value, kind, referents);
      const { rules, problems } = parsed;
      const policy = (kind === 'BareRules' ? undefined : titleOf(value)) ?? document.name;
      const originOf = (path: string): Origin => ({ file, policy, path, ...document.place(path === '$' ? '' : path) });
      for (const rule of rules) {
        origins.set(rule, originOf(rule.path));
        for (const element of rule.elements) origins.set(element, originOf(element.path));
      }
      byName.set(policy, rules);
      const problem = problems.find(({ code }) => code !== 'Warning');
      if (problem !== undefined)
        doubts.push({ ...originOf(problem.path), code: problem.code, message: problem.message });
      for (const { code, what, refs } of [
        { code: 'CIDRGroupNotFound', what: 'CiliumCIDRGroup', refs: parsed.cidrGroups },
        { code: 'ServiceNotFound', what: 'Service', refs: parsed.services },
      ] as const)
        for (const { path, found } of refs)
          if (found.length === 0)
            doubts.push({
              ...originOf(path),
              code,
              message: `no file has a ${what} that it names or selects: here it means nobody`,
            });
    }
  return {
    rules: [...byName.values()].flat(),
    originOf(part) {
      const origin = origins.get(part);
      if (origin === undefined) throw new Error(`no file has ${part.path}`);
      return origin;
    },
    doubts,
  };
}
