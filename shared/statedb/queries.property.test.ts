/** Every query and every write on every kind of index against a plain model: in transactions, snapshots, iterators. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { runs } from '../../test/runs.ts';
import type { Query, Snapshot } from './index.ts';
import { Model, operation, question, type Row, setUp } from './testing/model.ts';

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('write' as const),
      operations: fc.array(operation, { maxLength: 6 }),
      abort: fc.nat(3).map((n) => n === 0),
    }),
  },
  { weight: 2, arbitrary: fc.constant({ kind: 'hold' as const }) },
  { weight: 1, arbitrary: fc.nat(3).map((which) => ({ kind: 'release' as const, which })) },
  {
    weight: 2,
    arbitrary: fc.tuple(question, fc.nat(2)).map(([ask, taken]) => ({ kind: 'iterate' as const, ask, taken })),
  },
);

/** An iterator that has been begun, and what it must still give. */
interface Begun {
  readonly rows: Iterator<Row>;
  readonly rest: Row[];
}

function begin(
  reader: Snapshot | Parameters<Model['apply']>[0],
  query: Query<Row>,
  model: Model,
  taken: number,
): Begun {
  const begun = { rows: reader.select(query), rest: model.answer(query) };
  for (let i = 0; i < taken; i++) advance(begun);
  return begun;
}

function advance({ rows, rest }: Begun): boolean {
  const { value, done } = rows.next();
  expect(done ? undefined : value).toEqual(rest.shift());
  return done === true;
}

function finish(begun: Begun): void {
  while (!advance(begun));
}

describe('queries', () => {
  it('agree with the model, in transactions and out, in snapshots old and new', () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 25, size: 'max' }),
        fc.array(question, { minLength: 3, maxLength: 6 }),
        (steps, asked) => {
          const { db, table } = setUp();
          const queries = asked.map((ask) => ask(table));
          let model = new Model();
          const held: { readonly snapshot: Snapshot; readonly model: Model }[] = [];
          const iterating: (Begun & { readonly snapshot: Snapshot })[] = [];
          const stop = new Error('abort');
          for (const each of steps) {
            if (each.kind === 'write') {
              const draft = new Model(model);
              try {
                db.write([table], (txn) => {
                  const inside: Begun[] = [];
                  for (const op of each.operations) {
                    // Begun before the write, and read on after it.
                    for (const query of queries) inside.push(begin(txn, query, draft, 1));
                    draft.apply(txn, table, op);
                    draft.expectIn(txn, table, queries);
                    using outside = db.read();
                    model.expectIn(outside, table, queries);
                  }
                  inside.forEach(finish);
                  if (each.abort) throw stop;
                });
                model = draft;
              } catch (error) {
                if (error !== stop) throw error;
              }
            } else if (each.kind === 'hold') {
              held.push({ snapshot: db.read(), model });
            } else if (each.kind === 'release') {
              held.splice(each.which, 1)[0]?.snapshot[Symbol.dispose]();
            } else {
              const snapshot = db.read();
              iterating.push({ ...begin(snapshot, each.ask(table), model, each.taken), snapshot });
            }
            using now = db.read();
            model.expectIn(now, table, queries);
            for (const { snapshot, model: then } of held) then.expectIn(snapshot, table, queries);
          }
          iterating.forEach(finish);
          for (const { snapshot } of [...held, ...iterating]) snapshot[Symbol.dispose]();
          expect(db.stats().snapshots).toBe(0);
        },
      ),
      { numRuns: runs(60) },
    );
  });

  it('an index added late answers as one that was there from the beginning', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(operation, { maxLength: 4 }), { maxLength: 8 }),
        fc.nat(8),
        question,
        (writes, at, ask) => {
          const { db, table } = setUp();
          const model = new Model();
          const late = { name: 'late', keys: (row: Row) => row.labels };
          writes.forEach((operations, index) => {
            if (index === at) db.addIndex(table, late);
            db.write([table], (txn) => {
              for (const op of operations) model.apply(txn, table, op);
            });
          });
          if (at >= writes.length) db.addIndex(table, late);
          using snapshot = db.read();
          model.expectIn(snapshot, table, [ask(table)]);
          expect([...snapshot.prefix(table, '', 'late')]).toEqual([...snapshot.prefix(table, '', 'label')]);
          for (const label of ['', 'x', 'xy']) {
            expect([...snapshot.list(table, 'late', label)]).toEqual([...snapshot.list(table, 'label', label)]);
          }
        },
      ),
      { numRuns: runs(60) },
    );
  });
});
