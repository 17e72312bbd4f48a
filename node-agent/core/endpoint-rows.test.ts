import { describe, expect, it } from '@jest/globals';
import { decodeEndpoints, outdated } from './endpoint-rows.ts';

describe('an endpoint of the state folder', () => {
  const row = {
    id: 1,
    ifindex: 7,
    interfaceName: 'weir1',
    addresses: ['10.0.0.1'],
    hostMac: '02:00:00:AA:00:01',
    createdAt: '',
  };
  const node = (ifindex: number, mac?: string) =>
    new Map([['weir1', { name: 'weir1', ifindex, ...(mac === undefined ? {} : { mac }) }]]);

  it('is none any more unless name, index and address of its interface are as they were', () => {
    expect(outdated(row, node(7, '02:00:00:aa:00:01'))).toBeUndefined();
    expect(outdated(row, node(7))).toBeUndefined();
    expect(outdated(row, new Map())).toContain('no interface weir1');
    expect(outdated(row, node(8, '02:00:00:aa:00:01'))).toContain('index 8');
    expect(outdated(row, node(7, '02:00:00:aa:00:02'))).toContain('02:00:00:aa:00:02');
  });

  it.each([
    { interfaceName: 7 },
    { addresses: 4 },
    { addresses: '10.0.0.1' },
    { addresses: [4] },
    { gone: true },
    { netns: {} },
    { pod: null },
    { pod: { namespace: 'a' } },
    { pod: { namespace: 'a', name: 'b', uid: 1 } },
    { found: null },
    { found: { identity: 'x' } },
    { labels: ['a', 1] },
  ])('is refused, and its file set aside, with %j', (fields) => {
    expect(decodeEndpoints([row])).toEqual([row]);
    expect(() => decodeEndpoints([{ ...row, ...fields }])).toThrow(
      `has an endpoint 1 with a wrong ${Object.keys(fields)[0]}`,
    );
  });

  it('keeps its address where an agent wrote it that knew IPv4 alone', () => {
    const { addresses: _, ...others } = row;
    expect(decodeEndpoints([{ ...others, ipv4: '10.0.0.1' }])).toEqual([row]);
    const found = { ...others, found: { identity: 256 } };
    expect(decodeEndpoints([{ ...found, ipv4: '' }])).toEqual([{ ...found, addresses: [] }]);
    expect(() => decodeEndpoints([{ ...others, ipv4: 4 }])).toThrow('has an endpoint 1 with a wrong addresses');
  });

  it('has an address of each family at most', () => {
    const decoded = (...addresses: string[]) => decodeEndpoints([{ ...row, addresses }])[0]?.addresses;
    expect(decoded('10.0.0.1', 'fd00::1')).toEqual(['10.0.0.1', 'fd00::1']);
    expect(decoded('fd00::1')).toEqual(['fd00::1']);
    expect(() => decoded()).toThrow('it has no address');
    expect(() => decoded('fd00::1', '10.0.0.1')).toThrow('one of each family at most, IPv4 first');
    expect(() => decoded('10.0.0.1', '10.0.0.2')).toThrow('one of each family at most');
    expect(() => decoded('fd00::01')).toThrow('"fd00::01" is written fd00::1');
    expect(() => decoded('10.0.0.01')).toThrow('address "10.0.0.01"');
  });
});
