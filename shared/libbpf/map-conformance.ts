import { describe, expect, it } from '@jest/globals';
import { mapFlags } from './constants.ts';
import { possibleCpus } from './cpus.ts';
import { percpu } from './percpu.ts';
import type { BpfMap, CreateMapOptions, EncodeRow, MapType } from './types.ts';

/** What every map must do, in the kernel or in memory. Run by the tests of both. */
export function describeMaps(kind: string, create: (options: CreateMapOptions) => BpfMap): void {
  const make = (type: MapType, more: Partial<CreateMapOptions> = {}): BpfMap =>
    create({ name: 'conform', type, keySize: 4, valueSize: 8, maxEntries: 8, ...more });
  const trie = (more: Partial<CreateMapOptions> = {}): BpfMap =>
    make('lpm_trie', { keySize: 8, valueSize: 4, flags: mapFlags.NO_PREALLOC, ...more });
  const sorted = (map: BpfMap): string[] => [...map.entries()].map(([k, v]) => `${hex(k)}=${hex(v)}`).sort();

  describe(`${kind}: hash`, () => {
    for (const type of ['hash', 'percpu_hash'] as const) {
      it(`${type} keeps the update modes`, () => {
        using map = make(type);
        const size = type === 'hash' ? 8 : 8 * possibleCpus();
        expect(() => map.update(u32(1), bytes(size, 1), 'exist')).toThrow(errno('ENOENT'));
        map.update(u32(1), bytes(size, 1), 'noexist');
        expect(() => map.update(u32(1), bytes(size, 2), 'noexist')).toThrow(errno('EEXIST'));
        expect(map.lookup(u32(1))).toEqual(bytes(size, 1));
        map.update(u32(1), bytes(size, 3), 'exist');
        expect(map.lookup(u32(1))).toEqual(bytes(size, 3));
        expect(map.lookup(u32(2))).toBeUndefined();
        expect(map.delete(u32(1))).toBe(true);
        expect(map.delete(u32(1))).toBe(false);
        expect([...map.keys()]).toEqual([]);
      });
    }

    it('refuses the entry after the last with E2BIG, and still replaces', () => {
      using map = make('hash', { maxEntries: 3 });
      for (let i = 0; i < 3; i++) map.update(u32(i), bytes(8, i));
      expect(() => map.update(u32(9), bytes(8, 9))).toThrow(errno('E2BIG'));
      map.update(u32(2), bytes(8, 7));
      expect(sorted(map)).toEqual([0, 1, 7].map((v, i) => `${hex(u32(i))}=${hex(bytes(8, v))}`));
    });

    it('stops a batch at the refused element and says which', () => {
      using map = make('hash', { maxEntries: 5 });
      const entries = range(7).map((i) => [u32(i), bytes(8, i)] as const);
      expect(() => map.updateBatch(entries)).toThrow(
        expect.objectContaining({ errnoName: 'E2BIG', code: 'ERR_BPF_BATCH', done: 5 }),
      );
      expect([...map.keys()]).toHaveLength(5);
    });

    it('takes rows as they are encoded, and stops at the refused one', () => {
      using map = make('hash', { maxEntries: 1500 });
      const encode: EncodeRow<number> = (row, keys, keyAt, values, valueAt) => {
        keys.setUint32(keyAt, row, true);
        // Every other value is left as it is found: zeros, whatever was sent before.
        if (row % 2 === 1) values.setBigUint64(valueAt, BigInt(row), true);
      };
      const rows = range(1600);
      expect(() => map.updateRows(rows, encode)).toThrow(
        expect.objectContaining({ errnoName: 'E2BIG', code: 'ERR_BPF_BATCH', done: 1500 }),
      );
      const value = (i: number): string => hex(u32(i % 2 === 1 ? i : 0)) + hex(u32(0));
      const expected = rows.slice(0, 1500).map((i) => `${hex(u32(i))}=${value(i)}`);
      expect(sorted(map)).toEqual(expected.sort());
      map.updateRows([], encode);
    });

    it('writes nothing where the encoding of the only row fails', () => {
      using map = make('hash', { maxEntries: 5 });
      const encode = (row: number): void => {
        throw new RangeError(`row ${row}`);
      };
      expect(() => map.updateRows([7], encode)).toThrow('row 7');
      expect([...map.keys()]).toEqual([]);
    });

    it('lru_hash forgets instead of refusing', () => {
      using map = make('lru_hash', { maxEntries: 64 });
      for (let i = 0; i < 1000; i++) map.update(u32(i), bytes(8, i));
      expect(map.lookup(u32(999))).toEqual(bytes(8, 999));
      const left = [...map.keys()].length;
      expect(left).toBeGreaterThan(0);
      expect(left).toBeLessThanOrEqual(64);
    });
  });

  describe(`${kind}: batches`, () => {
    for (const type of ['hash', 'percpu_hash', 'lpm_trie'] as const) {
      it(`${type}: sizes that do not divide evenly, absent keys skipped`, () => {
        const count = 2500;
        using map = type === 'lpm_trie' ? trie({ maxEntries: count }) : make(type, { maxEntries: count });
        const key = (i: number): Uint8Array => (type === 'lpm_trie' ? address(32, i >> 8, i & 255) : u32(i));
        const size = { hash: 8, percpu_hash: 8 * possibleCpus(), lpm_trie: 4 }[type];
        const entries = range(count).map((i) => [key(i), bytes(size, i)] as const);
        map.updateBatch(entries);
        expect(sorted(map)).toEqual(entries.map(([k, v]) => `${hex(k)}=${hex(v)}`).sort());
        map.deleteBatch(
          range(count)
            .filter((i) => i % 3 === 0)
            .map(key),
        );
        map.deleteBatch(
          range(count)
            .filter((i) => i % 2 === 0)
            .map(key),
        );
        const left = entries.filter((_, i) => i % 3 !== 0 && i % 2 !== 0);
        expect(sorted(map)).toEqual(left.map(([k, v]) => `${hex(k)}=${hex(v)}`).sort());
        map.updateBatch([]);
        map.deleteBatch([]);
      });

      it(`${type}: every entry may be deleted while they are listed`, () => {
        using map = type === 'lpm_trie' ? trie({ maxEntries: 1500 }) : make(type, { maxEntries: 1500 });
        const size = { hash: 8, percpu_hash: 8 * possibleCpus(), lpm_trie: 4 }[type];
        const key = (i: number): Uint8Array => (type === 'lpm_trie' ? address(32, i >> 8, i & 255) : u32(i));
        map.updateBatch(range(1500).map((i) => [key(i), bytes(size, i)] as const));
        const seen = new Set<string>();
        for (const [k] of map.entries()) {
          expect(map.delete(k)).toBe(true);
          seen.add(hex(k));
        }
        expect(seen.size).toBe(1500);
        expect([...map.entries()]).toEqual([]);
      });
    }
  });

  describe(`${kind}: array`, () => {
    for (const type of ['array', 'percpu_array'] as const) {
      it(`${type}: all elements exist, none beyond`, () => {
        using map = make(type, { maxEntries: 5 });
        const size = type === 'array' ? 8 : 8 * possibleCpus();
        map.updateRows([3, 1], (row, keys, keyAt, values, valueAt) => {
          keys.setUint32(keyAt, row, true);
          for (let i = 0; i < size; i += 8) values.setBigUint64(valueAt + i, BigInt(row), true);
        });
        expect(sorted(map)).toEqual([0, 1, 0, 3, 0].map((v, i) => `${hex(u32(i))}=${hex(bytes(size, v))}`));
        expect(map.lookup(u32(5))).toBeUndefined();
        expect(() => map.update(u32(5), bytes(size, 1))).toThrow(errno('E2BIG'));
        expect(() => map.update(u32(0), bytes(size, 1), 'noexist')).toThrow(errno('EEXIST'));
        expect(() => map.delete(u32(0))).toThrow(errno('EINVAL'));
        expect(() => map.deleteBatch([u32(0)])).toThrow(errno('EINVAL'));
      });
    }

    it('per-CPU values are padded to 8 bytes a CPU', () => {
      using map = make('percpu_array', { valueSize: 12, maxEntries: 2 });
      expect(map.lookup(u32(0))).toHaveLength(16 * possibleCpus());
      const value = percpu.join(
        range(possibleCpus()).map((cpu) => bytes(12, cpu + 1)),
        12,
      );
      map.update(u32(1), value);
      const read = map.lookup(u32(1)) ?? new Uint8Array();
      expect(percpu.split(read, 12).map(hex)).toEqual(range(possibleCpus()).map((cpu) => hex(bytes(12, cpu + 1))));
      expect(() => map.update(u32(1), bytes(12, 1))).toThrow(badLength(16 * possibleCpus(), 12));
    });
  });

  describe(`${kind}: lpm_trie`, () => {
    it('finds the longest match and deletes exactly', () => {
      using map = trie();
      map.update(address(0), u32(1));
      map.update(address(8, 10), u32(2));
      map.update(address(24, 10, 1, 2), u32(3));
      map.update(address(32, 10, 1, 2, 3), u32(4));
      const find = (...at: number[]): number | undefined => number(map.lookup(address(32, ...at)));
      expect([find(9), find(10, 9), find(10, 1, 2, 9), find(10, 1, 2, 3)]).toEqual([1, 2, 3, 4]);
      expect(number(map.lookup(address(16, 10, 1)))).toBe(2);
      expect(map.delete(address(16, 10, 1))).toBe(false);
      expect(map.delete(address(24, 10, 1, 2))).toBe(true);
      expect(find(10, 1, 2, 9)).toBe(2);
      map.delete(address(0));
      expect(find(9)).toBeUndefined();
    });

    it('compares significant bits only', () => {
      using map = trie();
      map.update(address(8, 10, 1, 1, 1), u32(1));
      expect(() => map.update(address(8, 10, 9, 9, 9), u32(2), 'noexist')).toThrow(errno('EEXIST'));
      map.update(address(8, 10, 9, 9, 9), u32(3), 'exist');
      expect([...map.entries()].map(([, v]) => number(v))).toEqual([3]);
    });

    it('refuses prefixes that are too long, and the entry after the last', () => {
      using map = trie({ maxEntries: 2 });
      expect(() => map.update(address(33), u32(1))).toThrow(errno('EINVAL'));
      expect(() => map.delete(address(33))).toThrow(errno('EINVAL'));
      expect(map.lookup(address(33))).toBeUndefined();
      map.update(address(8, 1), u32(1));
      map.update(address(8, 2), u32(1));
      expect(() => map.update(address(8, 3), u32(1))).toThrow(errno('ENOSPC'));
      expect(() => map.update(address(8, 3), u32(1), 'exist')).toThrow(errno('ENOENT'));
    });

    it('needs NO_PREALLOC', () => {
      expect(() => trie({ flags: 0 })).toThrow(errno('EINVAL'));
    });
  });

  describe(`${kind}: maps of maps`, () => {
    for (const type of ['array_of_maps', 'hash_of_maps'] as const) {
      it(`${type} holds tries and hands them out`, () => {
        using template = trie();
        using outer = make(type, { valueSize: 4, maxEntries: 3, inner: template });
        expect(outer.openInner(u32(1))).toBeUndefined();
        {
          using inner = trie({ maxEntries: 99 });
          inner.update(address(8, 10), u32(7));
          outer.setInner(u32(1), inner);
          expect([...outer.entries()].map(([k, v]) => [number(k), number(v)])).toEqual([[1, inner.info.id]]);
        }
        using again = outer.openInner(u32(1));
        expect(number(again?.lookup(address(32, 10, 2)))).toBe(7);
        expect(outer.delete(u32(1))).toBe(true);
        expect(outer.delete(u32(1))).toBe(false);
        expect(outer.openInner(u32(1))).toBeUndefined();
        expect(number(again?.lookup(address(32, 10, 2)))).toBe(7);
      });

      it(`${type} refuses what is not like its template`, () => {
        using template = make('hash');
        using outer = make(type, { valueSize: 4, maxEntries: 2, inner: template });
        using wider = make('hash', { valueSize: 16 });
        using other = make('lru_hash');
        using longer = make('hash', { maxEntries: 99 });
        expect(() => outer.setInner(u32(0), wider)).toThrow(errno('EINVAL'));
        expect(() => outer.setInner(u32(0), other)).toThrow(errno('EINVAL'));
        expect(() => outer.update(u32(0), u32(1))).toThrow(errno('EINVAL'));
        expect(() => outer.updateBatch([[u32(0), u32(1)]])).toThrow(errno('EINVAL'));
        outer.setInner(u32(0), longer);
        outer.setInner(u32(1), template);
        expect(() => outer.setInner(u32(2), template)).toThrow(errno('E2BIG'));
        expect([...outer.keys()].map((k) => number(k)).sort((a, b) => (a ?? 0) - (b ?? 0))).toEqual([0, 1]);
      });
    }

    it('are changed from another thread just the same', async () => {
      using inner = make('hash');
      using wider = make('hash', { valueSize: 16 });
      using outer = make('array_of_maps', { valueSize: 4, maxEntries: 1, inner });
      const kept = make('hash');
      kept.update(u32(1), bytes(8, 1));
      const put = outer.setInnerAsync(u32(0), kept);
      // As soon as it is asked for, the map may be closed.
      kept.close();
      await put;
      using open = outer.openInner(u32(0));
      expect(open?.lookup(u32(1))).toEqual(bytes(8, 1));
      await expect(outer.setInnerAsync(u32(0), wider)).rejects.toThrow(errno('EINVAL'));
      await expect(outer.setInnerAsync(u32(1), inner)).rejects.toThrow(errno('E2BIG'));
      await expect(inner.setInnerAsync(u32(0), inner)).rejects.toThrow(errno('EINVAL'));
      expect(await outer.deleteInnerAsync(u32(0))).toBe(true);
      expect(await outer.deleteInnerAsync(u32(0))).toBe(false);
      expect(outer.openInner(u32(0))).toBeUndefined();
    });

    it('inner maps of one slot are replaced whole', () => {
      using one = make('hash');
      using two = make('hash');
      using outer = make('array_of_maps', { valueSize: 4, maxEntries: 1, inner: one });
      one.update(u32(1), bytes(8, 1));
      two.update(u32(1), bytes(8, 2));
      outer.setInner(u32(0), one);
      outer.setInner(u32(0), two);
      using open = outer.openInner(u32(0));
      expect(open?.lookup(u32(1))).toEqual(bytes(8, 2));
      open?.update(u32(5), bytes(8, 5));
      expect(two.lookup(u32(5))).toEqual(bytes(8, 5));
    });

    it('needs a template, and only there', () => {
      using plain = make('hash');
      expect(() => make('array_of_maps', { valueSize: 4 })).toThrow(argument());
      expect(() => make('hash', { inner: plain })).toThrow(argument());
      expect(() => plain.setInner(u32(0), plain)).toThrow(errno('EINVAL'));
      expect(() => plain.openInner(u32(0))).toThrow(errno('EINVAL'));
    });
  });

  describe(`${kind}: refusals`, () => {
    it('checks every length before anything is called', () => {
      using map = make('hash');
      for (const size of [0, 3, 5]) {
        const key = new Uint8Array(size);
        expect(() => map.lookup(key)).toThrow(badLength(4, size));
        expect(() => map.delete(key)).toThrow(badLength(4, size));
        expect(() => map.update(key, bytes(8, 1))).toThrow(badLength(4, size));
        expect(() => map.deleteBatch([u32(1), key])).toThrow(badLength(4, size));
        expect(() =>
          map.updateBatch([
            [u32(1), bytes(8, 1)],
            [key, bytes(8, 1)],
          ]),
        ).toThrow(badLength(4, size));
      }
      for (const size of [0, 7, 9]) {
        expect(() => map.update(u32(1), new Uint8Array(size))).toThrow(badLength(8, size));
        expect(() => map.updateBatch([[u32(1), new Uint8Array(size)]])).toThrow(badLength(8, size));
      }
      expect([...map.keys()]).toEqual([]);
    });

    it('answers are copies', () => {
      using map = make('hash');
      map.update(u32(1), bytes(8, 1));
      map.lookup(u32(1))?.fill(9);
      for (const [key, value] of map.entries()) {
        key.fill(9);
        value.fill(9);
      }
      expect(map.lookup(u32(1))).toEqual(bytes(8, 1));
    });

    it('a closed map says so, and closes once', () => {
      const map = make('hash');
      map.close();
      map.close();
      expect(() => map.lookup(u32(1))).toThrow(errno('EBADF'));
      expect(() => map.update(u32(1), bytes(8, 1))).toThrow(errno('EBADF'));
      expect(() => [...map.entries()]).toThrow(errno('EBADF'));
      expect(() => map.updateBatch([[u32(1), bytes(8, 1)]])).toThrow(errno('EBADF'));
      expect(() => map.pin('/sys/fs/bpf/never')).toThrow(errno('EBADF'));
    });

    it('refuses sizes that the type does not have', () => {
      expect(() => make('array', { keySize: 8 })).toThrow(errno('EINVAL'));
      expect(() => make('hash', { maxEntries: 0 })).toThrow(errno('EINVAL'));
      expect(() => make('ringbuf', { keySize: 0, valueSize: 0, maxEntries: 5000 })).toThrow(errno('EINVAL'));
      expect(() => make('hash', { name: 'longer_than_the_kernel_keeps' })).toThrow(argument());
      using ring = make('ringbuf', { keySize: 0, valueSize: 0, maxEntries: 4096 });
      expect(() => [...ring.entries()]).toThrow(errno('ENOTSUPP'));
      expect(() => ring.lookup(new Uint8Array())).toThrow(errno('ENOTSUPP'));
    });
  });
}

export function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}

/** `size` bytes that all depend on `value`. */
export function bytes(size: number, value: number): Uint8Array {
  return Uint8Array.from({ length: size }, (_, at) => (at % 8 === 0 ? value : value >> 8));
}

/** An IPv4 key of a trie. */
export function address(prefix: number, ...octets: number[]): Uint8Array {
  const key = new Uint8Array(8);
  key.set(u32(prefix));
  key.set(octets, 4);
  return key;
}

export function hex(value: Uint8Array): string {
  return Buffer.from(value).toString('hex');
}

export function range(length: number): number[] {
  return Array.from({ length }, (_, i) => i);
}

function number(value: Uint8Array | undefined): number | undefined {
  return value === undefined ? undefined : Buffer.from(value).readUInt32LE(0);
}

function errno(name: string): Error {
  return expect.objectContaining({ errnoName: name }) as unknown as Error;
}

function badLength(expected: number, actual: number): Error {
  return expect.objectContaining({ code: 'ERR_BPF_BUFFER_LENGTH', expected, actual }) as unknown as Error;
}

function argument(): Error {
  return expect.objectContaining({ code: 'ERR_BPF_ARGUMENT' }) as unknown as Error;
}
