import { describe, expect, it } from '@jest/globals';
import type { SliceEndpoint } from '@weir/kube';
import { type AnyTable, createStateDB, type StateDB, type WriteTxn } from '@weir/statedb';
import { peerSetName, resolvedName } from '../names.ts';
import { createTables, type Tables } from '../tables.ts';
import type { SliceRow } from '../types.ts';
import { CookieBook } from './cookies.ts';
import { IdentityBook } from './identity-book.ts';
import { createKnownIdentities } from './known-identities.ts';
import { SlicePacker } from './slices.ts';

const endpoint = (name: string): SliceEndpoint => ({
  name,
  id: 0,
  identity: 300,
  networking: { addressing: [{ ipv4: '10.0.0.1' }], node: '' },
});

/** A book on tables of its own; runs `fn` as one transaction on them. */
function withBook<B extends { readonly tables: readonly AnyTable[] }, R>(
  create: (db: StateDB, tables: Tables) => B,
  fn: (book: B, txn: WriteTxn, tables: Tables) => R,
): R {
  const db = createStateDB({ freeze: true, findLeaks: false });
  const tables = createTables(db);
  const book = create(db, tables);
  return db.write([...book.tables, tables.identities, tables.slices], (txn) => fn(book, txn, tables));
}

const withCookies = <R>(fn: (book: CookieBook, txn: WriteTxn) => R): R => withBook((db) => new CookieBook(db), fn);
/** `collected`: what a collection at `now` forgets. */
const withIdentities = (
  fn: (book: IdentityBook, txn: WriteTxn, collected: (now: number, graceMs: number) => number[]) => void,
): void => {
  const forgotten: number[] = [];
  withBook(
    (db, tables) =>
      new IdentityBook(db, createKnownIdentities(db), tables.identities, {
        perNamespace: 0,
        onForgotten: (_, { id }) => forgotten.push(id),
        onFreed: () => {},
      }),
    (book, txn) =>
      fn(book, txn, (now, graceMs) => {
        book.collect(txn, now, graceMs);
        return forgotten.splice(0);
      }),
  );
};

/** What is shown in the end. */
const shownBy = (fn: (packer: SlicePacker, txn: WriteTxn) => void): SliceRow[] =>
  withBook(
    (db, tables) => new SlicePacker(db, tables.slices),
    (packer, txn, tables) => {
      fn(packer, txn);
      packer.showChanged(txn);
      return Array.from(txn.all(tables.slices), ({ row }) => row);
    },
  );

describe('SlicePacker', () => {
  it('keeps the place of a pod over a restart, and gives up the places of pods that are gone', () => {
    const rows = shownBy((packer, txn) => {
      packer.adopt(txn, 'ces-a-0', 'a', ['gone']);
      packer.adopt(txn, 'ces-a-1', 'a', ['p', 'also-gone']);
      packer.set(txn, 'a', endpoint('p'));
      packer.adoptionDone(txn);
    });
    expect(rows.find((r) => r.name === 'ces-a-0')).toBeUndefined();
    expect(rows.find((r) => r.name === 'ces-a-1')?.endpoints.map((e) => e.name)).toEqual(['p']);
  });

  it('a pod that two slices claim is in one only', () => {
    const rows = shownBy((packer, txn) => {
      packer.adopt(txn, 'ces-a-0', 'a', ['p']);
      packer.adopt(txn, 'ces-a-1', 'a', ['p', 'q']);
      packer.set(txn, 'a', endpoint('p'));
      packer.set(txn, 'a', endpoint('q'));
      packer.adoptionDone(txn);
    });
    const shown = rows.flatMap((r) => r.endpoints.map((e) => `${r.name} ${e.name}`));
    expect(shown.sort()).toEqual(['ces-a-0 p', 'ces-a-1 q']);
  });
});

describe('CookieBook', () => {
  it('gives the same number for the same element, another for another, and steps over a taken one', () => {
    const element = 'u spec.ingress[0]';
    const cookie = withCookies((first, txn) => first.give(txn, element));
    expect(withCookies((second, txn) => second.give(txn, element))).toBe(cookie);
    withCookies((crowded, txn) => {
      expect(crowded.keep(txn, cookie, 'another')).toBe(true);
      const next = crowded.give(txn, element);
      expect(next).toBe(cookie === 0x7fffffff ? 1 : cookie + 1);
      expect(crowded.keep(txn, cookie, element)).toBe(false);
      crowded.release(txn, cookie, 'another');
      expect(crowded.keep(txn, cookie, element)).toBe(true);
    });
  });
});

describe('IdentityBook', () => {
  it('of two numbers for one label set the lowest wins, and the other is collected when unused', () => {
    withIdentities((book, txn, collected) => {
      const labels = { 'k8s:app': 'x' };
      for (const id of [400, 300, 500]) expect(book.adopt(txn, { id, labels }, 0)).toBe(true);
      expect(book.use(txn, labels)).toEqual({ id: 300, allocated: false });
      expect(collected(999, 1000)).toEqual([]);
      // The last number stays until there is another.
      expect(collected(1000, 1000)).toEqual([400]);
      expect(book.use(txn, { 'k8s:app': 'y' }).id).toBe(501);
      expect(collected(1000, 1000)).toEqual([500]);
      expect(book.adopt(txn, { id: 70000, labels: {} }, 0)).toBe(false);
    });
  });

  it('does not reuse a number before the range is used up', () => {
    withIdentities((book, txn, collected) => {
      const { id } = book.use(txn, { 'k8s:app': 'a' });
      book.release(txn, id, 0);
      expect(book.use(txn, { 'k8s:app': 'b' }).id).toBe(id + 1);
      expect(collected(10, 10)).toEqual([id]);
      expect(book.use(txn, { 'k8s:app': 'c' }).id).toBe(id + 2);
    });
  });
});

describe('names', () => {
  it('are distinct and never too long', () => {
    const long = 'x'.repeat(253);
    const name = resolvedName('CiliumNetworkPolicy', 'a'.repeat(63), long);
    expect(name.length).toBeLessThanOrEqual(253);
    expect(name).not.toBe(resolvedName('CiliumNetworkPolicy', 'a'.repeat(63), `${long.slice(1)}y`));
    expect(resolvedName('CiliumNetworkPolicy', 'ns', 'p')).toBe('cnp-ns.p');
    expect(resolvedName('CiliumClusterwideNetworkPolicy', undefined, 'p')).toBe('ccnp-p');
    expect([peerSetName('h', 0), peerSetName('h', 2)]).toEqual(['h', 'h-2']);
  });

  it('that are cut short are no name of another policy, whatever somebody calls it', () => {
    const kind = 'CiliumNetworkPolicy';
    const long = resolvedName(kind, 'ns', 'x'.repeat(253));
    for (const start of ['cnp-ns.', 'cnp.ns.']) {
      // A policy of the same namespace, with a name that is not cut and reads like the one that was.
      const forged = long.slice(start.length);
      expect(resolvedName(kind, 'ns', forged)).not.toBe(long);
    }
    expect(long).toMatch(/-[0-9a-f]{64}$/);
    expect(resolvedName('NetworkPolicy', 'ns', 'x'.repeat(253))).not.toBe(long);
  });
});
