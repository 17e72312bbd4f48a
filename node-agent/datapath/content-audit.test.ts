/** What others change in maps is found in the next pass. On maps of the kernel. */
import { describe, expect, it, jest } from '@jest/globals';
import { classKey, classValue, DIRECTION, ipcacheKey, ipcacheValue, MAPS, slotKey } from '@weir/bpf';
import { parsePrefix } from '@weir/net';
import { createStateDB } from '@weir/statedb';
import { type BpfMap, createMap } from 'libbpf-ts';
import { createTables } from '../create-tables.ts';
import { Pace } from '../derive/contract.ts';
import type { EndpointStateRow, IpcacheRow } from '../tables.ts';
import { AddressAudit, type ContentAudit, type Difference, SlotAudit } from './content-audit.ts';
import { IpcacheStore } from './ipcache-store.ts';
import { slotLab, slotRow } from './testing/slot-maps.ts';

/** Time that passes by being asked for: a break is due after every 300 elements. */
function clock(): () => number {
  let ms = 0;
  return () => {
    ms += 0.01;
    return ms;
  };
}

/** A whole pass, with something done between its pieces. */
async function pass(audit: ContentAudit, between: () => void | Promise<void> = () => undefined) {
  const found: Difference[] = [];
  let pieces = 0;
  for await (const piece of audit.pass()) {
    found.push(...piece);
    pieces += 1;
    await between();
  }
  return { found, pieces };
}

const key = (prefix: string): Uint8Array => {
  const { bytes, bits } = parsePrefix(prefix);
  return ipcacheKey.encode({ address: bytes, bits });
};
const address = (n: number): string => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}/32`;
const row = (n: number): IpcacheRow => ({
  prefix: address(n),
  identity: 1000 + (n % 50),
  node: '192.0.2.1',
  source: 'endpoint',
});
const ADDRESSES = 3000;

describe('AddressAudit', () => {
  function addresses() {
    const db = createStateDB({ freeze: true });
    const tables = createTables(db);
    const map = createMap({ ...MAPS.ipcache, name: 'ipcache' });
    const ipcache = new IpcacheStore(db, map);
    const add = (rows: readonly IpcacheRow[]): void => {
      db.write([tables.ipcache], (txn) => {
        for (const each of rows) txn.upsert(tables.ipcache, each);
      });
      ipcache.updateAll(rows);
    };
    const remove = (prefix: string): void => {
      db.write([tables.ipcache], (txn) => txn.delete(tables.ipcache, prefix));
      ipcache.delete(prefix);
    };
    add(Array.from({ length: ADDRESSES }, (_, n) => row(n)));
    const now = clock();
    const unsettled = new Set<string>();
    const settled = (prefix: string): boolean => !unsettled.has(prefix);
    const audit = new AddressAudit({ db, tables, ipcache, settled, pace: new Pace(now, async () => undefined) });
    return { db, tables, map, ipcache, audit, add, remove, unsettled };
  }

  it('finds in one pass of short pieces what is gone, what is another, and what nobody gave', async () => {
    const { map, audit } = addresses();
    expect((await pass(audit)).found).toEqual([]);
    map.delete(key(address(0)));
    map.delete(key(address(ADDRESSES - 1)));
    map.update(key(address(1500)), ipcacheValue.encode({ identity: 7, bits: 32 }));
    map.update(key('198.51.100.0/24'), ipcacheValue.encode({ identity: 7, bits: 24 }));
    const { found, pieces } = await pass(audit);
    expect(found.map(({ of }) => of).sort()).toEqual(
      [address(0), address(1500), address(ADDRESSES - 1), '198.51.100.0/24'].sort(),
    );
    expect(map.lookup(key('198.51.100.0/24'))).toBeUndefined();
    expect(pieces).toBeGreaterThanOrEqual((2 * ADDRESSES) / 300);
    map.close();
  });

  it('takes nothing that rounds change between its pieces for a fault', async () => {
    const { map, audit, add, remove } = addresses();
    let n = 0;
    const { found, pieces } = await pass(audit, () => {
      // Behind and before where the pass is, in the listing that it has fetched and in that which comes.
      for (const at of [n, ADDRESSES - 1 - n, 1500 + n]) remove(address(at));
      add([row(ADDRESSES + n), { ...row(700 + n), identity: 9000 }]);
      n += 1;
    });
    expect(found).toEqual([]);
    expect(pieces).toBeGreaterThan(10);
    map.close();
  });

  it('leaves out what the kernel has not acknowledged, and nothing beside it', async () => {
    const { map, audit, unsettled } = addresses();
    const stray = '198.51.100.0/24';
    map.delete(key(address(0)));
    map.update(key(address(1500)), ipcacheValue.encode({ identity: 7, bits: 32 }));
    map.update(key(stray), ipcacheValue.encode({ identity: 7, bits: 32 }));
    map.delete(key(address(2)));
    for (const each of [address(0), address(1500), stray]) unsettled.add(each);
    expect((await pass(audit)).found.map(({ of }) => of)).toEqual([address(2)]);
    expect(map.delete(key(stray))).toBe(true);
    expect(await audit.problem(address(0))).toBeUndefined();
    map.close();
  });

  it('restarts after the kernel could not be asked', async () => {
    const { map, ipcache, audit } = addresses();
    const holds = jest.spyOn(ipcache, 'holds').mockImplementation(() => {
      throw new Error('no answer');
    });
    map.delete(key(address(0)));
    map.update(key(address(ADDRESSES - 1)), ipcacheValue.encode({ identity: 7, bits: 32 }));
    await expect(pass(audit)).rejects.toThrow('no answer');
    holds.mockRestore();
    const found = (await pass(audit)).found.map(({ of }) => of);
    expect(found.sort()).toEqual([address(0), address(ADDRESSES - 1)].sort());
    map.close();
  });

  it("compares this node's own addresses each time", async () => {
    const { db, tables, map, audit } = addresses();
    const state: EndpointStateRow = {
      id: 1,
      ifindex: 7,
      addresses: [address(2000).replace('/32', '')],
      identity: 1000,
      labels: {},
      slot: 0,
      enforced: { ingress: false, egress: false },
      revision: 1,
      policies: {},
      state: 'ready',
    };
    db.write([tables.endpointStates], (txn) => txn.insert(tables.endpointStates, state));
    expect(await audit.nearest()).toEqual([]);
    map.delete(key(address(2000)));
    expect(await audit.nearest()).toEqual([{ of: address(2000), problem: 'the kernel does not have identity 1000' }]);
    expect(await audit.problem(address(2000))).toBe('the kernel does not have identity 1000');
    expect(await audit.problem(address(2001))).toBeUndefined();
    map.close();
  });
});

describe('SlotAudit', () => {
  const LARGE = Array.from({ length: 3000 }, (_, n) => 1000 + n);
  const element = (identity: number, number: number): [Uint8Array, Uint8Array] => [
    classKey.encode({ identity, direction: DIRECTION.ingress }),
    classValue.encode({ identity, direction: DIRECTION.ingress, class: number }),
  ];

  async function world() {
    let breaks = 0;
    const now = clock();
    const yieldNow = async (): Promise<void> => {
      breaks += 1;
    };
    const lab = slotLab({ now, yieldNow });
    await lab.slots.apply(slotRow(1, [5, 6]), () => true);
    await lab.slots.apply(slotRow(2, LARGE), () => true);
    await lab.slots.apply(slotRow(3, [7]), () => true);
    const unsettled = new Set<number>();
    const settled = (slot: number): boolean => !unsettled.has(slot);
    const audit = new SlotAudit({ slots: lab.slots, settled, pace: new Pace(now, yieldNow) });
    const inner = (outer: BpfMap, slot: number, change: (map: BpfMap) => void): void => {
      using map = outer.openInner(slotKey.encode(slot));
      if (map === undefined) throw new Error('the slot is not there');
      change(map);
    };
    return { ...lab, lab, audit, inner, unsettled, breaks: () => breaks };
  }

  it.each<[string, 'policy_classes' | 'policy_verdicts', (map: BpfMap) => void]>([
    ['an element that is gone', 'policy_classes', (map) => map.delete(element(3999, 0)[0])],
    ['an element of another class', 'policy_classes', (map) => map.update(...element(3999, 17))],
    [
      'an element with what is of another',
      'policy_classes',
      (map) => map.update(element(3999, 0)[0], element(1000, 16)[1]),
    ],
    ['an element that nobody gave', 'policy_classes', (map) => map.update(...element(9, 16))],
    ['rows that are gone', 'policy_verdicts', (map) => map.delete([...map.keys()].at(-1) ?? new Uint8Array())],
    [
      'other rows',
      'policy_verdicts',
      (map) => {
        const [a, b] = map.entries();
        if (a !== undefined && b !== undefined) map.update(a[0], b[1]);
      },
    ],
  ])('finds %s in a large slot, with breaks, and puts it back', async (_, name, change) => {
    const { lab, audit, inner, breaks } = await world();
    using _lab = lab;
    const before = breaks();
    expect((await pass(audit)).found).toEqual([]);
    expect(breaks() - before).toBeGreaterThanOrEqual(LARGE.length / 300);
    inner(lab[name], 2, change);
    expect((await pass(audit)).found).toEqual([{ of: '2', problem: 'its content was changed' }]);
    await lab.slots.mend(2);
    expect((await pass(audit)).found).toEqual([]);
  });

  it('takes nothing that rounds change between its pieces for a fault, and misses none beside', async () => {
    const { lab, audit, inner } = await world();
    using _lab = lab;
    inner(lab.policy_classes, 2, (map) => map.delete(element(3999, 0)[0]));
    const edited = await pass(audit, async () => {
      await lab.slots.apply(slotRow(3, [7, 8]), () => true);
      await lab.slots.free(1);
    });
    expect(edited.found).toEqual([{ of: '2', problem: 'its content was changed' }]);
  });

  it('leaves out a slot that the kernel has not acknowledged, and no other', async () => {
    const { lab, audit, inner, unsettled } = await world();
    using _lab = lab;
    inner(lab.policy_classes, 2, (map) => map.delete(element(3999, 0)[0]));
    lab.policy_classes.delete(slotKey.encode(1));
    lab.policy_classes.delete(slotKey.encode(3));
    unsettled.add(2).add(3);
    const problems = [{ of: '1', problem: 'its map in policy_classes is missing' }];
    expect(await audit.nearest()).toEqual(problems);
    expect((await pass(audit)).found).toEqual(problems);
  });

  it('sees at once that the maps of a slot are not there, or others', async () => {
    const { lab, audit } = await world();
    using _lab = lab;
    expect(await audit.nearest()).toEqual([]);
    lab.policy_classes.delete(slotKey.encode(1));
    using other = lab.policy_verdicts.openInner(slotKey.encode(3));
    if (other !== undefined) lab.policy_verdicts.setInner(slotKey.encode(2), other);
    const problems = [
      { of: '1', problem: 'its map in policy_classes is missing' },
      { of: '2', problem: 'its map in policy_verdicts was replaced' },
    ];
    expect(await audit.nearest()).toEqual(problems);
    expect((await pass(audit)).found).toEqual(problems);
  });
});
