import { afterAll, afterEach, expect, it } from '@jest/globals';
import { CT_CELLS, CT_FLAGS, CT_KEYS, ctShare, ctShareKey, ctValue, MAPS, PROTOCOL, ticksAt } from '@weir/bpf';
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
const TABLE = CT_CELLS.table('ct4');
const PEER = 5000;
/** As a program does. */
const count = (cell: number, flows: number): void => {
  shares.update(ctShareKey.encode(cell), ctShare.encode({ ...share(cell), flows }));
};
function share(cell: number): { readonly flows: number; readonly size: number } {
  return ctShare.decode(shares.lookup(ctShareKey.encode(cell)) ?? new Uint8Array(8));
}
afterEach(() => {
  map.deleteBatch([...map.keys()]);
  for (const cell of [1, 2, PEER, TABLE]) count(cell, 0);
});
afterAll(() => {
  memory.close();
  for (const each of [map, map6, shares]) each.close();
});

/** A flow of its own port, whose last packet was so many seconds ago. */
function flow(sport: number, protocol: number, flags: number, seconds: number, endpoint = 1, peer = 0): void {
  const src = Uint8Array.of(10, 0, 0, peer % 256);
  const key = { src, dst: Uint8Array.of(10, 0, 0, 1), sport, dport: 53, endpoint, protocol, direction: 0 };
  const lastSeen = Number(((process.hrtime.bigint() - BigInt(seconds) * 1_000_000_000n) >> 30n) & 0xffff_ffffn);
  const value = { ...ctValue.decode(new Uint8Array(ctValue.size)), lastSeen, flags, peer };
  map.update(CT_KEYS.ct4.encode(key), ctValue.encode(value));
}

const ports = (): number[] => Array.from(map.keys(), (key) => CT_KEYS.ct4.decode(key).sport).sort((a, b) => a - b);

it('collects flows that are gone, and counts what is left', async () => {
  flow(1, PROTOCOL.udp, 0, 100);
  flow(2, PROTOCOL.udp, 0, 400);
  flow(3, PROTOCOL.udp, 0, 200, 2, PEER);
  flow(4, PROTOCOL.tcp, ESTABLISHED | CT_FLAGS.reset, 100);
  flow(5, PROTOCOL.tcp, ESTABLISHED, 100);
  flow(6, PROTOCOL.tcp, 0, 20, 2);
  expect(await conntrack().collect(signal)).toMatchObject({ entries: 6, deleted: 2, left: { ct4: 4, ct6: 0 } });
  expect(ports()).toEqual([1, 3, 5, 6]);
  expect([1, 2, PEER, TABLE].map((cell) => share(cell).flows)).toEqual([2, 2, 1, 4]);
});

it('of an endpoint that has half of what it may, forgets handshakes and what is only remembered', async () => {
  // 16 have room, 4 are counted: 6 may be one's.
  for (const [cell, flows] of [
    [1, 3],
    [2, 1],
    [TABLE, 4],
  ] as const)
    count(cell, flows);
  flow(1, PROTOCOL.tcp, ESTABLISHED, 20);
  flow(2, PROTOCOL.tcp, CT_FLAGS.replied, 20);
  flow(3, PROTOCOL.tcp, 0, 2);
  flow(4, PROTOCOL.udp, 0, 100);
  flow(5, PROTOCOL.udp, 0, 20);
  flow(6, PROTOCOL.tcp, 0, 20, 2);
  flow(7, PROTOCOL.udp, 0, 100, 2);
  await conntrack().collect(signal);
  // Those in good time stay, those of who has little, and what is not TCP: its answer would begin a flow.
  expect(ports()).toEqual([1, 3, 5, 6, 7]);
});

it('tells the programs when it has collected, so that they need not', async () => {
  told.length = 0;
  const aborted = new AbortController();
  aborted.abort();
  for (let port = 1; port <= 16; port += 1) flow(port, PROTOCOL.udp, 0, 1);
  const before = ticksAt(process.hrtime.bigint());
  await conntrack().collect(signal);
  const after = ticksAt(process.hrtime.bigint());
  expect(told.map((tick) => before <= tick && tick <= after)).toEqual([true]);
  await conntrack().collect(aborted.signal);
  expect(told).toHaveLength(1);
});

it('says how much the tables hold', () => {
  conntrack();
  expect(share(TABLE)).toEqual({ flows: 0, size: 16 });
  expect(share(CT_CELLS.table('ct6')).size).toBe(16);
});

it('corrects what was counted, but for what programs count meanwhile', async () => {
  for (let port = 1; port <= 3; port += 1) flow(port, PROTOCOL.tcp, ESTABLISHED, 1);
  flow(4, PROTOCOL.udp, 0, 1000);
  count(1, 9);
  class Busy extends CtShares {
    // The count is read first; then a program stores two flows.
    override counted(): Int32Array {
      const before = super.counted();
      count(1, 11);
      return before;
    }
  }
  const busy = new Conntrack({ maps, shares: new Busy(memory.bytes), collected, yieldNow: async () => undefined });
  await busy.collect(signal);
  expect(share(1).flows).toBe(5);
  await conntrack().collect(signal);
  expect(share(1).flows).toBe(3);
});

it('takes deleted flows away from what is counted', async () => {
  flow(1, PROTOCOL.tcp, ESTABLISHED, 1, 1, PEER);
  flow(2, PROTOCOL.udp, 0, 1, 2, PEER);
  for (const [cell, flows] of [
    [1, 1],
    [2, 1],
    [PEER, 2],
    [TABLE, 2],
  ] as const)
    count(cell, flows);
  const left = (): number[] => [1, 2, PEER, TABLE].map((cell) => share(cell).flows);
  await conntrack().purge(new Set([1]), signal);
  expect(left()).toEqual([0, 1, 1, 1]);
  await conntrack().doubt(new Set([2]), signal);
  expect(left()).toEqual([0, 0, 0, 0]);
});

it('names endpoints and peers that have as many flows as they may', async () => {
  const collector = conntrack();
  const look = async (): Promise<unknown> => {
    await collector.collect(signal);
    await collector.collect(signal);
    return collector.spent();
  };
  flow(1, PROTOCOL.tcp, ESTABLISHED, 1, 1, PEER);
  expect(await look()).toEqual({ endpoints: [], peers: [] });
  for (let port = 2; port <= 4; port += 1) flow(port, PROTOCOL.tcp, ESTABLISHED, 1, 1, PEER);
  expect(await look()).toEqual({ endpoints: [], peers: [Uint8Array.of(10, 0, 0, PEER % 256)] });
  for (let port = 5; port <= 7; port += 1) flow(port, PROTOCOL.tcp, ESTABLISHED, 1, 1);
  expect(await look()).toMatchObject({ endpoints: [1] });
  for (let port = 2; port <= 7; port += 1) map.delete([...map.keys()][0] ?? new Uint8Array(16));
  expect(await look()).toEqual({ endpoints: [], peers: [] });
});
