import { keys, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { CoreOptions, PolicyInKernel, Realised, Tables } from '../core.ts';
import type { Model } from '../derive/index.ts';
import { InterfaceGoneError } from '../errors.ts';
import { kernelFaults } from './kernel-faults.ts';
import { laggingEndpoints, putLagging } from './lagging-endpoints.ts';
import { lasts, modelFaults, proxyFaults, unreadFaults } from './model-faults.ts';
import { failureKey, failuresOf, type Generations, lacking, type PolicyFailure } from './policy-failures.ts';
import { type Acknowledgements, type RealisedSources, refusedEndpoints } from './sources.ts';
import { UnconnectedFaults } from './unconnected-faults.ts';

const NONE: Generations = {};
const NO_COUNTS: Realised['counts'] = { endpoints: 0, policies: 0 };

/** An endpoint's policies: those that select it, and those that its kernel has. */
interface Judged {
  readonly wanted: Generations;
  readonly acknowledged: Generations;
}

/** How far the policies are. Key: `what`. */
interface Reached extends Pick<Realised, 'settled' | 'counts' | 'ownVersion'> {
  readonly what: 'policies';
  /** Policy inputs up to here have been through a round. */
  readonly revision: number;
  readonly version: string | undefined;
  /** The policies that endpoints had in the kernel at `version`, one object for all that have the same. */
  readonly enforced: ReadonlySet<Generations>;
}

export interface RealisedOptions {
  readonly db: StateDB;
  readonly tables: Pick<Tables, 'policies' | 'policyVersions' | 'unreadPolicies' | 'proxyFaults' | 'laggingEndpoints'>;
  readonly model: Model;
  readonly policyMode: CoreOptions['policyMode'];
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
}

/**
 * How far this node's kernel is, what it refuses, and which endpoints are behind for that: tables `policyFailures`, `laggingEndpoints` and
 * `reached`, as of the last `take`.
 */
export class RealisedReport {
  readonly #options: RealisedOptions;
  readonly #failures: Table<PolicyFailure>;
  readonly #reached: Table<Reached>;
  readonly #unconnected: UnconnectedFaults;

  constructor(options: RealisedOptions) {
    const { db } = options;
    this.#options = options;
    this.#failures = db.table<PolicyFailure>({ name: 'policyFailures', key: failureKey });
    this.#reached = db.table<Reached>({ name: 'reached', key: (row) => row.what });
    this.#unconnected = new UnconnectedFaults(options);
  }

  read(): Realised {
    using snapshot = this.#options.db.read();
    const reached = snapshot.get(this.#reached, 'policies');
    const { revision = 0, settled = 0, version, ownVersion, counts = NO_COUNTS } = reached ?? {};
    const lagging = Array.from(snapshot.all(this.#options.tables.laggingEndpoints), (row) => row.revision);
    return {
      revision,
      settled,
      acknowledged: Math.min(settled, ...lagging),
      policyVersion: version,
      ownVersion,
      counts,
      failures: [...snapshot.all(this.#failures)],
    };
  }

  /** As `Core.policiesInKernel`. */
  policies(sources: Acknowledgements): ReadonlyMap<string, PolicyInKernel> {
    const counts = new Map<Generations, Map<Generations, number>>();
    for (const { wanted, acknowledged } of this.#judged(sources)) {
      const of = counts.get(wanted) ?? new Map<Generations, number>();
      counts.set(wanted, of.set(acknowledged, (of.get(acknowledged) ?? 0) + 1));
    }
    const policies = new Map<string, PolicyInKernel>();
    for (const [wanted, of] of counts)
      for (const [acknowledged, count] of of)
        for (const uid of Object.keys(wanted === acknowledged ? acknowledged : { ...wanted, ...acknowledged })) {
          const { generation = Infinity, endpoints = 0 } = policies.get(uid) ?? {};
          policies.set(uid, { generation: Math.min(generation, acknowledged[uid] ?? 0), endpoints: endpoints + count });
        }
    return policies;
  }

  /** Call it after every round. Returns whether something but the revision has changed, or it is the first that there is. */
  take(sources: RealisedSources): boolean {
    const { model, policyMode, now, db, tables } = this.#options;
    // One moment for all: a policy either holds the version back, or is a failure.
    const at = now();
    const broken = sources.sync.broken !== undefined;
    const judged = [...this.#judged(sources)];
    const failures = failuresOf([
      ...modelFaults(model, { policyMode, at }),
      ...kernelFaults(model, sources),
      ...this.#unconnected.settle(),
      ...unreadFaults(db, tables.unreadPolicies),
      ...proxyFaults(db, tables, model),
    ]);
    const lagging = laggingEndpoints(model, sources);
    const { policies, policyVersions, laggingEndpoints: laggards } = tables;
    return db.write([this.#failures, this.#reached, policyVersions, laggards], (txn) => {
      const before = txn.revision(this.#failures);
      this.#putFailures(txn, failures);
      const last = txn.get(this.#reached, 'policies');
      const { reached } = sources.sync;
      const settledBefore = last?.settled ?? 0;
      putLagging(txn, laggards, lagging, { ...sources, before: settledBefore });
      // A policy that waits for its PeerSets is in no kernel, whatever round it went through.
      const settled = broken || !model.missing()[Symbol.iterator]().next().done ? settledBefore : reached;
      const newest = this.#newest(txn, reached);
      const version = broken || this.#holdsBack(judged, failures, at) ? last?.version : (newest ?? last?.version);
      const counts = { endpoints: [...model.endpoints()].length, policies: txn.count(policies) };
      const own = ownOf(last, version, judged);
      txn.upsert(this.#reached, { what: 'policies', revision: reached, settled, version, ...own, counts });
      return (
        txn.revision(this.#failures) !== before ||
        (last?.revision ?? 0) === 0 ||
        last?.version !== version ||
        last?.counts.endpoints !== counts.endpoints ||
        last.counts.policies !== counts.policies
      );
    });
  }

  /** Up to which version of the API server the policies have been through a round. */
  #newest(txn: WriteTxn, reached: number): string | undefined {
    const { policyVersions } = this.#options.tables;
    const passed = [...txn.all(policyVersions)].filter(({ revision }) => revision <= reached);
    const newest = passed.pop();
    for (const { revision } of passed) txn.delete(policyVersions, keys.uint(revision));
    return newest?.version;
  }

  /** Whether a policy is not in the kernel, and no failure says so. */
  #holdsBack(judged: readonly Judged[], failures: readonly PolicyFailure[], at: number): boolean {
    for (const missing of this.#options.model.missing()) if (!lasts(missing, at)) return true;
    const failing = new Set(failures.map(({ uid }) => uid));
    const different = new Set(judged.map(({ wanted, acknowledged }) => lacking(wanted, acknowledged)));
    return different.values().some((of) => Object.keys(of).some((uid) => !failing.has(uid)));
  }

  #putFailures(txn: WriteTxn, failures: readonly PolicyFailure[]): void {
    const wanted = new Set(failures.map(failureKey));
    for (const row of txn.all(this.#failures)) {
      const key = failureKey(row);
      if (!wanted.has(key)) txn.delete(this.#failures, key);
    }
    for (const row of failures) if (!txn.has(this.#failures, failureKey(row))) txn.insert(this.#failures, row);
  }

  *#judged({ writer, endpoints }: Acknowledgements): Generator<Judged> {
    const { model } = this.#options;
    const failing = refusedEndpoints(writer);
    for (const { id, policies } of model.states()) {
      // No packet can come from or go to an interface that is gone.
      if (failing.get(id) instanceof InterfaceGoneError) continue;
      // One that is closed for want of a compiled policy has none.
      const wanted = model.failure(id) === undefined ? policies : model.policiesOf(id);
      yield { wanted, acknowledged: endpoints.acknowledged(id)?.policies ?? NONE };
    }
  }
}

/** The last version that changed a policy of an endpoint of this node. */
function ownOf(
  last: Reached | undefined,
  version: string | undefined,
  judged: readonly Judged[],
): Pick<Reached, 'ownVersion' | 'enforced'> {
  if (last !== undefined && last.version === version) return { enforced: last.enforced, ownVersion: last.ownVersion };
  const enforced = new Set(judged.map(({ acknowledged }) => acknowledged));
  const same = last?.enforced.symmetricDifference(enforced).size === 0;
  return { enforced, ownVersion: same ? last.ownVersion : version };
}
