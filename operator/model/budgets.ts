/**
 * What policies may cost: one alone, and those of a namespace together. Each selector is an object in the API, evaluated for every
 * identity that it may match, and each rule one more that agents compile; whoever may write policies in one namespace writes them for all.
 *
 * Guarantees: what is in force counts, and nothing else, except that a namespace has only so many policies in all: each is read, and perhaps
 * again and again, because it may be in force one day. First come keeps: what an earlier run resolved counts from the start, and what is
 * in force already, or needs no more than that, is never refused for its namespace's budget. Policies without a namespace are an
 * administrator's: they have no budget together.
 */
import type { LabelSelector } from '@weir/labels';
import {
  cidrsText,
  demandProblem,
  isOver,
  needsProblem,
  type PolicyNeeds,
  type PolicyProblem,
  policyNeeds,
  type ResolvedRule,
  selectorsText,
} from '@weir/policy';
import type { AnyTable, Reader, StateDB, Table, WriteTxn } from '@weir/statedb';
import type { PolicyLimits } from '../limits.ts';
import type { PolicyRow } from '../types.ts';

/** What rules in force cost their namespace. */
interface Cost {
  /** 1: it is one of the policies that its namespace may have, in force or not. */
  readonly policies: number;
  readonly selectors: number;
  readonly bytes: number;
  readonly cidrs: number;
}

/** What rules in force cost. */
export interface Needs extends Cost, PolicyNeeds {}

export const NOTHING: Needs = {
  policies: 0,
  selectors: 0,
  distinctSelectors: 0,
  bytes: 0,
  cidrs: 0,
  rulesBytes: 0,
  selectorBytes: 0,
};

/** What the policies of a namespace cost. */
interface Usage extends Cost {
  readonly namespace: string;
}

/** What the policies of a namespace share. */
const SHARED = [
  { need: 'selectors', textOf: selectorsText, option: '--selectors-per-namespace', value: 'selectorsPerNamespace' },
  {
    need: 'cidrs',
    textOf: cidrsText,
    option: '--cidrs-per-namespace',
    value: 'cidrsPerNamespace',
  },
  {
    need: 'bytes',
    textOf: ({ bytes }: Needs) => `${bytes} bytes (of rules once they are resolved, and of selectors)`,
    option: '--bytes-per-namespace',
    value: 'bytesPerNamespace',
  },
] as const;

/** Policies of the namespace cost less than when those that it could not afford were looked at last. */
interface Fallen {
  readonly namespace: string;
}

export class Budgets {
  readonly #limits: PolicyLimits;
  readonly #usage: Table<Usage>;
  readonly #fallen: Table<Fallen>;

  constructor(db: StateDB, limits: PolicyLimits) {
    this.#limits = limits;
    this.#usage = db.table<Usage>({ name: 'policy-usage', key: ({ namespace }) => namespace });
    this.#fallen = db.table<Fallen>({ name: 'fallen-policy-usage', key: ({ namespace }) => namespace });
  }

  get tables(): readonly AnyTable[] {
    return [this.#usage, this.#fallen];
  }

  /** Why the policy is not read at all; undefined: it is. */
  ofText({ demand }: PolicyRow): PolicyProblem | undefined {
    return demandProblem(demand, this.#limits);
  }

  /** Why one policy may not cost that much; undefined: it may. */
  ofPolicy(needs: Needs): PolicyProblem | undefined {
    return needsProblem(needs, this.#limits);
  }

  /** How many policies more the namespace may have. */
  placesLeft(reader: Reader, namespace: string): number {
    const most = this.#limits.policiesPerNamespace || Number.POSITIVE_INFINITY;
    return Math.max(0, most - (reader.get(this.#usage, namespace)?.policies ?? 0));
  }

  /** Why the namespace may not have the policy beside its others, whatever it says; undefined: it may. */
  ofPlace(reader: Reader, namespace: string | undefined): PolicyProblem | undefined {
    if (namespace === undefined || this.placesLeft(reader, namespace) > 0) return undefined;
    const { policiesPerNamespace } = this.#limits;
    return {
      code: 'BudgetExceeded',
      path: '$',
      message: `namespace ${JSON.stringify(namespace)} has ${policiesPerNamespace} other policies, refused ones too, and may have ${policiesPerNamespace}, so that this one is not read: remove some, put rules with one endpointSelector into one policy (field specs), or raise --policies-per-namespace (value operator.limits.policiesPerNamespace)`,
    };
  }

  /**
   * Why a policy that costs `before` may not cost `needs` beside the others of its namespace; undefined: it may. What those cost is told as of
   * now: it changes, and the policy is not read again until they leave enough.
   */
  ofNamespace(txn: WriteTxn, namespace: string | undefined, before: Needs, needs: Needs): PolicyProblem | undefined {
    if (namespace === undefined) return undefined;
    const others = this.#with(txn, namespace, before, NOTHING);
    const where = `namespace ${JSON.stringify(namespace)}`;
    const texts = SHARED.flatMap(({ need, textOf, option, value }) => {
      const most = this.#limits[value];
      if (!isOver(others[need] + needs[need], most)) return [];
      const raise = `or raise ${option} (value operator.limits.${value})`;
      if (isOver(needs[need], most))
        return `the policy needs ${textOf(needs)}, and all policies of ${where} together may have ${most}: let it need fewer, ${raise}`;
      return `the policy needs ${textOf(needs)}, and when it was read the other policies of ${where} had ${others[need]} of the ${most} that all of them may have: remove some, ${raise}`;
    });
    return texts.length === 0 ? undefined : { code: 'BudgetExceeded', path: '$', message: texts.join('; ') };
  }

  /** Whether a policy that costs `before` may cost `needs` beside the others of its namespace. */
  fits(txn: WriteTxn, namespace: string, before: Cost, needs: Cost): boolean {
    const usage = this.#with(txn, namespace, before, needs);
    return SHARED.every(({ need, value }) => !isOver(usage[need], this.#limits[value]));
  }

  /** Rules have come into force, or a policy has its place, or another's have gone. */
  charge(txn: WriteTxn, namespace: string | undefined, before: Cost, after: Cost): void {
    if (namespace === undefined) return;
    const usage = this.#with(txn, namespace, before, after);
    if (covers(NOTHING, usage)) txn.delete(this.#usage, namespace);
    else txn.upsert(this.#usage, usage);
    if (!covers(after, before)) this.markFallen(txn, namespace);
  }

  markFallen(txn: WriteTxn, namespace: string): void {
    txn.upsert(this.#fallen, { namespace });
  }

  /** A namespace whose policies cost less than before, until `lookedAt`. */
  fallen(reader: Reader): string | undefined {
    const [first] = reader.all(this.#fallen);
    return first?.namespace;
  }

  lookedAt(txn: WriteTxn, namespace: string): void {
    txn.delete(this.#fallen, namespace);
  }

  #with(txn: WriteTxn, namespace: string, before: Cost, after: Cost): Usage {
    const known = txn.get(this.#usage, namespace) ?? NOTHING;
    return {
      namespace,
      policies: known.policies + after.policies - before.policies,
      selectors: known.selectors + after.selectors - before.selectors,
      bytes: known.bytes + after.bytes - before.bytes,
      cidrs: known.cidrs + after.cidrs - before.cidrs,
    };
  }
}

/** What rules cost. */
export function needsOf(rules: readonly ResolvedRule[], selectors: Iterable<LabelSelector>): Needs {
  return { policies: 1, ...policyNeeds(rules, selectors) };
}

/** Whether `needs` are no more than `other`, in everything. */
export function covers(other: Cost, needs: Cost): boolean {
  return (
    needs.policies <= other.policies &&
    needs.selectors <= other.selectors &&
    needs.bytes <= other.bytes &&
    needs.cidrs <= other.cidrs
  );
}
