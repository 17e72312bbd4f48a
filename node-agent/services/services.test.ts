import { afterEach, describe, expect, it } from '@jest/globals';
import { createStateDB, type StateDB } from '@weir/statedb';
import { checkIncremental } from '@weir/statedb/testing';
import fc from 'fast-check';
import { type BpfMap, createMemoryMap } from 'libbpf-ts';
import { eventually } from '../../test/eventually.ts';
import { createTables } from '../create-tables.ts';
import { silent } from '../datapath/testing/lab.ts';
import { claimKey, claimsOf } from './claims.ts';
import { frontendRowKey, frontendsOf } from './frontends.ts';
import { addressKey, frontendKey, frontendValue } from './layout.ts';
import { SERVICE_MAPS } from './maps.ts';
import { servicesCondition } from './part.ts';
import { deriveFrontends, Services, serviceTables } from './services.ts';
import type { EndpointSliceRow, ServiceObjectRow } from './types.ts';

const PORTS = [{ name: 'web', protocol: 'TCP', port: 80 }] as const;

function object(name: string, address: string, more: Partial<ServiceObjectRow> = {}): ServiceObjectRow {
  return { namespace: 'ns', name, clusterAddresses: [address], ports: [...PORTS], publishNotReady: false, ...more };
}

function slice(service: string, addresses: readonly string[]): EndpointSliceRow {
  const state = { ready: true, serving: true, terminating: false };
  const endpoints = addresses.map((address) => ({ addresses: [address], ...state }));
  return { namespace: 'ns', name: service, service: `ns/${service}`, endpoints, ports: [{ ...PORTS[0], port: 8080 }] };
}

const addresses = (count: number, net: number): string[] =>
  Array.from({ length: count }, (_, at) => `10.${net}.${at >> 8}.${at & 255}`);

describe('frontends, derived', () => {
  it('of a few Services that claim thousands of the same places come at once', () => {
    const db = createStateDB();
    const tables = serviceTables(db);
    const derivations = deriveFrontends(db, tables, createTables(db).nodes, 'n1');
    const ports = Array.from({ length: 200 }, (_, at) => ({ ...PORTS[0], name: `p${at}`, port: at + 1 }));
    const more = { externalAddresses: addresses(10, 1), ports };
    db.write([tables.objects], (txn) => {
      for (let at = 0; at < 10; at += 1) txn.upsert(tables.objects, object(`s${at}`, `10.96.0.${at}`, more));
    });
    const start = process.cpuUsage().user;
    for (const each of derivations) each.flush();
    // A quarter of a second; half a minute where each claim has all others made again.
    expect((process.cpuUsage().user - start) / 1000).toBeLessThan(5000);
    using snapshot = db.read();
    const external = [...snapshot.all(tables.frontends)].filter(({ kind }) => kind === 'ExternalIP');
    expect(new Set(external.map(({ service }) => service))).toEqual(new Set(['ns/s0']));
    for (const each of derivations) each[Symbol.dispose]();
  });

  it('leave the addresses of API servers to them', () => {
    const db = createStateDB();
    const tables = serviceTables(db);
    const derivations = deriveFrontends(db, tables, createTables(db).nodes, 'n1');
    const servers = slice('kubernetes', ['192.0.2.1']);
    db.write([tables.objects, tables.slices], (txn) => {
      txn.upsert(tables.slices, { ...servers, namespace: 'default', service: 'default/kubernetes' });
      const ports = [...PORTS, { ...PORTS[0], name: 'api', port: 8080 }];
      txn.upsert(tables.objects, object('s', '10.96.0.1', { ports, externalAddresses: ['192.0.2.1', '192.0.2.2'] }));
    });
    for (const each of derivations) each.flush();
    using snapshot = db.read();
    const external = [...snapshot.all(tables.frontends)].filter(({ kind }) => kind === 'ExternalIP');
    expect(external.map(({ port, addresses: those }) => [port, ...those])).toEqual([
      [8080, '192.0.2.2'],
      [80, '192.0.2.1', '192.0.2.2'],
    ]);
    for (const each of derivations) each[Symbol.dispose]();
  });

  const address = fc.constantFrom('10.96.0.1', '10.96.0.2', '192.0.2.1', '192.0.2.2');
  const step = fc.record({
    name: fc.constantFrom('a', 'b', 'c'),
    gone: fc.boolean(),
    of: fc.constantFrom('object', 'slice', 'zone'),
    created: fc.constantFrom('2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'),
    clusterAddresses: fc.uniqueArray(address, { minLength: 1, maxLength: 1 }),
    externalAddresses: fc.uniqueArray(address, { maxLength: 2 }),
    balancerAddresses: fc.uniqueArray(address, { maxLength: 2 }),
    nodePort: fc.option(fc.constantFrom(30_001, 30_002), { nil: undefined }),
    zone: fc.option(fc.constantFrom('z1', 'z2'), { nil: undefined }),
    endpoints: fc.uniqueArray(fc.constantFrom('10.0.0.1', '10.0.0.2', '10.0.0.3'), { maxLength: 3 }),
  });
  const order = ['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalIP'];

  it('have each address and port once, for the Service that comes first, after any changes', async () => {
    await checkIncremental({
      step,
      create() {
        const db = createStateDB({ freeze: true });
        const tables = serviceTables(db);
        const { nodes } = createTables(db);
        const { objects, slices, frontends } = tables;
        const derivations = deriveFrontends(db, tables, nodes, 'n1');
        return {
          apply({ name, gone, of, endpoints, zone, nodePort, ...spec }) {
            const ports = [{ ...PORTS[0], ...(nodePort === undefined ? {} : { nodePort }) }];
            const hinted = endpoints.map((each, at) => ({
              ...{ addresses: [each], ready: true, serving: true, terminating: false, zones: [at === 0 ? 'z1' : 'z2'] },
            }));
            db.write([objects, slices, nodes], (txn) => {
              if (of === 'zone') {
                const node = { name: 'n1', addresses: [], podCidrs: [], kubeApiserver: false };
                txn.upsert(nodes, { ...node, ...(zone === undefined ? {} : { zone }) });
              } else if (of === 'slice') {
                if (gone) txn.delete(slices, `ns/${name}`);
                else txn.upsert(slices, { ...slice(name, []), endpoints: hinted });
              } else if (gone) txn.delete(objects, `ns/${name}`);
              else txn.upsert(objects, { namespace: 'ns', name, ports, publishNotReady: false, ...spec });
            });
          },
          incremental() {
            for (const each of derivations) each.flush();
            using snapshot = db.read();
            return [...snapshot.all(frontends)];
          },
          recompute() {
            using snapshot = db.read();
            const all = [...snapshot.all(objects)];
            const claims = all.flatMap((each) =>
              claimsOf(each).map((claim) => ({ claim, each, key: claimKey(claim) })),
            );
            const rank = ({ claim, each }: (typeof claims)[number]): string =>
              `${order.indexOf(claim.kind)} ${each.created} ${each.name}`;
            const firsts = new Map<string, string>();
            for (const one of claims.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1)))
              if (!firsts.has(one.key)) firsts.set(one.key, one.each.name);
            const zone = snapshot.get(nodes, 'n1')?.zone;
            const place = { node: 'n1', ...(zone === undefined ? {} : { zone }) };
            const rows = all.flatMap((each) => {
              const own = [...snapshot.list(slices, 'service', `ns/${each.name}`)];
              return frontendsOf(each, own, place, (claim) => firsts.get(claimKey(claim)) !== each.name);
            });
            const places = rows.flatMap((row) => row.addresses.map((at) => `${at} ${row.port} ${row.scope}`));
            expect(new Set(places).size).toBe(places.length);
            return rows.toSorted((a, b) => (frontendRowKey(a) < frontendRowKey(b) ? -1 : 1));
          },
          dispose: () => {
            for (const each of derivations) each[Symbol.dispose]();
          },
        };
      },
    });
  });
});

it('many Services that claim the same addresses and ports hold nobody up', () => {
  const db = createStateDB();
  const tables = serviceTables(db);
  const { objects, frontends } = tables;
  const derivations = deriveFrontends(db, tables, createTables(db).nodes, 'n1');
  const ports = Array.from({ length: 5 }, (_, at) => ({ ...PORTS[0], name: `p${at}`, port: 80 + at }));
  const claimant = (at: number): ServiceObjectRow =>
    object(`s${1000 + at}`, `10.96.${at >> 8}.${at & 255}`, {
      // The later in the order of names, the older.
      ...{ created: new Date(1e12 - at * 1000).toISOString(), ports },
      externalAddresses: ['192.0.2.1', '192.0.2.2', '192.0.2.3', '192.0.2.4'],
    });
  db.write([objects], (txn) => {
    for (let at = 0; at < 400; at += 1) txn.upsert(objects, claimant(at));
  });
  const before = process.cpuUsage().user;
  for (const each of derivations) each.flush();
  // Each by itself, not each with each other: that takes a hundred times as long.
  expect((process.cpuUsage().user - before) / 1000).toBeLessThan(3000);
  using snapshot = db.read();
  const external = [...snapshot.all(frontends)].filter(({ kind }) => kind === 'ExternalIP');
  expect(new Set(external.map(({ service }) => service))).toEqual(new Set(['ns/s1399']));
  for (const each of derivations) each[Symbol.dispose]();
});

describe('services in maps', () => {
  let running: Services[] = [];
  afterEach(async () => {
    for (const services of running) await services.stop();
    running = [];
  });

  const createMaps = (most: number): Map<string, BpfMap> =>
    new Map(
      SERVICE_MAPS.map((spec) => [
        spec.name,
        createMemoryMap({ ...spec, maxEntries: spec.type === 'hash' ? most : spec.maxEntries }),
      ]),
    );

  function start(maps: ReadonlyMap<string, BpfMap>): { db: StateDB; services: Services } {
    const db = createStateDB();
    const map = (name: string): BpfMap => {
      const found = maps.get(name);
      if (found === undefined) throw new Error(`no map ${name}`);
      return found;
    };
    const services = new Services({ db, map, nodes: createTables(db).nodes, nodeName: 'n1', log: silent });
    running.push(services);
    services.start();
    return { db, services };
  }

  function tell(
    { db, services }: ReturnType<typeof start>,
    rows: readonly [ServiceObjectRow, EndpointSliceRow][],
  ): void {
    const { objects, slices } = services.tables;
    db.write([objects, slices], (txn) => {
      for (const [one, its] of rows) {
        txn.upsert(objects, one);
        txn.upsert(slices, its);
      }
    });
  }

  const counts = (maps: ReadonlyMap<string, BpfMap>): Record<string, number> =>
    Object.fromEntries(
      Array.from(maps.get('svc_frontends')?.entries() ?? [], ([key, value]) => [
        frontendKey.decode(key).address,
        frontendValue.decode(value).count,
      ]),
    );
  const dump = (maps: ReadonlyMap<string, BpfMap>): string[] =>
    ['svc_frontends', 'svc_slots', 'svc_backends'].flatMap((name) =>
      Array.from(
        maps.get(name)?.entries() ?? [],
        (entry) => `${name} ${entry.map((bytes) => [...bytes].join('.')).join(' ')}`,
      ),
    );

  it("a tenant's Service that does not fit is named and takes nothing from others; it goes in once it fits", async () => {
    const maps = createMaps(100);
    const agent = start(maps);
    tell(agent, [
      [object('a', '10.96.0.1'), slice('a', addresses(3, 1))],
      [object('evil', '10.96.0.2'), slice('evil', addresses(10_000, 2))],
      [object('z', '10.96.0.3'), slice('z', addresses(5, 3))],
    ]);
    await agent.services.settled();
    expect(counts(maps)).toEqual({ '10.96.0.1': 3, '10.96.0.3': 5 });
    expect(Array.from(agent.services.failures().values(), ({ service }) => service)).toEqual(['ns/evil']);
    expect([...(maps.get('svc_backends')?.keys() ?? [])]).toHaveLength(8);
    tell(agent, [[object('evil', '10.96.0.2'), slice('evil', addresses(7, 2))]]);
    await agent.services.settled();
    expect(counts(maps)).toEqual({ '10.96.0.1': 3, '10.96.0.2': 7, '10.96.0.3': 5 });
    expect(agent.services.failures().size).toBe(0);
  });

  it('one that no node has room for is named without being worked out, and stays as it was', async () => {
    const maps = createMaps(100);
    const agent = start(maps);
    const ports = Array.from({ length: 2000 }, (_, at) => ({ ...PORTS[0], name: `p${at}`, port: at + 1 }));
    tell(agent, [[object('a', '10.96.0.1'), slice('a', addresses(3, 1))]]);
    await agent.services.settled();
    const huge = { ...slice('a', addresses(10_000, 1)), ports };
    tell(agent, [[object('a', '10.96.0.1', { ports }), huge]]);
    await agent.services.settled();
    expect([...agent.services.failures().values()]).toEqual([
      { service: 'ns/a', message: 'needs up to 20000000 slots (endpoints of each port) of the 524288 of a node' },
    ]);
    expect(counts(maps)).toEqual({ '10.96.0.1': 3 });
  });

  it('a Service that grows beyond the map keeps the backends that it has', async () => {
    const maps = createMaps(100);
    const agent = start(maps);
    tell(agent, [[object('a', '10.96.0.1'), slice('a', addresses(3, 1))]]);
    await agent.services.settled();
    tell(agent, [[object('a', '10.96.0.1'), slice('a', addresses(200, 1))]]);
    await agent.services.settled();
    expect(counts(maps)).toEqual({ '10.96.0.1': 3 });
    expect(agent.services.failures().size).toBe(1);
  });

  it('says that the kernel has all only once all are known and there, addresses of nodes among them', async () => {
    const db = createStateDB();
    const { nodes } = createTables(db);
    const maps = createMaps(3);
    const map = (name: string): BpfMap => maps.get(name) as BpfMap;
    const services = new Services({ db, map, nodes, nodeName: 'n1', log: silent });
    running.push(services);
    const known = db.initialiser(services.tables.objects, 'api');
    services.start();
    await services.settled();
    const read = () => servicesCondition(services).read();
    expect(read()).toEqual({ ok: true, message: expect.stringContaining('waits for') });
    db.write([services.tables.objects], known);
    await services.settled();
    expect(read()).toEqual({ ok: true, message: 'the kernel has all frontends' });
    const others = addresses(5, 1);
    db.write([nodes], (txn) => {
      txn.upsert(nodes, { name: 'n2', addresses: others, podCidrs: [], kubeApiserver: false });
    });
    await services.settled();
    expect(read()).toEqual({ ok: false, message: expect.stringMatching(/^address 10\.1\.0\.\d: .* \(and \d more\)/) });
  });

  it('an address stays a cluster address while others claim it as theirs, and when they cease to', async () => {
    const maps = createMaps(100);
    const agent = start(maps);
    const evil = (externalAddresses: readonly string[]) => object('a', '10.96.0.1', { externalAddresses });
    const known = (): string[] =>
      Array.from(maps.get('svc_addresses')?.keys() ?? [], (key) => addressKey.decode(key)).sort();
    tell(agent, [
      [evil(['10.96.0.9', '192.0.2.1']), slice('a', [])],
      [object('dns', '10.96.0.9'), slice('dns', [])],
    ]);
    await agent.services.settled();
    expect(known()).toEqual(['10.96.0.1', '10.96.0.9']);
    tell(agent, [[evil([]), slice('a', [])]]);
    await agent.services.settled();
    expect(known()).toEqual(['10.96.0.1', '10.96.0.9']);
  });

  it('the next agent finds all as it was, and takes away what went meanwhile', async () => {
    const maps = createMaps(1000);
    const rows: [ServiceObjectRow, EndpointSliceRow][] = Array.from({ length: 20 }, (_, at) => [
      object(`s${at}`, `10.96.0.${at}`),
      slice(`s${at}`, addresses(5, at)),
    ]);
    const first = start(maps);
    tell(first, rows);
    await first.services.settled();
    await first.services.stop();
    const before = dump(maps);
    const second = start(maps);
    tell(second, rows.toReversed());
    await second.services.settled();
    expect(dump(maps).sort()).toEqual(before.sort());
    await second.services.stop();
    const third = start(maps);
    tell(third, rows.slice(0, 1));
    await third.services.settled();
    await eventually(
      () => Promise.resolve(Object.keys(counts(maps))),
      (found) => found.length === 1,
    );
  });
});
