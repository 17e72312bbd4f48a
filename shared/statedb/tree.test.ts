/** Random trees against a sorted list of keys: thin and crowded branches, keys that end early, units beyond a byte. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { Cursor, find, put, remove, type Tree } from './tree.ts';

interface Held {
  readonly at: -1;
  readonly key: string;
  readonly value: number;
}

// Most keys share a beginning, so that one branch gets more children than it searches; a unit beyond a byte sends it back.
const unit = fc.oneof(
  { weight: 1500, arbitrary: fc.integer({ min: 0, max: 255 }) },
  { weight: 1, arbitrary: fc.constantFrom(256, 0x4e00, 0xffff) },
);
const key = fc.oneof(
  { weight: 8, arbitrary: unit.map((code) => `k${String.fromCharCode(code)}`) },
  { weight: 2, arbitrary: fc.tuple(unit, unit).map((codes) => `k${String.fromCharCode(...codes)}`) },
  { weight: 1, arbitrary: fc.constantFrom('', 'k', 'l', 'kk') },
);
const step = fc.record({ key, remove: fc.boolean(), write: fc.boolean() });

function keysOf(cursor: Cursor<Held>): string[] {
  const found: string[] = [];
  for (let leaf = cursor.next(); leaf !== undefined; leaf = cursor.next()) found.push(leaf.key);
  return found;
}

describe('a tree', () => {
  it('holds, finds and orders what a sorted list does, and older trees stay as they were', () => {
    fc.assert(
      fc.property(
        fc.array(key, { minLength: 60, maxLength: 400 }),
        fc.array(step, { maxLength: 200 }),
        fc.array(key, { minLength: 5, maxLength: 20 }),
        (first, steps, probes) => {
          const model = new Map<string, number>();
          let tree: Tree<Held> | undefined;
          let edit = 1;
          const olds: { readonly tree: Tree<Held> | undefined; readonly keys: readonly string[] }[] = [];
          const sorted = (): string[] => [...model.keys()].sort((a, b) => (a < b ? -1 : 1));
          const apply = (at: string, gone: boolean, value: number): void => {
            if (gone) {
              tree = remove(tree, at, edit);
              model.delete(at);
            } else {
              tree = put<Held>(tree, { at: -1, key: at, value }, edit);
              model.set(at, value);
            }
          };
          first.forEach((at, value) => {
            apply(at, false, value);
          });
          const check = (): void => {
            const all = sorted();
            expect(keysOf(Cursor.all(tree))).toEqual(all);
            for (const probe of probes) {
              expect(find(tree, probe)?.value).toBe(model.get(probe));
              expect(keysOf(Cursor.from(tree, probe))).toEqual(all.filter((at) => at >= probe));
              expect(keysOf(Cursor.prefix(tree, probe))).toEqual(all.filter((at) => at.startsWith(probe)));
            }
          };
          check();
          steps.forEach(({ key: at, remove: gone, write }, value) => {
            if (write) {
              // What is handed out is not changed under another token.
              olds.push({ tree, keys: sorted() });
              edit++;
            }
            apply(at, gone, -value);
          });
          check();
          // Down to nothing, through every kind of branch.
          olds.push({ tree, keys: sorted() });
          edit++;
          for (const at of sorted().reverse()) {
            apply(at, true, 0);
            if (model.size % 16 === 0) check();
          }
          expect(tree).toBeUndefined();
          for (const old of olds) expect(keysOf(Cursor.all(old.tree))).toEqual(old.keys);
        },
      ),
      { numRuns: 60 },
    );
  });
});
