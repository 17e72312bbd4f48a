import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { createMemoryMap } from 'libbpf-ts';
import { backendValue, frontendKey, frontendValue, number, slotKey } from './layout.ts';
import { FrontendOperations, placed } from './operations.ts';
import { adopt, realisedTables, type ServiceMaps } from './realised.ts';
import type { Frontend } from './types.ts';

function createMaps(): ServiceMaps {
  const map = (name: string, keySize: number, valueSize: number) =>
    createMemoryMap({ name, type: 'hash', keySize, valueSize, maxEntries: 1024, flags: 1 });
  const sources = createMemoryMap({
    ...{ name: 't', type: 'lpm_trie', keySize: 24, valueSize: 4, maxEntries: 64, flags: 1 },
  });
  return {
    ...{ frontends: map('f', 20, 16), slots: map('s', 8, 4), backends: map('b', 4, 20), members: map('m', 8, 4) },
    sources,
  };
}

/** What a client would find: for each frontend its backends, by address; throws where one is missing. */
function seen({ frontends, slots, backends }: ServiceMaps): Record<string, string[]> {
  return Object.fromEntries(
    [...frontends.entries()].map(([key, value]) => {
      const { address, port, protocol } = frontendKey.decode(key);
      const { service, count } = frontendValue.decode(value);
      const found = Array.from({ length: count }, (_, index) => {
        const id = slots.lookup(slotKey.encode({ service, index }));
        if (id === undefined) throw new Error(`slot ${index} of ${service} is missing`);
        const backend = backends.lookup(number.encode(number.decode(id)));
        if (backend === undefined) throw new Error(`backend of slot ${index} of ${service} is missing`);
        const { address, port } = backendValue.decode(backend);
        return `${address}:${port}`;
      });
      return [`${address}:${port}/${protocol}`, found.sort()];
    }),
  );
}

function wanted(rows: Iterable<Frontend>): Record<string, string[]> {
  return Object.fromEntries(
    Array.from(rows, ({ addresses, port, protocol, backends }) =>
      addresses.map((address) => [
        `${address}:${port}/${protocol}`,
        backends.map((backend) => `${backend.address}:${backend.port}`).sort(),
      ]),
    ).flat(),
  );
}

/** Calls `look` after each write of a map. */
function watched(maps: ServiceMaps, look: () => void): ServiceMaps {
  const watch = <T extends object>(map: T): T =>
    new Proxy(map, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          const result: unknown = value.apply(target, args);
          if (['update', 'delete', 'updateBatch', 'deleteBatch'].includes(String(name))) look();
          return result;
        };
      },
    });
  return {
    ...{ frontends: watch(maps.frontends), slots: watch(maps.slots), backends: watch(maps.backends) },
    ...{ members: watch(maps.members), sources: watch(maps.sources) },
  };
}

const backend = fc.record({
  state: fc.constant('active' as const),
  address: fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'),
  port: fc.constantFrom(80, 8080),
});
const edit = fc.record({
  service: fc.constantFrom('ns/a', 'ns/b', 'ns/c'),
  backends: fc.option(
    fc.uniqueArray(backend, { maxLength: 6, selector: ({ address, port }) => `${address}:${port}` }),
    { nil: undefined },
  ),
  addresses: fc.constantFrom(1, 2),
  restart: fc.boolean(),
});

describe('frontends in maps', () => {
  it('are what the rows say after any edits and restarts, and have all their backends after each single write', () => {
    fc.assert(
      fc.property(fc.array(edit, { maxLength: 30 }), (edits) => {
        const maps = createMaps();
        const rows = new Map<string, Frontend>();
        const agent = () => {
          const db = createStateDB();
          const realised = realisedTables(db);
          adopt(db, realised, maps);
          return {
            operations: new FrontendOperations({ db, realised, maps: watched(maps, () => seen(maps)) }),
            db,
            realised,
          };
        };
        let now = agent();
        for (const { service, backends, addresses, restart } of edits) {
          if (restart) {
            now = agent();
            for (const row of rows.values()) now.operations.update(row);
          }
          const old = rows.get(service);
          if (backends === undefined) {
            rows.delete(service);
            if (old !== undefined) now.operations.delete(old);
          } else {
            const place = ['ns/a', 'ns/b', 'ns/c'].indexOf(service);
            const row: Frontend = {
              ...{ service, portName: '', protocol: 'TCP', family: 4, port: 80, backends },
              ...{ kind: 'ClusterIP', scope: 'cluster', internalPolicy: 'Cluster', externalPolicy: 'Cluster' },
              addresses: Array.from({ length: addresses }, (_, at) => `10.96.${place}.${at + 1}`),
            };
            rows.set(service, row);
            now.operations.update(row);
          }
          if (restart) now.operations.prune(rows.values());
          expect(seen(maps)).toEqual(wanted(rows.values()));
        }
        for (const row of rows.values()) now.operations.delete(row);
        now.operations.prune([]);
        expect([maps.frontends, maps.slots, maps.backends].map((map) => [...map.keys()].length)).toEqual([0, 0, 0]);
        using snapshot = now.db.read();
        expect([...snapshot.all(now.realised.backends), ...snapshot.all(now.realised.services)]).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });

  it('keep their slots where others come and go', () => {
    expect(placed([1, 2, 3, 4], [1, 3, 4])).toEqual([1, 4, 3]);
    expect(placed([1, 2], [2, 1, 5])).toEqual([1, 2, 5]);
    expect(placed([], [7])).toEqual([7]);
    expect(placed([1, 2], [])).toEqual([]);
  });
});
