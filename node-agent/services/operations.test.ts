import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { createMemoryMap } from 'libbpf-ts';
import { runs } from '../../test/runs.ts';
import {
  backendValue,
  frontendKey,
  frontendValue,
  number as numberOf,
  slotKey,
  slotValue,
  sourceKey,
} from './layout.ts';
import { FrontendOperations, placed } from './operations.ts';
import { adopt, realisedTables, type ServiceMaps } from './realised.ts';
import type { Frontend } from './types.ts';

function createMaps(maxEntries = 1024): ServiceMaps {
  const map = (name: string, keySize: number, valueSize: number) =>
    createMemoryMap({ name, type: 'hash', keySize, valueSize, maxEntries, flags: 1 });
  const trie = { name: 't', type: 'lpm_trie', keySize: 24, valueSize: 4, maxEntries: 64, flags: 1 } as const;
  return {
    ...{ frontends: map('f', 20, 16), slots: map('s', 8, 8), backends: map('b', 4, 20), members: map('m', 8, 4) },
    sources: createMemoryMap(trie),
  };
}

const all = (maps: ServiceMaps) => [maps.frontends, maps.slots, maps.backends, maps.members, maps.sources];

interface Seen {
  readonly backends: readonly string[];
  readonly affinity: boolean;
  readonly sources: readonly string[] | undefined;
}

/** What a client would find at each frontend; throws where a backend is missing. */
function seen({ frontends, slots, backends, sources }: ServiceMaps): Record<string, Seen> {
  return Object.fromEntries(
    [...frontends.entries()].map(([key, value]) => {
      const { address, port, protocol } = frontendKey.decode(key);
      const { service, count, affinitySeconds, sources: limited } = frontendValue.decode(value);
      const found = Array.from({ length: count }, (_, index) => {
        const id = slots.lookup(slotKey.encode({ service, index }));
        if (id === undefined) throw new Error(`slot ${index} of ${service} is missing`);
        const { backend: number, service: owner } = slotValue.decode(id);
        if (owner !== service) throw new Error(`slot ${index} of ${service} is of ${owner}`);
        const backend = backends.lookup(numberOf.encode(number));
        if (backend === undefined) throw new Error(`backend of slot ${index} of ${service} is missing`);
        const { address, port } = backendValue.decode(backend);
        return `${address}:${port}`;
      });
      const ranges = Array.from(sources.keys(), (each) => sourceKey.decode(each));
      const mine = ranges.filter((each) => each.service === service).map(({ cidr }) => cidr);
      return [
        `${address}:${port}/${protocol}`,
        { backends: found.sort(), affinity: affinitySeconds > 0, sources: limited ? mine.sort() : undefined },
      ];
    }),
  );
}

function wanted(rows: Iterable<Frontend>): Record<string, Seen> {
  return Object.fromEntries(
    Array.from(rows, ({ addresses, port, protocol, backends, affinitySeconds = 0, sourceRanges }) =>
      addresses.map((address) => [
        `${address}:${port}/${protocol}`,
        {
          backends: backends.map((backend) => `${backend.address}:${backend.port}`).sort(),
          affinity: affinitySeconds > 0,
          sources: sourceRanges === undefined ? undefined : [...sourceRanges].sort(),
        },
      ]),
    ).flat(),
  );
}

/** Which Service has each frontend. */
function owners(rows: Iterable<Frontend>): Record<string, string> {
  return Object.fromEntries(
    Array.from(rows, ({ service, addresses, port, protocol }) =>
      addresses.map((address) => [`${address}:${port}/${protocol}`, service] as const),
    ).flat(),
  );
}

/** Calls `look` after each write of a map; the write at which `fails` says so is done in part, or not at all. */
function watched(maps: ServiceMaps, look: () => void, fails: () => 'no' | 'before' | 'within'): ServiceMaps {
  const writes = ['updateBatch', 'updateRows', 'deleteBatch'];
  const watch = <T extends object>(map: T): T =>
    new Proxy(map, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          const [list, ...rest] = args;
          if (!writes.includes(String(name)) || !Array.isArray(list)) return value.apply(target, args) as unknown;
          const how = list.length === 0 ? 'no' : fails();
          // One by one: somebody may look at any time.
          for (const each of how === 'no' ? list : how === 'within' ? list.slice(0, list.length / 2) : []) {
            value.call(target, [each], ...rest);
            look();
          }
          if (how !== 'no') throw new Error('no space');
        };
      },
    });
  return {
    ...{ frontends: watch(maps.frontends), slots: watch(maps.slots), backends: watch(maps.backends) },
    ...{ members: watch(maps.members), sources: watch(maps.sources) },
  };
}

const SERVICES = ['ns/a', 'ns/b', 'ns/c'] as const;
const ADDRESSES = ['10.96.0.1', '10.96.0.2', '10.96.0.3', '10.96.0.4'] as const;
const backend = fc.record({
  state: fc.constant('active' as const),
  address: fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5'),
  port: fc.constantFrom(80, 8080),
});
const row = fc.record({
  service: fc.constantFrom(...SERVICES),
  backends: fc.uniqueArray(backend, { maxLength: 6, selector: ({ address, port }) => `${address}:${port}` }),
  addresses: fc.uniqueArray(fc.constantFrom(...ADDRESSES), { minLength: 1, maxLength: 2 }),
  affinitySeconds: fc.option(fc.constantFrom(1, 60), { nil: undefined }),
  sourceRanges: fc.option(fc.uniqueArray(fc.constantFrom('10.0.0.0/8', '192.0.2.0/24', '2001:db8::/32')), {
    nil: undefined,
  }),
});
const edit = fc.record({
  rows: fc.uniqueArray(row, { minLength: 1, maxLength: 3, selector: ({ service }) => service }),
  removes: fc.option(fc.constantFrom(...SERVICES), { nil: undefined }),
  restart: fc.boolean(),
  /** Writes before the one that fails, at each attempt. */
  faults: fc.array(fc.tuple(fc.nat(12), fc.constantFrom('before', 'within')), { maxLength: 3 }),
});

describe('frontends in maps', () => {
  it('a backend that was to be taken away, and perhaps was, is written for the next Service that names it', () => {
    const maps = createMaps();
    const db = createStateDB();
    const realised = realisedTables(db);
    adopt(db, realised, maps);
    let fails = false;
    const backends: typeof maps.backends = new Proxy(maps.backends, {
      get: (map, name) => {
        const value: unknown = Reflect.get(map, name, map);
        if (typeof value !== 'function') return value;
        return (...given: unknown[]): unknown => {
          const result: unknown = Reflect.apply(value, map, given);
          if (fails && name === 'deleteBatch') throw new Error('cut short');
          return result;
        };
      },
    });
    const operations = new FrontendOperations({ db, realised, maps: { ...maps, backends } });
    const row = (service: string, address: string, backend: string): Frontend => ({
      ...{ service, portName: '', protocol: 'TCP', port: 80, family: 4, kind: 'ClusterIP', scope: 'cluster' },
      ...{ addresses: [address], internalPolicy: 'Cluster', externalPolicy: 'Cluster' },
      backends: [{ address: backend, port: 8080, state: 'active' }],
    });
    operations.update(row('ns/a', '10.96.0.1', '10.0.0.1'));
    fails = true;
    expect(() => operations.update(row('ns/a', '10.96.0.1', '10.0.0.2'))).toThrow('cut short');
    fails = false;
    operations.update(row('ns/b', '10.96.0.2', '10.0.0.1'));
    expect(seen(maps)['10.96.0.2:80/TCP']?.backends).toEqual(['10.0.0.1:8080']);
  });

  it('are what the rows say after any edits, restarts and failed writes, and have all their backends after each single write', () => {
    fc.assert(
      fc.property(fc.array(edit, { maxLength: 20 }), (edits) => {
        const maps = createMaps();
        const rows = new Map<string, Frontend>();
        let fault: readonly [number, 'before' | 'within'] | undefined;
        const fails = () => {
          if (fault === undefined) return 'no';
          const [left, how] = fault;
          fault = left === 0 ? undefined : [left - 1, how];
          return left === 0 ? how : 'no';
        };
        let lasting: readonly string[] = [];
        const agent = () => {
          const db = createStateDB();
          const realised = realisedTables(db);
          adopt(db, realised, maps);
          const look = (): void => {
            const found = seen(maps);
            for (const key of lasting) if (found[key] === undefined) throw new Error(`${key} is gone`);
          };
          const options = { db, realised, maps: watched(maps, look, fails) };
          return { operations: new FrontendOperations(options), db, realised };
        };
        let now = agent();
        /** As a reconciler does: again until it succeeds. */
        const insist = (faults: readonly (readonly [number, 'before' | 'within'])[], work: () => void): void => {
          for (const each of [...faults, undefined]) {
            fault = each;
            try {
              work();
              fault = undefined;
              return;
            } catch (error) {
              if (each === undefined) throw error;
              expect(Object.keys(seen(maps))).toEqual(expect.arrayContaining([...lasting]));
            }
          }
        };
        const fail = (error: unknown): void => {
          throw error;
        };
        const item = (each: Frontend) => ({ row: each, revision: 1, fail });
        for (const { rows: changed, removes, restart, faults } of edits) {
          if (restart) now = agent();
          const before = owners(rows.values());
          const gone = removes === undefined ? undefined : rows.get(removes);
          if (removes !== undefined) rows.delete(removes);
          const touched = new Set<string>();
          for (const { affinitySeconds, sourceRanges, ...each } of changed) {
            // An address has one row: whoever had it is written, too, before or after.
            for (const other of rows.values()) {
              const addresses = other.addresses.filter((address) => !each.addresses.some((mine) => mine === address));
              if (other.service === each.service || addresses.length === other.addresses.length) continue;
              rows.set(other.service, { ...other, addresses });
              touched.add(other.service);
            }
            rows.set(each.service, {
              ...{
                ...each,
                portName: '',
                protocol: 'TCP',
                family: 4,
                port: 80,
                kind: 'LoadBalancer',
                scope: 'cluster',
              },
              ...{ internalPolicy: 'Cluster', externalPolicy: 'Cluster' },
              ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
              ...(sourceRanges === undefined ? {} : { sourceRanges }),
            });
            touched.add(each.service);
          }
          const after = owners(rows.values());
          // Whatever fails, a frontend that stays with its row is there all the time.
          const stay = Object.keys(before).filter((key) => before[key] === after[key]);
          // A new agent does not know which row the parts of a service go to when rows have changed places meanwhile.
          lasting = restart && stay.length < Object.keys(before).length ? [] : stay;
          const batch = [...(restart ? rows.keys() : touched)].flatMap((service) => rows.get(service) ?? []);
          if (gone !== undefined && !rows.has(gone.service)) insist(faults, () => now.operations.delete(gone));
          insist(faults, () => now.operations.updateBatch(batch.map(item)));
          if (restart) insist(faults, () => now.operations.prune(rows.values()));
          expect(seen(maps)).toEqual(wanted(rows.values()));
          const named = new Set(
            [...rows.values()].flatMap(({ backends }) => backends.map((b) => `${b.address} ${b.port}`)),
          );
          expect([...maps.backends.keys()].length).toBe(named.size);
          const sticky = [...rows.values()].filter(({ affinitySeconds = 0 }) => affinitySeconds > 0);
          expect([...maps.members.keys()].length).toBe(sticky.flatMap(({ backends }) => backends).length);
        }
        lasting = [];
        insist([], () => now.operations.deleteBatch([...rows.values()].map(item)));
        now.operations.prune([]);
        expect(all(maps).map((map) => [...map.keys()].length)).toEqual([0, 0, 0, 0, 0]);
        using snapshot = now.db.read();
        expect([...snapshot.all(now.realised.backends), ...snapshot.all(now.realised.services)]).toEqual([]);
      }),
      { numRuns: runs(1000) },
    );
  });

  it('keep their slots where others come and go', () => {
    expect(placed([1, 2, 3, 4], [1, 3, 4])).toEqual([1, 4, 3]);
    expect(placed([1, 2], [2, 1, 5])).toEqual([1, 2, 5]);
    expect(placed([], [7])).toEqual([7]);
    expect(placed([1, 2], [])).toEqual([]);
  });

  it('are written when what they say changes, and only then', () => {
    const maps = createMaps();
    const db = createStateDB();
    let written = 0;
    const frontends = new Proxy(maps.frontends, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]): unknown => {
          if (name === 'updateBatch') written += (args[0] as unknown[]).length;
          return value.apply(target, args);
        };
      },
    });
    const operations = new FrontendOperations({ db, realised: realisedTables(db), maps: { ...maps, frontends } });
    const row = (...backends: string[]): Frontend => ({
      ...{ service: 'ns/a', portName: '', protocol: 'TCP', family: 4, port: 80, kind: 'ClusterIP', scope: 'cluster' },
      ...{ internalPolicy: 'Cluster', externalPolicy: 'Cluster', addresses: ['10.96.0.1'] },
      backends: backends.map((address) => ({ address, port: 80, state: 'active' })),
    });
    const after = (...backends: string[]): number => {
      written = 0;
      operations.update(row(...backends));
      expect(seen(maps)).toEqual(wanted([row(...backends)]));
      return written;
    };
    expect(after('10.0.0.1', '10.0.0.2')).toBe(1);
    expect(after('10.0.0.1', '10.0.0.3')).toBe(0);
    expect(after('10.0.0.1')).toBe(1);
  });

  it('leave nothing in a full map but those that fit, and go in once there is room', () => {
    const maps = createMaps(8);
    const db = createStateDB();
    const realised = realisedTables(db);
    const operations = new FrontendOperations({ db, realised, maps });
    const service = (name: string, count: number): Frontend => ({
      ...{
        service: `ns/${name}`,
        portName: '',
        protocol: 'TCP',
        family: 4,
        port: 80,
        kind: 'ClusterIP',
        scope: 'cluster',
      },
      ...{ internalPolicy: 'Cluster', externalPolicy: 'Cluster', addresses: [`10.96.0.${name.charCodeAt(0)}`] },
      backends: Array.from({ length: count }, (_, at) => ({
        ...{ address: `10.${name.charCodeAt(0)}.0.${at}`, port: 80, state: 'active' },
      })),
    });
    operations.update(service('a', 5));
    expect(() => operations.update(service('b', 20))).toThrow();
    expect(() => operations.update(service('b', 20))).toThrow();
    expect(seen(maps)).toEqual(wanted([service('a', 5)]));
    operations.update(service('c', 3));
    expect(seen(maps)).toEqual(wanted([service('a', 5), service('c', 3)]));
    operations.delete(service('a', 5));
    operations.update(service('b', 4));
    expect(seen(maps)).toEqual(wanted([service('b', 4), service('c', 3)]));
  });
});
