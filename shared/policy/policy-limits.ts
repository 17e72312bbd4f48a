/**
 * What one policy may ask for by itself, counted before it is read and once it is resolved. The operator refuses what asks for more; who writes
 * policies can know it without a cluster. 0: no limit.
 */
import type { Demand } from './demand.ts';
import type { PolicyProblem, ResolvedRule } from './types.ts';

/** Of what is written. */
export interface DemandLimits {
  /** Distinct selectors of one policy, as they are written. */
  readonly selectorsPerPolicy: number;
  /** Rules of one policy: elements of its ingress, egress and denies. */
  readonly rulesPerPolicy: number;
  /** Entries of all lists of one policy, those that repeat others too: peers, ports, values, CIDRs, rules. To read them is one piece. */
  readonly entriesPerPolicy: number;
}

/** Of what it is resolved to. */
export interface SizeLimits {
  /** Bytes of the rules of one ResolvedPolicy. An object of more than 1,500,000 does not fit into etcd. */
  readonly bytesPerPolicy: number;
  /** CIDRs that the policies of one namespace name, exceptions too, as often as they name them. Each is an entry of a node's table of addresses. */
  readonly cidrsPerNamespace: number;
}

/** Why they are these: operator/limits.ts. */
export const DEFAULT_POLICY_LIMITS: DemandLimits & SizeLimits = {
  selectorsPerPolicy: 2_000,
  rulesPerPolicy: 5_000,
  entriesPerPolicy: 50_000,
  bytesPerPolicy: 1_400_000,
  cidrsPerNamespace: 40_000,
};

/** What resolved rules come to. */
export interface RulesSize {
  /** As they are written to the API. */
  readonly bytes: number;
  /** As often as they are named, exceptions too. */
  readonly cidrs: number;
}

export function sizeOf(rules: readonly Pick<ResolvedRule, 'peers'>[]): RulesSize {
  let cidrs = 0;
  for (const { peers } of rules)
    for (const peer of peers ?? []) if ('cidr' in peer) cidrs += 1 + (peer.except?.length ?? 0);
  return { bytes: bytesOf(rules), cidrs };
}

/** As it is written to the API. */
export function bytesOf(json: object): number {
  return Buffer.byteLength(JSON.stringify(json));
}

/** Why a policy that asks for that much is not read at all; undefined: it is. */
export function demandProblem({ selectors, rules, entries }: Demand, limits: DemandLimits): PolicyProblem | undefined {
  const { selectorsPerPolicy, rulesPerPolicy, entriesPerPolicy } = limits;
  if (isOver(rules, rulesPerPolicy)) return excessProblem(`${rules} rules`, rulesPerPolicy, 'rulesPerPolicy');
  if (isOver(entries, entriesPerPolicy)) {
    const needs = `${entries} entries in its lists (peers, ports, values, CIDRs)`;
    return excessProblem(needs, entriesPerPolicy, 'entriesPerPolicy');
  }
  if (!isOver(selectors, selectorsPerPolicy)) return undefined;
  return excessProblem(`${selectors} selectors`, selectorsPerPolicy, 'selectorsPerPolicy');
}

export function isOver(need: number, most: number): boolean {
  return most > 0 && need > most;
}

/** @param limit its name among the operator's limits, as the chart has it */
export function excessProblem(need: string, most: number, limit: string): PolicyProblem {
  const option = `--${limit.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return {
    code: 'BudgetExceeded',
    path: '$',
    message: `the policy needs ${need}, and one may need ${most}: split it, or raise ${option} (value operator.limits.${limit})`,
  };
}
