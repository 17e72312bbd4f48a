import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { InterfaceGoneError } from '../errors.ts';
import type { EndpointStateRow } from '../tables.ts';
import type { EndpointTable } from './endpoint-map.ts';
import { EndpointStore } from './endpoint-store.ts';
import type { LinkTable } from './links.ts';

const state = (slot: number): EndpointStateRow => ({
  id: 1,
  ifindex: 7,
  ipv4: '10.1.0.2',
  identity: 300,
  labels: {},
  slot,
  enforced: { ingress: true, egress: true },
  revision: slot,
  policies: {},
  state: 'ready',
});

it('knows which slot the word names, and takes the word away, where the interface has gone before its endpoint', () => {
  const words = new Map<string, Uint8Array>();
  const name = (key: Uint8Array): string => Buffer.from(key).toString('hex');
  const map = {
    lookup: (key: Uint8Array) => words.get(name(key)),
    update: (key: Uint8Array, value: Uint8Array) => words.set(name(key), value),
    delete: (key: Uint8Array) => words.delete(name(key)),
    entries: () => [],
  } as unknown as EndpointTable;
  let gone = false;
  const ensure = (endpoint: number, ifindex: number): void => {
    if (gone) throw new InterfaceGoneError(endpoint, ifindex, undefined);
  };
  const links: LinkTable = {
    ensure,
    overtake: () => undefined,
    has: () => false,
    isAway: () => false,
    remove: () => undefined,
    endpoints: () => new Set(),
    attached: () => new Map(),
    hooked: () => new Map(),
    look: () => [],
  };
  const store = new EndpointStore(createStateDB({ freeze: true }), map, links, () => true);

  store.update(state(1));
  gone = true;
  expect(() => store.update(state(2))).toThrow(InterfaceGoneError);
  expect([store.uses(1), store.uses(2), store.held(1)?.slot]).toEqual([false, true, 1]);
  store.delete(1, { everywhere: true });
  expect([store.uses(2), words.size]).toEqual([false, 0]);

  // Nor does the word of one that never had its programs stay.
  expect(() => store.update(state(3))).toThrow(InterfaceGoneError);
  expect([store.uses(3), store.held(1)]).toEqual([true, undefined]);
  store.delete(1, { everywhere: true });
  expect(words.size).toBe(0);
});
