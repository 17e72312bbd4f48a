import { beforeEach, describe, expect, it } from '@jest/globals';
import { createStateDB, type StateDB } from '@weir/statedb';
import type { Tables } from '../core.ts';
import { createTables } from '../create-tables.ts';
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
  });

  function sets(): PeerSetRow[] {
    using snapshot = db.read();
    return [...snapshot.all(tables.peerSets)];
  }

  /** The app that each set selects, and whose set it is. */
  function selected(): Record<string, string> {
    return Object.fromEntries(sets().map(({ selector, origin }) => [selector.requirements[0]?.values?.[0], origin]));
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

  it('share sets, which go with the last rule that names them', () => {
    rules.import([allow('b', 'one'), allow('b', 'two')]);
    expect(rules.delete(['unspec:name=one'])).toBe(1);
    expect(selected()).toEqual({ server: 'local', b: 'local' });
    rules.import([allow('c', 'two')], { replace: true });
    expect(selected()).toEqual({ server: 'local', c: 'local' });
    rules.import([allow('d', 'three')], { replaceWithLabels: ['unspec:name=two'] });
    expect(selected()).toEqual({ server: 'local', d: 'local' });
    expect([rules.delete([]), rules.delete([]), sets(), policies()]).toEqual([1, 0, [], 0]);
  });

  it("leave the cluster's sets alone, and put them back when the cluster drops them", () => {
    rules.import([allow('b')]);
    const own = sets().find(({ selector }) => selector.requirements[0]?.values?.includes('b'));
    if (own === undefined) throw new Error('there is no set of app b');
    const theirs: PeerSetRow = { ...own, identities: [400], origin: 'cluster' };
    db.write([tables.peerSets], (txn) => txn.upsert(tables.peerSets, theirs));
    rules.sync();
    expect(selected()).toEqual({ server: 'local', b: 'cluster' });
    db.write([tables.peerSets], (txn) => txn.delete(tables.peerSets, theirs.hash));
    rules.sync();
    expect(sets().find(({ hash }) => hash === own.hash)).toEqual({ ...own, identities: [], origin: 'local' });
    db.write([tables.peerSets], (txn) => txn.upsert(tables.peerSets, theirs));
    rules.delete([]);
    expect(sets()).toEqual([theirs]);
  });
});
