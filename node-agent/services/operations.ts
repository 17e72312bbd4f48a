import type { Operations } from '@weir/reconciler';
import { keys, type StateDB, type WriteTxn } from '@weir/statedb';
import { frontendRowKey } from './frontends.ts';
import { backendValue, type FrontendKey, frontendKey, frontendValue, number, slotKey } from './layout.ts';
import { nameOf, type RealisedService, type RealisedTables, type ServiceMaps } from './realised.ts';
import type { Frontend } from './types.ts';

/** Numbers of services and backends begin here; 0 is none. */
const FIRST = 1;

export interface FrontendOperationsOptions {
  readonly db: StateDB;
  readonly maps: ServiceMaps;
  /** What `adopt` has read. */
  readonly realised: RealisedTables;
}

/**
 * Frontends into the maps. Of each write the order keeps every packet's frontend with a backend: new backends, slots, the count; then what is no more, the
 * other way round. A write that fails is made again whole: what was written before the failure is in the tables.
 */
export class FrontendOperations implements Operations<Frontend> {
  readonly #options: FrontendOperationsOptions;

  constructor(options: FrontendOperationsOptions) {
    this.#options = options;
  }

  update(row: Frontend): void {
    const service = this.#serviceOf(row);
    const ids = row.backends.map(({ address, port }) => this.#backend({ address, port, protocol: row.protocol }));
    const slots = placed(service.slots, ids);
    const frontends = row.addresses.map((address) => ({ address, port: row.port, protocol: row.protocol }));
    const { affinitySeconds = 0 } = row;
    this.#writeSlots(service, slots);
    const wanted = { ...service, slots, frontends, affinitySeconds, row: frontendRowKey(row) };
    this.#writeFrontends(service, wanted);
    this.#put(service, wanted);
    this.#trim(service, slots.length);
  }

  delete(row: Frontend): void {
    const service = this.#find(frontendRowKey(row));
    if (service !== undefined) this.#remove(service);
  }

  prune(rows: Iterable<Frontend>): void {
    const wanted = new Set(Array.from(rows, frontendRowKey));
    using snapshot = this.#options.db.read();
    for (const service of snapshot.all(this.#options.realised.services))
      if (service.row === undefined || !wanted.has(service.row)) this.#remove(service);
  }

  /** The service of the row: its own, one that was found with one of its addresses, or a new one. */
  #serviceOf(row: Frontend): RealisedService {
    const { db, realised } = this.#options;
    const own = this.#find(frontendRowKey(row));
    if (own !== undefined) return own;
    using snapshot = db.read();
    for (const address of row.addresses) {
      const name = nameOf({ address, port: row.port, protocol: row.protocol });
      const [found] = snapshot.list(realised.services, 'frontend', name);
      if (found !== undefined && found.row === undefined) return found;
    }
    const id = freeId((each) => snapshot.has(realised.services, keys.uint(each)), snapshot.count(realised.services));
    return { id, slots: [], frontends: [], affinitySeconds: 0 };
  }

  #find(row: string): RealisedService | undefined {
    using snapshot = this.#options.db.read();
    const [found] = snapshot.list(this.#options.realised.services, 'row', row);
    return found;
  }

  /** The backend's number; in the map from here on. */
  #backend(backend: FrontendKey): number {
    const { db, maps, realised } = this.#options;
    const name = nameOf(backend);
    using snapshot = db.read();
    const [known] = snapshot.list(realised.backends, 'name', name);
    if (known !== undefined) return known.id;
    const id = freeId((each) => snapshot.has(realised.backends, keys.uint(each)), snapshot.count(realised.backends));
    maps.backends.update(number.encode(id), backendValue.encode(backend));
    db.write([realised.backends], (txn) => txn.insert(realised.backends, { id, name, uses: 0 }));
    return id;
  }

  #writeSlots({ id, slots: before }: RealisedService, slots: readonly number[]): void {
    const changed = slots.flatMap((backend, index) =>
      before[index] === backend ? [] : [[slotKey.encode({ service: id, index }), number.encode(backend)] as const],
    );
    this.#options.maps.slots.updateBatch(changed);
  }

  #writeFrontends(before: RealisedService, wanted: RealisedService): void {
    const { frontends } = this.#options.maps;
    const { id: service, affinitySeconds, slots } = wanted;
    const value = frontendValue.encode({ service, count: slots.length, affinitySeconds });
    for (const key of wanted.frontends) frontends.update(frontendKey.encode(key), value);
    const names = new Set(wanted.frontends.map(nameOf));
    for (const key of before.frontends) if (!names.has(nameOf(key))) frontends.delete(frontendKey.encode(key));
  }

  /** Takes away slots beyond the count, and backends that no slot names any more. */
  #trim({ id: service, slots }: RealisedService, count: number): void {
    const { maps } = this.#options;
    const over = slots.slice(count).map((_, at) => slotKey.encode({ service, index: count + at }));
    maps.slots.deleteBatch(over);
    this.#dropUnused(new Set(slots));
  }

  #dropUnused(ids: Iterable<number>): void {
    const { db, maps, realised } = this.#options;
    const unused = Array.from(ids).filter((id) => {
      using snapshot = db.read();
      return snapshot.get(realised.backends, keys.uint(id))?.uses === 0;
    });
    maps.backends.deleteBatch(unused.map((id) => number.encode(id)));
    db.write([realised.backends], (txn) => {
      for (const id of unused) txn.delete(realised.backends, keys.uint(id));
    });
  }

  #remove(service: RealisedService): void {
    const nothing = { ...service, slots: [], frontends: [] };
    this.#writeFrontends(service, nothing);
    const { db, realised } = this.#options;
    db.write([realised.services, realised.backends], (txn) => {
      txn.delete(realised.services, keys.uint(service.id));
      this.#count(txn, service.slots, []);
    });
    this.#trim(service, 0);
  }

  #put(before: RealisedService, wanted: RealisedService): void {
    const { db, realised } = this.#options;
    db.write([realised.services, realised.backends], (txn) => {
      txn.upsert(realised.services, wanted);
      this.#count(txn, before.slots, wanted.slots);
    });
  }

  #count(txn: WriteTxn, before: readonly number[], now: readonly number[]): void {
    const { backends } = this.#options.realised;
    const change = new Map<number, number>();
    for (const id of before) change.set(id, (change.get(id) ?? 0) - 1);
    for (const id of now) change.set(id, (change.get(id) ?? 0) + 1);
    for (const [id, by] of change) {
      const row = txn.get(backends, keys.uint(id));
      if (row !== undefined && by !== 0) txn.upsert(backends, { ...row, uses: row.uses + by });
    }
  }
}

/** The wanted backends in slots, each where it is already as far as that lies below the new count. */
export function placed(before: readonly number[], wanted: readonly number[]): number[] {
  const left = new Set(wanted);
  const slots: (number | undefined)[] = Array.from({ length: wanted.length }, (_, index) => {
    const id = before[index];
    return id !== undefined && left.delete(id) ? id : undefined;
  });
  const [...rest] = left;
  return slots.map((id) => id ?? rest.shift() ?? 0);
}

/** The smallest number that is free, looked for from `near` on: most are taken in order. */
function freeId(taken: (id: number) => boolean, near: number): number {
  for (let id = FIRST + near; ; id += 1) if (!taken(id)) return id;
}
