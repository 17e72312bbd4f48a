/** The codecs against the C layouts as the compiler sees them, the maps against MAPS, events as the kernel writes them, and the build. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';

import { buildDatapath, objectFor, SKB_ACCESS } from './build.ts';
import { DatapathBuildError, LayoutError } from './errors.ts';
import { CT_KEYS, ctAge, ctShare, ctValue, decodeEvent, EVENT_SIZE, metricsEntry, TICK_NS } from './flows.ts';
import {
  classKey,
  classValue,
  endpointValue,
  ipcacheKey,
  ipcacheValue,
  nameKey,
  nameValue,
  verdictKey,
  verdictValue,
} from './layout.ts';
import { MAPS } from './maps.ts';
import { TestDatapath } from './testing/datapath.ts';

const path = new TestDatapath();
const scratch = mkdtempSync(join(tmpdir(), 'weir-bpf-'));
afterAll(() => {
  path.close();
  rmSync(scratch, { recursive: true });
});

const address = fc.uint8Array({ minLength: 4, maxLength: 4 });
const long = fc.uint8Array({ minLength: 16, maxLength: 16 });
const u8 = fc.integer({ min: 0, max: 0xff });
const u16 = fc.integer({ min: 0, max: 0xffff });
const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const u64 = fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn });

describe('codecs', () => {
  it('are inverses', () => {
    const check = <T>(
      codec: { encode(value: T): Uint8Array; decode(bytes: Uint8Array): T; size: number },
      values: fc.Arbitrary<T>,
    ) =>
      fc.assert(
        fc.property(values, (value) => {
          expect(codec.encode(value)).toHaveLength(codec.size);
          expect(codec.decode(codec.encode(value))).toEqual(value);
        }),
      );
    const endpoint = { revision: u32, slot: u16, flags: fc.integer({ min: 0, max: 15 }), ifindex: u32, ipv4: address };
    check(endpointValue, fc.record({ ...endpoint, identity: u32, id: u16, quarantine: fc.boolean(), ipv6: long }));
    check(ipcacheKey, fc.record({ address: fc.oneof(address, long), bits: fc.integer({ min: 0, max: 32 }) }));
    check(ipcacheValue, fc.record({ identity: u32, before: u32, since: u32, bits: u8 }));
    check(nameKey, fc.oneof(address, long));
    check(nameValue, u32);
    check(classKey, fc.record({ identity: u32, direction: fc.integer({ min: 0, max: 1 }) }));
    check(classValue, fc.record({ class: u16, identity: u32, direction: fc.integer({ min: 0, max: 1 }) }));
    const portBits = fc.integer({ min: 0, max: 16 });
    check(verdictKey, fc.record({ class: u16, direction: u8, protocol: u8, port: u16, portBits }));
    check(verdictValue, fc.record({ verdict: u8, priority: u8, proxyPort: u16, cookie: u32 }));
    const ports = { sport: u16, dport: u16, endpoint: u16 };
    check(CT_KEYS.ct4, fc.record({ src: address, dst: address, ...ports, protocol: u8, direction: u8 }));
    check(CT_KEYS.ct6, fc.record({ src: long, dst: long, ...ports, protocol: u8, direction: u8 }));
    const counters = { packets: u64, bytes: u64 };
    const tag = fc.integer({ min: 0, max: 0x1fff_ffff });
    const flow = {
      revision: u32,
      denied: fc.boolean(),
      local: fc.boolean(),
      proxied: fc.boolean(),
      tag,
      lastSeen: u32,
      flags: u32,
      cookie: u32,
      stamp: u32,
      acked: u32,
      peer: u32,
      ...counters,
    };
    check(ctValue, fc.record(flow));
    check(metricsEntry, fc.record(counters));
    check(ctShare, fc.record({ flows: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }), size: u32 }));
  });

  it('refuse what does not fit', () => {
    const key = { class: 16, direction: 0, protocol: 6, port: 80, portBits: 16 };
    for (const bad of [{ class: 65_536 }, { port: -1 }, { portBits: 17 }, { port: 1.5 }]) {
      expect(() => verdictKey.encode({ ...key, ...bad })).toThrow(LayoutError);
    }
    expect(() => ipcacheKey.encode({ address: new Uint8Array(4), bits: 33 })).toThrow('ipcache key.bits: 33');
    expect(() => ipcacheKey.encode({ address: new Uint8Array(5), bits: 0 })).toThrow(LayoutError);
    expect(() => CT_KEYS.ct4.decode(new Uint8Array(15))).toThrow('expected 16 bytes');
  });

  it('know when a flow’s time is over for the kernel, and when it is forgotten', () => {
    const key = CT_KEYS.ct4.decode(new Uint8Array(16));
    const value = { ...ctValue.decode(new Uint8Array(48)), lastSeen: 1000 };
    const at = (seconds: bigint) => 1000n * TICK_NS + seconds * 1_000_000_000n;
    const ages = (protocol: number, fields: Partial<typeof value>, ...seconds: bigint[]): string[] =>
      seconds.map((each) => ctAge({ ...key, protocol }, { ...value, ...fields }, at(each)));
    expect(ages(0, {}, -5n)).toEqual(['live']);
    expect(ages(6, {}, 55n, 65n)).toEqual(['live', 'gone']);
    expect(ages(6, { flags: 1 }, 55n, 65n)).toEqual(['live', 'gone']);
    expect(ages(6, { flags: 17 }, 21_000n, 22_000n)).toEqual(['live', 'gone']);
    expect(ages(6, { flags: 25 }, 5n, 15n)).toEqual(['live', 'gone']);
    expect(ages(17, { flags: 1 }, 170n, 190n, 470n, 490n)).toEqual(['live', 'expired', 'expired', 'gone']);
    expect(ages(17, {}, 55n, 65n, 350n, 370n)).toEqual(['live', 'expired', 'expired', 'gone']);
    expect(ages(17, { flags: 33 }, 0n, 470n, 490n)).toEqual(['expired', 'expired', 'gone']);
    expect(ages(6, { flags: 49 }, 0n)).toEqual(['live']);
    for (const flags of [0, 1, 6, 9, 17]) {
      expect(ages(6, { flags, denied: true }, 295n, 305n)).toEqual(['live', 'gone']);
      expect(ages(1, { flags, denied: true }, 295n, 305n, 350n, 370n)).toEqual(['live', 'expired', 'expired', 'gone']);
    }
    expect(ages(17, { flags: 1, denied: true }, 470n, 490n)).toEqual(['expired', 'gone']);
  });
});

describe('the object', () => {
  it('has exactly the maps of MAPS, in their shapes', () => {
    const names = Object.keys(path.object.maps).sort();
    // Nothing in `scratch` outlives a packet: it is not pinned.
    expect(names).toEqual([...Object.keys(MAPS), 'scratch'].sort());
    for (const [name, shape] of Object.entries(MAPS)) {
      const { type, keySize, valueSize, flags } = path.map(name).info;
      expect([name, type, keySize, valueSize, flags]).toEqual([
        name,
        shape.type,
        shape.keySize,
        shape.valueSize,
        shape.flags,
      ]);
    }
  });

  it('has structs of the sizes and field offsets that the codecs use', () => {
    const source = readFileSync(join(import.meta.dirname, 'layout.h'), 'utf8');
    const sizes = {
      endpoint_value: 40,
      ipcache_key: 24,
      ipcache_value: 16,
      ct_key: 40,
      ct_value: 48,
      ct_share: 8,
      event: EVENT_SIZE,
    };
    for (const [name, size] of Object.entries(sizes)) {
      expect(source).toContain(`_Static_assert(sizeof(struct ${name}) == ${size}`);
    }
    // Offsets, by the compiler itself.
    const offsets: readonly [string, string, number][] = [
      ['endpoint_value', 'ifindex', 8],
      ['endpoint_value', 'ipv4', 12],
      ['endpoint_value', 'id', 20],
      ['endpoint_value', 'ipv6', 24],
      ['ipcache_value', 'after', 4],
      ['ipcache_value', 'bits', 12],
      ['verdict_key', 'class', 4],
      ['verdict_key', 'port', 8],
      ['verdict_value', 'cookie', 4],
      ['ct_key', 'endpoint', 4],
      ['ct_key', 'direction', 7],
      ['ct_key', 'src', 8],
      ['ct_key', 'dst', 12],
      ['ct_key', 'dst6', 24],
      ['ct_value', 'last_seen', 8],
      ['ct_value', 'stamp', 20],
      ['ct_value', 'bytes', 32],
      ['event', 'endpoint', 12],
      ['event', 'family', 23],
      ['event', 'ifindex', 24],
      ['event', 'revision', 44],
      ['event', 'dst', 64],
    ];
    const asserts = offsets.map(
      ([name, field, at]) =>
        `_Static_assert(__builtin_offsetof(struct ${name}, ${field}) == ${at}, "${name}.${field}");`,
    );
    const file = join(scratch, 'offsets.c');
    writeFileSync(file, `#include "layout.h"\n${asserts.join('\n')}\n`);
    const include = process.arch === 'arm64' ? 'aarch64-linux-gnu' : 'x86_64-linux-gnu';
    const args = ['-target', 'bpfel', `-I${import.meta.dirname}`, `-I/usr/include/${include}`, '-fsyntax-only', file];
    expect(() => execFileSync('clang', args, { stdio: 'pipe' })).not.toThrow();
  });
});

describe('events', () => {
  it('decode what the kernel writes', () => {
    const bytes = new Uint8Array(EVENT_SIZE);
    bytes.set([1, 1, 8, 6, 7, 0, 0x9c, 0x40, 0, 80, 8, 0, 0, 0, 2, 4], 8);
    bytes.set([10, 0, 0, 1], 48);
    expect(decodeEvent(bytes)).toMatchObject({
      kind: 'drop',
      direction: 1,
      reason: 8,
      reasonName: 'policy',
      endpoint: 7,
      sport: 40_000,
      dport: 80,
      ethertype: 0x0800,
      family: 4,
      src: Uint8Array.of(10, 0, 0, 1),
    });
    expect(() => decodeEvent(bytes.slice(1))).toThrow(LayoutError);
  });
});

describe('the build', () => {
  it('compiles once per content', () => {
    const first = buildDatapath();
    const again = buildDatapath({ clang: 'clang' });
    expect(again).toEqual(first);
    const out = join(scratch, 'weir.o');
    expect(buildDatapath({ out })).toEqual({ objectPath: out, hash: first.hash });
    expect(readFileSync(out).subarray(0, 4).toString('latin1')).toBe('\x7fELF');
    expect(buildDatapath({ prebuilt: out, access: 'direct' }).objectPath).toBe(out);
  });

  it('takes the prebuilt object that the kernel can load', () => {
    const [direct, calls] = SKB_ACCESS.map((access) => objectFor(access, join(scratch, 'both.o')));
    expect([direct, calls]).toEqual([join(scratch, 'both.o'), join(scratch, 'both.calls.o')]);
    for (const access of SKB_ACCESS) {
      const path = objectFor(access, join(scratch, 'both.o'));
      expect(() => buildDatapath({ prebuilt: join(scratch, 'both.o'), access })).toThrow(`${path} does not exist`);
      buildDatapath({ out: path, access });
      for (const prebuilt of [direct, calls])
        expect(buildDatapath({ prebuilt: prebuilt ?? '', access }).objectPath).toBe(path);
    }
  });

  it('says what to install', () => {
    expect(() => buildDatapath({ clang: join(scratch, 'clang') })).toThrow('Install clang');
    expect(() => buildDatapath({ prebuilt: join(scratch, 'absent.o') })).toThrow(DatapathBuildError);
  });
});
