/** Names and rows against a plain model: at every time the kernel has exactly the addresses with live names of selectors. */
import { describe, expect, it } from '@jest/globals';
import { hostNameMatches } from '@weir/policy';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import type { DnsName, NameGone } from '../protocol.ts';
import { Expiry } from './expiry.ts';
import { GRACE_MS, Names } from './names.ts';
import { createTables, type NameRow } from './tables.ts';

const LIMITS = { mostAddresses: 3, mostOfEndpoint: 6, mostInAll: 9, minTtl: 2 };
const EVERY_MS = 30_000;

class Fixture {
  readonly db = createStateDB({ freeze: true });
  readonly tables = createTables(this.db);
  readonly rows = new Map<string, number>();
  readonly told: (DnsName | NameGone)[] = [];
  readonly living = new Set<string>();
  cut = 0;
  readonly names: Names;
  readonly expiry: Expiry;
  /** False: the kernel takes no more rows. */
  room = true;

  constructor(limits: Partial<typeof LIMITS> = {}) {
    this.names = new Names({
      db: this.db,
      tables: this.tables,
      rows: {
        set: (address, identity) => {
          if (this.room) this.rows.set(address, identity);
          return this.room;
        },
        delete: (address) => this.rows.delete(address),
      },
      tell: (changes) => this.told.push(...changes),
      onCut: () => {
        this.cut += 1;
      },
      onLacking: () => undefined,
      ...LIMITS,
      ...limits,
    });
    this.expiry = new Expiry({
      names: this.names,
      connected: (rows) =>
        Promise.resolve(new Set(rows.filter(({ endpoint, address }) => this.living.has(`${endpoint} ${address}`)))),
      everyMs: EVERY_MS,
    });
  }
}

/** Runs to its end. */
function all(work: Iterable<void>): void {
  for (const _ of work);
}

const ip = (number: number): string => `192.0.2.${number}`;
const answer = (numbers: readonly number[], ttl: number) => numbers.map((each) => ({ address: ip(each), ttl }));

describe('the model', () => {
  const names = ['a.com', 'b.com', 'a.net', 'x.a.com'];
  const patterns = ['a.com', '*.com', '*', '**.com', 'x*.a.com', 'b.net'];
  const endpoints = [1, 2, 3];
  const selectorIds = [1, 2, 3];
  const sets = [[1], [2], [3], [1, 2], [1, 3], [2, 3], [1, 2, 3]];

  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant('learn' as const),
        endpoint: fc.constantFrom(...endpoints),
        name: fc.constantFrom(...names),
        addresses: fc.uniqueArray(fc.integer({ min: 1, max: 8 }), { minLength: 1, maxLength: 5 }),
        ttl: fc.integer({ min: 0, max: 60 }),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('select' as const),
        selector: fc.constantFrom(...selectorIds),
        pattern: fc.option(fc.constantFrom(...patterns), { nil: undefined }),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('identify' as const),
        identity: fc.integer({ min: 1000, max: 1008 }),
        set: fc.option(fc.constantFrom(...sets), { nil: undefined }),
      }),
    },
    fc.record({ do: fc.constant('forget' as const), pattern: fc.constantFrom(...patterns) }),
    fc.record({ do: fc.constant('forgetEndpoint' as const), endpoint: fc.constantFrom(...endpoints) }),
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('wait' as const),
        seconds: fc.integer({ min: 1, max: 70 }),
        living: fc.array(fc.tuple(fc.constantFrom(...endpoints), fc.integer({ min: 1, max: 8 })), { maxLength: 4 }),
      }),
    },
  );

  class Model {
    names: NameRow[] = [];
    readonly selectors = new Map<number, string>();
    readonly identities = new Map<number, readonly number[]>();
    now = 1_000_000;
    looked = Number.NEGATIVE_INFINITY;

    learn(endpoint: number, name: string, numbers: readonly number[], ttl: number): void {
      for (const number of numbers.slice(0, LIMITS.mostAddresses)) {
        const address = ip(number);
        const known = this.names.find(
          (row) => row.endpoint === endpoint && row.name === name && row.address === address,
        );
        const expires = this.now + 1000 * Math.max(ttl, LIMITS.minTtl);
        const row = { endpoint, name, address, seen: this.now, expires: Math.max(expires, known?.expires ?? 0), ttl };
        this.names = [...this.names.filter((each) => each !== known), row];
      }
      const oldest = (rows: NameRow[]): NameRow | undefined =>
        rows.sort(
          (a, b) => a.seen - b.seen || (a.name < b.name ? -1 : a.name > b.name ? 1 : a.address < b.address ? -1 : 1),
        )[0];
      const evict = (row: NameRow | undefined): void => {
        this.names = this.names.filter((each) => each !== row);
      };
      const of = (): NameRow[] => this.names.filter((row) => row.endpoint === endpoint && row.name === name);
      while (of().length > LIMITS.mostAddresses)
        evict(of().sort((a, b) => a.seen - b.seen || a.expires - b.expires || (a.address < b.address ? -1 : 1))[0]);
      const mine = (who: number): NameRow[] => this.names.filter((row) => row.endpoint === who);
      while (mine(endpoint).length > LIMITS.mostOfEndpoint) evict(oldest(mine(endpoint)));
      while (this.names.length > LIMITS.mostInAll) {
        const [most = 0] = endpoints.toSorted((a, b) => mine(b).length - mine(a).length || a - b);
        evict(oldest(mine(most)));
      }
    }

    expire(living: ReadonlySet<string>): void {
      const over = this.names.filter(({ expires }) => expires < this.now - GRACE_MS);
      if (this.now - this.looked < EVERY_MS || over.length === 0) return;
      this.looked = this.now;
      this.names = this.names.filter((row) => !over.includes(row) || living.has(`${row.endpoint} ${row.address}`));
    }

    /** Which identities an address may have; none: it has no row. */
    allowed(): Map<string, readonly number[]> {
      const found = new Map<string, readonly number[]>();
      for (const address of new Set(this.names.map((row) => row.address))) {
        const own = this.names.filter((row) => row.address === address);
        const set = [...this.selectors].filter(([, pattern]) => own.some(({ name }) => hostNameMatches(pattern, name)));
        const wanted = new Set(set.map(([selector]) => selector));
        const fit = [...this.identities].filter(([, selectors]) => selectors.every((each) => wanted.has(each)));
        const most = Math.max(0, ...fit.map(([, selectors]) => selectors.length));
        const best = fit.filter(([, selectors]) => selectors.length === most).map(([identity]) => identity);
        if (best.length > 0) found.set(address, best);
      }
      return found;
    }
  }

  it('agrees, whatever is learned, selected, given, forgotten and over', async () => {
    let evicted = 0;
    let held = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60 }), async (steps) => {
        const it = new Fixture();
        const model = new Model();
        for (const each of steps) {
          if (each.do === 'learn') {
            it.names.learn(each.endpoint, each.name, answer(each.addresses, each.ttl), model.now);
            model.learn(each.endpoint, each.name, each.addresses, each.ttl);
          } else if (each.do === 'select') {
            all(it.names.select(each.selector, each.pattern));
            if (each.pattern === undefined) model.selectors.delete(each.selector);
            else model.selectors.set(each.selector, each.pattern);
          } else if (each.do === 'identify') {
            all(it.names.identify(each.identity, each.set));
            if (each.set === undefined) model.identities.delete(each.identity);
            else model.identities.set(each.identity, each.set);
          } else if (each.do === 'forget') {
            all(it.names.forget(each.pattern));
            model.names = model.names.filter(({ name }) => !hostNameMatches(each.pattern, name));
          } else if (each.do === 'forgetEndpoint') {
            all(it.names.forgetEndpoint(each.endpoint));
            model.names = model.names.filter(({ endpoint }) => endpoint !== each.endpoint);
          } else {
            model.now += 1000 * each.seconds;
            it.living.clear();
            for (const [endpoint, number] of each.living) it.living.add(`${endpoint} ${ip(number)}`);
            await it.expiry.look(model.now);
            model.expire(it.living);
            held += model.names.filter(({ expires }) => expires < model.now - GRACE_MS).length;
          }
          const key = (row: NameRow): string => `${row.endpoint} ${row.name} ${row.address} ${row.seen} ${row.expires}`;
          expect(new Set(Array.from(it.names.all(), key))).toEqual(new Set(model.names.map(key)));
          const allowed = model.allowed();
          expect(new Set(it.rows.keys())).toEqual(new Set(allowed.keys()));
          for (const [address, identity] of it.rows) expect(allowed.get(address)).toContain(identity);
        }
        evicted += it.told.filter((change) => change.type === 'name-gone' && change.why === 'evicted').length;
        replayed(it);
      }),
      { numRuns: 300 },
    );
    // The traces reach what they are there for.
    expect(evicted).toBeGreaterThan(50);
    expect(held).toBeGreaterThan(50);
  });

  /** What was told, replayed, gives the same names. */
  function replayed(it: Fixture): void {
    const there = new Map<string, DnsName>();
    for (const change of it.told) {
      const key = `${change.endpoint} ${change.name} ${change.address}`;
      if (change.type === 'name') there.set(key, change);
      else there.delete(key);
    }
    const rows = Array.from(there.values(), ({ type: _, ...row }) => row);
    expect(new Set(rows)).toEqual(new Set(it.names.all()));
  }
});

describe('names', () => {
  it('lack an identity until there is one of exactly their selectors', () => {
    const { names, rows } = new Fixture();
    all(names.select(1, 'a.com'));
    all(names.select(2, '*.com'));
    all(names.identify(1001, [1]));
    const addresses = names.learn(1, 'a.com', answer([1], 60), 0);
    expect(names.lacking(addresses)).toEqual([[1, 2]]);
    expect(rows).toEqual(new Map([[ip(1), 1001]]));
    all(names.identify(1002, [1, 2]));
    expect(names.lacking(addresses)).toEqual([]);
    expect(rows).toEqual(new Map([[ip(1), 1002]]));
  });

  it('have no row where the kernel has no place for it, until they are answered again when it has', () => {
    const it = new Fixture();
    all(it.names.select(1, 'a.com'));
    all(it.names.identify(1001, [1]));
    it.room = false;
    const addresses = it.names.learn(1, 'a.com', answer([1], 60), 0);
    expect(it.rows.size).toBe(0);
    // The agent has given all that it can.
    expect(it.names.lacking(addresses)).toEqual([]);
    it.room = true;
    it.names.learn(1, 'a.com', answer([1], 60), 5000);
    expect(it.rows).toEqual(new Map([[ip(1), 1001]]));
  });

  it('of an endpoint that has many take no place of others', () => {
    const { names } = new Fixture({ mostOfEndpoint: 100, mostInAll: 10 });
    names.learn(2, 'b.com', answer([200], 60), 0);
    for (let number = 1; number <= 50; number += 1)
      names.learn(1, `n${number}.com`, answer([number], 60), number * 1000);
    const left = [...names.all()];
    expect(left).toHaveLength(10);
    expect(left.filter(({ endpoint }) => endpoint === 2)).toHaveLength(1);
    expect(left.filter(({ endpoint }) => endpoint === 1).map(({ name }) => name)).toContain('n50.com');
  });

  it('have so many addresses, and it is said when an answer has more', () => {
    const it = new Fixture();
    it.names.learn(1, 'a.com', answer([1, 2, 3], 60), 0);
    expect(it.cut).toBe(0);
    it.names.learn(1, 'b.com', answer([1, 2, 3, 4], 60), 0);
    expect(it.cut).toBe(1);
    expect(Array.from(it.names.all())).toHaveLength(6);
  });

  it('that are asked for again within a second change nothing', () => {
    const { names, told } = new Fixture();
    names.learn(1, 'a.com', answer([1], 60), 10_100);
    names.learn(1, 'a.com', answer([1], 60), 10_900);
    expect(told).toHaveLength(1);
  });

  it('are over in time where the clock of the node was set back', async () => {
    const { names, expiry } = new Fixture();
    const [late, early] = [10_000_000, 5_000_000];
    names.learn(1, 'a.com', answer([1], 5), late - 60_000);
    await expiry.look(late);
    names.learn(1, 'b.com', answer([2], 5), early);
    await expiry.look(early + 60_000);
    expect(Array.from(names.all())).toEqual([]);
  });
});
