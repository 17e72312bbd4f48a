import { describe, expect, it } from '@jest/globals';
import { bytes, describeMaps, u32 } from './map-conformance.ts';
import { createMemoryMap } from './memory-map.ts';

describeMaps('memory', createMemoryMap);

describe('in-memory maps', () => {
  it('have no descriptor and no pins', () => {
    using map = createMemoryMap({ name: 'm', type: 'hash', keySize: 4, valueSize: 8, maxEntries: 1 });
    map.update(u32(1), bytes(8, 1));
    const unsupported = expect.objectContaining({ errnoName: 'EOPNOTSUPP' }) as unknown as Error;
    expect(() => map.fd).toThrow(unsupported);
    expect(() => map.pin('/sys/fs/bpf/m')).toThrow(unsupported);
  });
});
