import { describe, expect, it } from '@jest/globals';
import { mapFlags } from './constants.ts';
import { createMap } from './map.ts';
import { bytes, u32 } from './map-conformance.ts';
import { mapArray } from './map-memory.ts';

const options = { name: 'mem', type: 'array', keySize: 4, valueSize: 12, maxEntries: 1000 } as const;

describe('an array mapped into memory', () => {
  it('is the array that system calls see, both ways', () => {
    using map = createMap({ ...options, flags: mapFlags.MMAPABLE });
    using memory = mapArray(map);
    expect([memory.stride, memory.bytes.length]).toEqual([16, 16_000]);
    expect(memory.bytes.byteOffset).toBe(0);
    map.update(u32(999), bytes(12, 7));
    expect(memory.bytes.slice(999 * 16, 999 * 16 + 12)).toEqual(bytes(12, 7));
    const words = new BigUint64Array(memory.bytes.buffer);
    Atomics.store(words, 2, 0x0807_0605_0403_0201n);
    expect(map.lookup(u32(1))).toEqual(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0));
  });

  it('outlives the descriptor, and leaves only empty views when closed', () => {
    const map = createMap({ ...options, flags: mapFlags.MMAPABLE });
    const memory = mapArray(map);
    map.close();
    const words = new BigUint64Array(memory.bytes.buffer);
    Atomics.store(words, 0, 1n);
    expect(memory.bytes[0]).toBe(1);
    memory.close();
    memory.close();
    expect([memory.bytes.length, words.length, words[0]]).toEqual([0, 0, undefined]);
    expect(() => Atomics.store(words, 0, 2n)).toThrow(TypeError);
  });

  it('must be an array that allows it', () => {
    using plain = createMap(options);
    expect(() => mapArray(plain)).toThrow('map "mem" is an array without mapFlags.MMAPABLE');
    using hash = createMap({ ...options, type: 'hash' });
    expect(() => mapArray(hash)).toThrow('of type hash');
    const closed = createMap({ ...options, flags: mapFlags.MMAPABLE });
    closed.close();
    expect(() => mapArray(closed)).toThrow(expect.objectContaining({ errnoName: 'EBADF' }) as unknown as Error);
  });
});
