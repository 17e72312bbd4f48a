/** What the maps hold of Services, as far as it was written or read: tables, so that the next write follows from them. */
import { keys, type StateDB, type Table } from '@weir/statedb';
import type { BpfMap } from 'libbpf-ts';
import {
  type BackendValue,
  backendValue,
  type FrontendKey,
  frontendKey,
  frontendValue,
  memberKey,
  number,
  slotKey,
  slotValue,
  sourceKey,
} from './layout.ts';

/** A service of the maps. Key: `id`. */
export interface RealisedService {
  readonly id: number;
  /** Primary key of the row that it was written for; absent: it was found. */
  readonly row?: string;
  /** Backends in the order of the slots; more than the count covers where a write was cut short. */
  readonly slots: readonly number[];
  /** Frontends that name it, or may: two have one after a failed write, until it is made again. */
  readonly frontends: readonly FrontendKey[];
  /** What all of them have, as hexadecimal bytes; absent: not known. */
  readonly value?: string;
  /** Backends in `svc_members`. */
  readonly members: readonly number[];
  readonly sources: readonly string[];
  /** A write failed: the lists hold all that may be in the maps, and what is in a slot is not known: perhaps one of these. */
  readonly unsure?: readonly number[];
}

/** A backend of the maps. Key: `id`. Indexes: `name` (address, port and protocol); `unused`. */
export interface RealisedBackend {
  readonly id: number;
  readonly name: string;
  /** How many services name it. */
  readonly uses: number;
  /** The map may lack it. */
  readonly pending?: true;
}

export interface ServiceMaps {
  readonly frontends: BpfMap;
  readonly slots: BpfMap;
  readonly backends: BpfMap;
  readonly members: BpfMap;
  readonly sources: BpfMap;
}

export interface RealisedTables {
  readonly services: Table<RealisedService, 'row' | 'frontend'>;
  readonly backends: Table<RealisedBackend, 'name' | 'unused'>;
}

/** The key of those that no service names, in index `unused`. */
export const UNUSED = 'unused';

export function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

export function backendName({ address, port, protocol }: BackendValue): string {
  return `${address} ${port} ${protocol}`;
}

export function frontendName(key: FrontendKey): string {
  return `${backendName(key)} ${key.scope}`;
}

/** Backends that slots or members of the service may name, each once. */
export function backendsOf(service: Pick<RealisedService, 'slots' | 'members' | 'unsure'>): Set<number> {
  const { slots, members, unsure = [] } = service;
  return new Set([...slots, ...members, ...unsure]);
}

export function realisedTables(db: StateDB): RealisedTables {
  return {
    services: db.table({
      name: 'realisedServices',
      key: ({ id }) => keys.uint(id),
      indexes: [
        { name: 'row', unique: true, keys: ({ row }) => (row === undefined ? [] : [row]) },
        { name: 'frontend', keys: ({ frontends }) => frontends.map(frontendName) },
      ],
    }),
    backends: db.table({
      name: 'realisedBackends',
      key: ({ id }) => keys.uint(id),
      indexes: [
        { name: 'name', unique: true, keys: ({ name }) => [name] },
        { name: 'unused', keys: ({ uses }) => (uses === 0 ? [UNUSED] : []) },
      ],
    }),
  };
}

interface Found {
  readonly id: number;
  readonly values: Set<string>;
  readonly slots: number[];
  readonly frontends: FrontendKey[];
  readonly members: number[];
  readonly sources: string[];
}

/** Reads the maps: what an agent before this one has written. What belongs to no frontend is taken away. */
export function adopt(db: StateDB, tables: RealisedTables, maps: ServiceMaps): void {
  const services = new Map<number, Found>();
  for (const [key, value] of maps.frontends.entries()) {
    const { service: id } = frontendValue.decode(value);
    const found = services.get(id) ?? { id, values: new Set(), slots: [], frontends: [], members: [], sources: [] };
    found.frontends.push(frontendKey.decode(key));
    found.values.add(hexOf(value));
    services.set(id, found);
  }
  strays(maps.slots, (key, value) => {
    const { service, index } = slotKey.decode(key);
    const found = services.get(service);
    if (found !== undefined) found.slots[index] = slotValue.decode(value).backend;
    return found;
  });
  strays(maps.members, (key) => {
    const { service, backend } = memberKey.decode(key);
    const found = services.get(service);
    found?.members.push(backend);
    return found;
  });
  strays(maps.sources, (key) => {
    const { service, cidr } = sourceKey.decode(key);
    const found = services.get(service);
    found?.sources.push(cidr);
    return found;
  });
  const uses = new Map<number, number>();
  for (const service of services.values()) for (const id of backendsOf(service)) uses.set(id, (uses.get(id) ?? 0) + 1);
  const backends = new Map<string, RealisedBackend>();
  strays(maps.backends, (key, value) => {
    const id = number.decode(key);
    const name = backendName(backendValue.decode(value));
    const count = uses.get(id);
    if (count === undefined || backends.has(name)) return undefined;
    backends.set(name, { id, name, uses: count });
    return true;
  });
  db.write([tables.services, tables.backends], (txn) => {
    for (const backend of backends.values()) txn.upsert(tables.backends, backend);
    for (const { values, ...found } of services.values()) {
      // A hole, or a slot that names nothing: as after a failed write.
      const whole = Array.from(found.slots).every((id) => id !== undefined && txn.has(tables.backends, keys.uint(id)));
      const slots = Array.from(found.slots, (id) => id ?? 0);
      const [value, ...others] = values;
      const known = value === undefined || others.length > 0 ? {} : { value };
      txn.upsert(tables.services, { ...found, ...known, slots, ...(whole ? {} : { unsure: slots }) });
    }
  });
}

/** Takes away the entries for which `read` finds nothing that they belong to. */
function strays(map: BpfMap, read: (key: Uint8Array, value: Uint8Array) => unknown): void {
  const stray: Uint8Array[] = [];
  for (const [key, value] of map.entries()) if (read(key, value) === undefined) stray.push(key);
  map.deleteBatch(stray);
}
