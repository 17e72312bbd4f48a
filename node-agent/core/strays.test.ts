import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { createTables } from '../create-tables.ts';
import { LocalNumbers } from '../derive/index.ts';
import type { EndpointRow, LocalPodRow } from '../tables.ts';
import { quiet } from '../testing/fake-core.ts';
import { endpointsCheck } from './endpoint-checks.ts';
import { Strays } from './strays.ts';

const found: EndpointRow = {
  id: 1,
  ifindex: 7,
  interfaceName: 'weir0123456789a',
  addresses: ['10.0.0.1'],
  found: { identity: 300 },
  createdAt: '',
};

/** A namespace with the interface `weirback`. */
const NODE = `weir-strays-${process.pid}`;

let db: StateDB;
let tables: Tables;
let strays: Strays;
let saved: number;

beforeAll(() => {
  execFileSync('ip', ['netns', 'add', NODE]);
  execFileSync('ip', ['-n', NODE, 'link', 'add', 'weirback', 'index', '77', 'type', 'veth', 'peer', 'name', 'other']);
});

afterAll(() => {
  execFileSync('ip', ['netns', 'del', NODE]);
});

beforeEach(() => {
  db = createStateDB({ freeze: true });
  tables = createTables(db);
  saved = 0;
  strays = new Strays({
    file: '/run/state/endpoints.json',
    db,
    tables,
    numbers: new LocalNumbers(db),
    nodeNetns: `/var/run/netns/${NODE}`,
    log: quiet,
    allocateId: () => 1,
    save: () => {
      saved += 1;
    },
  });
});

function put(...rows: readonly EndpointRow[]): void {
  db.write([tables.endpoints], (txn) => {
    for (const row of rows) txn.upsert(tables.endpoints, row);
  });
}

function pod(name: string, uid: string, addresses: readonly string[]): void {
  const row: LocalPodRow = {
    namespace: 'ns',
    name,
    uid,
    labels: {},
    serviceAccount: 'default',
    namedPorts: [],
    addresses,
  };
  db.write([tables.localPods], (txn) => txn.upsert(tables.localPods, row));
}

function check(): ReturnType<typeof endpointsCheck> {
  return endpointsCheck({ db, tables, policyMode: 'default', wallClock: Date.now });
}

function rows(): EndpointRow[] {
  using snapshot = db.read();
  return [...snapshot.all(tables.endpoints)];
}

describe('an endpoint that no file knew', () => {
  it('is of the pod that has its address, as soon as that is known', () => {
    put(found);
    strays.sync();
    expect(check().message).toContain('endpoint 1 (weir0123456789a) is not known');
    pod('other', 'u0', ['10.0.0.2']);
    pod('web', 'u1', ['10.0.0.1']);
    strays.sync();
    expect(rows()).toEqual([{ ...found, pod: { namespace: 'ns', name: 'web', uid: 'u1' } }]);
    expect(saved).toBe(1);
    expect(check().message).toBe(
      '1 endpoint was taken from the kernel, as no file knew it: endpoint 1 (weir0123456789a, pod ns/web)',
    );
  });

  it('is of none that shares the address with another, or has an endpoint already', () => {
    put(found, { ...found, id: 2, ifindex: 8, addresses: ['10.0.0.9'], pod: { namespace: 'ns', name: 'web' } });
    pod('web', 'u1', ['10.0.0.1']);
    strays.sync();
    pod('a', 'u2', ['10.0.0.1']);
    pod('b', 'u3', ['10.0.0.1']);
    strays.sync();
    expect(rows()[0]).toEqual(found);
  });

  it('is forgotten when its interface goes', () => {
    put(found);
    strays.gone(1, false);
    expect(rows()).toEqual([]);
  });
});

describe('an endpoint whose interface is in another network namespace', () => {
  it('is kept, though nobody will say that it is to be forgotten', () => {
    put(found);
    strays.gone(1, true);
    expect(rows()).toEqual([expect.objectContaining({ id: 1, gone: expect.any(String) })]);
  });
});

describe('an endpoint whose interface went away', () => {
  it('is kept until its pod is gone, or is another of the same name', () => {
    put({ ...found, pod: { namespace: 'ns', name: 'web', uid: 'u1' } });
    pod('web', 'u1', ['10.0.0.1']);
    strays.gone(1, false);
    strays.gone(1, false);
    strays.sync();
    expect(rows()).toEqual([expect.objectContaining({ id: 1, gone: expect.any(String) })]);
    expect([check().ok, saved]).toEqual([true, 1]);
    expect(check().message).toBe(
      'the interface of endpoint 1 (weir0123456789a, pod ns/web) is gone: delete its pod, so that it is recreated',
    );
    pod('web', 'u2', []);
    strays.sync();
    expect(rows()).toEqual([]);
  });

  it('is forgotten when its pod has another, made under the same index', () => {
    const web = { namespace: 'ns', name: 'web', uid: 'u1' };
    put({ ...found, pod: web });
    pod('web', 'u1', ['10.0.0.1']);
    strays.gone(1, false);
    const anew = { ...found, id: 2, addresses: ['10.0.0.2'], pod: web };
    put(anew);
    strays.sync();
    expect(rows()).toEqual([anew]);
  });

  it('counts again when that is back, unless it was deleted while the interfaces were read', async () => {
    const gone = { ...found, interfaceName: 'weirback', gone: '2026-01-01T00:00:00Z' };
    put(gone);
    const back = await strays.returned();
    expect(back).toEqual([expect.objectContaining({ id: 1, interfaceName: 'weirback', ifindex: 77 })]);
    expect(rows()).toEqual(back);
    put(gone);
    const returned = strays.returned();
    db.write([tables.endpoints], (txn) => txn.deleteAll(tables.endpoints));
    expect(await returned).toEqual([]);
    expect(rows()).toEqual([]);
  });
});
