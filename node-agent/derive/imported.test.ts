import { beforeEach, describe, expect, it } from '@jest/globals';
import { labelsKey } from '@weir/labels';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { createTables, tableKey } from '../create-tables.ts';
import type { PeerSetRow } from '../tables.ts';
import { ImportedRules } from './imported.ts';

/** Lets pods of app `peer` reach pods of app `server`. */
function allow(peer: string, name = peer): object {
  return {
    endpointSelector: { matchLabels: { app: 'server' } },
    ingress: [{ fromEndpoints: [{ matchLabels: { app: peer } }] }],
    labels: [{ key: 'name', value: name, source: 'unspec' }],
  };
}

describe('rules imported on this node', () => {
  let db: StateDB;
  let tables: Tables;
  let rules: ImportedRules;

  beforeEach(() => {
    db = createStateDB({ freeze: true });
    tables = createTables(db);
    rules = new ImportedRules(db, tables);
    identity(256, 'server');
    identity(257, 'b');
  });

  function identity(id: number, app: string | undefined): void {
    db.write([tables.identities], (txn) => {
      const labels = { 'k8s:app': app ?? '' };
      if (app === undefined) txn.delete(tables.identities, tableKey.identity(id));
      else txn.upsert(tables.identities, { id, labels, labelsKey: labelsKey(labels), peerSets: [] });
    });
  }

  function sets(): PeerSetRow[] {
    using snapshot = db.read();
    return [...snapshot.all(tables.peerSets)];
  }

  /** Members of each set, by the app that it selects. */
  function members(): Record<string, readonly number[]> {
    return Object.fromEntries(
      sets().map(({ selector, identities }) => [selector.requirements[0]?.values?.[0], identities]),
    );
  }

  function policies(): number {
    using snapshot = db.read();
    return snapshot.count(tables.policies);
  }

  it('are told in the order in which they came, each once', () => {
    const all = ['z', 'm', 'a'].map((peer) => allow(peer));
    expect(rules.import(all)).toEqual([]);
    rules.import([allow('q'), allow('m'), allow('q')]);
    expect(rules.list().map(({ json }) => json)).toEqual([...all, allow('q')]);
    expect(policies()).toBe(4);
    expect(rules.list(['unspec:name=m'])).toMatchObject([{ json: allow('m') }]);
  });

  it('change nothing when one of them is not valid', () => {
    expect(rules.import([allow('b'), { endpointSelector: 5 }])).not.toEqual([]);
    expect([rules.list(), policies(), sets()]).toEqual([[], 0, []]);
  });

  it('have sets of the identities that their selectors match, at any time', () => {
    rules.import([allow('b')]);
    expect(members()).toEqual({ server: [256], b: [257] });
    identity(300, 'b');
    identity(258, 'b');
    identity(0x03000001, 'b');
    identity(256, undefined);
    rules.sync();
    expect(members()).toEqual({ server: [], b: [257, 258, 300] });
    identity(257, 'server');
    rules.sync();
    expect(members()).toEqual({ server: [257], b: [258, 300] });
    const before = sets();
    identity(301, 'other');
    rules.sync();
    expect(sets().every((set, index) => set === before[index])).toBe(true);
  });

  it('share sets, which go with the last rule that names them', () => {
    rules.import([allow('b', 'one'), allow('b', 'two')]);
    expect(rules.delete(['unspec:name=one'])).toBe(1);
    expect(members()).toEqual({ server: [256], b: [257] });
    rules.import([allow('c', 'two')], { replace: true });
    expect(members()).toEqual({ server: [256], c: [] });
    rules.import([allow('d', 'three')], { replaceWithLabels: ['unspec:name=two'] });
    expect(members()).toEqual({ server: [256], d: [] });
    expect([rules.delete([]), rules.delete([]), sets(), policies()]).toEqual([1, 0, [], 0]);
  });

  it("leave the cluster's sets alone, and put them back when the cluster drops them", () => {
    rules.import([allow('b')]);
    const own = sets().find(({ identities }) => identities.includes(257));
    if (own === undefined) throw new Error('there is no set of app b');
    const theirs: PeerSetRow = { ...own, identities: [400], origin: 'cluster' };
    db.write([tables.peerSets], (txn) => txn.upsert(tables.peerSets, theirs));
    identity(258, 'b');
    rules.sync();
    expect(members()).toEqual({ server: [256], b: [400] });
    db.write([tables.peerSets], (txn) => txn.delete(tables.peerSets, theirs.hash));
    rules.sync();
    expect(members()).toEqual({ server: [256], b: [257, 258] });
    db.write([tables.peerSets], (txn) => txn.upsert(tables.peerSets, theirs));
    rules.delete([]);
    expect(sets()).toEqual([theirs]);
  });
});
