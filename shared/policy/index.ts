export { cidrGroupOf, cidrGroupView, parseCidrGroup, selectsCidrGroup } from './cidr-groups.ts';
export { closedPolicy } from './closed.ts';
export * from './compile.ts';
export * from './decision.ts';
export * from './demand.ts';
export * from './describe.ts';
export * from './errors.ts';
export * from './evaluate.ts';
export * from './explain.ts';
export { canonicalHostName, fixedSuffix, HostNames, hostNameList, hostNameMatches } from './host-names.ts';
export * from './membership.ts';
export { nodeLabels, selectsNodes } from './nodes.ts';
export * from './oracle.ts';
export * from './parse.ts';
export {
  DEFAULT_POLICY_LIMITS,
  type DemandLimits,
  demandProblem,
  sizeProblem,
} from './policy-limits.ts';
export { portNamesOf } from './port-names.ts';
export { PROTOCOL_NUMBERS } from './protocols.ts';
export * from './recompile.ts';
export * from './resolve.ts';
export { type ShapeProblem, shapeProblem } from './resolved-shape.ts';
export { MOST_ROWS, rowsIn } from './row-budget.ts';
export * from './rule-changes.ts';
export { type RuleSource, ruleLabels } from './rule-labels.ts';
export { selectsService, serviceView } from './services.ts';
export * from './types.ts';
