import { cidrsOf, type PolicyProblem, type ResolvedRule } from '@weir/policy';
import type { PolicyLimits } from '../limits.ts';

interface Enforced {
  readonly resolved: { readonly rules: readonly ResolvedRule[] } | undefined;
  readonly selectors: ReadonlyMap<string, unknown>;
}

/** A policy counts once for so many CIDRs, or selectors, begun: each is a number or a row on every node, or an object, that others cannot have. */
export const CIDRS_A_PLACE = 50;
export const SELECTORS_A_PLACE = 10;

/** How many policies one counts for, by its enforced rules. */
export function placesOf({ resolved, selectors }: Enforced): number {
  const cidrs = resolved === undefined ? 0 : new Set(cidrsOf(resolved.rules, { everyone: true })).size;
  return Math.max(1, Math.ceil(cidrs / CIDRS_A_PLACE), Math.ceil(selectors.size / SELECTORS_A_PLACE));
}

const OPTION = '--policies-per-namespace (value operator.limits.policiesPerNamespace)';

/** The namespace has no place left. */
export function noPlace(namespace = '', { policiesPerNamespace: most }: PolicyLimits): PolicyProblem {
  return beyond(
    `namespace ${JSON.stringify(namespace)} has ${most} other policies, refused ones too, and may have ${most}, so that this one is not read: remove some, put rules with one endpointSelector into one policy (field specs), or raise ${OPTION}`,
  );
}

/** It has fewer left than the policy needs. */
export function noPlaces(
  namespace = '',
  needs: number,
  left: number,
  { policiesPerNamespace: most }: PolicyLimits,
): PolicyProblem {
  return beyond(
    `the policy counts as ${needs}, one for each ${CIDRS_A_PLACE} CIDRs and each ${SELECTORS_A_PLACE} selectors begun, and namespace ${JSON.stringify(namespace)} has ${left} left of the ${most} policies that it may have: name fewer, remove others, or raise ${OPTION}`,
  );
}

function beyond(message: string): PolicyProblem {
  return { code: 'BudgetExceeded', path: '$', message };
}
