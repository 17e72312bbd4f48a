/** Change streams of different speed over random traces: replaying one always gives the table; nothing is kept for long. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import type { Change, ChangeStream, Revision } from './index.ts';
import { InvalidRevisionError, RevisionGoneError, StreamDisposedError } from './index.ts';
import { Model, operation, type Row, setUp } from './testing/model.ts';

const which = fc.nat(3);
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('write' as const),
      operations: fc.array(operation, { maxLength: 5 }),
      abort: fc.nat(3).map((n) => n === 0),
      /** Streams pulled, and opened, within the transaction: they see what is committed. */
      pulled: fc.array(which, { maxLength: 2 }),
      opens: fc.nat(4).map((n) => n === 0),
    }),
  },
  { weight: 4, arbitrary: fc.constant({ kind: 'open' as const }) },
  {
    weight: 6,
    arbitrary: fc
      .tuple(which, fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }))
      .map(([at, limit]) => ({ kind: 'pull' as const, at, limit })),
  },
  { weight: 2, arbitrary: which.map((at) => ({ kind: 'resume' as const, at })) },
  { weight: 4, arbitrary: which.map((at) => ({ kind: 'reopen' as const, at })) },
  { weight: 4, arbitrary: which.map((at) => ({ kind: 'close' as const, at })) },
);

const write = (kind: 'upsert' | 'delete') => ({
  ...{ kind: 'write' as const, abort: false, pulled: [], opens: false },
  operations: [{ kind, row: { id: 'a', rank: 0, labels: [], owner: '', nets: [] } }],
});
/** A stream is to begin again before a delete that nobody had to see: random traces seldom come to that. */
const FORGOTTEN: (typeof step extends fc.Arbitrary<infer T> ? T : never)[] = [
  write('upsert'),
  { kind: 'open' },
  { kind: 'pull', at: 0, limit: undefined },
  { kind: 'close', at: 0 },
  write('delete'),
  { kind: 'reopen', at: 0 },
];

type Copy = ReadonlyMap<string, Row>;
interface Following {
  stream: ChangeStream<Row>;
  /** What replaying gives so far. */
  copy: Copy;
  /** What the table held when the stream began has not all been shown yet. */
  first: Revision;
}

const ascending = (a: number, b: number): number => a - b;
const pick = <T>(from: readonly T[], at: number): T | undefined => from[at % from.length];

function replay(copy: Copy, changes: readonly Change<Row>[]): Copy {
  const next = new Map(copy);
  for (const { row, deleted } of changes) {
    // Also of what came and went between two pulls, and was never shown.
    if (deleted) next.delete(row.id);
    else next.set(row.id, row);
  }
  return next;
}

describe('change streams', () => {
  it('replay to the table, in order, each key once, whatever the speed; delete markers go when all have passed', () => {
    let deletesSeen = 0;
    let gone = 0;
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40, size: 'max' }), (steps) => {
        const { db, table } = setUp();
        let model = new Model();
        const following: Following[] = [];
        /** Where closed streams were, and what they had by then. */
        const left: { readonly revision: Revision; readonly copy: Copy }[] = [];
        const pull = (each: Following, limit?: number): void => {
          const before = each.stream.revision;
          const changes = each.stream.next(limit);
          const revisions = changes.map(({ revision }) => revision);
          expect(revisions).toEqual(revisions.toSorted(ascending));
          expect(new Set(changes.map(({ row }) => row.id)).size).toBe(changes.length);
          for (const { row, revision, deleted } of changes) {
            expect(revision).toBeGreaterThan(before);
            const there = model.rows.get(row.id);
            // The last state only, with the revision that it has: coalesced.
            expect(deleted ? undefined : { row, revision }).toEqual(there);
            if (deleted) deletesSeen++;
          }
          if (limit !== undefined) expect(changes.length).toBeLessThanOrEqual(limit);
          if (limit === undefined || changes.length < limit) expect(each.stream.revision).toBe(model.revision);
          else expect(each.stream.revision).toBeGreaterThanOrEqual(revisions.at(-1) ?? before);
          each.copy = replay(each.copy, changes);
        };
        for (const each of steps) {
          if (each.kind === 'write') {
            const draft = new Model(model);
            const stop = new Error('abort');
            let opened: Following | undefined;
            const before = following.map(({ stream, copy }) => ({ revision: stream.revision, copy }));
            const fired = following.map(({ stream }) => stream.watch());
            try {
              db.write([table], (txn) => {
                if (each.opens) {
                  opened = { stream: db.changes(table), copy: new Map(), first: model.revision };
                  pull(opened, 2);
                }
                for (const op of each.operations) draft.apply(txn, table, op);
                for (const at of each.pulled) {
                  const one = pick(following, at);
                  if (one !== undefined) pull(one, 2);
                }
                if (each.abort) throw stop;
              });
              const moved = draft.revision > model.revision;
              model = draft;
              fired.forEach((watch, i) => {
                expect(watch.fired).toBe(moved || (before[i]?.revision ?? 0) < model.revision);
              });
              if (opened !== undefined) following.push(opened);
            } catch (error) {
              if (error !== stop) throw error;
              // Nothing of it was: what was pulled in it comes again, what was opened in it is closed.
              following.forEach((one, i) => {
                expect(one.stream.revision).toBe(before[i]?.revision);
                one.copy = before[i]?.copy ?? one.copy;
              });
              const closed = opened?.stream;
              if (closed !== undefined) expect(() => closed.next()).toThrow(StreamDisposedError);
            }
          } else if (each.kind === 'open') {
            // The whole table and none of its past, though others may still have deletes to see.
            using fresh = db.changes(table);
            const changes = fresh.next();
            expect(changes.map(({ deleted }) => deleted)).not.toContain(true);
            expect(replay(new Map(), changes)).toEqual(new Map(model.sorted.map((row) => [row.id, row])));
            following.push({ stream: db.changes(table), copy: new Map(), first: model.revision });
          } else if (each.kind === 'reopen') {
            const from = pick(left, each.at);
            if (from === undefined) continue;
            try {
              const stream = db.changes(table, { from: from.revision });
              following.push({ stream, copy: from.revision === 0 ? new Map() : from.copy, first: model.revision });
            } catch (error) {
              expect(error).toBeInstanceOf(RevisionGoneError);
              gone++;
            }
          } else {
            const one = pick(following, each.at);
            if (one === undefined) continue;
            if (each.kind === 'pull') pull(one, each.limit);
            else if (each.kind === 'close') {
              left.push({ revision: one.stream.revision, copy: one.copy });
              following.splice(following.indexOf(one), 1);
              one.stream[Symbol.dispose]();
            } else {
              // The next one is opened before the one before is closed: nothing can be forgotten in between. Only a
              // stream that has not shown the whole table yet may stand before deletes that it never had to show.
              const { stream: before } = one;
              try {
                one.stream = db.changes(table, { from: before.revision });
              } catch (error) {
                if (before.revision >= one.first) throw error;
                one.stream = db.changes(table);
              }
              if (one.stream.revision === 0) Object.assign(one, { copy: new Map(), first: model.revision });
              before[Symbol.dispose]();
            }
          }
          const [info] = db.tables();
          expect(info?.streams.map(({ revision, lag }) => revision + lag)).toEqual(following.map(() => model.revision));
          expect(info?.streams.map(({ revision }) => revision).toSorted(ascending)).toEqual(
            following.map(({ stream }) => stream.revision).toSorted(ascending),
          );
          if (following.every(({ stream }) => stream.revision === model.revision)) {
            expect(db.stats().deleteMarkers).toBe(0);
          }
          expect(() => db.changes(table, { from: model.revision + 1 })).toThrow(InvalidRevisionError);
        }
        const wanted = new Map(model.sorted.map((row) => [row.id, row]));
        for (const one of following) {
          pull(one);
          expect(one.copy).toEqual(wanted);
          expect(one.stream.next()).toEqual([]);
          expect(one.stream.watch().fired).toBe(false);
        }
        expect(db.stats().deleteMarkers).toBe(0);
        for (const { stream } of following) stream[Symbol.dispose]();
        const fresh: Following = { stream: db.changes(table), copy: new Map(), first: model.revision };
        pull(fresh, 3);
        pull(fresh);
        expect(fresh.copy).toEqual(wanted);
        fresh.stream[Symbol.dispose]();
        expect(db.stats()).toMatchObject({ streams: 0, deleteMarkers: 0 });
      }),
      { numRuns: 200, examples: [[FORGOTTEN]] },
    );
    expect(deletesSeen).toBeGreaterThan(100);
    expect(gone).toBeGreaterThan(0);
  });
});
