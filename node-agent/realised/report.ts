import { keys, type StateDB, type Table, type WriteTxn } from '@weir/statedb';
import type { CoreOptions, Held, Realised, RealisedPolicy, Tables } from '../core.ts';
import type { Model } from '../derive/index.ts';
import { InterfaceGoneError } from '../errors.ts';
import { keyOf } from './failure-text.ts';
import { earlierReport, heldBackFaults } from './held-back.ts';
import { kernelFaults } from './kernel-faults.ts';
import { laggingEndpoints, putLagging } from './lagging-endpoints.ts';
import { lasts, modelFaults } from './model-faults.ts';
import { type CountedEndpoint, PolicyCounts } from './policy-counts.ts';
import { failureKey, failuresOf, type Generations, type PolicyFailure } from './policy-failures.ts';
import { type RealisedSources, refusedEndpoints } from './sources.ts';
import { UnconnectedFaults } from './unconnected-faults.ts';
import { WaitingFaults } from './waiting-faults.ts';

const NONE: Generations = {};
/** Key: `uid`. Index `waiting`: those that no endpoint has. */
interface PolicyRealised {
  readonly uid: string;
  readonly policy: RealisedPolicy;
}

type Count = Omit<RealisedPolicy, 'at' | 'policy'>;

/** Policy inputs up to `revision`, and every change of a ResolvedPolicy up to `version`, have been through a round. Key: `what`. */
interface Reached {
  readonly what: 'policies';
  readonly revision: number;
  /** As in `Realised`. */
  readonly settled: number;
  readonly version: string | undefined;
}

export interface RealisedOptions {
  readonly db: StateDB;
  readonly tables: Pick<
    Tables,
    'policies' | 'policyVersions' | 'peerSets' | 'identities' | 'endpoints' | 'earlierReport' | 'laggingEndpoints'
  >;
  readonly model: Model;
  readonly policyMode: CoreOptions['policyMode'];
  /** Milliseconds; any clock that only grows. */
  readonly now: () => number;
  /** Milliseconds since 1970. */
  readonly wallClock: () => number;
}

/**
 * What this node's kernel acknowledged of each policy and since when, what it refuses, and which endpoints are behind for that: tables
 * `realisedPolicies`, `policyFailures`, `laggingEndpoints` and `reached`, as of the last `take`.
 */
export class RealisedReport {
  readonly #options: RealisedOptions;
  readonly #policies: Table<PolicyRealised>;
  readonly #counts: PolicyCounts;
  readonly #failures: Table<PolicyFailure>;
  readonly #reached: Table<Reached>;
  readonly #unconnected: UnconnectedFaults;
  readonly #waits: WaitingFaults;

  constructor(options: RealisedOptions) {
    const { db } = options;
    this.#options = options;
    this.#policies = db.table<PolicyRealised>({
      name: 'realisedPolicies',
      key: (row) => row.uid,
      indexes: [{ name: 'waiting', keys: ({ policy }) => (policy.endpoints === 0 ? [''] : []) }],
    });
    this.#counts = new PolicyCounts(db);
    this.#failures = db.table<PolicyFailure>({ name: 'policyFailures', key: failureKey });
    this.#reached = db.table<Reached>({ name: 'reached', key: (row) => row.what });
    this.#unconnected = new UnconnectedFaults(options);
    this.#waits = new WaitingFaults(options);
  }

  read(): Realised {
    using snapshot = this.#options.db.read();
    const reached = snapshot.get(this.#reached, 'policies');
    // What was said before this start is true until a round has put something in its place.
    const earlier = (reached?.revision ?? 0) === 0 ? earlierReport(snapshot, this.#options.tables) : undefined;
    const settled = reached?.settled ?? 0;
    const lagging = Array.from(snapshot.all(this.#options.tables.laggingEndpoints), ({ revision }) => revision);
    return {
      revision: reached?.revision ?? 0,
      settled,
      acknowledged: Math.min(settled, ...lagging),
      policyVersion: earlier === undefined ? reached?.version : earlier.policyVersion,
      policies:
        earlier === undefined
          ? new Map(Array.from(snapshot.all(this.#policies), ({ uid, policy }) => [uid, policy]))
          : new Map(Object.entries(earlier.policies)),
      failures: [...snapshot.all(this.#failures)],
    };
  }

  /**
   * Looks at every endpoint, and at the policies of those that have changed; to be called after every round, so that times are those of the
   * acknowledgement. Returns whether something but the revision has changed, or it is the first that there is.
   *
   * @param held why nothing new is put in force, until somebody acts
   */
  take(sources: RealisedSources, held?: Held): boolean {
    const { model, policyMode, now, db, tables } = this.#options;
    // One moment for all: a policy either holds the version back, or is said.
    const at = now();
    const broken = sources.sync.broken !== undefined;
    const judged = [...this.#judged(sources)];
    const failures = failuresOf([
      ...modelFaults(model, { policyMode, at }),
      ...kernelFaults(model, sources),
      ...this.#unconnected.settle(),
      ...this.#waits.settle(sources),
      ...(held === undefined ? [] : heldBackFaults(this.#options, held)),
    ]);
    const lagging = laggingEndpoints(model, sources);
    const { policyVersions, laggingEndpoints: laggards } = tables;
    const own = [this.#policies, this.#failures, this.#reached, ...this.#counts.tables];
    return db.write([...own, policyVersions, laggards], (txn) => {
      const revisions = (): number => txn.revision(this.#policies) + txn.revision(this.#failures);
      const before = revisions();
      this.#putPolicies(txn, this.#counts.settle(txn, judged), this.#waiting(txn, at, broken));
      this.#putFailures(txn, failures);
      const { reached } = sources.sync;
      const version = this.#versionAt(txn, reached, at, broken);
      const settledBefore = txn.get(this.#reached, 'policies')?.settled ?? 0;
      putLagging(txn, laggards, lagging, { ...sources, before: settledBefore });
      // A policy that waits for its PeerSets is in no kernel, whatever round it went through.
      const settled = broken || !model.missing()[Symbol.iterator]().next().done ? settledBefore : reached;
      const last = txn.upsert(this.#reached, { what: 'policies', revision: reached, settled, version });
      return revisions() !== before || (last?.revision ?? 0) === 0 || last?.version !== version;
    });
  }

  /**
   * The version that the kernel has reached. A policy that waits for its PeerSets is not in the kernel, whatever round it went through; after
   * a round that failed it is not known which have come.
   */
  #versionAt(txn: WriteTxn, reached: number, at: number, broken: boolean): string | undefined {
    const { model } = this.#options;
    const { policyVersions } = this.#options.tables;
    const last = txn.get(this.#reached, 'policies')?.version;
    const passed = [...txn.all(policyVersions)].filter(({ revision }) => revision <= reached);
    const newest = passed.pop();
    for (const { revision } of passed) txn.delete(policyVersions, keys.uint(revision));
    if (broken) return last;
    for (const missing of model.missing()) if (!lasts(missing, at)) return last;
    return newest?.version ?? last;
  }

  /** Of the policies that were counted anew, of those that wait, and of those that waited. */
  #putPolicies(txn: WriteTxn, counted: Iterable<string>, waiting: ReadonlyMap<string, Count>): void {
    const at = this.#options.wallClock();
    const waited = Array.from(txn.list(this.#policies, 'waiting', ''), ({ uid }) => uid);
    for (const uid of new Set([...counted, ...waited, ...waiting.keys()])) {
      const count = this.#counts.of(txn, uid) ?? waiting.get(uid);
      if (count === undefined) {
        txn.delete(this.#policies, uid);
        continue;
      }
      const last = txn.get(this.#policies, uid)?.policy;
      const same = last?.generation === count.generation;
      if (same && last.endpoints === count.endpoints) continue;
      const row = txn.get(this.#options.tables.policies, uid);
      const policy = row === undefined ? last?.policy : keyOf(row);
      const named = policy === undefined ? {} : { policy };
      txn.upsert(this.#policies, { uid, policy: { ...named, ...count, at: same ? last.at : at } });
    }
  }

  #putFailures(txn: WriteTxn, failures: readonly PolicyFailure[]): void {
    const wanted = new Set(failures.map(failureKey));
    for (const row of txn.all(this.#failures)) {
      const key = failureKey(row);
      if (!wanted.has(key)) txn.delete(this.#failures, key);
    }
    for (const row of failures) if (!txn.has(this.#failures, failureKey(row))) txn.insert(this.#failures, row);
  }

  /** Policies that have waited long for their PeerSets; they count where nothing in force of them selects an endpoint. */
  #waiting(txn: WriteTxn, at: number, broken: boolean): ReadonlyMap<string, Count> {
    const { model, tables } = this.#options;
    const waiting = new Map<string, Count>();
    if (broken)
      for (const { uid, policy } of txn.list(this.#policies, 'waiting', ''))
        if (txn.has(tables.policies, uid)) waiting.set(uid, policy);
    for (const missing of model.missing()) {
      const { uid } = missing;
      if (waiting.has(uid) || !lasts(missing, at)) continue;
      waiting.set(uid, { generation: model.policies.inUse(uid)?.row.generation ?? 0, endpoints: 0 });
    }
    return waiting;
  }

  *#judged({ writer, endpoints }: RealisedSources): Generator<CountedEndpoint> {
    const { model } = this.#options;
    const failing = refusedEndpoints(writer);
    for (const { id, policies } of model.states()) {
      // No packet can come from or go to an interface that is gone.
      if (failing.get(id) instanceof InterfaceGoneError) continue;
      // Until its policies are compiled, its state is of those before.
      const wanted = model.waits(id) ? model.policiesOf(id) : policies;
      yield { id, wanted, held: endpoints.held(id)?.policies ?? NONE };
    }
    // One that was found enforced has no state before its policies have compiled for the first time.
    for (const id of model.endpoints())
      if (model.state(id) === undefined && model.waits(id)) yield { id, wanted: model.policiesOf(id), held: NONE };
  }
}
