/** The agent's maps as the proxy reads and writes them: real ones, that come late and are replaced. */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { CT_KEYS, type CtValue, ctValue, DIRECTION, nameKey, nameValue, PROTOCOL, ticksAt } from '@weir/bpf';
import { parseAddress } from '@weir/net';
import { createStateDB } from '@weir/statedb';
import { type BpfError, type BpfMap, createMap } from 'libbpf-ts';
import { eventually } from '../../../test/eventually.ts';
import { KernelFlows } from './kernel-flows.ts';
import { KernelRows } from './kernel-rows.ts';
import { createTables, type NameRow } from './tables.ts';

const root = `/sys/fs/bpf/wt${process.pid}-dns-maps`;
const open: Disposable[] = [];

beforeEach(() => mkdirSync(root));
afterEach(() => {
  for (const each of open.splice(0)) each[Symbol.dispose]();
  rmSync(root, { recursive: true });
});

function pinned(name: string, keySize: number, valueSize: number, maxEntries = 64): BpfMap {
  const map = createMap({ name, type: 'hash', keySize, valueSize, maxEntries });
  open.push(map);
  rmSync(join(root, name), { force: true });
  map.pin(join(root, name));
  return map;
}

const bytes = (address: string): Uint8Array => parseAddress(address).bytes;

function flows(): { readonly flows: KernelFlows; readonly ct4: BpfMap; readonly ct6: BpfMap } {
  const db = createStateDB();
  const tables = createTables(db);
  db.write([tables.endpoints], (txn) => {
    txn.insert(tables.endpoints, { endpoint: 1, addresses: ['10.0.0.1'] });
    txn.insert(tables.endpoints, { endpoint: 2, addresses: ['10.0.0.1', 'fd00::1'] });
  });
  return { flows: new KernelFlows(db, tables, root), ct4: pinned('ct4', 16, 48), ct6: pinned('ct6', 40, 48) };
}

const value = (more: Partial<CtValue>): Uint8Array =>
  ctValue.encode({
    ...{ revision: 1, denied: false, local: false, proxied: true, tag: 0, flags: 5 << 16, stamp: 0, cookie: 0 },
    ...{ lastSeen: ticksAt(process.hrtime.bigint()), packets: 1n, bytes: 60n, acked: 0, peer: 0 },
    ...more,
  });

const key = (endpoint: number, sport: number, dst = '10.0.0.53', src = '10.0.0.1', protocol: number = PROTOCOL.udp) =>
  CT_KEYS[src.includes(':') ? 'ct6' : 'ct4'].encode({
    src: bytes(src),
    dst: bytes(dst),
    sport,
    dport: 53,
    endpoint,
    protocol,
    direction: DIRECTION.egress,
  });

const place = (address: string, port: number) => ({ ...parseAddress(address), address: bytes(address), port });

it('a flow has the endpoint and the listener that the kernel gave it, and none where it did not', () => {
  const { flows: kernel, ct4, ct6 } = flows();
  ct4.update(key(2, 1000), value({}));
  ct4.update(key(1, 1001), value({ proxied: false }));
  ct4.update(key(1, 1002), value({ denied: true }));
  ct6.update(key(2, 1000, 'fd00::53', 'fd00::1'), value({ flags: 7 << 16 }));
  const of = (port: number, source = '10.0.0.1', server = '10.0.0.53') =>
    kernel.flowOf('udp', { source: place(source, port), destination: place(server, 53) });
  expect(of(1000)).toEqual({ endpoint: 2, listener: 5 });
  expect(of(1001)).toBeUndefined();
  expect(of(1002)).toBeUndefined();
  expect(of(1003)).toBeUndefined();
  expect(of(1000, '10.0.0.2')).toBeUndefined();
  expect(of(1000, 'fd00::1', 'fd00::53')).toEqual({ endpoint: 2, listener: 7 });
  expect(
    kernel.flowOf('tcp', { source: place('10.0.0.1', 1000), destination: place('10.0.0.53', 53) }),
  ).toBeUndefined();
  kernel.close();
});

it('an endpoint is connected to an address while a flow of its own to there lives', async () => {
  const { flows: kernel, ct4, ct6 } = flows();
  const row = (endpoint: number, address: string): NameRow => ({
    endpoint,
    name: 'a.com',
    address,
    seen: 0,
    expires: 0,
    ttl: 0,
  });
  const [own, others, old, six] = [row(1, '192.0.2.1'), row(2, '192.0.2.1'), row(1, '192.0.2.2'), row(2, 'fd00::9')];
  ct4.update(key(1, 1000, '192.0.2.1'), value({ proxied: false, flags: 0 }));
  ct4.update(key(1, 1001, '192.0.2.2'), value({ lastSeen: (ticksAt(process.hrtime.bigint()) - 100_000) >>> 0 }));
  ct6.update(key(2, 1000, 'fd00::9', 'fd00::1', PROTOCOL.tcp), value({}));
  expect(await kernel.connected([own, others, old, six])).toEqual(new Set([own, six]));
  kernel.close();
});

it('rows are in the map that is there, also when it comes late or is another one, and nothing else is', async () => {
  const wanted = new Map([
    ['192.0.2.1', 5],
    ['2001:db8::1', 6],
  ]);
  const refused: BpfError[] = [];
  const rows = new KernelRows(
    root,
    (error) => refused.push(error),
    () => wanted,
  );
  const has = (map: BpfMap): string[] =>
    Array.from(
      map.entries(),
      ([at, identity]) => `${nameKey.decode(at).join('.')} ${nameValue.decode(identity)}`,
    ).toSorted();
  const both = ['192.0.2.1 5', '32.1.13.184.0.0.0.0.0.0.0.0.0.0.0.1 6'];
  rows.start();
  expect(rows.set('192.0.2.1', 5)).toBe(true);
  const first = pinned('names', nameKey.size, nameValue.size);
  first.update(nameKey.encode(bytes('198.51.100.1')), nameValue.encode(9));
  first.update(nameKey.encode(bytes('192.0.2.1')), nameValue.encode(9));
  const come = (map: BpfMap): Promise<string[]> => {
    rows.look();
    return Promise.resolve(has(map));
  };
  expect(
    await eventually(
      () => come(first),
      (all) => !all.includes('198.51.100.1 9'),
    ),
  ).toEqual(both);
  const second = pinned('names', nameKey.size, nameValue.size, 2);
  expect(
    await eventually(
      () => come(second),
      (all) => all.length > 0,
    ),
  ).toEqual(both);
  expect(rows.set('192.0.2.3', 5)).toBe(false);
  expect(refused).toHaveLength(1);
  rows.delete('192.0.2.1');
  expect(rows.set('192.0.2.3', 5)).toBe(true);
  rows.close();
});
