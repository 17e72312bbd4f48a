import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { ENDPOINT_FLAGS, type EndpointValue, endpointKey, endpointValue } from '@weir/bpf';
import { createStateDB } from '@weir/statedb';
import { createTables } from '../create-tables.ts';
import { InterfaceGoneError } from '../errors.ts';
import type { EndpointStateRow } from '../tables.ts';
import type { EndpointTable } from './endpoint-map.ts';
import { EndpointStore } from './endpoint-store.ts';
import type { LinkTable } from './link-table.ts';

const state = (slot: number, ifindex = 7): EndpointStateRow => ({
  id: 1,
  ifindex,
  addresses: ['10.1.0.2'],
  identity: 300,
  labels: {},
  slot,
  enforced: { ingress: true, egress: true },
  revision: slot,
  policies: {},
  state: 'ready',
});

/** A map and interfaces of which some are gone, or run no program. */
class World {
  readonly gone = new Set<number>();
  readonly bare = new Set<number>();
  /** Slots whose newest row the kernel refuses. */
  readonly refused = new Set<number>();
  /** Why links cannot be made. */
  linkError: Error | undefined;
  /** Others' programs before ours. */
  behind: readonly string[] = [];
  /** Milliseconds. */
  clock = 0;
  overtakeMs = 0;
  /** Where programs are attached, as far as that counts. */
  readonly attached = new Map<number, number>();
  readonly #words = new Map<string, Uint8Array>();
  readonly map = {
    lookup: (key: Uint8Array) => this.#words.get(name(key)),
    update: (key: Uint8Array, value: Uint8Array) => this.#words.set(name(key), value),
    delete: (key: Uint8Array) => this.#words.delete(name(key)),
    entries: () => Array.from(this.#words, ([key, value]) => [Buffer.from(key, 'hex'), value] as const),
  } as unknown as EndpointTable;
  readonly links: LinkTable = {
    ensure: (endpoint, ifindex, { onBare } = {}) => {
      if (this.gone.has(ifindex)) throw new InterfaceGoneError(endpoint, ifindex, undefined);
      if (this.linkError !== undefined) throw this.linkError;
      if (this.bare.delete(ifindex)) onBare?.();
    },
    overtake: (_, onMove) => {
      onMove();
      this.clock += this.overtakeMs;
      this.behind = [];
    },
    has: () => false,
    isAway: () => false,
    remove: () => undefined,
    endpoints: () => new Set(),
    attached: () => this.attached,
    hooked: () => this.attached,
    look: (endpoints) => endpoints.map(({ id }) => ({ id, gone: false, faults: [], behind: this.behind })),
  };

  agent(): EndpointStore {
    const db = createStateDB({ freeze: true });
    const tables = createTables(db);
    return new EndpointStore({ db, tables }, this.map, this.links, (slot) => !this.refused.has(slot));
  }

  elements(): EndpointValue[] {
    return Array.from(this.#words.values(), (value) => endpointValue.decode(value));
  }
}

function name(key: Uint8Array): string {
  return Buffer.from(key).toString('hex');
}

let world: World;
beforeEach(() => {
  world = new World();
  jest.spyOn(performance, 'now').mockImplementation(() => world.clock);
});
afterEach(() => {
  jest.restoreAllMocks();
});

it('knows which slot the word names, and takes the word away, where the interface has gone before its endpoint', () => {
  const store = world.agent();
  store.update(state(1));
  world.gone.add(7);
  expect(() => store.update(state(2))).toThrow(InterfaceGoneError);
  expect([store.uses(1), store.uses(2), store.acknowledged(1)?.slot]).toEqual([false, true, 1]);
  store.delete(1, { everywhere: true });
  expect([store.uses(2), world.elements()]).toEqual([false, []]);

  // Nor does the word of one that never had its programs stay.
  expect(() => store.update(state(3))).toThrow(InterfaceGoneError);
  expect([store.uses(3), store.acknowledged(1)]).toEqual([true, undefined]);
  store.delete(1, { everywhere: true });
  expect(world.elements()).toEqual([]);
});

describe('an endpoint that moves to another interface', () => {
  it('leaves no element of one that went meanwhile', () => {
    const store = world.agent();
    store.update(state(1, 7));
    world.gone.add(8);
    expect(() => store.update(state(1, 8))).toThrow(InterfaceGoneError);
    store.update(state(1, 9));
    expect(world.elements().map(({ ifindex }) => ifindex)).toEqual([9]);
    store.delete(1, { everywhere: true });
    expect(world.elements()).toEqual([]);
  });

  it('is in doubt where it was found without programs there', () => {
    const store = world.agent();
    store.update(state(1, 7));
    world.bare.add(8);
    store.guard({ id: 1, ifindex: 8 });
    store.update(state(1, 8));
    expect(world.elements()).toEqual([expect.objectContaining({ ifindex: 8, flags: ALL })]);
    expect(store.doubted()).toEqual(new Set([1]));
  });

  it.each([7, 8])(
    'and whose agent died in that has one element afterwards: that of interface %s, which has programs',
    (at) => {
      for (const ifindex of [7, 8, 9])
        world.map.update(endpointKey.encode(ifindex), endpointValue.encode({ ...ELEMENT, ifindex }));
      world.attached.set(1, at);
      expect(world.agent().adopt(false)).toEqual([expect.objectContaining({ id: 1, ifindex: at })]);
      expect(world.elements().map(({ ifindex }) => ifindex)).toEqual([at]);
    },
  );
});

const ELEMENT = { revision: 1, slot: 1, flags: 0, ipv4: new Uint8Array(4), identity: 300, id: 1 };
const ALL = ENDPOINT_FLAGS.ingressEnforced | ENDPOINT_FLAGS.egressEnforced;

describe('an endpoint in doubt', () => {
  const element = () => world.elements().map(({ ifindex, flags, quarantine }) => [ifindex, flags, quarantine]);
  /** Longer than a quarantine lasts. */
  const LONG = 60_000;

  it('is in quarantine until its flows were gone through', () => {
    const store = world.agent();
    store.update(state(1));
    store.doubt(1);
    expect(element()).toEqual([[7, ALL, true]]);
    world.clock += LONG;
    store.endQuarantine();
    expect(element()).toEqual([[7, ALL, true]]);
    store.undoubt([1]);
    store.endQuarantine();
    expect(element()).toEqual([[7, ALL, false]]);
    store.update(state(2));
    expect(element()).toEqual([[7, ALL, false]]);
  });

  it('is so for the next agent, where this one died before it had gone through the flows', () => {
    const store = world.agent();
    store.update(state(1));
    store.doubt(1);
    const next = world.agent();
    next.adopt(false);
    expect(next.doubted()).toEqual(new Set([1]));
    world.clock += LONG;
    next.endQuarantine();
    next.update(state(2));
    expect(element()).toEqual([[7, ALL, true]]);
  });

  it('is in quarantine for as long once its programs are first again, however long it took to put them there', () => {
    const store = world.agent();
    store.update(state(1));
    world.behind = ['another program'];
    world.overtakeMs = LONG;
    store.mend(1);
    store.undoubt([1]);
    store.endQuarantine();
    expect(element()).toEqual([[7, ALL, true]]);
  });

  it('is in none on another interface', () => {
    const store = world.agent();
    store.update(state(1, 7));
    store.doubt(1);
    store.update(state(1, 8));
    expect(element()).toEqual([[8, ALL, false]]);
    expect(store.doubted()).toEqual(new Set());
  });
});

describe('a repair', () => {
  it('puts programs back while the kernel refuses the newest row of the slot that its word names', () => {
    const store = world.agent();
    store.update(state(1));
    world.refused.add(1);
    world.bare.add(7);
    store.mend(1);
    expect(world.bare).toEqual(new Set());
  });

  it('takes no word back that is written already, where links cannot be made', () => {
    const store = world.agent();
    store.update(state(1));
    world.linkError = new Error('a folder is in the place of the pin');
    expect(() => store.update(state(2))).toThrow(world.linkError);
    expect(store.look()).toEqual([{ id: 1, gone: false, faults: [], behind: [] }]);
    expect(() => store.mend(1)).toThrow(world.linkError);
    expect([world.elements()[0]?.slot, store.uses(2), store.acknowledged(1)?.slot]).toEqual([2, true, 1]);
  });

  it('is not over before the flows of an endpoint in doubt were gone through', () => {
    const store = world.agent();
    store.update(state(1));
    store.doubt(1);
    expect(store.look()).toEqual([expect.objectContaining({ id: 1, faults: [expect.stringMatching(/flows/)] })]);
    store.undoubt([1]);
    expect(store.look()).toEqual([expect.objectContaining({ id: 1, faults: [] })]);
  });

  it('of an element that somebody edited puts the endpoint in doubt', () => {
    const store = world.agent();
    store.update(state(1));
    world.map.update(endpointKey.encode(7), endpointValue.encode({ ...ELEMENT, ifindex: 7, id: 9 }));
    store.mend(1);
    expect(world.elements()).toEqual([expect.objectContaining({ id: 1, quarantine: true, flags: ALL })]);
    expect(store.doubted()).toEqual(new Set([1]));
  });
});

describe('endpoints that are as they were found', () => {
  const OPEN = { ...state(0), enforced: { ingress: false, egress: false } };

  it('get new revisions and keep all else', () => {
    const before = world.agent();
    before.update(OPEN);
    before.doubt(1);
    before.update({ ...state(2, 8), id: 2, addresses: ['10.1.0.3'] });
    const store = world.agent();
    store.adopt(false);
    const [first, second] = world.elements();
    let revision = 40;
    const next = (): number => {
      revision += 1;
      return revision;
    };
    expect([...store.renew(next)]).toEqual([
      [1, 41],
      [2, 42],
    ]);
    expect(world.elements()).toEqual([
      { ...first, revision: 41 },
      { ...second, revision: 42 },
    ]);
    // What this agent has written is a plan's to change.
    store.update({ ...state(2, 8), id: 2, addresses: ['10.1.0.3'], revision: 50 });
    expect([...store.renew(next)]).toEqual([[1, 43]]);
    expect(world.elements().map((each) => each.revision)).toEqual([43, 50]);
  });
});

it('the element of another endpoint that has the interface by now is neither renewed nor put in quarantine', () => {
  world.agent().update(state(1));
  const store = world.agent();
  store.adopt(false);
  const other = { ...ELEMENT, ifindex: 7, id: 9 };
  world.map.update(endpointKey.encode(7), endpointValue.encode(other));
  const before = world.elements();
  expect(store.renew(() => 40).size).toBe(0);
  expect(world.elements()).toEqual(before);
  store.doubt(1);
  expect(world.elements()).toEqual(before);
});

describe('an element that somebody edits while the endpoint is as it was found', () => {
  it('is a fault, and is put back with its flows in doubt', () => {
    world.agent().update(state(1));
    const store = world.agent();
    store.adopt(false);
    world.attached.set(1, 7);
    expect([store.look()[0]?.faults, store.editedFound()]).toEqual([[], []]);
    const [found] = world.elements();
    if (found === undefined) throw new Error('there is no element');
    world.map.update(endpointKey.encode(7), endpointValue.encode({ ...found, flags: 0 }));
    expect(store.look()[0]?.faults).toEqual(['its element in the endpoint map was changed']);
    expect(store.editedFound()).toEqual([1]);
    store.mend(1);
    expect(world.elements()).toEqual([{ ...found, quarantine: true }]);
    expect([...store.doubted()]).toEqual([1]);
    store.undoubt([1]);
    expect([store.look()[0]?.faults, store.editedFound()]).toEqual([[], []]);
  });

  it('leaves its flows in doubt where a new revision comes before a look', () => {
    world.agent().update(state(1));
    const store = world.agent();
    store.adopt(false);
    const [found] = world.elements();
    if (found === undefined) throw new Error('there is no element');
    world.map.update(endpointKey.encode(7), endpointValue.encode({ ...found, flags: 0 }));
    store.renew(() => 5);
    expect([...store.doubted()]).toEqual([1]);
    expect(world.elements()).toEqual([{ ...found, revision: 5, quarantine: true }]);
  });

  it('is none after the agent itself has given it a new revision, or ended its quarantine', () => {
    world.agent().update(state(1));
    const store = world.agent();
    store.adopt(true);
    world.attached.set(1, 7);
    store.renew(() => 5);
    expect(store.editedFound()).toEqual([]);
    store.undoubt([1]);
    world.clock += 10_000;
    store.endQuarantine();
    expect(store.editedFound()).toEqual([]);
  });
});
