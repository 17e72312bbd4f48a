/**
 * What Weir writes, from desired tables to the API, and the order between the kinds:
 *
 *   identities -> endpoint slices -> unused identities are deleted
 *   peer sets -> resolved policies -> unused peer sets are deleted
 *                       \----> statuses of NetworkPolicies
 *   events -> statuses
 *
 * A row waits until what it needs itself has been attempted; when that failed, the row fails with a DependencyError and is
 * retried. Deletions of peer sets and identities never wait, so that the order has no circle: they fail and are retried. An Event goes out
 * before the status that it tells of, so that a leader that ends in between leaves its successor something to tell.
 *
 * Requests of one kind have few places, which namespaces take in turns (places.ts); what waits for another object has no place meanwhile.
 * A new peer set goes in the turns of every namespace that has a policy waiting for it.
 */

import { ApiError, type KubeClient, type ResolvedPolicyObject, resources } from '@weir/kube';
import { namespaceOf } from '@weir/labels';
import type { StateDB } from '@weir/statedb';
import { DependencyError } from '../errors.ts';
import { hashesOf, peerSetName, policyKey, resolvedName } from '../names.ts';
import type { DesiredKind } from '../parts/contract.ts';
import type { Tables } from '../tables.ts';
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
import type { Writers } from './writers.ts';

/** Rounds of slice writes a second: pods that come in a burst share a write. */
const SLICE_ROUNDS = 20;

export interface WrittenKindsOptions {
  readonly client: Pick<KubeClient, 'apply'>;
  readonly db: StateDB;
  readonly tables: Tables;
  readonly targets: Targets;
  readonly attempted: Writers['attempted'];
  readonly onWrite: (verb: 'apply', resource: string) => void;
  /** The API server has taken the status of this policy. */
  readonly onStatus: (key: string) => void;
}

export function writtenKinds(options: WrittenKindsOptions): readonly DesiredKind<never>[] {
  return new WrittenKinds(options).all();
}

class WrittenKinds {
  readonly #options: WrittenKindsOptions;

  constructor(options: WrittenKindsOptions) {
    this.#options = options;
  }

  all(): readonly DesiredKind<never>[] {
    return [this.#peerSets(), this.#identities(), this.#resolved(), this.#slices(), this.#events(), this.#statuses()];
  }

  #peerSets(): DesiredKind<PeerSetRow> {
    const { peerSets } = this.#options.targets;
    const needed = (hash: string, slice: number): DependencyError | undefined => {
      if (!this.#desires(hash)) {
        const named = `peer set ${hash} is still named by a resolved policy`;
        return this.#isNamed(hash) ? new DependencyError(named) : undefined;
      }
      // The set shrank: its last slice goes once the others are written with the smaller count.
      const first = peerSets.get(hash);
      if (first === undefined || first.spec.slices <= slice) return undefined;
      return new DependencyError(`slice ${slice} of peer set ${hash} goes after slice 0 has been written`);
    };
    return {
      name: 'peer-sets',
      table: this.#options.tables.peerSets,
      ownerOf: ({ hash }) => this.#firstToName(hash),
      // Policies wait for a new one; nodes know without the list whom it matches.
      isUrgent: ({ name }) => !peerSets.stays(name),
      update: async (row) => {
        await peerSets.apply(peerSetObject(row));
      },
      delete: async ({ name, hash, slice }) => {
        const why = needed(hash, slice);
        if (why !== undefined) throw why;
        await peerSets.remove(name);
      },
      prune: async (keys) => {
        for (const name of peerSets.keys()) {
          const spec = peerSets.get(name)?.spec;
          // What is still needed stays; the next look comes.
          if (keys.has(name) || (spec !== undefined && needed(spec.hash, spec.slice) !== undefined)) continue;
          await peerSets.remove(name);
        }
      },
    };
  }

  #identities(): DesiredKind<IdentityRow> {
    const { identities, slices } = this.#options.targets;
    return {
      name: 'identities',
      table: this.#options.tables.identities,
      ownerOf: ({ labels }) => namespaceOf(labels),
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

  #resolved(): DesiredKind<ResolvedRow> {
    const { resolved, peerSets } = this.#options.targets;
    return {
      name: 'resolved-policies',
      table: this.#options.tables.resolved,
      ownerOf: ({ source }) => source.namespace ?? '',
      ready: (row) => this.#attempted('peerSets', this.#missingSlices(row), row.source.namespace ?? ''),
      update: async (row) => {
        await this.#takeStatusBack(row);
        // From here to the request nothing waits.
        const newest = this.#isNewest(row);
        for (const hash of hashesOf(row.rules)) {
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
        for (const name of resolved.keys()) {
          const object = resolved.get(name);
          // What took another name is written under it first; the next look comes.
          if (!keys.has(name) && !(object !== undefined && this.#isInForceAlone(object))) await resolved.remove(name);
        }
      },
    };
  }

  #slices(): DesiredKind<SliceRow> {
    const { slices, identities } = this.#options.targets;
    return {
      name: 'endpoint-slices',
      table: this.#options.tables.slices,
      roundsPerSecond: SLICE_ROUNDS,
      ownerOf: ({ namespace }) => namespace,
      ready: async ({ namespace, endpoints }) => {
        // One that is there may be on its way out.
        await this.#attempted('identities', [...new Set(endpoints.map(({ identity }) => String(identity)))], namespace);
      },
      update: async (row) => {
        const { row: now, waiting } = writableSlice(row, slices.get(row.name), (id) =>
          identities.stays(String(id)) ? identities.get(String(id)) : undefined,
        );
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

  #statuses(): DesiredKind<StatusRow> {
    const { targets, onStatus } = this.#options;
    const { statuses } = targets;
    return {
      name: 'policy-statuses',
      table: this.#options.tables.statuses,
      ownerOf: ({ namespace = '' }) => namespace,
      ready: async (row) => {
        // Rules of the same change go out first: nodes wait for them, people for the status.
        await new Promise((resolve) => setImmediate(resolve));
        const { key, kind, namespace, name } = row;
        await this.#attempted('events', this.#eventsAbout(key), namespace ?? '');
        if (kind !== 'NetworkPolicy') return;
        await this.#attempted('resolved', [resolvedName(kind, namespace, name)], namespace ?? '');
      },
      update: async (row) => {
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
    using snapshot = db.read();
    // Nothing of it is enforced: no object can carry the status, and the Event was written.
    if (!snapshot.has(tables.resolved, name)) return;
    const object = targets.resolved.get(name);
    if (object?.spec.source.uid !== row.uid) {
      throw new DependencyError(`the status of ${row.key} goes after ResolvedPolicy ${name}, which is not written yet`);
    }
    if (await targets.resolvedStatuses.apply(resolvedStatusObject(row, object.metadata.uid))) onStatus(row.key);
  }

  /** Another NetworkPolicy has the name now: the status of the former one must not seem to be its own. */
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

  #events(): DesiredKind<EventRow> {
    const { client, onWrite } = this.#options;
    return {
      name: 'events',
      table: this.#options.tables.events,
      ownerOf: ({ about: { namespace = '' } }) => namespace,
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
      // Events that were written stay; the API server drops them by itself.
      delete: async () => {},
    };
  }

  #attempted(
    kind: 'peerSets' | 'identities' | 'resolved' | 'events',
    keys: readonly string[],
    owner: string,
  ): Promise<void> {
    const { tables, attempted } = this.#options;
    return attempted(tables[kind], keys, owner);
  }

  /** Names of the slices of peer sets that the policy names, of those that the API does not hold whole. */
  #missingSlices({ rules }: ResolvedRow): string[] {
    const { db, tables, targets } = this.#options;
    using snapshot = db.read();
    return [...hashesOf(rules)]
      .filter((hash) => !isComplete(targets.peerSets, hash))
      .flatMap((hash) => Array.from(snapshot.list(tables.peerSets, 'hash', hash), ({ row }) => row.name));
  }

  /** Namespace of a policy that names the peer set. */
  #firstToName(hash: string): string {
    using snapshot = this.#options.db.read();
    const [first] = snapshot.list(this.#options.tables.resolved, 'peer-set', hash);
    return first?.row.source.namespace ?? '';
  }

  #eventsAbout(key: string): string[] {
    using snapshot = this.#options.db.read();
    return Array.from(snapshot.list(this.#options.tables.events, 'about', key), ({ row }) => row.key);
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
