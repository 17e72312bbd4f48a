/**
 * The reconcilers from desired tables to the API, and the order between them:
 *
 *   peer sets -> identities -> endpoint slices
 *        \----> resolved policies -> unused peer sets are deleted
 *
 * A row waits until what it needs has been attempted; when that failed, the row fails with a DependencyError and is
 * retried. Deletions of peer sets never wait, so that the order has no circle: they fail and are retried.
 */
import { createReconciler, type Reconciler } from '@weir/reconciler';
import type { StateDB, Table } from '@weir/statedb';
import { DependencyError } from './errors.ts';
import { peerSetName } from './names.ts';
import { identityObject, peerSetObject, resolvedObject, sliceObject, statusObject } from './objects.ts';
import { hashesOf } from './policy-book.ts';
import type { Desired, Tables } from './tables.ts';
import { objectKey } from './target.ts';
import type { Targets } from './targets.ts';
import type { IdentityRow, PeerSetRow, ResolvedRow, SliceRow, StatusRow } from './types.ts';

/** Requests of one kind at once. */
const CONCURRENCY = 8;
/** Rounds of slice writes a second: pods that come in a burst share a write. */
const SLICE_ROUNDS = 20;
/** Milliseconds between looks for objects that nobody desires. */
const PRUNE_INTERVAL_MS = 60_000;

export interface WritersOptions {
  readonly db: StateDB;
  readonly tables: Tables;
  readonly targets: Targets;
  readonly onError: (writer: string, key: string, error: Error, retries: number) => void;
}

interface Part<T> {
  readonly update: (row: T) => Promise<void>;
  readonly delete: (row: T) => Promise<void>;
  readonly prune?: (keys: ReadonlySet<string>) => Promise<void>;
  readonly roundsPerSecond?: number;
}

export class Writers {
  readonly #options: WritersOptions;
  readonly #peerSets: Reconciler<Desired<PeerSetRow>>;
  readonly #identities: Reconciler<Desired<IdentityRow>>;
  readonly #all: readonly { readonly reconciler: Reconciler<never>; readonly table: Table<never> }[];
  #inUse: { readonly at: number; readonly hashes: ReadonlySet<string> } = { at: -1, hashes: new Set() };

  constructor(options: WritersOptions) {
    this.#options = options;
    const { tables } = options;
    this.#peerSets = this.#writer('peer-sets', tables.peerSets, this.#peerSetPart());
    this.#identities = this.#writer('identities', tables.identities, this.#identityPart());
    const resolved = this.#writer('resolved-policies', tables.resolved, this.#resolvedPart());
    const slices = this.#writer('endpoint-slices', tables.slices, this.#slicePart());
    const statuses = this.#writer('policy-statuses', tables.statuses, this.#statusPart());
    this.#all = [
      { reconciler: this.#peerSets, table: tables.peerSets },
      { reconciler: this.#identities, table: tables.identities },
      { reconciler: resolved, table: tables.resolved },
      { reconciler: slices, table: tables.slices },
      { reconciler: statuses, table: tables.statuses },
    ] as unknown as { reconciler: Reconciler<never>; table: Table<never> }[];
  }

  start(): void {
    for (const { reconciler } of this.#all) reconciler.start();
  }

  async stop(): Promise<void> {
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
    const { db, onError } = this.#options;
    const { prune } = part;
    return createReconciler<Desired<T>>({
      name,
      db,
      table,
      concurrency: CONCURRENCY,
      pruneIntervalMs: PRUNE_INTERVAL_MS,
      ...(part.roundsPerSecond === undefined ? {} : { roundsPerSecond: part.roundsPerSecond }),
      operations: {
        update: ({ row }) => part.update(row),
        delete: ({ row }) => part.delete(row),
        ...(prune === undefined
          ? {}
          : { prune: (rows: Iterable<Desired<T>>) => prune(new Set([...rows].map((row) => table.spec.key(row)))) }),
      },
      onError: (row, error, retries) => onError(name, table.spec.key(row), error, retries),
      onPruneError: (error, retries) => onError(name, 'prune', error, retries),
    });
  }

  #peerSetPart(): Part<PeerSetRow> {
    const { peerSets } = this.#options.targets;
    const remove = async (key: string, hash: string, slice: number): Promise<void> => {
      if (this.#desires(hash)) {
        // The set shrank: its last slice goes when the others have said that they are fewer.
        const first = peerSets.get(hash);
        if (first !== undefined && first.spec.slices > slice) {
          throw new DependencyError(`slice ${slice} of peer set ${hash} goes after slice 0 has been written`);
        }
      } else if (this.#usedHashes().has(hash)) {
        throw new DependencyError(`peer set ${hash} is still named by a resolved policy`);
      }
      await peerSets.remove(key);
    };
    return {
      update: (row) => peerSets.apply(peerSetObject(row)),
      delete: (row) => remove(row.name, row.hash, row.slice),
      prune: async (keys) => {
        const used = this.#usedHashes();
        for (const object of [...peerSets.objects()]) {
          const { name } = object.metadata;
          // What a policy still names stays; the next look comes.
          if (keys.has(name) || used.has(object.spec.hash)) continue;
          await remove(name, object.spec.hash, object.spec.slice);
        }
      },
    };
  }

  #identityPart(): Part<IdentityRow> {
    const { identities, peerSets } = this.#options.targets;
    return {
      update: async (row) => {
        await this.#after(this.#peerSets, this.#options.tables.peerSets);
        for (const hash of row.peerSets) {
          if (!this.#desires(hash)) continue;
          const slices = peerSets.get(hash)?.spec.slices ?? 0;
          let listed = false;
          for (let slice = 0; slice < slices && !listed; slice += 1) {
            listed = includes(peerSets.get(peerSetName(hash, slice))?.spec.identities ?? [], row.id);
          }
          if (!listed)
            throw new DependencyError(`identity ${row.id} goes after peer set ${hash}, which does not list it yet`);
        }
        await identities.apply(identityObject(row));
      },
      delete: (row) => identities.remove(String(row.id)),
    };
  }

  #resolvedPart(): Part<ResolvedRow> {
    const { resolved, peerSets } = this.#options.targets;
    return {
      update: async (row) => {
        await this.#after(this.#peerSets, this.#options.tables.peerSets);
        for (const hash of hashesOf(row.rules)) {
          const slices = peerSets.get(hash)?.spec.slices ?? 0;
          const complete =
            slices > 0 && range(slices).every((slice) => peerSets.get(peerSetName(hash, slice)) !== undefined);
          // One that is not desired is gone for good (see PolicyBook): waiting would not bring it back.
          if (!complete && this.#desires(hash)) {
            throw new DependencyError(`policy ${row.name} goes after peer set ${hash}, which is not written yet`);
          }
        }
        await resolved.apply(resolvedObject(row));
      },
      delete: (row) => resolved.remove(row.name),
      prune: async (keys) => {
        for (const key of [...resolved.keys()]) if (!keys.has(key)) await resolved.remove(key);
      },
    };
  }

  #slicePart(): Part<SliceRow> {
    const { slices, identities } = this.#options.targets;
    return {
      roundsPerSecond: SLICE_ROUNDS,
      update: async (row) => {
        await this.#after(this.#identities, this.#options.tables.identities);
        const known = row.endpoints.filter((endpoint) => identities.get(String(endpoint.identity)) !== undefined);
        // The others need not wait for one whose identity could not be written: nodes take it for unknown until then.
        await slices.apply(sliceObject({ ...row, endpoints: known }));
        if (known.length < row.endpoints.length) {
          throw new DependencyError(
            `${row.endpoints.length - known.length} endpoints of slice ${row.name} go after their identities, which are not written yet`,
          );
        }
      },
      delete: (row) => slices.remove(row.name),
      prune: async (keys) => {
        for (const key of [...slices.keys()]) if (!keys.has(key)) await slices.remove(key);
      },
    };
  }

  #statusPart(): Part<StatusRow> {
    const { statuses } = this.#options.targets;
    return {
      update: async (row) => {
        // Rules of the same change go out first: nodes wait for them, people for the status.
        await new Promise((resolve) => setImmediate(resolve));
        const object = statusObject(row);
        // Gone, or another object of the same name: its own row comes, or has come.
        if (statuses[row.kind].get(objectKey(object))?.metadata.uid !== row.uid) return;
        await statuses[row.kind].apply(object);
      },
      // The policy is gone, and its status with it.
      delete: async () => {},
    };
  }

  async #after<T>(reconciler: Reconciler<T>, table: Table<T>): Promise<void> {
    await reconciler.waitUntil(this.#revision(table));
  }

  #revision<T>(table: Table<T>): number {
    using snapshot = this.#options.db.read();
    return snapshot.revision(table);
  }

  #desires(hash: string): boolean {
    using snapshot = this.#options.db.read();
    return snapshot.has(this.#options.tables.peerSets, peerSetName(hash, 0));
  }

  /** Peer sets that a ResolvedPolicy in the API names. */
  #usedHashes(): ReadonlySet<string> {
    const { resolved } = this.#options.targets;
    if (this.#inUse.at !== resolved.changes) {
      const hashes = new Set<string>();
      for (const object of resolved.objects()) for (const hash of hashesOf(object.spec.rules)) hashes.add(hash);
      this.#inUse = { at: resolved.changes, hashes };
    }
    return this.#inUse.hashes;
  }
}

function range(length: number): number[] {
  return Array.from({ length }, (_, index) => index);
}

/** Whether an ascending list has the number. */
function includes(ascending: readonly number[], wanted: number): boolean {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ascending[middle] ?? 0) < wanted) low = middle + 1;
    else high = middle;
  }
  return ascending[low] === wanted;
}
