import { describe, expect, it } from '@jest/globals';
import { createStateDB, type WriteTxn } from '@weir/statedb';
import fc from 'fast-check';
import { podRow } from '../kubernetes/rows.ts';
import { pod as podObject } from '../testing.ts';
import { AddressClaims } from './address-claims.ts';
import { createPlacedPods } from './placed-pods.ts';
import type { Place } from './pod-networks.ts';

interface Claim {
  readonly pod: string;
  readonly uid?: string;
  readonly addresses: readonly string[];
  readonly terminating?: boolean;
}

/** Pods with an identity, which claim addresses. A pod whose name starts with `foreign` can have none of them. */
class Claims {
  readonly told: string[] = [];
  /** Rows that were read or written, and reads that found none. */
  rows = 0;
  #loading = false;
  readonly #db = createStateDB({ freeze: true, findLeaks: false });
  readonly #pods = createPlacedPods(this.#db);
  readonly #book = new AddressClaims(this.#db, {
    pods: this.#pods,
    networks: {
      whereIs:
        () =>
        (row): Place =>
          row.name.startsWith('foreign') ? 'elsewhere' : 'home',
    },
    onRefused: ({ pod, address, reason, others }) => this.told.push([pod, address, reason, ...others].join(' ')),
  });

  /** Replaces claims, in one round. Returns pods that may have gained or lost an address. */
  set(...claims: readonly Claim[]): ReadonlySet<string> {
    return this.#db.write(this.#tables, (txn) => {
      const touched = claims.flatMap(({ pod, uid, addresses, terminating = false }) => {
        const object = podObject(pod, {}, uid === undefined ? {} : { uid });
        const row = { ...podRow(object), addresses, terminating };
        const before = txn.upsert(this.#pods, { row, identity: 300, waiting: undefined });
        return [...addresses, ...(before?.row.addresses ?? [])].map((address) => [address, pod] as const);
      });
      const counted = this.#counted(txn);
      return new Set(
        [...Map.groupBy(touched, ([address]) => address)].flatMap(([address, changed]) => {
          const names = changed.map(([, pod]) => pod);
          return this.#book.settle(counted, address, names, this.#loading);
        }),
      );
    });
  }

  adopt(address: string, pod: string, uid = ''): void {
    this.#db.write(this.#tables, (txn) => this.#book.adopt(txn, address, pod, uid));
  }

  loading(): void {
    this.#loading = true;
  }

  adoptionDone(): void {
    this.#loading = false;
    this.#db.write(this.#tables, (txn) => {
      for (const address of this.#book.awaited(txn)) this.#book.settle(txn, address, [], false);
      this.#book.tellRefused(txn);
    });
  }

  owner(address: string, pods: readonly string[]): string | undefined {
    using snapshot = this.#db.read();
    const owners = pods.filter((pod) => this.#book.owns(snapshot, pod, address));
    expect(owners.length).toBeLessThan(2);
    return owners[0];
  }

  get #tables() {
    return [this.#pods, ...this.#book.tables];
  }

  #counted(txn: WriteTxn): WriteTxn {
    const count = <T>(answer: T): T => {
      this.rows += 1;
      return answer;
    };
    return new Proxy(txn, {
      get: (target, name: keyof WriteTxn) => {
        const method = (target[name] as (...args: unknown[]) => unknown).bind(target);
        return (...args: unknown[]) => {
          const answer = count(method(...args));
          return isIterable(answer) ? Iterator.from(answer).map(count) : answer;
        };
      },
    });
  }
}

function isIterable(value: unknown): value is Iterable<unknown> {
  return typeof value === 'object' && value !== null && Symbol.iterator in value;
}

const A = '10.0.0.1';
const PODS = ['ns/old', 'ns/new', 'ns/other', 'ns/foreign'];

describe('AddressClaims', () => {
  it('who has an address keeps it, whatever others say, and what they say is told once', () => {
    const book = new Claims();
    book.set({ pod: 'ns/old', addresses: [A] });
    for (let n = 0; n < 3; n += 1) {
      book.set({ pod: 'ns/new', addresses: [A] }, { pod: 'ns/foreign', addresses: [A] });
      expect(book.owner(A, PODS)).toBe('ns/old');
    }
    expect(book.told).toEqual([`ns/foreign ${A} elsewhere ns/old`, `ns/new ${A} taken ns/old`]);
    // It goes, and is gone: the other is the only one that is left.
    expect(book.set({ pod: 'ns/old', addresses: [] })).toEqual(new Set(['ns/old', 'ns/new']));
    expect(book.owner(A, PODS)).toBe('ns/new');
    book.set({ pod: 'ns/old', addresses: [A] });
    expect(book.owner(A, PODS)).toBe('ns/new');
  });

  it('of those that come at once nobody gets an address, until one is left', () => {
    const book = new Claims();
    book.set({ pod: 'ns/new', addresses: [A] }, { pod: 'ns/other', addresses: [A] });
    expect(book.owner(A, PODS)).toBeUndefined();
    expect(book.told).toEqual([`ns/new ${A} contested ns/other`, `ns/other ${A} contested ns/new`]);
    book.set({ pod: 'ns/old', addresses: [A] });
    expect(book.owner(A, PODS)).toBeUndefined();
    book.set({ pod: 'ns/old', addresses: [] }, { pod: 'ns/other', addresses: [] });
    expect(book.owner(A, PODS)).toBe('ns/new');
  });

  it('of many that come at once a refusal names a few', () => {
    const book = new Claims();
    book.set(...Array.from({ length: 20 }, (_, n) => ({ pod: `ns/p${n + 10}`, addresses: [A] })));
    expect(book.told).toHaveLength(20);
    expect(book.told[0]).toBe(`ns/p10 ${A} contested ns/p11 ns/p12 ns/p13 ns/p14 ns/p15`);
  });

  it('who comes or goes costs the same however many claim the address', () => {
    const price = (claimants: number) => {
      const book = new Claims();
      const names = Array.from({ length: claimants }, (_, n) => `ns/p${n}`);
      const cost = (...claims: readonly Claim[]) => {
        const before = book.rows;
        book.set(...claims);
        return book.rows - before;
      };
      const one = { pod: 'ns/last', addresses: [A] };
      book.set({ pod: 'ns/first', addresses: [A] });
      const taken = cost(...names.map((pod) => ({ pod, addresses: [A] })));
      const comes = cost(one);
      const ends = cost({ ...one, terminating: true });
      const goes = cost({ pod: 'ns/last', addresses: [] });
      // The address is nobody's: all of them are told so, once.
      const contested = cost({ pod: 'ns/first', addresses: [] });
      const told = book.told.length;
      const joins = cost(one);
      const leaves = cost({ pod: 'ns/last', addresses: [] });
      expect(book.told.length - told).toBe(1);
      return { each: [taken / claimants, contested / claimants], changes: [comes, ends, goes, joins, leaves] };
    };
    const few = price(100);
    const many = price(3000);
    expect(many.changes).toEqual(few.changes);
    expect(Math.max(...many.changes)).toBeLessThan(25);
    // What concerns all of them costs each of them the same.
    for (const [at, each] of many.each.entries()) expect(each).toBeLessThan(1.1 * (few.each[at] ?? 0));
  });

  it('a pod that is going gives way to one that stays, and gets the address back when it is alone', () => {
    const book = new Claims();
    book.set({ pod: 'ns/old', addresses: [A], terminating: true });
    expect(book.owner(A, PODS)).toBe('ns/old');
    book.set({ pod: 'ns/other', addresses: [A], terminating: true });
    expect(book.owner(A, PODS)).toBe('ns/old');
    book.set({ pod: 'ns/new', addresses: [A] });
    expect(book.owner(A, PODS)).toBe('ns/new');
    book.set({ pod: 'ns/new', addresses: [] }, { pod: 'ns/other', addresses: [] });
    expect(book.owner(A, PODS)).toBe('ns/old');
    expect(book.told).toEqual([]);
  });

  it('another pod of the same name is a newcomer', () => {
    const book = new Claims();
    book.set({ pod: 'ns/old', uid: '1', addresses: [A] });
    book.set({ pod: 'ns/new', uid: '2', addresses: [A] });
    book.set({ pod: 'ns/old', uid: '3', addresses: [A] });
    expect(book.owner(A, PODS)).toBeUndefined();
  });

  it.each<[string, string[]]>([
    ['the newcomer is seen first', ['ns/new', 'ns/old']],
    ['the owner is seen first', ['ns/old', 'ns/new']],
  ])('keeps owners over a restart: %s', (_, order) => {
    const book = new Claims();
    book.loading();
    book.adopt(A, 'ns/old', 'u-ns/old');
    for (const pod of order) book.set({ pod, uid: `u-${pod}`, addresses: [A] });
    expect(book.told).toEqual([]);
    book.adoptionDone();
    expect(book.owner(A, PODS)).toBe('ns/old');
    expect(book.told).toEqual([`ns/new ${A} taken ns/old`]);
  });

  it('after a restart an owner that did not come, or is another of that name, is none', () => {
    for (const uid of [undefined, 'later']) {
      const book = new Claims();
      book.loading();
      book.adopt(A, 'ns/old', 'earlier');
      book.set({ pod: 'ns/new', addresses: [A] });
      if (uid !== undefined) book.set({ pod: 'ns/old', uid, addresses: [A] });
      expect(book.owner(A, PODS)).toBeUndefined();
      book.adoptionDone();
      expect(book.owner(A, PODS)).toBe(uid === undefined ? 'ns/new' : undefined);
    }
  });

  it('says who may have gained or lost an address, and decides as a plain model does', () => {
    const pods = ['ns/a', 'ns/b', 'ns/c', 'ns/foreign'];
    const addresses = ['10.0.0.1', '10.0.0.2', 'fd00::1'];
    const claim = fc.record({
      pod: fc.constantFrom(...pods),
      addresses: fc.subarray(addresses),
      terminating: fc.boolean(),
    });
    const round = fc.uniqueArray(claim, { selector: ({ pod }) => pod, minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(fc.array(round, { maxLength: 30 }), (rounds) => {
        const book = new Claims();
        const claims = new Map<string, Claim>();
        const owners = new Map<string, string>();
        for (const changes of rounds) {
          const before = new Map(owners);
          const touched = book.set(...changes);
          for (const change of changes) claims.set(change.pod, change);
          for (const address of addresses) {
            const all = [...claims.values()].filter((c) => c.addresses.includes(address) && c.pod !== 'ns/foreign');
            const staying = all.filter(({ terminating }) => terminating !== true);
            const best = (staying.length > 0 ? staying : all).map(({ pod }) => pod);
            const had = before.get(address);
            const owner = had !== undefined && best.includes(had) ? had : best.length === 1 ? best[0] : undefined;
            if (owner === undefined) owners.delete(address);
            else owners.set(address, owner);
            expect(book.owner(address, pods)).toBe(owner);
            if (owner !== had) for (const pod of [owner, had]) if (pod !== undefined) expect(touched).toContain(pod);
          }
        }
      }),
    );
  });
});
