/** What policies suffer from before the kernel has them: by what this node makes of their rules. */
import type { Direction, ResolvedRule } from '@weir/policy';
import type { StateDB, Table } from '@weir/statedb';
import type { CoreOptions, Tables } from '../core.ts';
import type { InUse, Missing, Model } from '../derive/index.ts';
import type { UnreadPolicyRow } from '../tables.ts';
import { mostRules } from './failure-text.ts';
import { type Fault, type Generations, generationsOf } from './policy-failures.ts';

/**
 * How long a policy may wait for its PeerSets before that is a failure: they are other objects and come a moment later. Until then all of
 * what was read since waits with it; afterwards the node says of this policy what it has instead, and goes on.
 */
const MISSING_AFTER_MS = 5_000;
const ENFORCEMENT_OFF =
  'no policy is enforced on this node, as its agent runs with `--policy-enforcement never` (`policyEnforcement` of the chart)';

export interface ModelFaultsOptions {
  readonly policyMode: CoreOptions['policyMode'];
  /** Milliseconds, as `Missing.sinceMs`. */
  readonly at: number;
}

export function* modelFaults(model: Model, { policyMode, at }: ModelFaultsOptions): Generator<Fault> {
  yield* off(model, policyMode);
  yield* uncompiled(model);
  yield* tooManyRows(model);
  yield* unresolved(model, at);
}

/** Policies whose rules this agent cannot read: what it read before stays in force, or nothing is. */
export function* unreadFaults(db: StateDB, table: Table<UnreadPolicyRow>): Generator<Fault> {
  using snapshot = db.read();
  for (const { uid, generation, problem } of snapshot.all(table)) {
    const message = `${problem}; what was read of the policy before stays enforced`;
    yield { of: { [uid]: generation }, reason: 'PolicyUnreadable', message };
  }
}

/** Policies of endpoints of this node with rules whose flows nobody here decides. */
export function* proxyFaults(
  db: StateDB,
  tables: Pick<Tables, 'proxyFaults' | 'policies'>,
  model: Model,
): Generator<Fault> {
  using snapshot = db.read();
  for (const { proxy, reason, message } of snapshot.all(tables.proxyFaults)) {
    const needs = proxy === 'names' ? needsNames : needsDns;
    const of: Record<string, number> = {};
    for (const { policies } of model.states())
      for (const [uid, generation] of Object.entries(policies))
        if (of[uid] === undefined && snapshot.get(tables.policies, uid)?.rules.some(needs)) of[uid] = generation;
    yield { of, reason, message };
  }
}

function needsDns(rule: ResolvedRule): boolean {
  return rule.dns !== undefined || needsNames(rule);
}

function needsNames({ peers = [] }: ResolvedRule): boolean {
  return peers.some((peer) => 'fqdn' in peer);
}

/** Whether the policy has waited so long for its PeerSets that this is a failure. */
export function lasts({ sinceMs }: Missing, now: number): boolean {
  return now - sinceMs >= MISSING_AFTER_MS;
}

/** The kernel has acknowledged endpoints that it lets everything through of. */
function* off(model: Model, policyMode: CoreOptions['policyMode']): Generator<Fault> {
  if (policyMode !== 'never') return;
  const of: Record<string, number> = {};
  for (const { policies } of model.states()) Object.assign(of, policies);
  yield { of, reason: 'EnforcementOff', message: ENFORCEMENT_OFF };
}

/** Policies that cannot be compiled. */
function* uncompiled(model: Model): Generator<Fault> {
  for (const id of model.endpoints()) {
    const error = model.failure(id);
    if (error === undefined) continue;
    const message = `endpoint ${id}: ${error.message}; nothing passes until then`;
    yield { of: model.policiesOf(id), reason: 'CompileFailed', message };
  }
}

/** A direction is closed, as the rules of its endpoint come to more rows than it may have. */
function* tooManyRows(model: Model): Generator<Fault> {
  const known = new Map<string, { readonly of: Generations; readonly by: string }>();
  for (const id of model.endpoints()) {
    for (const [direction, excess] of model.excesses(id)) {
      const key = `${direction} ${model.info(id)?.identity}`;
      const selecting = known.get(key) ?? selectingBy(model.selecting(id), direction);
      known.set(key, selecting);
      const text = `endpoint ${id}, selected by ${selecting.by}: ${excess.message}; the direction is closed`;
      yield { of: selecting.of, reason: 'RowBudgetExceeded', message: text };
    }
  }
}

/** The policies that select an endpoint by rules of the direction; those with the most rules are named. */
function selectingBy(
  selecting: Iterable<readonly [InUse, ResolvedRule]>,
  direction: Direction,
): { readonly of: Generations; readonly by: string } {
  const rules = [...selecting].filter(([, rule]) => rule.direction === direction);
  return { of: generationsOf(rules.map(([{ row }]) => row)), by: mostRules(rules) };
}

function unresolved(model: Model, now: number): Fault[] {
  return [...model.missing()]
    .filter((missing) => lasts(missing, now))
    .map(({ hashes, ...policy }) => {
      const more = hashes.length > 3 ? ` and ${hashes.length - 3} more` : '';
      return {
        of: generationsOf([policy]),
        reason: 'PeerSetMissing',
        message: `PeerSets ${hashes.slice(0, 3).join(', ')}${more} have not come from the operator; the generation before stays enforced`,
      };
    });
}
