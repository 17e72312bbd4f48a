/** Random trees against a sorted list of keys: thin and crowded branches, keys that end early, units beyond a byte. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import type { Tree } from './branch.ts';
import { Cursor, find, put, remove, under, walk } from './tree.ts';

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

/** The keys that a walk shows until `last` of them have been seen. */
function shown(tree: Tree<Held> | undefined, last = Number.POSITIVE_INFINITY): string[] {
  const found: string[] = [];
  const whole = walk(tree, {
    leaf: ({ key: seen }) => {
      found.push(seen);
      return found.length < last;
    },
  });
  expect(whole).toBe(found.length < last);
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
            expect(shown(tree)).toEqual(all);
            expect(shown(tree, 3)).toEqual(all.slice(0, 3));
            for (const probe of probes) {
              expect(find(tree, probe)?.value).toBe(model.get(probe));
              expect(keysOf(Cursor.from(tree, probe))).toEqual(all.filter((at) => at >= probe));
              const within = all.filter((at) => at.startsWith(probe));
              expect(keysOf(Cursor.prefix(tree, probe))).toEqual(within);
              expect(shown(under(tree, probe))).toEqual(within);
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
      { numRuns: runs(60) },
    );
  });

  it('of keys that begin with each other is walked to any depth', () => {
    const keys = Array.from({ length: 2000 }, (_, length) => 'k'.repeat(length));
    let tree: Tree<Held> | undefined;
    for (const [value, at] of keys.entries()) tree = put<Held>(tree, { at: -1, key: at, value }, 1);
    expect(shown(tree)).toEqual(keys);
    expect(shown(tree, 300)).toEqual(keys.slice(0, 300));
  });
});
