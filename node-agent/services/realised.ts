/** What the maps hold of Services, as far as it was written or read: tables, so that the next write follows from them. */
import { keys, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import { backendValue, type FrontendKey, frontendKey, frontendValue, number, slotKey } from './layout.ts';

/** A service of the maps. Key: `id`. */
export interface RealisedService {
  readonly id: number;
  /** Backends in the order of the slots. */
  readonly slots: readonly number[];
  /** Frontends that name it. */
  readonly frontends: readonly FrontendKey[];
  readonly affinitySeconds: number;
  /** Primary key of the row that it was written for; absent: it was found. */
  readonly row?: string;
}

/** A backend of the maps. Key: `id`. Index `name`: address, port and protocol. */
export interface RealisedBackend {
  readonly id: number;
  readonly name: string;
  /** How many slots name it. */
  readonly uses: number;
}

export interface ServiceMaps {
  readonly frontends: BpfMap;
  readonly slots: BpfMap;
  readonly backends: BpfMap;
}

export interface RealisedTables {
  readonly services: Table<RealisedService, 'row' | 'frontend'>;
  readonly backends: Table<RealisedBackend, 'name'>;
}

export function nameOf({ address, port, protocol }: FrontendKey): string {
  return keys.join(address, String(port), protocol);
}

export function realisedTables(db: StateDB): RealisedTables {
  return {
    services: db.table({
      name: 'realisedServices',
      key: ({ id }) => keys.uint(id),
      indexes: [
        { name: 'row', unique: true, keys: ({ row }) => (row === undefined ? [] : [row]) },
        { name: 'frontend', unique: true, keys: ({ frontends }) => frontends.map(nameOf) },
      ],
    }),
    backends: db.table({
      name: 'realisedBackends',
      key: ({ id }) => keys.uint(id),
      indexes: [{ name: 'name', unique: true, keys: ({ name }) => [name] }],
    }),
  };
}

/** Reads the maps: what an agent before this one has written. What a write that was cut short left half done is taken away. */
export function adopt(db: StateDB, tables: RealisedTables, maps: ServiceMaps): void {
  const services = new Map<number, { slots: number[]; frontends: FrontendKey[]; affinitySeconds: number }>();
  for (const [key, value] of maps.frontends.entries()) {
    const { service, affinitySeconds } = frontendValue.decode(value);
    const found = services.get(service) ?? { slots: [], frontends: [], affinitySeconds };
    found.frontends.push(frontendKey.decode(key));
    services.set(service, found);
  }
  const stray: Uint8Array[] = [];
  for (const [key, value] of maps.slots.entries()) {
    const { service, index } = slotKey.decode(key);
    const found = services.get(service);
    if (found === undefined) stray.push(key);
    else found.slots[index] = number.decode(value);
  }
  maps.slots.deleteBatch(stray);
  const uses = new Map<number, number>();
  for (const { slots } of services.values()) for (const id of slots) uses.set(id, (uses.get(id) ?? 0) + 1);
  const unused: Uint8Array[] = [];
  db.write([tables.services, tables.backends], (txn) => {
    for (const [id, found] of services) txn.upsert(tables.services, { id, ...found });
    for (const [key, value] of maps.backends.entries()) {
      const id = number.decode(key);
      const count = uses.get(id);
      if (count === undefined) unused.push(key);
      else txn.upsert(tables.backends, { id, name: nameOf(backendValue.decode(value)), uses: count });
    }
  });
  maps.backends.deleteBatch(unused);
}
