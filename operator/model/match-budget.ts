/**
 * How many identities policies may match: each selector lists all that it matches, in the operator, in the API and on the nodes, so that
 * what selectors cost is their number times that of the identities. To find them is work, too: so many requirements of selectors may be asked of
 * identities for each match that a policy may have.
 *
 * Guarantees: what a namespace's policies match is known at any time, without a look at them: a set that changes counts for each namespace
 * that names it, as often as its policies do. Who is in force stays there, however many identities come.
 */
import type { LabelSelector } from '@weir/labels';
import type { PolicyProblem } from '@weir/policy';
import { type AnyTable, keys, type Reader, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { PolicyLimits } from '../limits.ts';
import type { PolicyRow } from '../types.ts';
import type { SelectorIndex } from './selector-index.ts';

/** A set that policies of a namespace name. */
interface Use {
  readonly hash: string;
  readonly namespace: string;
  readonly policies: number;
}

/** What the policies of a namespace match. */
interface Usage {
  readonly namespace: string;
  readonly matches: number;
}

/** How far a policy has been counted. */
export interface Progress {
  /** So many of its selectors, in their order. */
  readonly selectors: number;
  /** What those matched when each was evaluated. */
  readonly matches: number;
  /** What that took, of what it may take (`LOOKS_A_MATCH`). */
  readonly looks: number;
}

export const NOT_COUNTED: Progress = { selectors: 0, matches: 0, looks: 0 };

/** What a policy is counted by. */
export interface Countable extends Pick<PolicyRow, 'key' | 'namespace'> {
  readonly selectors: ReadonlyMap<string, LabelSelector>;
  /** What its rules in force match. */
  readonly before: () => number;
}

/** What a policy would match, counted until it is too much for one; why it may not, or undefined. */
export interface Counted {
  readonly matches: number;
  readonly problem: PolicyProblem | undefined;
  /** Time was over here. */
  readonly unfinished?: Progress;
}

/** How far selectors have been evaluated, and why no further. */
interface Evaluated extends Progress {
  readonly end: 'all' | 'time' | 'looks' | 'matches';
}

/** Eight million of them take a second; where a selector asks for a label by its value, few identities are asked. */
const LOOKS_A_MATCH = 8;

export type CountedSets = Pick<
  SelectorIndex,
  'size' | 'knownSize' | 'sizeOf' | 'forgetEvaluated' | 'refused' | 'takeFewer'
>;

/** What a message calls a match. */
const MATCHES = 'matches (identities of its selectors, summed)';

export class MatchBudget {
  readonly #sets: CountedSets;
  readonly #perPolicy: number;
  readonly #perNamespace: number;
  readonly #uses: Table<Use>;
  readonly #usage: Table<Usage>;

  constructor(db: StateDB, sets: CountedSets, limits: PolicyLimits) {
    this.#sets = sets;
    this.#perPolicy = limits.matchesPerPolicy || Number.POSITIVE_INFINITY;
    this.#perNamespace = limits.matchesPerNamespace || Number.POSITIVE_INFINITY;
    this.#uses = db.table<Use>({
      name: 'set-uses',
      key: ({ hash, namespace }) => keys.join(hash, namespace),
    });
    this.#usage = db.table<Usage>({ name: 'match-usage', key: ({ namespace }) => namespace });
  }

  get tables(): readonly AnyTable[] {
    return [this.#uses, this.#usage];
  }

  /** Members of these sets, summed; one that is not there has none. */
  sum(reader: Reader, hashes: Iterable<string>): number {
    let sum = 0;
    for (const hash of hashes) sum += this.#sets.size(reader, hash);
    return sum;
  }

  /** Whether a policy whose rules in force match `before` may match `matches` instead. */
  fits(reader: Reader, namespace: string | undefined, before: number, matches: number): boolean {
    return matches <= this.#perPolicy && this.#fitsNamespace(reader, namespace, before, matches);
  }

  /**
   * Counts what a policy would match, from where it was `unfinished` on. Selectors are evaluated until it is too much, or time is over, at least
   * one of those that have not been: it is to be called again then, perhaps in another transaction.
   */
  count(txn: WriteTxn, policy: Countable, from: Progress, hasTime: () => boolean): Counted {
    const most = Math.min(
      this.#perPolicy,
      policy.namespace === undefined ? Number.POSITIVE_INFINITY : this.#perNamespace,
    );
    if (most === Number.POSITIVE_INFINITY) return { matches: 0, problem: undefined };
    let counted = this.#evaluate(txn, policy, from, most, hasTime);
    if (from !== NOT_COUNTED && (counted.end === 'all' || counted.end === 'matches')) {
      // Identities, and sets of other policies, have come or gone since they were counted.
      const now = this.#recount(txn, policy, counted);
      counted = this.#evaluate(txn, policy, now, most, hasTime);
    }
    const { end, selectors, matches, looks } = counted;
    if (end === 'time') return { matches, problem: undefined, unfinished: { selectors, matches, looks } };
    const problem =
      end === 'looks' ? this.#tooManyLooks() : this.#problem(txn, policy.namespace, policy.before(), matches);
    if (problem !== undefined) this.#sets.refused(txn);
    // As who matches too much, who takes too many looks is read again when there are fewer identities.
    return { matches: end === 'looks' ? this.#perPolicy + 1 : matches, problem };
  }

  /** A policy of the namespace names these sets now (`by` 1), or does not any more (-1). */
  use(txn: WriteTxn, namespace: string | undefined, hashes: Iterable<string>, by: 1 | -1): void {
    if (namespace === undefined || this.#perNamespace === Number.POSITIVE_INFINITY) return;
    let matches = 0;
    for (const hash of hashes) {
      const key = keys.join(hash, namespace);
      const policies = (txn.get(this.#uses, key)?.policies ?? 0) + by;
      if (policies === 0) txn.delete(this.#uses, key);
      else txn.upsert(this.#uses, { hash, namespace, policies });
      matches += by * this.#sets.size(txn, hash);
    }
    this.charge(txn, namespace, matches);
  }

  /** The namespace's policies match so many more, or fewer. */
  charge(txn: WriteTxn, namespace: string | undefined, by: number): void {
    if (namespace === undefined || by === 0) return;
    const matches = this.used(txn, namespace) + by;
    if (matches === 0) txn.delete(this.#usage, namespace);
    else txn.upsert(this.#usage, { namespace, matches });
  }

  /** What the policies of the namespace match, summed. Sets that are not there yet count once they are. */
  used(reader: Reader, namespace: string | undefined): number {
    return namespace === undefined ? 0 : (reader.get(this.#usage, namespace)?.matches ?? 0);
  }

  /** A set has so many members more, or fewer. */
  resized(txn: WriteTxn, hash: string, by: number): void {
    for (const { namespace, policies } of txn.prefix(this.#uses, keys.join(hash)))
      this.charge(txn, namespace, by * policies);
  }

  #evaluate(
    txn: WriteTxn,
    { key, selectors }: Countable,
    from: Progress,
    most: number,
    hasTime: () => boolean,
  ): Evaluated {
    let { selectors: at, matches, looks } = from;
    let evaluated = false;
    for (const [hash, selector] of selectors.entries().drop(at)) {
      if (matches > most) return { selectors: at, matches, looks, end: 'matches' };
      const isNew = this.#sets.knownSize(txn, key, hash) === undefined;
      if (isNew && evaluated && !hasTime()) return { selectors: at, matches, looks, end: 'time' };
      evaluated ||= isNew;
      const found = this.#sets.sizeOf(txn, key, hash, selector, this.#perPolicy * LOOKS_A_MATCH - looks);
      if (found === undefined) return { selectors: at, matches, looks, end: 'looks' };
      at += 1;
      matches += found.size;
      looks += found.looks;
    }
    return { selectors: at, matches, looks, end: 'all' };
  }

  /** The same progress as of now: up to the first selector that is not known any more. */
  #recount(reader: Reader, { key, selectors }: Countable, { selectors: counted, looks }: Progress): Progress {
    let [at, matches] = [0, 0];
    for (const hash of selectors.keys().take(counted)) {
      const size = this.#sets.knownSize(reader, key, hash);
      if (size === undefined) break;
      at += 1;
      matches += size;
    }
    return { selectors: at, matches, looks };
  }

  #tooManyLooks(): PolicyProblem {
    const most = this.#perPolicy * LOOKS_A_MATCH;
    return excess(
      `to find what the policy's selectors match takes more than ${most} looks (their requirements times the identities that they are asked of, and their values), and one may take ${most}: have each selector ask for a label by its value, split the policy, or raise --matches-per-policy (value operator.limits.matchesPerPolicy), of which it is ${LOOKS_A_MATCH} times`,
    );
  }

  #problem(reader: Reader, namespace: string | undefined, before: number, matches: number): PolicyProblem | undefined {
    if (matches > this.#perPolicy) {
      return excess(
        `the policy needs more than ${this.#perPolicy} ${MATCHES}, and one may need ${this.#perPolicy}: split it, let its selectors match fewer identities, or raise --matches-per-policy (value operator.limits.matchesPerPolicy)`,
      );
    }
    if (this.#fitsNamespace(reader, namespace, before, matches)) return undefined;
    return excess(
      `the policy needs ${matches > this.#perNamespace ? 'more than ' : ''}${Math.min(matches, this.#perNamespace)} ${MATCHES}, which the other policies of namespace ${JSON.stringify(namespace)} do not leave of the ${this.#perNamespace} that all of them may have: remove some, or raise --matches-per-namespace (value operator.limits.matchesPerNamespace)`,
    );
  }

  #fitsNamespace(reader: Reader, namespace: string | undefined, before: number, matches: number): boolean {
    // Each may shrink.
    if (namespace === undefined || matches <= before) return true;
    return this.used(reader, namespace) - before + matches <= this.#perNamespace;
  }
}

function excess(message: string): PolicyProblem {
  return { code: 'BudgetExceeded', path: '$', message };
}
