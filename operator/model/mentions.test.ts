import { beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB, type StateDB, type WriteTxn } from '@weir/statedb';
import { MentionBook } from './mentions.ts';
import type { PolicyBook, PolicyEntry } from './policy-book.ts';
import { type CountedReport, type Mentions, type StatusTables, statusTables } from './status-tables.ts';

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

function kept(node: string): Omit<Mentions, 'node'> | undefined {
  using snapshot = db.read();
  const { node: _, ...rest } = snapshot.get(tables.mentions, node) ?? {
    node,
    uids: [],
    policyKeys: {},
    strangers: new Map(),
  };
  return rest;
}

const made = (count: number, key?: string): Record<string, string | undefined> =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`made-up-${n}`, key]));

describe('of a report is kept', () => {
  it('what it says of policies that exist, however many it makes up', () => {
    expect(say('n', { ...made(1_000), p: 'cnp/a/p', q: undefined })).toEqual(['p', 'q']);
    expect(kept('n')).toEqual({ uids: ['p', 'q'], policyKeys: { p: 'cnp/a/p' }, strangers: new Map() });
    // Of a name no more than shows that the node has another policy of it.
    say('n', { ...made(1_000, 'cnp/a/p'), p: 'cnp/a/p' });
    expect(kept('n')).toMatchObject({ policyKeys: { 'made-up-0': 'cnp/a/p', 'made-up-1': 'cnp/a/p' } });
    say('n', {});
    expect(kept('n')).toEqual({ uids: [], policyKeys: {}, strangers: new Map() });
  });

  it('what the policies are asked for only where it says something new', () => {
    say('n', { ...made(1_000, 'cnp/a/none'), p: 'cnp/a/p' });
    asked = 0;
    say('n', { ...made(1_000, 'cnp/a/none'), p: 'cnp/a/p', q: 'cnp/a/q' });
    expect(asked).toBe(2);
    expect(kept('n')?.uids).toEqual(['p', 'q']);
  });

  it('what it said before a policy came, once that is there', () => {
    say('n', { r: 'cnp/a/r', old: 'cnp/a/r' });
    say('m', { s: undefined });
    say('o', { p: undefined });
    expect(kept('n')).toMatchObject({ uids: [], policyKeys: {} });
    for (const uid of ['r', 's']) {
      existing.set(`cnp/a/${uid}`, uid);
      write((txn) => book.acquaint(txn, entry(`cnp/a/${uid}`)));
    }
    expect(kept('n')).toEqual({ uids: ['r'], policyKeys: { r: 'cnp/a/r', old: 'cnp/a/r' }, strangers: new Map() });
    expect(kept('m')?.uids).toEqual(['s']);
    expect(kept('o')?.uids).toEqual(['p']);
    // Reports that say the same do not lose it.
    expect(say('n', { r: 'cnp/a/r', old: 'cnp/a/r' })).toEqual(['old', 'r']);
  });

  it('nothing of a policy that is gone, until there is another of its name', () => {
    for (const node of ['n', 'm']) say(node, { p: 'cnp/a/p', q: 'cnp/a/q' });
    for (const key of existing.keys()) write((txn) => book.acquaint(txn, entry(key)));
    existing.delete('cnp/a/p');
    write((txn) => book.forget(txn, 'cnp/a/p'));
    let pieces = 0;
    for (; write((txn) => book.forgetNext(txn)); pieces += 1);
    // Two for each node, and the policy itself.
    expect(pieces).toBe(5);
    expect(kept('n')).toEqual({ uids: ['q'], policyKeys: { q: 'cnp/a/q' }, strangers: new Map([['cnp/a/p', ['p']]]) });
    existing.set('cnp/a/p', 'new');
    write((txn) => book.acquaint(txn, entry('cnp/a/p')));
    expect(kept('m')).toEqual({ uids: ['q'], policyKeys: { p: 'cnp/a/p', q: 'cnp/a/q' }, strangers: new Map() });
    using snapshot = db.read();
    expect(book.hasGone(snapshot)).toBe(false);
  });
});
