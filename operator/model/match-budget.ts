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
import type { PolicyRow } from '../types.ts';
import type { PolicyLimits } from './budgets.ts';
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

/** What a policy would match, counted until it is too much for one; why it may not, or undefined. */
export interface Counted {
  readonly matches: number;
  readonly problem: PolicyProblem | undefined;
  /** Time was over. */
  readonly unfinished?: boolean;
}

/** Eight million of them take a second; where a selector asks for a label by its value, few identities are asked. */
const LOOKS_A_MATCH = 8;

export type CountedSets = Pick<
  SelectorIndex,
  'size' | 'isKnown' | 'sizeOf' | 'keepEvaluated' | 'forgetEvaluated' | 'takeRemoved'
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
   * Counts what a policy would match, whose rules in force match `before`. Selectors are evaluated until it is too much, or time is over, at
   * least one of those that have not been: it is to be called again then, perhaps in another transaction.
   */
  count(
    txn: WriteTxn,
    { key, namespace }: Pick<PolicyRow, 'key' | 'namespace'>,
    before: number,
    selectors: ReadonlyMap<string, LabelSelector>,
    hasTime: () => boolean,
  ): Counted {
    const most = Math.min(this.#perPolicy, namespace === undefined ? Number.POSITIVE_INFINITY : this.#perNamespace);
    let matches = 0;
    if (most === Number.POSITIVE_INFINITY) return { matches, problem: undefined };
    let looks = this.#perPolicy * LOOKS_A_MATCH;
    let problem: PolicyProblem | undefined;
    let evaluated = false;
    for (const [hash, selector] of selectors) {
      const isNew = !this.#sets.isKnown(txn, key, hash);
      if (isNew && evaluated && !hasTime()) {
        this.#sets.keepEvaluated(txn, key);
        return { matches, problem, unfinished: true };
      }
      evaluated ||= isNew;
      const found = this.#sets.sizeOf(txn, key, hash, selector, looks);
      if (found === undefined) {
        problem = this.#tooManyLooks();
        // As who matches too much, it is read again when there are fewer identities.
        matches = this.#perPolicy + 1;
        break;
      }
      matches += found.size;
      looks -= found.looks;
      if (matches > most) break;
    }
    problem ??= this.#problem(txn, namespace, before, matches);
    // What will not be added needs no place.
    if (problem !== undefined) this.#sets.forgetEvaluated(txn, key);
    return { matches, problem };
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

  /** Why a policy is not counted before the first state is shown. */
  later(namespace: string): PolicyProblem {
    return excess(
      `what the policy's selectors match is found out later, in turn: another policy of namespace ${JSON.stringify(namespace)} matches more than it may, and the operator has just started`,
    );
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
