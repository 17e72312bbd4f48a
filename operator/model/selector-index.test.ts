import { expect, it } from '@jest/globals';
import {
  canonicalSelector,
  type LabelMap,
  type LabelSelector,
  matches,
  type Operator,
  selectorHash,
} from '@weir/labels';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { FairQueue } from './fair-queue.ts';
import { createKnownIdentities, identityKey } from './known-identities.ts';
import { SelectorIndex } from './selector-index.ts';
import type { Work } from './work.ts';

const NAMESPACE = 'k8s:io.kubernetes.pod.namespace';
const many = (count: number): string[] => Array.from({ length: count }, (_, n) => `v${n}`);

const labels: fc.Arbitrary<LabelMap> = fc.record({
  [NAMESPACE]: fc.constantFrom('a', 'b'),
  'k8s:io.cilium.k8s.policy.cluster': fc.constant('default'),
  'k8s:app': fc.constantFrom('v1', 'v2', 'v150'),
  // A label of one key may come from two sources.
  'other:app': fc.constantFrom('v1', 'v3'),
});

const requirement = fc.oneof(
  fc.record({
    key: fc.constantFrom('k8s:app', 'any:app', 'k8s:io.cilium.k8s.policy.cluster'),
    operator: fc.constantFrom<Operator>('In', 'NotIn'),
    values: fc.constantFrom(['v1'], ['v1', 'v2'], ['default'], many(99), many(200)),
  }),
  fc.record({
    key: fc.constant(NAMESPACE),
    operator: fc.constant<Operator>('In'),
    values: fc.constantFrom(['a'], ['a', 'b'], ['a', ...many(60)], ['b', ...many(120)]),
  }),
  fc.record({
    key: fc.constantFrom('any:app', NAMESPACE),
    operator: fc.constantFrom<Operator>('Exists', 'DoesNotExist'),
    values: fc.constant<string[]>([]),
  }),
);
const selector = fc
  .array(requirement, { maxLength: 3 })
  .map((requirements): LabelSelector => canonicalSelector({ requirements }));

type Step =
  | { readonly id: number; readonly labels: LabelMap | undefined }
  | { readonly selector: LabelSelector; readonly there: boolean }
  | { readonly piece: number };
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ id: fc.integer({ min: 256, max: 262 }), labels: fc.option(labels, { nil: undefined }) }),
  fc.record({ selector, there: fc.boolean() }),
  fc.record({ piece: fc.integer({ min: 1, max: 3 }) }),
);

it('a set has exactly the identities that its selector matches, whatever comes first', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40, size: 'max' }), (steps) => {
      const db = createStateDB({ freeze: true, findLeaks: false });
      const known = createKnownIdentities(db);
      const queue = new FairQueue<Work>(db, 'work');
      const index = new SelectorIndex(db, known, {
        queue,
        isStarted: () => true,
        onChanged: () => {},
        onMoved: () => {},
      });
      const identities = new Map<number, LabelMap>();
      const selectors = new Map<string, LabelSelector>();
      db.write([known, ...index.tables, ...queue.tables], (txn) => {
        /** So many rows are looked at in a piece, times 64. Returns whether there was something to do. */
        const work = (pieces: number): boolean => {
          let asked = 0;
          const hasTime = (): boolean => {
            asked += 1;
            return asked < pieces;
          };
          const next = queue.take(txn);
          if (next !== undefined && !index.look(txn, next.of, hasTime)) queue.putBack(txn, next);
          const pending = [...selectors.keys()].find((hash) => !index.isComplete(txn, hash));
          if (pending !== undefined) index.evaluate(txn, pending, hasTime);
          return next !== undefined || pending !== undefined;
        };
        for (const each of steps) {
          if ('piece' in each) {
            work(each.piece);
          } else if ('selector' in each) {
            const hash = selectorHash(each.selector);
            if (each.there) index.add(txn, hash, each.selector);
            else index.remove(txn, hash);
            if (each.there) selectors.set(hash, each.selector);
            else selectors.delete(hash);
          } else {
            const before = identities.get(each.id);
            txn.delete(known, identityKey(each.id));
            if (before !== undefined) index.identityChanged(txn, each.id, before);
            identities.delete(each.id);
            if (each.labels === undefined) continue;
            identities.set(each.id, each.labels);
            txn.insert(known, {
              row: { id: each.id, labels: each.labels },
              unusedSince: undefined,
            });
            index.identityChanged(txn, each.id, each.labels);
          }
        }
        for (const [hash, wanted] of selectors) {
          if (!index.isComplete(txn, hash)) continue;
          const expected = [...identities].filter(([, map]) => matches(wanted, map)).map(([id]) => id);
          expect(new Set(index.matched(txn, hash)).isSupersetOf(new Set(expected))).toBe(true);
        }
        while (work(1));
        for (const [hash, wanted] of selectors) {
          const expected = [...identities].filter(([, map]) => matches(wanted, map)).map(([id]) => id);
          expect([...index.members(txn, hash)]).toEqual(expected.sort((a, b) => a - b));
        }
      });
    }),
    { numRuns: runs(300) },
  );
});

it('a selector of many identities is evaluated in pieces, and has those that come and go meanwhile', () => {
  const db = createStateDB({ freeze: true, findLeaks: false });
  const known = createKnownIdentities(db);
  const queue = new FairQueue<Work>(db, 'work');
  const index = new SelectorIndex(db, known, { queue, isStarted: () => true, onChanged: () => {}, onMoved: () => {} });
  const all: LabelSelector = { requirements: [] };
  const hash = selectorHash(all);
  db.write([known, ...index.tables, ...queue.tables], (txn) => {
    const labelsOf = (id: number): LabelMap => ({ [NAMESPACE]: 'a', 'k8s:id': String(id) });
    const change = (id: number, there: boolean): void => {
      if (there) txn.insert(known, { row: { id, labels: labelsOf(id) }, unusedSince: undefined });
      else txn.delete(known, identityKey(id));
      index.identityChanged(txn, id, labelsOf(id));
    };
    for (let id = 256; id < 1_256; id += 1) change(id, true);
    expect(queue.isEmpty(txn)).toBe(true);
    index.add(txn, hash, all);
    let pieces = 1;
    for (; !index.evaluate(txn, hash, () => false); pieces += 1) {
      // One that has been looked at, one that has not, and a new one.
      if (pieces === 5) for (const id of [300, 1_000]) change(id, false);
      if (pieces === 7) change(300, true);
    }
    expect(pieces).toBe(Math.ceil(999 / 64));
    for (let next = queue.take(txn); next !== undefined; next = queue.take(txn)) index.look(txn, next.of, () => true);
    expect(index.members(txn, hash)).toEqual(Array.from(txn.all(known), ({ row }) => row.id));
    expect(index.members(txn, hash)).toHaveLength(999);
  });
});
