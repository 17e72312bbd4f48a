import { expect, it } from '@jest/globals';
import { MapTooLargeError, UnknownMapError } from '../errors.ts';
import { MapInspector, type MapInspectorOptions } from './map-inspector.ts';

/** Of two slots with so many rows, and so many identities, each. */
function inspector(each: number): MapInspector {
  const rows = Array.from({ length: each }, (_, port) => ({
    protocol: 6,
    port,
    bits: 16,
    verdict: 'allow' as const,
    cookie: 1,
  }));
  const elements = new Map(Array.from({ length: each }, (_, at) => [256 + at, 16]));
  const none = new Map<number, never>();
  const slot = {
    elements: { ingress: elements, egress: none },
    rows: { ingress: new Map([[16, rows]]), egress: none },
  };
  const slots = {
    slots: () => [1, 2],
    spares: 0,
    *dump() {
      for (const number of [1, 2]) yield { slot: number, ...slot };
    },
  };
  const unread = {
    maps: {} as MapInspectorOptions['maps'],
    endpoints: { *located() {} },
    counts: () => ({}),
  };
  return new MapInspector({ root: '/pins', more: [], slots, ...unread });
}

it.each(['policy_classes', 'policy_verdicts'])(
  'reads %s of all slots, but no more than an agent has time for',
  (name) => {
    expect(inspector(2).entries(name)).toHaveLength(4);
    expect(inspector(10_000).entries(name)).toHaveLength(20_000);
    expect(() => inspector(10_001).entries(name)).toThrow(MapTooLargeError);
    expect(() => inspector(10_001).entries(name)).toThrow(`weir map get ${name} --slot`);
    expect(inspector(10_001).entries(name, 2)).toHaveLength(10_001);
    const one = `read slot 2 by \`bpftool map dump id ID\`, with the ID that \`bpftool map dump pinned /pins/${name}\` has for key 2`;
    expect(() => inspector(20_001).entries(name, 2)).toThrow(one);
    expect(inspector(2).entries(name, 3)).toEqual([]);
  },
);

it.each(['nothing', 'constructor'])('there is no map %s', (name) => {
  expect(() => inspector(1).entries(name)).toThrow(UnknownMapError);
});
