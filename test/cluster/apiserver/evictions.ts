/** Evictions: deletions of pods that their disruption budgets must allow. */
import type { Deletes } from './deletes.ts';
import { StatusError } from './errors.ts';
import { type JsonObject, number, object, text } from './json.ts';
import { matchesSelector } from './label-rules.ts';
import type { Reads } from './reads.ts';
import type { Resource } from './registry.ts';
import type { Store } from './store.ts';
import type { DeleteOptions } from './types.ts';

const BUDGETS = 'policy/poddisruptionbudgets';

export class Evictions {
  readonly #store: Store;
  readonly #reads: Reads;
  readonly #deletes: Deletes;

  constructor(store: Store, reads: Reads, deletes: Deletes) {
    this.#store = store;
    this.#reads = reads;
    this.#deletes = deletes;
  }

  /**
   * Deletes the pod when no budget is against it.
   * @throws StatusError NotFound; TooManyRequests while a budget allows no disruption.
   */
  evict(pods: Resource, namespace: string, name: string, options: DeleteOptions): JsonObject {
    const pod = this.#reads.stored(pods, namespace, name);
    const phase = text(pod, 'status', 'phase');
    const over = phase === 'Succeeded' || phase === 'Failed' || phase === 'Pending';
    const marked = text(pod, 'metadata', 'deletionTimestamp') !== '';
    if (!over && !marked) {
      for (const budget of this.#store.list(BUDGETS, namespace)) this.#spend(budget, pod, options.dryRun === true);
    }
    this.#deletes.delete(pods, namespace, name, options);
    return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', code: 201 };
  }

  #spend(budget: JsonObject, pod: JsonObject, dryRun: boolean): void {
    if (!matchesSelector(object(budget, 'spec').selector, object(pod, 'metadata', 'labels'))) return;
    const allowed = number(budget, 'status', 'disruptionsAllowed') ?? 0;
    if (allowed < 1) {
      const name = text(budget, 'metadata', 'name');
      const [desired, healthy] = ['desiredHealthy', 'currentHealthy'].map((f) => number(budget, 'status', f) ?? 0);
      const message = `The disruption budget ${name} needs ${desired} healthy pods and has ${healthy} currently`;
      throw new StatusError(
        429,
        'TooManyRequests',
        "Cannot evict pod as it would violate the pod's disruption budget.",
        { causes: [{ reason: 'DisruptionBudget', message }] },
      );
    }
    if (dryRun) return;
    const status = { ...object(budget, 'status'), disruptionsAllowed: allowed - 1 };
    this.#store.put(BUDGETS, { ...budget, status });
  }
}
