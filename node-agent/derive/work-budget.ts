/** What one plan does for one namespace before the rest waits for the next plan, in rows (`workOf` of `@weir/policy`). */
const PLAN_WORK = 16_000;
/** Reading a rule costs as much as so many rows. */
export const RULE_WORK = 4;

/**
 * How much of the work that may wait one plan does for each namespace: others' changes, which the next plan takes in, wait no longer than that, but
 * for shapes in force, which are never put off. It is counted in work, not in time, so that what a plan concludes does not depend on how fast the
 * node is. What is begun is done: each namespace gets on by one piece at least.
 */
export class WorkBudget {
  readonly #most: number;
  readonly #spent = new Map<string, number>();

  constructor(most = PLAN_WORK) {
    this.#most = most;
  }

  /** Whether one of the namespaces may have something done. */
  allows(namespaces: ReadonlySet<string>): boolean {
    return namespaces.values().some((namespace) => {
      const spent = this.#spent.get(namespace);
      return spent === undefined || spent < this.#most;
    });
  }

  spend(namespaces: Iterable<string>, work: number): void {
    for (const namespace of namespaces) this.#spent.set(namespace, (this.#spent.get(namespace) ?? 0) + work);
  }
}
