import { type PolicyProblem, parseCidrGroup } from '@weir/policy';
import { isMap, show } from './metadata.ts';

/** Problems of a CiliumCIDRGroup (spec section 1). Its metadata is judged apart. */
export function cidrGroupProblems(object: Readonly<Record<string, unknown>>): readonly PolicyProblem[] {
  const { apiVersion, spec } = object;
  const invalid = (path: string, message: string): PolicyProblem => ({ code: 'InvalidSpec', path, message });
  const problems: PolicyProblem[] = [];
  if (apiVersion !== 'cilium.io/v2' && apiVersion !== 'cilium.io/v2alpha1')
    problems.push(invalid('apiVersion', `${show(apiVersion)} is not cilium.io/v2: write apiVersion: cilium.io/v2`));
  const { metadata } = object;
  if (!isMap(metadata) || typeof metadata.name !== 'string' || metadata.name === '')
    problems.push(invalid('metadata.name', 'the group has no name: write metadata.name'));
  else if (metadata.namespace !== undefined && metadata.namespace !== '')
    problems.push(invalid('metadata.namespace', 'a CiliumCIDRGroup has no namespace: remove it'));
  return [...problems, ...parseCidrGroup(spec).problems];
}
