/** EndpointMap against a plain map, as programs see it between any two of its stores, and after a crash at any of them. */
import { afterEach, describe, expect, it } from '@jest/globals';
import { ENDPOINT_CELLS, EndpointCells, type EndpointValue, endpointKey, endpointValue, MAPS } from '@weir/bpf';
import fc from 'fast-check';
import { type BpfMap, createMap, createMemoryMap, mapArray } from 'libbpf-ts';
import { EndpointMap } from './endpoint-map.ts';

const plainStore = Atomics.store;
afterEach(() => {
  Atomics.store = plainStore;
});

/** Three cells with two endpoints each; the guard of 4097 is 0. */
const INDEXES = [1, 2, ENDPOINT_CELLS, ENDPOINT_CELLS + 1, ENDPOINT_CELLS + 2, 2 * ENDPOINT_CELLS];

function element(fields: Partial<EndpointValue>): Uint8Array {
  const ipv4 = Uint8Array.of(10, 0, 0, 1);
  return endpointValue.encode({ revision: 1, slot: 1, flags: 3, ifindex: 1, ipv4, identity: 1, id: 7, ...fields });
}

function shape(name: 'endpoints' | 'endpoint_array') {
  const { type, keySize, valueSize, maxEntries, flags } = MAPS[name];
  return { name, type, keySize, valueSize, maxEntries, flags };
}

/** The two maps of a kernel, with a call after each single change of either. */
class Kernel {
  readonly array = new Uint8Array(ENDPOINT_CELLS * endpointValue.size);
  readonly hash: BpfMap = createMemoryMap(shape('endpoints'));
  onChange: () => void = () => undefined;

  constructor() {
    Atomics.store = ((array: BigUint64Array, at: number, value: bigint) => {
      const result = plainStore(array, at, value);
      if (array.buffer === this.array.buffer) this.onChange();
      return result;
    }) as typeof Atomics.store;
    for (const name of ['update', 'delete'] as const) {
      const change = this.hash[name].bind(this.hash) as (...args: unknown[]) => unknown;
      (this.hash as unknown as Record<string, unknown>)[name] = (...args: unknown[]) => {
        const result = change(...args);
        this.onChange();
        return result;
      };
    }
  }

  open(): EndpointMap {
    return EndpointMap.open(this.array, this.hash);
  }

  /** What a packet of the device finds when nothing changes while it looks (bpf/endpoint.h). */
  seen(ifindex: number): Uint8Array | undefined {
    const at = (ifindex % ENDPOINT_CELLS) * endpointValue.size;
    const places = [this.array.slice(at, at + endpointValue.size), this.hash.lookup(endpointKey.encode(ifindex))];
    return places.find((bytes) => bytes !== undefined && taken(bytes, ifindex));
  }
}

function taken(bytes: Uint8Array, ifindex: number): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const word = view.getBigUint64(0, true);
  return (
    view.getUint32(8, true) === ifindex && word !== 0n && Number(word >> 52n) === ((ifindex ^ (ifindex >>> 12)) & 0xfff)
  );
}

/** All of an element but the identity, which only events carry and which may change before the word. */
function judged(bytes: Uint8Array | undefined): string {
  if (bytes === undefined) return 'none';
  const rest = Buffer.from(bytes);
  rest.writeUInt32LE(0, 16);
  return rest.toString('hex');
}

const hex = (bytes: Uint8Array | undefined) => (bytes === undefined ? 'none' : Buffer.from(bytes).toString('hex'));
const listed = (entries: Iterable<readonly [Uint8Array, Uint8Array]>) =>
  [...entries].map(([key, value]) => `${endpointKey.decode(key)} ${hex(value)}`).sort();

const ifindex = fc.constantFrom(...INDEXES);
const operation = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('update' as const),
      ifindex,
      revision: fc.integer({ min: 1, max: 3 }),
      slot: fc.nat(1),
      flags: fc.nat(3),
      identity: fc.nat(1),
      id: fc.integer({ min: 1, max: 2 }),
      ipv4: fc.constantFrom(Uint8Array.of(10, 0, 0, 1), Uint8Array.of(10, 0, 0, 2)),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), ifindex }) },
  { weight: 1, arbitrary: fc.constant({ do: 'settle' as const, ifindex: 0 }) },
  { weight: 1, arbitrary: fc.constant({ do: 'reopen' as const, ifindex: 0 }) },
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

function apply(map: EndpointMap, op: Operation): void {
  if (op.do === 'update') map.update(endpointKey.encode(op.ifindex), element(op));
  else if (op.do === 'delete') map.delete(endpointKey.encode(op.ifindex));
  else if (op.do === 'settle') map.settle();
}

class Crash extends Error {}

describe('EndpointMap', () => {
  it('is a map, whole for programs at every instant, after any crash too', () => {
    const crashes = fc.option(fc.nat(6), { nil: undefined });
    let crashed = 0;
    let moved = 0;
    fc.assert(
      fc.property(fc.array(fc.tuple(operation, crashes), { maxLength: 30 }), (steps) => {
        const kernel = new Kernel();
        let map = kernel.open();
        const model = new Map<number, Uint8Array>();
        for (const [op, crashAt] of steps) {
          const before = new Map(model);
          if (op.do === 'update') model.set(op.ifindex, element(op));
          if (op.do === 'delete') model.delete(op.ifindex);
          let changes = 0;
          kernel.onChange = () => {
            for (const each of INDEXES) {
              const found = judged(kernel.seen(each));
              expect([judged(before.get(each)), judged(model.get(each))]).toContain(found);
            }
            if (changes++ === crashAt) throw new Crash();
          };
          try {
            apply(map, op);
          } catch (error) {
            if (!(error instanceof Crash)) throw error;
            crashed += 1;
          }
          kernel.onChange = () => undefined;
          if (crashAt !== undefined || op.do === 'reopen') {
            const seen = new Map(INDEXES.map((each) => [each, judged(kernel.seen(each))]));
            map = kernel.open();
            const found = new Map([...map.entries()].map(([key, value]) => [endpointKey.decode(key), value]));
            for (const each of INDEXES) {
              expect([judged(before.get(each)), judged(model.get(each))]).toContain(judged(found.get(each)));
              // Mending takes nothing away from programs, and brings nothing back.
              expect(judged(kernel.seen(each))).toBe(judged(found.get(each)));
              expect(seen.get(each) === 'none').toBe(!found.has(each));
            }
            model.clear();
            for (const [each, value] of found) model.set(each, value);
          }
          expect(listed(map.entries())).toEqual(
            listed([...model].map(([each, value]) => [endpointKey.encode(each), value] as const)),
          );
          const cells = new EndpointCells(kernel.array);
          for (const each of INDEXES) {
            expect(hex(map.lookup(endpointKey.encode(each)))).toBe(hex(model.get(each)));
            expect(hex(kernel.seen(each))).toBe(hex(model.get(each)));
            const inHash = kernel.hash.lookup(endpointKey.encode(each)) !== undefined;
            expect(inHash && cells.holder(each) === each).toBe(false);
            if (inHash) moved += 1;
          }
        }
      }),
      { numRuns: 100 },
    );
    // The run was worth something: both maps were in use, and crashes happened.
    expect(crashed).toBeGreaterThan(0);
    expect(moved).toBeGreaterThan(0);
  });

  it('changes a policy by one store, and an identity by one more', () => {
    const kernel = new Kernel();
    const map = kernel.open();
    const key = endpointKey.encode(1);
    const changes = (value: Uint8Array) => {
      let count = 0;
      kernel.onChange = () => {
        count += 1;
      };
      map.update(key, value);
      return count;
    };
    expect(changes(element({}))).toBe(6);
    expect(changes(element({ revision: 2, slot: 9, flags: 0 }))).toBe(1);
    expect(changes(element({ revision: 3, identity: 2 }))).toBe(2);
    expect(kernel.hash.lookup(key)).toBeUndefined();
  });

  it('keeps the second endpoint of a cell in the hash until the cell is free and it settles', () => {
    const kernel = new Kernel();
    const map = kernel.open();
    const [first, second] = [endpointKey.encode(2), endpointKey.encode(2 + ENDPOINT_CELLS)];
    map.update(first, element({ ifindex: 2 }));
    map.update(second, element({ ifindex: 2 + ENDPOINT_CELLS }));
    expect(kernel.hash.lookup(second)).toBeDefined();
    expect(map.settle()).toBe(0);
    expect(map.delete(first)).toBe(true);
    expect(map.delete(first)).toBe(false);
    expect(map.settle()).toBe(1);
    expect(kernel.hash.lookup(second)).toBeUndefined();
    expect(map.lookup(second)).toEqual(element({ ifindex: 2 + ENDPOINT_CELLS }));
  });

  it('settles what an older version wrote into the hash, one endpoint a cell, and leaves broken elements alone', () => {
    const kernel = new Kernel();
    for (const each of INDEXES) kernel.hash.update(endpointKey.encode(each), element({ ifindex: each }));
    const map = kernel.open();
    kernel.hash.update(endpointKey.encode(9), new Uint8Array(endpointValue.size));
    expect(map.settle()).toBe(3);
    expect([...kernel.hash.keys()]).toHaveLength(4);
  });

  it('removes what no agent wrote when it is opened, and nothing else', () => {
    const kernel = new Kernel();
    const cells = new EndpointCells(kernel.array);
    cells.put(element({ ifindex: 1, revision: 2 }));
    cells.put(element({ ifindex: 0x8000_0002 }));
    cells.put(element({ ifindex: 3, id: 0 }));
    const put = (ifindex: number, value: Uint8Array) => kernel.hash.update(endpointKey.encode(ifindex), value);
    put(5, element({ ifindex: 1, revision: 9 }));
    put(1, new Uint8Array(endpointValue.size).fill(0xff));
    put(0x8000_0004, element({ ifindex: 0x8000_0004 }));
    put(6, element({ ifindex: 6 }));
    const map = kernel.open();
    expect(Array.from(map.keys(), (key) => endpointKey.decode(key))).toEqual([1, 6]);
    expect(endpointValue.decode(map.lookup(endpointKey.encode(1)) ?? new Uint8Array(0)).revision).toBe(2);
    expect(map.removed.toSorted((a, b) => a - b)).toEqual([1, 3, 5, 0x8000_0002, 0x8000_0004]);
    expect(kernel.open().removed).toEqual([]);
  });

  it('believes the higher revision of an endpoint that is in both, and the array when they are equal', () => {
    for (const [inHash, kept] of [
      [1, 2],
      [3, 3],
      [2, 2],
    ] as const) {
      const kernel = new Kernel();
      const key = endpointKey.encode(1);
      new EndpointCells(kernel.array).put(element({ revision: 2, identity: 5 }));
      kernel.hash.update(key, element({ revision: inHash, identity: 6 }));
      const found = endpointValue.decode(kernel.open().lookup(key) ?? new Uint8Array(0));
      expect([found.revision, found.identity]).toEqual([kept, inHash > 2 ? 6 : 5]);
      expect([...kernel.open().keys()]).toHaveLength(1);
    }
  });

  it('refuses what no program would take, and heeds the mode', () => {
    const map = new Kernel().open();
    const key = endpointKey.encode(ENDPOINT_CELLS + 1);
    const zero = element({ ifindex: ENDPOINT_CELLS + 1, revision: 0, slot: 0, flags: 0 });
    expect(() => map.update(key, zero)).toThrow('a word of 0 is no endpoint');
    expect(() => map.update(key, element({ ifindex: 1 }))).toThrow('the value names ifindex 1');
    const foreign = element({});
    foreign[7] = 0xff;
    expect(() => map.update(endpointKey.encode(1), foreign)).toThrow('guard');
    expect(() => EndpointMap.open(new Uint8Array(40), createMemoryMap(shape('endpoints')))).toThrow('163840 bytes');
    const value = element({ ifindex: ENDPOINT_CELLS + 1 });
    const code = (errnoName: string) => expect.objectContaining({ errnoName }) as unknown as Error;
    expect(() => map.update(key, value, 'exist')).toThrow(code('ENOENT'));
    map.update(key, value, 'noexist');
    expect(() => map.update(key, value, 'noexist')).toThrow(code('EEXIST'));
    map.update(key, value, 'exist');
    expect([...map.keys()]).toEqual([key]);
  });

  it('does the same with maps of the kernel', () => {
    using array = createMap(shape('endpoint_array'));
    using hash = createMap(shape('endpoints'));
    using memory = mapArray(array);
    const map = EndpointMap.open(memory.bytes, hash);
    for (const each of INDEXES) map.update(endpointKey.encode(each), element({ ifindex: each }));
    map.update(endpointKey.encode(1), element({ revision: 2 }));
    expect(array.lookup(endpointKey.encode(1))).toEqual(element({ revision: 2 }));
    expect([...hash.keys()]).toHaveLength(3);
    using again = mapArray(array);
    expect(listed(EndpointMap.open(again.bytes, hash).entries())).toEqual(listed(map.entries()));
    for (const each of INDEXES) expect(map.delete(endpointKey.encode(each))).toBe(true);
    expect([...map.entries()]).toEqual([]);
  });
});

describe('a packet that reads a cell while it is written', () => {
  /** What the program returns when its loads fall on the given instants. */
  function read(instants: readonly Uint8Array[], at: readonly number[], own: number): Uint8Array | undefined {
    const view = (load: number) => new DataView((instants[at[load] ?? 0] as Uint8Array).buffer);
    const word = view(0).getBigUint64(0, true);
    const out = new Uint8Array(endpointValue.size);
    const into = new DataView(out.buffer);
    into.setBigUint64(0, word, true);
    into.setUint32(12, view(1).getUint32(12, true), true);
    into.setUint32(16, view(2).getUint32(16, true), true);
    into.setUint16(20, view(3).getUint16(20, true), true);
    into.setUint32(8, view(4).getUint32(8, true), true);
    return taken(out, own) && view(5).getBigUint64(0, true) === word ? out : undefined;
  }

  /** Every choice of six instants, none before the one of the load before it. */
  function* choices(count: number, from = 0, loads = 6): Generator<number[]> {
    if (loads === 0) yield [];
    else for (let at = from; at < count; at += 1) for (const rest of choices(count, at, loads - 1)) yield [at, ...rest];
  }

  const other = { ipv4: Uint8Array.of(10, 0, 0, 9), id: 9, identity: 9 };
  const scenes: [string, Uint8Array[]][] = [
    ['comes and changes', [element({}), element({ revision: 2, slot: 2 }), element({ revision: 3, identity: 4 })]],
    ['gives way to another with the same word', [element({}), element({ ifindex: 1 + ENDPOINT_CELLS, ...other })]],
    ['goes and comes back with another address', [element({}), element({ revision: 2, ...other })]],
  ];
  it.each(scenes)('takes a whole element or none: it %s', (_, values) => {
    const kernel = new Kernel();
    const instants: Uint8Array[] = [];
    const map = kernel.open();
    const note = () => instants.push(kernel.array.slice(40, 80));
    kernel.onChange = note;
    note();
    let before: number | undefined;
    for (const value of values) {
      const { ifindex: own, id } = endpointValue.decode(value);
      const had = before === undefined ? undefined : map.lookup(endpointKey.encode(before));
      if (had !== undefined && (before !== own || endpointValue.decode(had).id !== id)) {
        map.delete(endpointKey.encode(before as number));
      }
      map.update(endpointKey.encode(own), value);
      before = own;
    }
    let found = 0;
    for (const own of [1, 1 + ENDPOINT_CELLS]) {
      const whole = values.filter((value) => taken(value, own)).map(judged);
      for (const at of choices(instants.length)) {
        const element = read(instants, at, own);
        if (element === undefined) continue;
        found += 1;
        if (!whole.includes(judged(element))) expect([at, judged(element)]).toEqual([at, whole]);
      }
    }
    expect(found).toBeGreaterThan(0);
  });
});
