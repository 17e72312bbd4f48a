import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { podRow } from '../kubernetes/rows.ts';
import { pod as podObject } from '../testing.ts';
import { AddressClaims } from './address-claims.ts';
import { createPlacedPods } from './placed-pods.ts';

/** Pods with an identity, which claim addresses. */
class Claims {
  readonly #db = createStateDB({ freeze: true, findLeaks: false });
  readonly #pods = createPlacedPods(this.#db);
  readonly #book = new AddressClaims(this.#pods);

  /** Replaces a pod's claims. Returns the other pods that may have gained or lost an address by it. */
  set(pod: string, addresses: readonly string[], terminating: boolean): ReadonlySet<string> {
    return this.#db.write([this.#pods], (txn) => {
      const row = { ...podRow(podObject(`a/${pod}`, {})), key: pod, addresses, terminating };
      const after = { row, identity: 300, waiting: false };
      const before = txn.upsert(this.#pods, after);
      return new Set(Array.from(this.#book.affected(txn, before, after), (other) => other.row.key));
    });
  }

  owns(pod: string, address: string): boolean {
    using snapshot = this.#db.read();
    return this.#book.owns(snapshot, pod, address);
  }
}

describe('AddressClaims', () => {
  it('a pod that stays wins over those that are going, and gets the address back when it is alone', () => {
    const book = new Claims();
    book.set('old', ['10.0.0.1'], false);
    expect(book.owns('old', '10.0.0.1')).toBe(true);
    expect(book.set('new', ['10.0.0.1'], false)).toEqual(new Set(['old']));
    // Both say that they stay: nobody can tell whose it is.
    expect([book.owns('old', '10.0.0.1'), book.owns('new', '10.0.0.1')]).toEqual([false, false]);
    expect(book.set('old', ['10.0.0.1'], true)).toEqual(new Set(['new']));
    expect([book.owns('old', '10.0.0.1'), book.owns('new', '10.0.0.1')]).toEqual([false, true]);
    expect(book.set('new', [], false)).toEqual(new Set(['old']));
    expect(book.owns('old', '10.0.0.1')).toBe(true);
  });

  it('says who may have gained or lost an address, and never has two owners', () => {
    const pods = ['a', 'b', 'c', 'd'];
    const addresses = ['1', '2', '3'];
    const change = fc.record({
      pod: fc.constantFrom(...pods),
      after: fc.subarray(addresses),
      leaving: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(change, { maxLength: 40 }), (changes) => {
        const book = new Claims();
        const claims = new Map<string, { after: string[]; leaving: boolean }>();
        const owners = (): string[] =>
          addresses.flatMap((address) =>
            pods.filter((pod) => book.owns(pod, address)).map((pod) => `${pod} ${address}`),
          );
        for (const { pod, after, leaving } of changes) {
          const before = owners();
          const rivals = book.set(pod, after, leaving);
          claims.set(pod, { after, leaving });
          const now = owners();
          for (const owner of [...before.filter((o) => !now.includes(o)), ...now.filter((o) => !before.includes(o))]) {
            const [name = ''] = owner.split(' ');
            expect(name === pod || rivals.has(name)).toBe(true);
          }
          const expected = addresses.flatMap((address) => {
            const all = [...claims].filter(([, claim]) => claim.after.includes(address));
            const staying = all.filter(([, claim]) => !claim.leaving);
            const [winner] = staying.length > 0 ? staying : all;
            const alone = staying.length === 1 || (staying.length === 0 && all.length === 1);
            return alone && winner !== undefined ? [`${winner[0]} ${address}`] : [];
          });
          expect(now.sort()).toEqual(expected.sort());
        }
      }),
    );
  });
});
