import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { CT_FLAGS, CT_KEYS, ctShare, ctShareKey, ctValue, MAPS, PROTOCOL, ticksAt } from '@weir/bpf';
import { createMap, mapArray } from 'libbpf-ts';
import { Conntrack } from './conntrack.ts';
import { CtShares } from './ct-shares.ts';

const map = createMap({ ...MAPS.ct4, name: 'ct4', maxEntries: 16 });
const map6 = createMap({ ...MAPS.ct6, name: 'ct6', maxEntries: 16 });
const maps = { ct4: map, ct6: map6 };
const shares = createMap({ ...MAPS.ct_shares, name: 'ct_shares' });
const memory = mapArray(shares);
const ctShares = new CtShares(memory.bytes);
const told: number[] = [];
const collected = (tick: number): void => {
  told.push(tick);
};
const conntrack = () => new Conntrack({ maps, shares: ctShares, collected, yieldNow: async () => undefined });
const { signal } = new AbortController();
const ESTABLISHED = CT_FLAGS.replied | CT_FLAGS.acked;
afterEach(() => {
  map.deleteBatch([...map.keys()]);
  shares.update(ctShareKey.encode(1), ctShare.encode({ flows: 0, most: 0 }));
});
afterAll(() => {
  memory.close();
  for (const each of [map, shares]) each.close();
});

/** A flow of its own port, whose last packet was so many seconds ago. */
function flow(sport: number, protocol: number, flags: number, seconds: number, endpoint = 1): void {
  const address = Uint8Array.of(10, 0, 0, 1);
  const key = { src: address, dst: address, sport, dport: 53, endpoint, protocol, direction: 0 };
  const lastSeen = Number(((process.hrtime.bigint() - BigInt(seconds) * 1_000_000_000n) >> 30n) & 0xffff_ffffn);
  const value = { ...ctValue.decode(new Uint8Array(ctValue.size)), lastSeen, flags };
  map.update(CT_KEYS.ct4.encode(key), ctValue.encode(value));
}

it('collects flows that are gone and, while the table is more than half full, those that are only remembered of who has most', async () => {
  const collector = conntrack();
  const ports = (): number[] => Array.from(map.keys(), (key) => CT_KEYS.ct4.decode(key).sport).sort((a, b) => a - b);
  flow(1, PROTOCOL.udp, 0, 100);
  flow(2, PROTOCOL.udp, 0, 400);
  flow(3, PROTOCOL.udp, 0, 200);
  flow(4, PROTOCOL.tcp, ESTABLISHED | CT_FLAGS.reset, 100);
  flow(5, PROTOCOL.tcp, ESTABLISHED, 100);
  expect(await collector.collect(signal)).toMatchObject({ entries: 5, deleted: 2 });
  expect(ports()).toEqual([1, 3, 5]);
  for (let port = 10; port < 16; port += 1) flow(port, PROTOCOL.tcp, ESTABLISHED, 100);
  flow(20, PROTOCOL.udp, 0, 100, 2);
  expect(await collector.collect(signal)).toMatchObject({ entries: 10, deleted: 0 });
  expect(await collector.collect(signal)).toMatchObject({ entries: 10, deleted: 2 });
  expect(ports()).toEqual([5, 10, 11, 12, 13, 14, 15, 20]);
});

it('tells the programs when it has collected, so that they need not', async () => {
  told.length = 0;
  const aborted = new AbortController();
  aborted.abort();
  for (let port = 1; port <= 16; port += 1) flow(port, PROTOCOL.udp, 0, 1);
  await conntrack().collect(signal);
  expect(told.map((tick) => Math.abs(tick - ticksAt(process.hrtime.bigint())) <= 1)).toEqual([true]);
  await conntrack().collect(aborted.signal);
  expect(told).toHaveLength(1);
});

describe('a share of the table', () => {
  const share = (endpoint = 1) => ctShare.decode(shares.lookup(ctShareKey.encode(endpoint)) ?? new Uint8Array(8));
  /** As a program does. */
  const count = (flows: number): void => {
    shares.update(ctShareKey.encode(1), ctShare.encode({ ...share(), flows }));
  };

  it('is a quarter, and as much as of all others once more than half is in use', async () => {
    const collector = conntrack();
    expect(share()).toEqual({ flows: 0, most: 4 });
    for (let port = 1; port <= 8; port += 1) flow(port, PROTOCOL.tcp, ESTABLISHED, 1, port);
    await collector.collect(signal);
    expect(share()).toEqual({ flows: 1, most: 4 });
    flow(9, PROTOCOL.tcp, ESTABLISHED, 1, 1);
    await collector.collect(signal);
    expect(share()).toEqual({ flows: 2, most: 2 });
    expect(collector.spent()).toEqual([1]);
    map.deleteBatch([...map.keys()]);
    await collector.collect(signal);
    expect([share(), collector.spent()]).toEqual([{ flows: 0, most: 4 }, []]);
  });

  it('is corrected by what was counted, but for what programs count meanwhile', async () => {
    for (let port = 1; port <= 3; port += 1) flow(port, PROTOCOL.tcp, ESTABLISHED, 1);
    flow(4, PROTOCOL.udp, 0, 1000);
    count(9);
    const collector = new Conntrack({
      maps,
      collected,
      yieldNow: async () => undefined,
      // The count is read first; then a program stores two flows.
      shares: {
        correct: (before, found) => ctShares.correct(before, found),
        clear: () => undefined,
        allow: () => undefined,
        isSpent: () => false,
        counted: () => {
          const before = ctShares.counted();
          count(11);
          return before;
        },
      },
    });
    await collector.collect(signal);
    expect(share().flows).toBe(5);
    await conntrack().collect(signal);
    expect(share().flows).toBe(3);
  });

  it('is empty once all flows of the endpoint are deleted', async () => {
    flow(1, PROTOCOL.tcp, ESTABLISHED, 1);
    count(1);
    await conntrack().purge(new Set([1]), signal);
    expect([share().flows, map.keys().next().done]).toEqual([0, true]);
  });

  it('that is used up has its handshakes forgotten first, and nothing that protects from an answer that begins a flow', async () => {
    const collector = conntrack();
    flow(1, PROTOCOL.tcp, ESTABLISHED, 20);
    flow(2, PROTOCOL.tcp, CT_FLAGS.replied, 20);
    flow(3, PROTOCOL.tcp, 0, 2);
    // It is remembered.
    flow(4, PROTOCOL.udp, 0, 100);
    flow(5, PROTOCOL.tcp, 0, 20, 2);
    count(4);
    await collector.collect(signal);
    // Whose share is used up is known from then on.
    expect([collector.spent(), [...map.keys()].length]).toEqual([[1], 5]);
    await collector.collect(signal);
    const ports = Array.from(map.keys(), (key) => CT_KEYS.ct4.decode(key).sport).sort((a, b) => a - b);
    expect([ports, share().flows, collector.spent()]).toEqual([[1, 3, 4, 5], 3, []]);
  });

  it('that is beyond what is fair has its handshakes forgotten first, where there is no room', async () => {
    const collector = conntrack();
    for (let port = 1; port <= 6; port += 1) flow(port, PROTOCOL.tcp, port <= 2 ? ESTABLISHED : CT_FLAGS.replied, 20);
    flow(7, PROTOCOL.tcp, 0, 2);
    flow(8, PROTOCOL.tcp, 0, 20, 2);
    flow(9, PROTOCOL.udp, 0, 20);
    await collector.collect(signal);
    await collector.collect(signal);
    const ports = Array.from(map.keys(), (key) => CT_KEYS.ct4.decode(key).sport).sort((a, b) => a - b);
    // Those in good time stay, those of who has little, and what is not TCP: its answer would begin a flow.
    expect(ports).toEqual([1, 2, 7, 8, 9]);
  });
});
