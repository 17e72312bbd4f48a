/**
 * The reconcilers from desired tables to the API, and the order between them:
 *
 *   identities -> endpoint slices -> unused identities are deleted
 *   peer sets -> resolved policies -> unused peer sets are deleted
 *                       \----> statuses of NetworkPolicies
 *   events -> statuses
 *
 * A row waits until what it needs has been attempted; when that failed, the row fails with a DependencyError and is
 * retried. Deletions of peer sets and identities never wait, so that the order has no circle: they fail and are retried. An Event goes out
 * before the status that it tells of, so that a leader that ends in between leaves its successor something to tell.
 */
import { ApiError, type KubeClient, type ResolvedPolicyObject, resources } from '@weir/kube';
import { createReconciler, type Reconciler, type ReconcilerOptions, ReconcilerStoppedError } from '@weir/reconciler';
import type { StateDB, Table } from '@weir/statedb';
import { DependencyError } from '../errors.ts';
import { peerSetName, policyKey, resolvedName } from '../model/names.ts';
import { hashesOf } from '../model/policy-book.ts';
import type { Desired, Tables } from '../tables.ts';
import type { EventRow, IdentityRow, PeerSetRow, ResolvedRow, SliceRow, StatusRow } from '../types.ts';
import {
  eventObject,
  identityObject,
  peerSetObject,
  resolvedObject,
  resolvedStatusObject,
  sliceObject,
  statusObject,
} from './objects.ts';
import { isComplete } from './peer-set-slices.ts';
import { writableSlice } from './slice-writes.ts';
import { FIELD_MANAGER, objectKey } from './target.ts';
import type { Targets } from './targets.ts';

/** Requests of one kind at once. */
const CONCURRENCY = 8;
/** Rounds of slice writes a second: pods that come in a burst share a write. */
const SLICE_ROUNDS = 20;
/** Milliseconds between looks for objects that nobody desires. */
const PRUNE_INTERVAL_MS = 60_000;
/** Milliseconds between attempts at what the API server refuses, at most; a server that answers again is tried at once. */
const LAST_RETRY_MS = 5_000;

export interface WritersOptions {
  readonly client: Pick<KubeClient, 'apply' | 'pulse'>;
  readonly db: StateDB;
  readonly tables: Tables;
  readonly targets: Targets;
  /** Default: the machine's clock, and random delays of retries. */
  readonly timing?: Pick<ReconcilerOptions<unknown>, 'clock' | 'random'>;
  readonly onWrite: (verb: 'apply', resource: string) => void;
  /** The API server has taken the status of this policy. */
  readonly onStatus: (key: string) => void;
  /** `failingMs`: milliseconds since the first attempt that failed, with none since that succeeded. */
  readonly onError: (writer: string, key: string, error: Error, retries: number, failingMs: number) => void;
}

interface Part<T> {
  readonly update: (row: T) => Promise<void>;
  readonly delete: (row: T) => Promise<void>;
  readonly prune?: (keys: ReadonlySet<string>) => Promise<void>;
  readonly roundsPerSecond?: number;
}

export class Writers {
  readonly #options: WritersOptions;
  #forget: (() => void) | undefined;
  readonly #peerSets: Reconciler<Desired<PeerSetRow>>;
  readonly #identities: Reconciler<Desired<IdentityRow>>;
  readonly #resolved: Reconciler<Desired<ResolvedRow>>;
  readonly #events: Reconciler<Desired<EventRow>>;
  readonly #all: readonly { readonly reconciler: Reconciler<never>; readonly table: Table<never> }[];

  constructor(options: WritersOptions) {
    this.#options = options;
    const { tables } = options;
    this.#peerSets = this.#writer('peer-sets', tables.peerSets, this.#peerSetPart());
    this.#identities = this.#writer('identities', tables.identities, this.#identityPart());
    this.#resolved = this.#writer('resolved-policies', tables.resolved, this.#resolvedPart());
    const slices = this.#writer('endpoint-slices', tables.slices, this.#slicePart());
    this.#events = this.#writer('events', tables.events, this.#eventPart());
    const statuses = this.#writer('policy-statuses', tables.statuses, this.#statusPart());
    this.#all = [
      { reconciler: this.#peerSets, table: tables.peerSets },
      { reconciler: this.#identities, table: tables.identities },
      { reconciler: this.#resolved, table: tables.resolved },
      { reconciler: slices, table: tables.slices },
      { reconciler: this.#events, table: tables.events },
      { reconciler: statuses, table: tables.statuses },
    ] as unknown as { reconciler: Reconciler<never>; table: Table<never> }[];
  }

  get reconcilers(): readonly Pick<Reconciler<unknown>, 'name' | 'metrics'>[] {
    return this.#all.map(({ reconciler }) => reconciler);
  }

  start(): void {
    for (const { reconciler } of this.#all) reconciler.start();
    this.#forget = this.#options.client.pulse?.onRecovery(() => {
      for (const { reconciler } of this.#all) reconciler.retry();
    });
  }

  async stop(): Promise<void> {
    this.#forget?.();
    await Promise.all(this.#all.map(({ reconciler }) => reconciler.stop()));
  }

  /** Waits until everything desired now has been attempted; the writers that still fail, with how many rows. */
  async attempted(signal?: AbortSignal): Promise<ReadonlyMap<string, number>> {
    const failing = new Map<string, number>();
    for (const { reconciler, table } of this.#all) {
      const progress = await reconciler.waitUntil(this.#revision(table), signal);
      if (progress.failing.length > 0) failing.set(reconciler.name, progress.failing.length);
    }
    return failing;
  }

  /** Rows that the API server has not acknowledged, by writer. */
  failing(): ReadonlyMap<string, number> {
    return new Map(this.#all.map(({ reconciler }) => [reconciler.name, reconciler.failing().length]));
  }

  #writer<T>(name: string, table: Table<Desired<T>>, part: Part<T>): Reconciler<Desired<T>> {
    const { db, timing, onError } = this.#options;
    const { prune } = part;
    return createReconciler<Desired<T>>({
      ...timing,
      name,
      db,
      table,
      concurrency: CONCURRENCY,
      maxBackoffMs: LAST_RETRY_MS,
      pruneIntervalMs: PRUNE_INTERVAL_MS,
      ...(part.roundsPerSecond === undefined ? {} : { roundsPerSecond: part.roundsPerSecond }),
      operations: {
        update: ({ row }) => part.update(row),
        delete: ({ row }) => part.delete(row),
        ...(prune === undefined
          ? {}
          : { prune: (rows: Iterable<Desired<T>>) => prune(new Set([...rows].map((row) => table.spec.key(row)))) }),
      },
      onError: (row, error, ...how) => onError(name, table.spec.key(row), error, ...how),
      onPruneError: (error, ...how) => onError(name, 'prune', error, ...how),
    });
  }

  #peerSetPart(): Part<PeerSetRow> {
    const { peerSets } = this.#options.targets;
    const needed = (hash: string, slice: number): DependencyError | undefined => {
      if (!this.#desires(hash)) {
        const named = `peer set ${hash} is still named by a resolved policy`;
        return this.#isNamed(hash) ? new DependencyError(named) : undefined;
      }
      // The set shrank: its last slice goes when the others have said that they are fewer.
      const first = peerSets.get(hash);
      if (first === undefined || first.spec.slices <= slice) return undefined;
      return new DependencyError(`slice ${slice} of peer set ${hash} goes after slice 0 has been written`);
    };
    return {
      update: async (row) => {
        await peerSets.apply(peerSetObject(row));
      },
      delete: async ({ name, hash, slice }) => {
        const why = needed(hash, slice);
        if (why !== undefined) throw why;
        await peerSets.remove(name);
      },
      prune: async (keys) => {
        for (const { metadata, spec } of peerSets.objects()) {
          // What is still needed stays; the next look comes.
          if (keys.has(metadata.name) || needed(spec.hash, spec.slice) !== undefined) continue;
          await peerSets.remove(metadata.name);
        }
      },
    };
  }

  #identityPart(): Part<IdentityRow> {
    const { identities, slices } = this.#options.targets;
    return {
      update: async (row) => {
        await identities.apply(identityObject(row));
      },
      delete: async ({ id }) => {
        // A pod whose new identity cannot be written keeps this one, which its slice says.
        if (slices.has('identity', String(id))) {
          throw new DependencyError(`identity ${id} is still named by an endpoint slice`);
        }
        await identities.remove(String(id));
      },
    };
  }

  #resolvedPart(): Part<ResolvedRow> {
    const { resolved, peerSets } = this.#options.targets;
    return {
      update: async (row) => {
        const hashes = hashesOf(row.rules);
        // Where its own sets are there, a policy does not wait for those of others.
        if (![...hashes].every((hash) => isComplete(peerSets, hash)))
          await this.#after(this.#peerSets, this.#options.tables.peerSets);
        await this.#takeStatusBack(row);
        // From here to the request nothing waits.
        const newest = this.#isNewest(row);
        for (const hash of hashes) {
          if (this.#desires(hash)) {
            if (isComplete(peerSets, hash)) continue;
            throw new DependencyError(`policy ${row.name} goes after peer set ${hash}, which is not written yet`);
          }
          // A newer row has let it go, which comes next. What the newest names and nobody desires is gone for good (see PolicyBook).
          if (!newest) return;
        }
        await resolved.apply(resolvedObject(row));
      },
      delete: (row) => resolved.remove(row.name),
      prune: async (keys) => {
        for (const object of resolved.objects()) {
          const { name } = object.metadata;
          // What took another name is written under it first; the next look comes.
          if (!keys.has(name) && !this.#isInForceAlone(object)) await resolved.remove(name);
        }
      },
    };
  }

  #slicePart(): Part<SliceRow> {
    const { slices, identities } = this.#options.targets;
    return {
      roundsPerSecond: SLICE_ROUNDS,
      update: async (row) => {
        await this.#after(this.#identities, this.#options.tables.identities);
        const { row: now, waiting } = writableSlice(row, slices.get(row.name), (id) => identities.get(String(id)));
        // The others need not wait for one whose identity could not be written.
        await slices.apply(sliceObject(now));
        if (waiting > 0) {
          throw new DependencyError(
            `${waiting} endpoints of slice ${row.name} go after their identities, which are not written yet`,
          );
        }
      },
      delete: (row) => slices.remove(row.name),
      prune: async (keys) => {
        for (const key of slices.keys()) if (!keys.has(key)) await slices.remove(key);
      },
    };
  }

  #statusPart(): Part<StatusRow> {
    const { targets, onStatus } = this.#options;
    const { statuses } = targets;
    return {
      update: async (row) => {
        // Rules of the same change go out first: nodes wait for them, people for the status.
        await new Promise((resolve) => setImmediate(resolve));
        await this.#after(this.#events, this.#options.tables.events);
        if (row.kind === 'NetworkPolicy') {
          await this.#applyResolvedStatus(row);
          return;
        }
        const object = statusObject(row);
        // Gone, or another object of the same name: its own row comes, or has come.
        if (statuses[row.kind].get(objectKey(object))?.metadata.uid !== row.uid) return;
        try {
          if (await statuses[row.kind].apply(object)) onStatus(row.key);
        } catch (error) {
          // The policy went meanwhile, and its status with it.
          if (!(error instanceof ApiError && error.notFound)) throw error;
        }
      },
      // The policy is gone, and its status with it.
      delete: async () => {},
    };
  }

  async #applyResolvedStatus(row: StatusRow): Promise<void> {
    const { db, tables, targets, onStatus } = this.#options;
    const name = resolvedName(row.kind, row.namespace, row.name);
    await this.#after(this.#resolved, tables.resolved);
    using snapshot = db.read();
    // Nothing of it is enforced: there is no object to say it on, and the Event has said it.
    if (!snapshot.has(tables.resolved, name)) return;
    const object = targets.resolved.get(name);
    if (object?.spec.source.uid !== row.uid) {
      throw new DependencyError(`the status of ${row.key} goes after ResolvedPolicy ${name}, which is not written yet`);
    }
    if (await targets.resolvedStatuses.apply(resolvedStatusObject(row, object.metadata.uid))) onStatus(row.key);
  }

  /** Another NetworkPolicy has the name now: what was said of the one before it must not seem to be said of this one. */
  async #takeStatusBack({ name, source: { kind, namespace, name: policy, uid } }: ResolvedRow): Promise<void> {
    const { db, tables, targets } = this.#options;
    const before = targets.resolved.get(name);
    if (kind !== 'NetworkPolicy' || before === undefined || before.spec.source.uid === uid) return;
    using snapshot = db.read();
    const status = snapshot.get(tables.statuses, policyKey(kind, namespace, policy))?.row;
    if (status?.uid === uid) {
      await targets.resolvedStatuses.apply(resolvedStatusObject(status, before.metadata.uid));
    }
  }

  #eventPart(): Part<EventRow> {
    const { client, onWrite } = this.#options;
    return {
      update: async (row) => {
        try {
          await client.apply(resources.Event, eventObject(row), { fieldManager: FIELD_MANAGER, force: true });
        } catch (error) {
          // Its policy is on its way out, too.
          if (error instanceof ApiError && error.namespaceGone) return;
          throw error;
        }
        onWrite('apply', resources.Event.plural);
      },
      // What has been told stays told; the API server forgets it by itself.
      delete: async () => {},
    };
  }

  async #after<T>(reconciler: Reconciler<T>, table: Table<T>): Promise<void> {
    try {
      await reconciler.waitUntil(this.#revision(table));
    } catch (error) {
      if (!(error instanceof ReconcilerStoppedError)) throw error;
      throw new DependencyError(`the term of this operator ends before its ${reconciler.name} are written`);
    }
  }

  #revision<T>(table: Table<T>): number {
    using snapshot = this.#options.db.read();
    return snapshot.revision(table);
  }

  #desires(hash: string): boolean {
    using snapshot = this.#options.db.read();
    return snapshot.has(this.#options.tables.peerSets, peerSetName(hash, 0));
  }

  #isNewest(row: ResolvedRow): boolean {
    using snapshot = this.#options.db.read();
    return snapshot.get(this.#options.tables.resolved, row.name)?.row === row;
  }

  /** Whether the policy is to be enforced under another name, and the API does not hold that yet. */
  #isInForceAlone({ spec: { source } }: ResolvedPolicyObject): boolean {
    const { db, tables, targets } = this.#options;
    const name = resolvedName(source.kind, source.namespace, source.name);
    using snapshot = db.read();
    const wanted = snapshot.get(tables.resolved, name)?.row.source.uid === source.uid;
    return wanted && targets.resolved.get(name)?.spec.source.uid !== source.uid;
  }

  /** Whether a ResolvedPolicy that is in the API, or may be, names the peer set. */
  #isNamed(hash: string): boolean {
    return this.#options.targets.resolved.has('peer-set', hash);
  }
}
