import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  CIDR_BASE,
  IdentityAllocator,
  includesSorted,
  isLocalCidr,
  LOCAL_ENDPOINT_BASE,
  RESERVED,
  reservedName,
  scopeOf,
} from './index.ts';

describe('numbers', () => {
  it('have the scopes of the datapath contract', () => {
    const cases: [number, string][] = [
      [0, 'unknown'],
      [1, 'reserved'],
      [2, 'world'],
      [3, 'reserved'],
      [8, 'reserved'],
      [9, 'world'],
      [10, 'world'],
      [11, 'reserved'],
      [12, 'unknown'],
      [99, 'unknown'],
      [100, 'pod'],
      [256, 'pod'],
      [65535, 'pod'],
      [65536, 'unknown'],
      [CIDR_BASE - 1, 'unknown'],
      [CIDR_BASE, 'world'],
      [0x01ffffff, 'world'],
      [0x02000000, 'reserved'],
      [0x02ffffff, 'reserved'],
      [LOCAL_ENDPOINT_BASE, 'pod'],
      [0x03ffffff, 'pod'],
      [0x04000000, 'unknown'],
      [0xffffffff, 'unknown'],
    ];
    for (const [id, scope] of cases) expect([id, scopeOf(id)]).toEqual([id, scope]);
    expect(isLocalCidr(CIDR_BASE + 5)).toBe(true);
    expect(isLocalCidr(LOCAL_ENDPOINT_BASE)).toBe(false);
  });

  it('name the reserved ones', () => {
    expect([...RESERVED.keys()]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    expect(RESERVED.get(1)).toEqual({ 'reserved:host': '' });
    expect(RESERVED.get(7)).toEqual({ 'reserved:kube-apiserver': '', 'reserved:remote-node': '' });
    expect(reservedName(6)).toBe('remote-node');
    expect(reservedName(256)).toBeUndefined();
  });
});

describe('IdentityAllocator', () => {
  it('reuses a released number as late as possible', () => {
    const used = new Set<number>();
    const allocator = new IdentityAllocator({ first: 10, last: 12 }, (id) => used.has(id));
    const allocate = (): number => {
      const id = allocator.allocate();
      used.add(id);
      return id;
    };
    expect([allocate(), allocate()]).toEqual([10, 11]);
    used.delete(10);
    expect(allocate()).toBe(12);
    expect(allocate()).toBe(10);
    expect(() => allocate()).toThrow(expect.objectContaining({ code: 'ERR_WEIR_IDENTITY_EXHAUSTED' }));
    used.delete(11);
    expect(allocate()).toBe(11);
  });

  it('never hands out what exists', () => {
    const step = fc.oneof(
      fc.constant({ kind: 'allocate' as const, id: 0 }),
      fc.record({
        kind: fc.constantFrom('adopt' as const, 'release' as const),
        id: fc.integer({ min: 100, max: 107 }),
      }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const used = new Set<number>();
        const allocator = new IdentityAllocator({ first: 100, last: 107 }, (id) => used.has(id));
        for (const { kind, id } of steps) {
          if (kind === 'adopt') {
            allocator.adopt(id);
            used.add(id);
          } else if (kind === 'release') used.delete(id);
          else if (used.size === 8) expect(() => allocator.allocate()).toThrow('no identity is left');
          else {
            const given = allocator.allocate();
            expect(used.has(given) || given < 100 || given > 107).toBe(false);
            used.add(given);
          }
        }
      }),
    );
  });

  it('refuses numbers of another range, and adopts none of them', () => {
    const allocator = new IdentityAllocator({ first: 256, last: 65535 }, () => false);
    expect(() => allocator.adopt([300, 7])).toThrow(expect.objectContaining({ code: 'ERR_WEIR_IDENTITY_RANGE' }));
    expect(allocator.allocate()).toBe(256);
    allocator.adopt([300, 299]);
    expect(allocator.allocate()).toBe(301);
  });
});

describe('an ascending list of identities', () => {
  it('holds what it holds', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(40)), fc.nat(40), (ids, id) => {
        expect(
          includesSorted(
            ids.sort((a, b) => a - b),
            id,
          ),
        ).toBe(ids.includes(id));
      }),
    );
  });
});
