import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import { FairQueue } from './fair-queue.ts';

interface Row {
  readonly key: string;
  readonly owner: string;
  readonly version: number;
}

const action = fc.oneof(
  fc.record({ owner: fc.constantFrom('a', 'b', 'c'), n: fc.nat(9) }),
  fc.record({ owner: fc.constantFrom('a'), n: fc.nat(99) }),
  fc.constantFrom('take' as const, 'take half' as const),
);

it('whatever the trace: of each row the last change is taken, once; those of one owner in their order; those of several in turns', () => {
  fc.assert(
    fc.property(fc.array(action, { maxLength: 150, size: 'max' }), (trace) => {
      const db = createStateDB({ freeze: true });
      const queue = new FairQueue<Row>(db, 'rows');
      /** What waits, in the order in which it came; and what has been taken of each owner since. */
      const waiting = new Map<string, Row & { readonly since: Record<string, number> }>();
      let revision = 0;
      const take = (half = false): void => {
        const row = db.write(queue.tables, (txn) => {
          const taken = queue.take(txn);
          if (taken !== undefined && half) queue.putBack(txn, taken);
          return taken;
        });
        if (row === undefined) {
          expect(waiting.size).toBe(0);
          return;
        }
        const { since = {}, ...expected } = waiting.get(row.key) ?? {};
        expect(row).toEqual(expected);
        const [firstOfOwner] = [...waiting.values()].filter(({ owner }) => owner === row.owner);
        expect(row.key).toBe(firstOfOwner?.key);
        waiting.delete(row.key);
        // What is not done goes behind the others.
        if (half) waiting.set(row.key, { ...row, since: {} });
        for (const other of ['a', 'b', 'c'].filter((owner) => owner !== row.owner))
          expect(since[other] ?? 0).toBeLessThanOrEqual((since[row.owner] ?? 0) + 2);
        for (const each of waiting.values()) each.since[row.owner] = (each.since[row.owner] ?? 0) + 1;
      };
      for (const each of trace) {
        if (each === 'take' || each === 'take half') {
          take(each === 'take half');
          continue;
        }
        revision += 1;
        const row = { key: `${each.owner}${each.n}`, owner: each.owner, version: revision };
        db.write(queue.tables, (txn) => queue.put(txn, row));
        waiting.set(row.key, { ...row, since: waiting.get(row.key)?.since ?? {} });
      }
      while (waiting.size > 0) take();
      expect(db.write(queue.tables, (txn) => queue.take(txn))).toBeUndefined();
    }),
    { numRuns: runs(300) },
  );
});

it('an item that was put again while it was worked on stays, and not what was left of it', () => {
  const db = createStateDB({ freeze: true });
  const queue = new FairQueue<Row>(db, 'rows');
  db.write(queue.tables, (txn) => {
    const [left, again] = [1, 2].map((version) => ({ key: 'x', owner: 'a', version }));
    if (left === undefined || again === undefined) throw new Error('no rows');
    queue.put(txn, again);
    queue.putBack(txn, left);
    expect(queue.take(txn)).toBe(again);
    expect(queue.isEmpty(txn)).toBe(true);
  });
});
