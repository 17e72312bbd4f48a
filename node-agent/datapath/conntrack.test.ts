import { afterEach, expect, it } from '@jest/globals';
import { CT_FLAGS, ctKey, ctValue, MAPS, PROTOCOL } from '@weir/bpf';
import { createMap } from 'libbpf-ts';
import { Conntrack } from './conntrack.ts';

const map = createMap({ ...MAPS.ct4, name: 'ct4', maxEntries: 16 });
afterEach(() => map.close());

/** A flow of its own port, whose last packet was so many seconds ago. */
function flow(sport: number, protocol: number, flags: number, seconds: number, endpoint = 1): void {
  const address = Uint8Array.of(10, 0, 0, 1);
  const key = { src: address, dst: address, sport, dport: 53, endpoint, protocol, direction: 0 };
  const lastSeen = Number(((process.hrtime.bigint() - BigInt(seconds) * 1_000_000_000n) >> 30n) & 0xffff_ffffn);
  const value = { ...ctValue.decode(new Uint8Array(ctValue.size)), lastSeen, flags };
  map.update(ctKey.encode(key), ctValue.encode(value));
}

it('collects flows that are gone and, while the table is more than half full, those that are only remembered of who has most', async () => {
  const conntrack = new Conntrack(map, async () => undefined);
  const { signal } = new AbortController();
  const ports = (): number[] => Array.from(map.keys(), (key) => ctKey.decode(key).sport).sort((a, b) => a - b);
  flow(1, PROTOCOL.udp, 0, 100);
  flow(2, PROTOCOL.udp, 0, 400);
  flow(3, PROTOCOL.tcp, CT_FLAGS.replied, 100_000);
  flow(4, PROTOCOL.tcp, CT_FLAGS.replied | CT_FLAGS.reset, 100);
  flow(5, PROTOCOL.tcp, CT_FLAGS.replied, 100);
  expect(await conntrack.collect(signal)).toEqual({ entries: 5, deleted: 2 });
  expect(ports()).toEqual([1, 3, 5]);
  for (let port = 10; port < 16; port += 1) flow(port, PROTOCOL.tcp, CT_FLAGS.replied, 100);
  flow(20, PROTOCOL.udp, 0, 100, 2);
  expect(await conntrack.collect(signal)).toEqual({ entries: 10, deleted: 0 });
  expect(await conntrack.collect(signal)).toEqual({ entries: 10, deleted: 2 });
  expect(ports()).toEqual([5, 10, 11, 12, 13, 14, 15, 20]);
});
