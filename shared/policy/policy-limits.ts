/**
 * What one policy may ask for by itself, counted before it is read and once it is resolved. The operator refuses what asks for more; who writes
 * policies can know it without a cluster. 0: no limit.
 */
import { breadthOf, type LabelSelector } from '@weir/labels';
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

/** What a policy's rules cost once they are resolved. */
export interface PolicyNeeds {
  /** One counts several times where it is long, or looks into many namespaces. */
  readonly selectors: number;
  /** Each counted once. */
  readonly distinctSelectors: number;
  /** Of rules and of selectors, as they are written to the API; numbers of rules as the longest. */
  readonly bytes: number;
  /** As often as they are named, exceptions too. */
  readonly cidrs: number;
  /** Bytes of the largest object of either kind: of the rules, and of a selector. */
  readonly rulesBytes: number;
  readonly selectorBytes: number;
}

/** Requirements and values that count as one selector. */
const TERMS_OF_ONE = 10;
/** As how many a selector counts at most for the namespaces that it looks into: as many identities has the cluster for each of a namespace. */
const EVERYWHERE = 16;
/** Digits of a rule's cookie, at most: which one a rule gets must not decide whether there is room for it. */
const COOKIE_DIGITS = 10;

export function policyNeeds(rules: readonly ResolvedRule[], selectors: Iterable<LabelSelector>): PolicyNeeds {
  let [rulesBytes, cidrs] = [bytesOf(rules), 0];
  for (const { peers, cookie } of rules) {
    rulesBytes += COOKIE_DIGITS - `${cookie}`.length;
    for (const peer of peers ?? []) if ('cidr' in peer) cidrs += 1 + (peer.except?.length ?? 0);
  }
  let [count, distinctSelectors, bytes, selectorBytes] = [0, 0, rulesBytes, 0];
  for (const selector of selectors) {
    distinctSelectors += 1;
    const size = bytesOf(selector);
    bytes += size;
    selectorBytes = Math.max(selectorBytes, size);
    const terms = selector.requirements.reduce((sum, { values }) => sum + 1 + values.length, 0);
    count += Math.max(1, Math.ceil(terms / TERMS_OF_ONE)) * breadthOf(selector, EVERYWHERE);
  }
  return { selectors: count, distinctSelectors, bytes, cidrs, rulesBytes, selectorBytes };
}

/** As it is written to the API. */
function bytesOf(json: object): number {
  return Buffer.byteLength(JSON.stringify(json));
}

/** Why one policy may not need that much; undefined: it may. */
export function needsProblem(
  needs: Omit<PolicyNeeds, 'bytes' | 'cidrs'>,
  { bytesPerPolicy, selectorsPerPolicy }: Pick<SizeLimits & DemandLimits, 'bytesPerPolicy' | 'selectorsPerPolicy'>,
): PolicyProblem | undefined {
  const { rulesBytes, selectorBytes, selectors } = needs;
  const tooLarge = (need: string): PolicyProblem => excessProblem(need, bytesPerPolicy, 'bytesPerPolicy');
  if (isOver(rulesBytes, bytesPerPolicy)) return tooLarge(`${rulesBytes} bytes once it is resolved`);
  if (isOver(selectorBytes, bytesPerPolicy)) return tooLarge(`${selectorBytes} bytes for one of its selectors`);
  if (!isOver(selectors, selectorsPerPolicy)) return undefined;
  return excessProblem(selectorsText(needs), selectorsPerPolicy, 'selectorsPerPolicy');
}

export function selectorsText({
  selectors,
  distinctSelectors,
}: Pick<PolicyNeeds, 'selectors' | 'distinctSelectors'>): string {
  if (selectors === distinctSelectors) return `${selectors} selectors`;
  return `${selectors} selectors (it has ${distinctSelectors}: one counts once for each ${TERMS_OF_ONE} requirements and values, and that once for each namespace that it looks into)`;
}

export function cidrsText({ cidrs }: Pick<PolicyNeeds, 'cidrs'>): string {
  return `${cidrs} CIDRs (exceptions are such)`;
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
function excessProblem(need: string, most: number, limit: string): PolicyProblem {
  const option = `--${limit.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return {
    code: 'BudgetExceeded',
    path: '$',
    message: `the policy needs ${need}, and one may need ${most}: split it, or raise ${option} (value operator.limits.${limit})`,
  };
}
