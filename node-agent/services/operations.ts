import type { BatchItem, Operations } from '@weir/reconciler';
import { keys, type StateDB, type WriteTxn } from '@weir/statedb';
import {
  changedSlots,
  encodeBackend,
  encodeSlot,
  frontendEntries,
  frontendValueOf,
  type NewBackend,
  newMembers,
  newSources,
  oldMembers,
  oldSlots,
  oldSources,
  type Plan,
} from './entries.ts';
import { frontendRowKey } from './frontends.ts';
import { type BackendValue, type FrontendKey, frontendKey, number } from './layout.ts';
import {
  backendName,
  backendsOf,
  frontendName,
  hexOf,
  type RealisedService,
  type RealisedTables,
  type ServiceMaps,
  UNUSED,
} from './realised.ts';
import type { Frontend } from './types.ts';

const NOTHING = { slots: [], frontends: [], members: [], sources: [] } as const;

export interface FrontendOperationsOptions {
  readonly db: StateDB;
  readonly maps: ServiceMaps;
  /** What `adopt` has read. */
  readonly realised: RealisedTables;
}

/**
 * Frontends into the maps. Of each write the order keeps every packet's frontend with a backend: new backends, members, sources, slots, then the frontend
 * with its count; then what is no more, the other way round. The tables say what is written before it is; when a write fails they say what may be in the
 * maps, and the next attempt writes all of it. A service that has no frontend yet then leaves nothing behind.
 */
export class FrontendOperations implements Operations<Frontend> {
  readonly #options: FrontendOperationsOptions;

  constructor(options: FrontendOperationsOptions) {
    this.#options = options;
  }

  update(row: Frontend): void {
    this.#updateAll([row]);
  }

  updateBatch(batch: readonly BatchItem<Frontend>[]): void {
    inParts(batch, (rows) => this.#updateAll(rows));
  }

  delete(row: Frontend): void {
    this.#removeAll(this.#servicesOf([row]));
  }

  deleteBatch(batch: readonly BatchItem<Frontend>[]): void {
    inParts(batch, (rows) => this.#removeAll(this.#servicesOf(rows)));
  }

  prune(rows: Iterable<Frontend>): void {
    const wanted = new Set(Array.from(rows, frontendRowKey));
    using snapshot = this.#options.db.read();
    const all = [...snapshot.all(this.#options.realised.services)];
    this.#removeAll(all.filter(({ row }) => row === undefined || !wanted.has(row)));
  }

  #servicesOf(rows: readonly Frontend[]): RealisedService[] {
    const { db, realised } = this.#options;
    using snapshot = db.read();
    return rows.flatMap((row) => [...snapshot.list(realised.services, 'row', frontendRowKey(row))]);
  }

  #updateAll(rows: readonly Frontend[]): void {
    const { db, realised } = this.#options;
    const backends: NewBackend[] = [];
    let plans: Plan[] = [];
    db.write([realised.services, realised.backends], (txn) => {
      plans = rows.map((row) => this.#plan(txn, row, backends));
    });
    try {
      this.#carryOut(plans, backends);
    } catch (error) {
      this.#clear(plans.filter(({ before }) => before.row === undefined && before.frontends.length === 0));
      throw error;
    }
    this.#dropUnused();
  }

  /** What is of no use, and may be what a full map has no place for; but for frontends that are, or were, another's. */
  #clear(plans: readonly Plan[]): void {
    const { db, realised } = this.#options;
    const services = this.#servicesOf(plans.flatMap(({ row }) => row ?? []));
    using snapshot = db.read();
    const isAlone = (key: FrontendKey): boolean =>
      [...snapshot.list(realised.services, 'frontend', frontendName(key))].length === 1;
    try {
      this.#removeAll(services.filter(({ frontends }) => frontends.every(isAlone)));
    } catch {
      // The next attempt removes it.
    }
  }

  #removeAll(services: readonly RealisedService[]): void {
    const { db, realised } = this.#options;
    const plans = services.map((before) => {
      const { unsure: _, value: __, ...rest } = before;
      return { before, wanted: { ...rest, ...NOTHING }, taken: [] };
    });
    db.write([realised.services, realised.backends], (txn) => {
      for (const { before, wanted } of plans) {
        txn.delete(realised.services, keys.uint(before.id));
        this.#count(txn, before, wanted);
      }
    });
    this.#carryOut(plans, []);
    this.#dropUnused();
  }

  #plan(txn: WriteTxn, row: Frontend, backends: NewBackend[]): Plan {
    const { services } = this.#options.realised;
    const { protocol, port, scope, sourceRanges = [] } = row;
    const frontends = row.addresses.map((address) => ({ address, port, protocol, scope }));
    const before = this.#serviceOf(txn, row, frontends);
    const fresh = new Set<number>();
    const ids = row.backends.map((each) =>
      this.#backend(txn, { address: each.address, port: each.port, protocol }, backends, fresh),
    );
    const slots = placed(before.slots, ids);
    const members = row.affinitySeconds === undefined ? [] : slots;
    const taken = frontends.flatMap((key) => this.#take(txn, key, before.id));
    const { id } = before;
    const value = hexOf(frontendValueOf(row, id, slots.length));
    const wanted = { id, row: frontendRowKey(row), slots, frontends, value, members, sources: sourceRanges };
    txn.upsert(services, wanted);
    this.#count(txn, before, wanted, fresh);
    return { row, before, wanted, taken };
  }

  /** The service of the row: its own, one that was found with one of its frontends, or a new one. */
  #serviceOf(txn: WriteTxn, row: Frontend, frontends: readonly FrontendKey[]): RealisedService {
    const { services } = this.#options.realised;
    const [own] = txn.list(services, 'row', frontendRowKey(row));
    if (own !== undefined) return own;
    for (const key of frontends) {
      const [found] = txn.list(services, 'frontend', frontendName(key));
      if (found !== undefined && found.row === undefined) return found;
    }
    const id = freeId((each) => txn.has(services, keys.uint(each)), txn.count(services));
    return { id, ...NOTHING };
  }

  /** The backend's number; among `backends` where the map may lack it, and `fresh` where it is counted already. */
  #backend(txn: WriteTxn, backend: BackendValue, backends: NewBackend[], fresh: Set<number>): number {
    const table = this.#options.realised.backends;
    const name = backendName(backend);
    const [known] = txn.list(table, 'name', name);
    if (known !== undefined) {
      if (known.pending) {
        const { pending: _, ...written } = known;
        txn.upsert(table, written);
        backends.push([known.id, backend]);
      }
      return known.id;
    }
    const id = freeId((each) => txn.has(table, keys.uint(each)), txn.count(table));
    txn.insert(table, { id, name, uses: 1 });
    fresh.add(id);
    backends.push([id, backend]);
    return id;
  }

  /** Another service has it no more. */
  #take(txn: WriteTxn, key: FrontendKey, to: number): Plan['taken'] {
    const { services } = this.#options.realised;
    const others = [...txn.list(services, 'frontend', frontendName(key))].filter(({ id }) => id !== to);
    for (const other of others) {
      const frontends = other.frontends.filter((each) => frontendName(each) !== frontendName(key));
      txn.upsert(services, { ...other, frontends });
    }
    return others.map(({ id: from }) => ({ key, from }));
  }

  #count(txn: WriteTxn, before: RealisedService, now: RealisedService, counted?: ReadonlySet<number>): void {
    const table = this.#options.realised.backends;
    const old = backendsOf(before);
    const add = (id: number, by: number): void => {
      const row = txn.get(table, keys.uint(id));
      if (row !== undefined) txn.upsert(table, { ...row, uses: row.uses + by });
    };
    const named = backendsOf(now);
    for (const id of named) if (!old.has(id) && counted?.has(id) !== true) add(id, 1);
    for (const id of old) if (!named.has(id)) add(id, -1);
  }

  #carryOut(plans: readonly Plan[], backends: readonly NewBackend[]): void {
    const { maps } = this.#options;
    try {
      maps.backends.updateRows(backends, encodeBackend);
      maps.members.updateBatch(plans.flatMap(newMembers));
      maps.sources.updateBatch(plans.flatMap(newSources));
      maps.slots.updateRows(plans.flatMap(changedSlots), encodeSlot);
      maps.frontends.updateBatch(plans.flatMap(frontendEntries));
      maps.frontends.deleteBatch(this.#oldFrontends(plans));
      maps.slots.deleteBatch(plans.flatMap(oldSlots));
      maps.sources.deleteBatch(plans.flatMap(oldSources));
      maps.members.deleteBatch(plans.flatMap(oldMembers));
    } catch (error) {
      this.#undo(plans, backends);
      throw error;
    }
  }

  /** But for those that others have now: they are written. */
  #oldFrontends(plans: readonly Plan[]): Uint8Array[] {
    const { db, realised } = this.#options;
    using snapshot = db.read();
    const isTaken = (key: FrontendKey): boolean =>
      [...snapshot.list(realised.services, 'frontend', frontendName(key))].some(({ unsure }) => unsure === undefined);
    return plans.flatMap(({ before, wanted }) => {
      const there = new Set(wanted.frontends.map(frontendName));
      const old = before.frontends.filter((key) => !there.has(frontendName(key)));
      return old.filter((key) => !isTaken(key)).map((key) => frontendKey.encode(key));
    });
  }

  /** The tables say what may be in the maps. */
  #undo(plans: readonly Plan[], backends: readonly NewBackend[]): void {
    const { db, realised } = this.#options;
    db.write([realised.services, realised.backends], (txn) => {
      for (const [id] of backends) {
        const row = txn.get(realised.backends, keys.uint(id));
        if (row !== undefined) txn.upsert(realised.backends, { ...row, pending: true });
      }
      for (const { before, wanted } of plans) {
        const both: RealisedService = {
          ...wanted,
          slots: [...wanted.slots, ...before.slots.slice(wanted.slots.length)],
          frontends: union(before.frontends, wanted.frontends, frontendName),
          members: [...new Set([...before.members, ...wanted.members])],
          sources: [...new Set([...before.sources, ...wanted.sources])],
          unsure: [...new Set([...before.slots, ...(before.unsure ?? [])])],
        };
        txn.upsert(realised.services, both);
        this.#count(txn, wanted, both);
      }
      for (const { taken } of plans)
        for (const { key, from } of taken) {
          const other = txn.get(realised.services, keys.uint(from));
          if (other === undefined) continue;
          // Whose the key is in the map is not known.
          const { value: _, ...rest } = other;
          txn.upsert(realised.services, { ...rest, frontends: union(other.frontends, [key], frontendName) });
        }
    });
  }

  #dropUnused(): void {
    const { db, maps, realised } = this.#options;
    using snapshot = db.read();
    const unused = Array.from(snapshot.list(realised.backends, 'unused', UNUSED), ({ id }) => id);
    if (unused.length === 0) return;
    try {
      maps.backends.deleteBatch(unused.map((id) => number.encode(id)));
    } catch (error) {
      // Some of them may be gone.
      db.write([realised.backends], (txn) => {
        for (const row of [...txn.list(realised.backends, 'unused', UNUSED)])
          txn.upsert(realised.backends, { ...row, pending: true });
      });
      throw error;
    }
    db.write([realised.backends], (txn) => {
      for (const id of unused) txn.delete(realised.backends, keys.uint(id));
    });
  }
}

/** Rows that the maps do not take keep nobody else waiting. */
function inParts(batch: readonly BatchItem<Frontend>[], write: (rows: readonly Frontend[]) => void): void {
  try {
    write(batch.map(({ row }) => row));
  } catch (error) {
    const half = Math.ceil(batch.length / 2);
    if (half === batch.length) batch[0]?.fail(error);
    else for (const part of [batch.slice(0, half), batch.slice(half)]) inParts(part, write);
  }
}

function union<T>(a: readonly T[], b: readonly T[], name: (each: T) => string): T[] {
  return [...new Map([...a, ...b].map((each) => [name(each), each])).values()];
}

/** The wanted backends in slots, each where it is already as far as that lies below the new count. */
export function placed(before: readonly number[], wanted: readonly number[]): number[] {
  const left = new Set(wanted);
  const slots: (number | undefined)[] = Array.from({ length: left.size }, (_, index) => {
    const id = before[index];
    return id !== undefined && left.delete(id) ? id : undefined;
  });
  const rest = left.values();
  return slots.map((id) => id ?? rest.next().value ?? 0);
}

/** A number that is free: the next one as long as none was given back, then any. */
function freeId(taken: (id: number) => boolean, count: number): number {
  for (let id = count + 1; ; id = 1 + Math.floor(Math.random() * MOST)) if (!taken(id)) return id;
}

/** Nine digits, as people type them. */
const MOST = 999_999_999;
