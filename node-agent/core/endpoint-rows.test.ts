import { describe, expect, it } from '@jest/globals';
import { decodeEndpoints, outdated } from './endpoint-rows.ts';

describe('an endpoint of the state folder', () => {
  const row = {
    id: 1,
    ifindex: 7,
    interfaceName: 'weir1',
    ipv4: '10.0.0.1',
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
    { ipv4: 4 },
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
});
