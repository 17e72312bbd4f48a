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
import { createKnownIdentities, identityKey } from './known-identities.ts';
import { SelectorIndex } from './selector-index.ts';

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
  | { readonly evaluated: LabelSelector }
  | { readonly piece: number };
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ id: fc.integer({ min: 256, max: 262 }), labels: fc.option(labels, { nil: undefined }) }),
  fc.record({ selector, there: fc.boolean() }),
  fc.record({ evaluated: selector }),
  fc.record({ piece: fc.integer({ min: 1, max: 3 }) }),
);

it('a set has exactly the identities that its selector matches, whatever comes first', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40, size: 'max' }), (steps) => {
      const db = createStateDB({ freeze: true, findLeaks: false });
      const known = createKnownIdentities(db);
      const index = new SelectorIndex(db, known);
      const identities = new Map<number, LabelMap>();
      const selectors = new Map<string, LabelSelector>();
      db.write([known, ...index.tables], (txn) => {
        for (const each of steps) {
          if ('piece' in each) {
            index.lookNext(txn, each.piece);
          } else if ('evaluated' in each) {
            index.sizeOf(txn, 'policy', selectorHash(each.evaluated), each.evaluated);
          } else if ('selector' in each) {
            const hash = selectorHash(each.selector);
            if (each.there) index.add(txn, 'policy', hash, each.selector);
            else index.remove(txn, hash);
            if (each.there) selectors.set(hash, each.selector);
            else selectors.delete(hash);
          } else {
            const before = identities.get(each.id);
            if (before !== undefined) index.removeIdentity(txn, each.id, before);
            txn.delete(known, identityKey(each.id));
            identities.delete(each.id);
            if (each.labels === undefined) continue;
            identities.set(each.id, each.labels);
            txn.insert(known, {
              row: { id: each.id, labels: each.labels },
              unusedSince: undefined,
              payer: undefined,
              owed: false,
            });
            index.addIdentity(txn, each.id, each.labels);
          }
        }
        for (const [hash, wanted] of selectors) {
          const expected = [...identities].filter(([, map]) => matches(wanted, map)).map(([id]) => id);
          expect(new Set(index.matched(txn, hash)).isSupersetOf(new Set(expected))).toBe(true);
        }
        while (index.lookNext(txn, 1));
        expect([...index.hashes(txn)].sort()).toEqual([...selectors.keys()].sort());
        for (const [hash, wanted] of selectors) {
          const expected = [...identities].filter(([, map]) => matches(wanted, map)).map(([id]) => id);
          expect([...index.members(txn, hash)]).toEqual(expected.sort((a, b) => a - b));
          for (const id of identities.keys()) expect(index.has(txn, hash, id)).toBe(expected.includes(id));
        }
      });
    }),
    { numRuns: runs(300) },
  );
});

it('of one namespace only so many identities wait to come to sets: who brings more pays for one each', () => {
  const db = createStateDB({ freeze: true, findLeaks: false });
  const known = createKnownIdentities(db);
  const index = new SelectorIndex(db, known);
  const all: LabelSelector = { requirements: [] };
  db.write([known, ...index.tables], (txn) => {
    index.add(txn, 'policy', selectorHash(all), all);
    for (let id = 256; id < 256 + 1_200; id += 1) {
      // The last is of another namespace.
      const map: LabelMap = { [NAMESPACE]: id < 256 + 1_199 ? 'a' : 'b', 'k8s:id': String(id) };
      txn.insert(known, { row: { id, labels: map }, unusedSince: undefined, payer: undefined, owed: false });
      index.addIdentity(txn, id, map);
    }
    expect(index.members(txn, selectorHash(all))).toHaveLength(199);
    expect(new Set(index.matched(txn, selectorHash(all))).size).toBe(1_200);
  });
});
