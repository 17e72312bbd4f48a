import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { mapFlags } from './constants.ts';
import { BpfError } from './errors.ts';
import { createMap, openMapById } from './map.ts';
import { address, bytes, describeMaps, hex, u32 } from './map-conformance.ts';
import { createMemoryMap } from './memory-map.ts';
import type { BpfMap, CreateMapOptions, UpdateMode } from './types.ts';

describeMaps('kernel', createMap);

describe('kernel maps', () => {
  it('tell what they are, and open again by id', () => {
    using map = createMap({ name: 'byid', type: 'hash', keySize: 4, valueSize: 3, maxEntries: 9 });
    using again = openMapById(map.info.id);
    expect(again.info).toEqual({ ...map.info, name: 'byid', type: 'hash', keySize: 4, valueSize: 3, maxEntries: 9 });
    map.update(u32(1), bytes(3, 5));
    expect(again.lookup(u32(1))).toEqual(bytes(3, 5));
    expect(() => openMapById(0x7ffffff0)).toThrow(expect.objectContaining({ errnoName: 'ENOENT' }) as unknown as Error);
  });
});

/** What an operation did: its answer, or the errno of its refusal. */
function outcome(run: () => unknown): string {
  try {
    return JSON.stringify(run() ?? 'none');
  } catch (error) {
    if (error instanceof BpfError) return error.errnoName;
    throw error;
  }
}

describe('the in-memory map does as the kernel does', () => {
  const mode = fc.constantFrom<UpdateMode>('any', 'noexist', 'exist');
  const operation = fc.oneof(
    fc.record({ do: fc.constant('update' as const), at: fc.nat(20), value: fc.nat(9), mode }),
    fc.record({ do: fc.constant('delete' as const), at: fc.nat(20) }),
    fc.record({ do: fc.constant('lookup' as const), at: fc.nat(20) }),
    fc.record({ do: fc.constant('batch' as const), at: fc.array(fc.nat(20), { maxLength: 6 }), value: fc.nat(9) }),
    fc.record({ do: fc.constant('unbatch' as const), at: fc.array(fc.nat(20), { maxLength: 6 }) }),
  );
  // Nested and disjoint prefixes, with bits beyond the prefix that must not matter; one too long.
  const prefix = (i: number): Uint8Array =>
    address([0, 1, 7, 8, 9, 16, 31, 32, 33][i % 9] ?? 0, i % 2 === 0 ? 10 : 11, i);
  const shapes: [CreateMapOptions, (i: number) => Uint8Array][] = [
    [{ name: 'm', type: 'hash', keySize: 4, valueSize: 4, maxEntries: 8 }, u32],
    [{ name: 'm', type: 'array', keySize: 4, valueSize: 4, maxEntries: 8 }, u32],
    [{ name: 'm', type: 'lpm_trie', keySize: 8, valueSize: 4, maxEntries: 8, flags: mapFlags.NO_PREALLOC }, prefix],
  ];
  for (const [options, key] of shapes) {
    it(`${options.type}`, () => {
      fc.assert(
        fc.property(fc.array(operation, { maxLength: 60 }), (operations) => {
          using kernel = createMap(options);
          using memory = createMemoryMap(options);
          const apply = (map: BpfMap, op: (typeof operations)[number]): unknown => {
            if (op.do === 'update') return map.update(key(op.at), u32(op.value), op.mode);
            if (op.do === 'delete') return map.delete(key(op.at));
            if (op.do === 'lookup') return map.lookup(key(op.at));
            if (op.do === 'batch') return map.updateBatch(op.at.map((at) => [key(at), u32(op.value)] as const));
            return map.deleteBatch(op.at.map(key));
          };
          const all = (map: BpfMap): string[] => [...map.entries()].map(([k, v]) => `${hex(k)} ${hex(v)}`).sort();
          for (const op of operations) {
            expect(outcome(() => apply(memory, op))).toBe(outcome(() => apply(kernel, op)));
          }
          expect(all(memory)).toEqual(all(kernel));
        }),
        { numRuns: 150 },
      );
    });
  }
});
