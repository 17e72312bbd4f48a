import { beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB, type StateDB, type WriteTxn } from '@weir/statedb';
import { MentionBook } from './mentions.ts';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import { type CountedReport, type Mention, type StatusTables, statusTables } from './status-tables.ts';

let db: StateDB;
let tables: StatusTables;
let book: MentionBook;
/** Policies that exist: uid by key. */
let existing: Map<string, string>;
/** Questions to the policies. */
let asked: number;

const entry = (key: string): PolicyEntry => ({ row: { key, uid: existing.get(key) } }) as PolicyEntry;

beforeEach(() => {
  db = createStateDB({ freeze: true, findLeaks: false });
  tables = statusTables(db);
  existing = new Map([
    ['cnp/a/p', 'p'],
    ['cnp/a/q', 'q'],
  ]);
  asked = 0;
  const policies: Pick<PolicyBook, 'keyOfUid' | 'get'> = {
    keyOfUid: (_, uid) => {
      asked += 1;
      return [...existing].find(([, of]) => of === uid)?.[0];
    },
    get: (_, key) => {
      asked += 1;
      return existing.has(key) ? entry(key) : undefined;
    },
  };
  book = new MentionBook(policies as PolicyBook, tables);
});

function write<R>(work: (txn: WriteTxn) => R): R {
  return db.write(Object.values(tables), work);
}

/** A report: the keys that it says of uids. All have generation 1. */
function say(node: string, said: Readonly<Record<string, string | undefined>>): readonly string[] {
  const keys = Object.entries(said).flatMap(([uid, key]) => (key === undefined ? [] : [[uid, key] as const]));
  const report: CountedReport = {
    ...{ node, nodeUid: node, policyVersion: '1', failures: {} },
    generations: Object.fromEntries(Object.keys(said).map((uid) => [uid, 1])),
    policyKeys: Object.fromEntries(keys),
  };
  return write((txn) => [...book.count(txn, node, report)].sort());
}

/** Of the policies that exist or did, and the keys that none had. */
function kept(node: string): {
  readonly mentions: readonly Omit<Mention, 'node'>[];
  readonly strangers: readonly string[];
} {
  using snapshot = db.read();
  const mentions = Array.from(snapshot.all(tables.mentions)).filter((mention) => mention.node === node);
  const strangers = snapshot.get(tables.strangers, node)?.uids.keys() ?? [];
  return { mentions: mentions.map(({ node: _, ...mention }) => mention), strangers: [...strangers] };
}

const says = (uid: string, key?: string): Omit<Mention, 'node'> => ({ uid, says: true, key });
const isSaidToBe = (key: string, uid: string): Omit<Mention, 'node'> => ({ uid, says: false, key });

const made = (count: number, key?: string): Record<string, string | undefined> =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`made-up-${n}`, key]));

describe('of a report is kept', () => {
  it('what it says of policies that exist, however many it makes up', () => {
    expect(say('n', { ...made(1_000), p: 'cnp/a/p', q: undefined })).toEqual(['p', 'q']);
    expect(kept('n')).toEqual({ mentions: [says('p', 'cnp/a/p'), says('q')], strangers: [] });
    // Of a name no more than shows that the node has another policy of it.
    say('n', { ...made(1_000, 'cnp/a/p'), p: 'cnp/a/p' });
    const others = [0, 1].map((n) => isSaidToBe('cnp/a/p', `made-up-${n}`));
    expect(kept('n').mentions).toEqual([...others, says('p')]);
    say('n', {});
    expect(kept('n')).toEqual({ mentions: [], strangers: [] });
  });

  it('what the policies are asked for only where it says something new', () => {
    say('n', { ...made(1_000, 'cnp/a/none'), p: 'cnp/a/p' });
    asked = 0;
    say('n', { ...made(1_000, 'cnp/a/none'), p: 'cnp/a/p', q: 'cnp/a/q' });
    expect(asked).toBe(2);
    expect(kept('n')).toEqual({ mentions: [says('p', 'cnp/a/p'), says('q', 'cnp/a/q')], strangers: ['cnp/a/none'] });
  });

  it('what it said before a policy came, once that is there', () => {
    say('n', { r: 'cnp/a/r', old: 'cnp/a/r' });
    say('m', { s: undefined });
    say('o', { p: undefined });
    expect(kept('n').mentions).toEqual([]);
    for (const uid of ['r', 's']) {
      existing.set(`cnp/a/${uid}`, uid);
      write((txn) => book.acquaint(txn, entry(`cnp/a/${uid}`)));
    }
    const ofR = [isSaidToBe('cnp/a/r', 'old'), says('r', 'cnp/a/r')];
    expect(kept('n').mentions).toEqual(ofR);
    expect(kept('m').mentions).toEqual([says('s')]);
    expect(kept('o').mentions).toEqual([says('p')]);
    // Reports that say the same do not lose it.
    expect(say('n', { r: 'cnp/a/r', old: 'cnp/a/r' })).toEqual(['old', 'r']);
    expect(kept('n')).toEqual({ mentions: ofR, strangers: [] });
  });

  it('in no more time for a policy that comes to one large report than for one that comes to a small one', () => {
    const known = 50;
    const spent = (count: number): number => {
      say('n', Object.fromEntries(Array.from({ length: count }, (_, n) => [`u${n}`, `cnp/${count}/p${n}`])));
      const began = performance.now();
      for (let n = 0; n < known; n += 1) {
        existing.set(`cnp/${count}/p${n}`, `new${n}-${count}`);
        write((txn) => book.acquaint(txn, entry(`cnp/${count}/p${n}`)));
      }
      return performance.now() - began;
    };
    const small = spent(known);
    expect(spent(20_000)).toBeLessThan(10 * small + 50);
  });

  it('nothing of a policy that is gone, until there is another of its name', () => {
    for (const node of ['n', 'm']) say(node, { p: 'cnp/a/p', q: 'cnp/a/q' });
    for (const key of existing.keys()) write((txn) => book.acquaint(txn, entry(key)));
    existing.delete('cnp/a/p');
    write((txn) => book.forget(txn, 'cnp/a/p'));
    while (write((txn) => book.forgetNext(txn)));
    expect(kept('n')).toEqual({ mentions: [says('q', 'cnp/a/q')], strangers: ['cnp/a/p'] });
    existing.set('cnp/a/p', 'new');
    write((txn) => book.acquaint(txn, entry('cnp/a/p')));
    expect(kept('m').mentions).toEqual([isSaidToBe('cnp/a/p', 'p'), says('q', 'cnp/a/q')]);
    using snapshot = db.read();
    expect(book.hasGone(snapshot)).toBe(false);
  });

  it('nothing of policies that are gone, forgotten in pieces', () => {
    const gone = Array.from({ length: 700 }, (_, n) => [`u${n}`, `cnp/a/${n}`] as const);
    for (const [uid, key] of gone) existing.set(key, uid);
    say('n', Object.fromEntries(gone));
    for (const [, key] of gone) {
      write((txn) => book.acquaint(txn, entry(key)));
      existing.delete(key);
      write((txn) => book.forget(txn, key));
    }
    let pieces = 0;
    while (write((txn) => book.forgetNext(txn))) pieces += 1;
    // Each is said of a uid, and of a key.
    expect(pieces).toBe((2 * gone.length) / 200 + 1);
    expect(kept('n').mentions).toEqual([]);
    expect(kept('n').strangers.toSorted()).toEqual(gone.map(([, key]) => key).toSorted());
  });
});
