/** Random transactions on a table with every kind of index, against a plain map. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import type { Change, ChangeStream, Reader, Revision, Snapshot } from './index.ts';
import { createStateDB, keys, StateDBError, UniqueIndexError } from './index.ts';

interface Row {
  readonly id: string;
  readonly rank: number;
  readonly labels: readonly string[];
  readonly owner: string;
  readonly bytes: readonly number[];
  readonly bits: number;
}

const prefixOf = (row: Row) => keys.prefix(row.bytes, row.bits);
const inside = (bits: number, outer: readonly number[], address: readonly number[]) =>
  outer.every((byte, i) => {
    const left = Math.min(8, Math.max(0, bits - i * 8));
    return byte >> (8 - left) === (address[i] ?? 0) >> (8 - left);
  });

function setUp() {
  const db = createStateDB({ freeze: true, onLeak: () => {} });
  const table = db.table<Row>({
    name: 'rows',
    key: (row) => row.id,
    equals: (a, b) => JSON.stringify(a) === JSON.stringify(b),
    indexes: [
      { name: 'rank', keys: (row) => [keys.int(row.rank)] },
      { name: 'label', keys: (row) => row.labels },
      { name: 'owner', unique: true, keys: (row) => (row.owner === '' ? [] : [row.owner]) },
      { name: 'prefix', kind: 'lpm', keys: (row) => [prefixOf(row)] },
    ],
  });
  return { db, table };
}

const byte = fc.constantFrom(0, 1, 10, 128, 255);
const row: fc.Arbitrary<Row> = fc.record({
  id: fc.constantFrom('a', 'b', 'c', 'd', 'aa', 'ab', 'b\u0000', ''),
  rank: fc.integer({ min: -3, max: 3 }),
  labels: fc.subarray(['x', 'xy', 'y', 'z']),
  owner: fc.constantFrom('', '', '', 'o1', 'o2', 'o3'),
  bytes: fc.tuple(byte, byte),
  bits: fc.integer({ min: 0, max: 16 }),
});
const operation = fc.oneof(
  { weight: 5, arbitrary: row.map((r) => ({ kind: 'upsert' as const, row: r })) },
  { weight: 3, arbitrary: row.map((r) => ({ kind: 'delete' as const, row: r })) },
  { weight: 1, arbitrary: fc.tuple(row, fc.boolean()).map(([r, right]) => ({ kind: 'cas' as const, row: r, right })) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(row, fc.integer({ min: -3, max: 3 }))
      .map(([r, rank]) => ({ kind: 'edit' as const, row: r, rank })),
  },
  { weight: 1, arbitrary: row.map((r) => ({ kind: 'look' as const, row: r })) },
);
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('write' as const),
      operations: fc.array(operation, { maxLength: 6 }),
      abort: fc.boolean(),
      deleteAll: fc.nat(9).map((n) => n === 0),
    }),
  },
  { weight: 2, arbitrary: fc.constant({ kind: 'hold' as const }) },
  { weight: 2, arbitrary: fc.nat(5).map((which) => ({ kind: 'release' as const, which })) },
  { weight: 1, arbitrary: fc.constant({ kind: 'open' as const }) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(fc.nat(5), fc.integer({ min: 1, max: 4 }))
      .map(([which, limit]) => ({ kind: 'pull' as const, which, limit })),
  },
  { weight: 1, arbitrary: fc.nat(5).map((which) => ({ kind: 'resume' as const, which })) },
  { weight: 1, arbitrary: fc.nat(5).map((which) => ({ kind: 'close' as const, which })) },
);

type Model = ReadonlyMap<string, Row>;
const sortedRows = (model: Model) => [...model.values()].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
const sortBy = (entries: [string, Row][]) =>
  entries.sort(([a, r], [b, s]) => (a < b ? -1 : a > b ? 1 : r.id < s.id ? -1 : r.id > s.id ? 1 : 0));

/** Everything a reader can say must be what the model says. */
function expectEqual(reader: Reader, table: ReturnType<typeof setUp>['table'], model: Model, probe: Row): void {
  const rows = sortedRows(model);
  expect([...reader.all(table)]).toEqual(rows);
  expect(reader.count(table)).toBe(rows.length);
  expect(reader.get(table, probe.id)).toEqual(model.get(probe.id));
  expect(reader.has(table, probe.id)).toBe(model.has(probe.id));
  expect([...reader.prefix(table, 'a')]).toEqual(rows.filter((r) => r.id.startsWith('a')));
  expect([...reader.lowerBound(table, 'ab')]).toEqual(rows.filter((r) => r.id >= 'ab'));
  expect([...reader.find(table, 'rank', keys.int(probe.rank))]).toEqual(rows.filter((r) => r.rank === probe.rank));
  expect([...reader.find(table, 'label', 'x')]).toEqual(rows.filter((r) => r.labels.includes('x')));
  expect([...reader.find(table, 'owner', 'o1')]).toEqual(rows.filter((r) => r.owner === 'o1'));
  const ranks = sortBy(rows.filter((r) => r.rank >= probe.rank).map((r) => [keys.int(r.rank), r]));
  expect([...reader.lowerBound(table, keys.int(probe.rank), 'rank')]).toEqual(ranks.map(([, r]) => r));
  const labelled = sortBy(
    rows.flatMap((r) => r.labels.filter((l) => l.startsWith('x')).map((l): [string, Row] => [l, r])),
  );
  expect([...reader.prefix(table, 'x', 'label')]).toEqual([...new Set(labelled.map(([, r]) => r))]);
  const containing = rows.filter((r) => inside(r.bits, r.bytes, probe.bytes));
  const longest = Math.max(...containing.map((r) => r.bits));
  expect([...reader.find(table, 'prefix', keys.address(probe.bytes))]).toEqual(
    containing.filter((r) => r.bits === longest),
  );
}

function replay(into: Map<string, Row>, changes: readonly Change<Row>[]): void {
  for (const change of changes) {
    if (change.deleted) into.delete(change.row.id);
    else into.set(change.row.id, change.row);
  }
}

describe('a table against a plain map', () => {
  it('reads, snapshots, aborts and streams agree with the model after every step', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), row, (steps, probe) => {
        const { db, table } = setUp();
        let model = new Map<string, Row>();
        const held: { snapshot: Snapshot; model: Model; revision: Revision }[] = [];
        const streams: { stream: ChangeStream<Row>; copy: Map<string, Row> }[] = [];
        const pull = (s: (typeof streams)[number], limit?: number) => {
          const before = s.stream.revision;
          const changes = s.stream.next(limit);
          const revisions = changes.map((c) => c.revision);
          expect(revisions).toEqual([...revisions].sort((a, b) => a - b));
          expect(new Set(changes.map((c) => c.row.id)).size).toBe(changes.length);
          for (const revision of revisions) expect(revision).toBeGreaterThan(before);
          if (limit !== undefined) expect(changes.length).toBeLessThanOrEqual(limit);
          replay(s.copy, changes);
          return changes;
        };
        for (const s of steps) {
          if (s.kind === 'write') {
            const next = new Map(model);
            const snapshot = db.read();
            const revision = snapshot.revision(table);
            snapshot[Symbol.dispose]();
            const stop = new Error('abort');
            try {
              db.write([table], (txn) => {
                for (const op of s.operations) {
                  const old = next.get(op.row.id);
                  if (op.kind === 'delete') {
                    expect(txn.delete(table, op.row.id)).toEqual(old);
                    next.delete(op.row.id);
                  } else if (op.kind === 'look') {
                    expectEqual(txn, table, next, op.row);
                  } else {
                    const wanted = op.kind === 'edit' ? old && { ...old, rank: op.rank } : op.row;
                    const taken = [...next.values()].some(
                      (r) => wanted !== undefined && r.id !== wanted.id && r.owner !== '' && r.owner === wanted.owner,
                    );
                    const current = txn.getVersioned(table, op.row.id)?.revision ?? 0;
                    const attempt = () => {
                      if (op.kind === 'upsert') expect(txn.upsert(table, op.row)).toEqual(old);
                      else if (op.kind === 'cas') {
                        expect(txn.compareAndSwap(table, op.right ? current : current + 1, op.row)).toBe(op.right);
                      } else if (old === undefined) {
                        expect(() => txn.edit(table, op.row.id, () => {})).toThrow(StateDBError);
                      } else {
                        txn.edit(table, op.row.id, (draft) => {
                          (draft as { rank: number }).rank = op.rank;
                        });
                      }
                    };
                    if (taken && !(op.kind === 'cas' && !op.right)) {
                      expect(attempt).toThrow(UniqueIndexError);
                    } else {
                      attempt();
                      if (wanted !== undefined && !(op.kind === 'cas' && !op.right)) next.set(op.row.id, wanted);
                    }
                  }
                }
                if (s.deleteAll) {
                  txn.deleteAll(table);
                  next.clear();
                }
                using outside = db.read();
                expectEqual(outside, table, model, probe);
                for (const stream of streams) if (s.abort) stream.stream.next(2);
                if (s.abort) throw stop;
              });
              model = next;
            } catch (error) {
              if (error !== stop) throw error;
              using after = db.read();
              expect(after.revision(table)).toBe(revision);
            }
          } else if (s.kind === 'hold') {
            const snapshot = db.read();
            held.push({ snapshot, model: new Map(model), revision: snapshot.revision(table) });
          } else if (s.kind === 'release') {
            const [gone] = held.splice(s.which, 1);
            gone?.snapshot[Symbol.dispose]();
          } else if (s.kind === 'open') {
            streams.push({ stream: db.changes(table), copy: new Map() });
          } else {
            const stream = streams[s.which];
            if (stream === undefined) continue;
            if (s.kind === 'pull') pull(stream, s.limit);
            if (s.kind === 'resume') {
              const old = stream.stream;
              stream.stream = db.changes(table, old.revision);
              if (old.revision === 0) stream.copy.clear();
              old[Symbol.dispose]();
            }
            if (s.kind === 'close') {
              stream.stream[Symbol.dispose]();
              streams.splice(s.which, 1);
            }
          }
          using now = db.read();
          expectEqual(now, table, model, probe);
          for (const h of held) {
            expectEqual(h.snapshot, table, h.model, probe);
            expect(h.snapshot.revision(table)).toBe(h.revision);
          }
        }
        using last = db.read();
        for (const s of streams) {
          pull(s);
          expect(s.copy).toEqual(model);
          expect(s.stream.revision).toBe(last.revision(table));
          expect(s.stream.next()).toEqual([]);
          expect(s.stream.watch().fired).toBe(false);
          s.stream[Symbol.dispose]();
        }
        using fresh = db.changes(table);
        const changes = fresh.next();
        expect(changes.every((c) => !c.deleted)).toBe(true);
        expect(new Map(changes.map((c) => [c.row.id, c.row]))).toEqual(model);
        last[Symbol.dispose]();
        for (const h of held) h.snapshot[Symbol.dispose]();
        fresh[Symbol.dispose]();
        expect(db.stats()).toEqual({ snapshots: 0, savedVersions: 0, streams: 0, deleteMarkers: 0 });
      }),
      { numRuns: 100 },
    );
  });

  it('a watch fires exactly when its answer has changed', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(operation, { minLength: 1, maxLength: 3 }), { maxLength: 15 }),
        row,
        (txns, probe) => {
          const { db, table } = setUp();
          for (const operations of txns) {
            const look = () => {
              using s = db.read();
              return {
                get: s.getWatch(table, probe.id),
                rank: s.findWatch(table, 'rank', keys.int(probe.rank)),
                prefix: s.findWatch(table, 'prefix', keys.address(probe.bytes)),
                all: s.allWatch(table),
              };
            };
            const before = look();
            db.write([table], (txn) => {
              for (const op of operations) {
                if (op.kind === 'delete') txn.delete(table, op.row.id);
                else if (op.kind === 'upsert') txn.upsert(table, { ...op.row, owner: '' });
              }
            });
            const after = look();
            expect(
              after.get.watch.fired || after.rank.watch.fired || after.prefix.watch.fired || after.all.watch.fired,
            ).toBe(false);
            if (before.get.row !== after.get.row) expect(before.get.watch.fired).toBe(true);
            for (const which of ['rank', 'prefix', 'all'] as const) {
              const same =
                before[which].rows.length === after[which].rows.length &&
                before[which].rows.every((r, i) => r === after[which].rows[i]);
              if (!same) expect(before[which].watch.fired).toBe(true);
            }
            const untouched = operations.every((op) => op.kind === 'look' || op.kind === 'cas' || op.kind === 'edit');
            if (untouched) expect(before.all.watch.fired).toBe(false);
          }
        },
      ),
      { numRuns: 100 },
    );
  });
});
