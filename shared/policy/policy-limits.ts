/**
 * What one policy may ask for, counted before it is read and once it is resolved. The operator refuses what asks for more; who writes
 * policies can know it without a cluster.
 */
import type { LabelSelector } from '@weir/labels';
import type { Demand } from './demand.ts';
import type { PolicyProblem, ResolvedRule, SelectorHash } from './types.ts';

/** Of what is written. 0: no limit. */
export interface DemandLimits {
  /** Rules of one policy: elements of its ingress, egress and denies. */
  readonly rulesPerPolicy: number;
  /** Distinct selectors of one policy, as they are written. */
  readonly selectorsPerPolicy: number;
}

/** Why they are these: operator/limits.ts. */
export const DEFAULT_POLICY_LIMITS: DemandLimits = { rulesPerPolicy: 5_000, selectorsPerPolicy: 1_000 };

/** Entries of all lists of one policy, those that repeat others too: peers, ports, values, CIDRs, rules. To read them is one piece, of 0.2 s at most. */
export const MOST_ENTRIES = 50_000;
/** Bytes of the rules of one ResolvedPolicy, and of each selector, which a PeerSet repeats. An object of more than 1,500,000 does not fit into etcd. */
export const MOST_BYTES = 1_400_000;
/** Digits of a rule's cookie, at most: which one a rule gets must not decide whether there is room for it. */
const COOKIE_DIGITS = 10;

/** Why a policy that asks for that much is not read at all; undefined: it is. */
export function demandProblem({ selectors, rules, entries }: Demand, limits: DemandLimits): PolicyProblem | undefined {
  const { selectorsPerPolicy, rulesPerPolicy } = limits;
  const over = (needs: string, most: number, option: string): PolicyProblem =>
    excess(`the policy needs ${needs}, and one may need ${most}: split it, or raise ${option}`);
  if (isOver(rules, rulesPerPolicy))
    return over(`${rules} rules`, rulesPerPolicy, '--rules-per-policy (value operator.limits.rulesPerPolicy)');
  if (isOver(selectors, selectorsPerPolicy)) {
    const option = '--selectors-per-policy (value operator.limits.selectorsPerPolicy)';
    return over(`${selectors} selectors`, selectorsPerPolicy, option);
  }
  if (entries <= MOST_ENTRIES) return undefined;
  const needs = `${entries} entries in its lists (peers, ports, values, CIDRs)`;
  return excess(`the policy needs ${needs}, and one may need ${MOST_ENTRIES}: split it`);
}

/** Why a resolved policy does not fit into objects of the API server; undefined: it does. */
export function sizeProblem(
  rules: readonly ResolvedRule[],
  selectors: ReadonlyMap<SelectorHash, LabelSelector>,
): PolicyProblem | undefined {
  const bytes = rules.reduce((sum, { cookie }) => sum + COOKIE_DIGITS - `${cookie}`.length, bytesOf(rules));
  if (bytes > MOST_BYTES)
    return excess(`the policy needs ${bytes} bytes once it is resolved, and one may need ${MOST_BYTES}: split it`);
  for (const [hash, selector] of selectors) {
    const size = bytesOf(selector);
    if (size <= MOST_BYTES) continue;
    const path = rules.find(
      ({ subject, peers }) => subject === hash || peers?.some((peer) => 'peerSet' in peer && peer.peerSet === hash),
    )?.path;
    return excess(
      `a selector of ${path} needs ${size} bytes, and one may need ${MOST_BYTES}: write it as several with fewer values`,
    );
  }
  return undefined;
}

/** As it is written to the API. */
function bytesOf(json: object): number {
  return Buffer.byteLength(JSON.stringify(json));
}

function isOver(need: number, most: number): boolean {
  return most > 0 && need > most;
}

function excess(message: string): PolicyProblem {
  return { code: 'BudgetExceeded', path: '$', message };
}
