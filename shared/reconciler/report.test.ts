import { describe, expect, it } from '@jest/globals';
import { Book } from './book.ts';
import { failureKey, reportTables } from './index.ts';
import { FakeTarget, settle, setUp } from './test-kit.ts';

it('of rows that never failed there is nothing to report', () => {
  const book = new Book<string>(true);
  const add = (key: string) => book.add(key, { key, row: key, revision: 1, deleted: false } as never, 1);
  for (let n = 0; n < 1000; n += 1) book.succeeded(add(String(n)));
  expect(book.touched?.size).toBe(0);
  const refused = add('refused');
  book.failed(refused, new Error('no room'), 0, 1);
  expect(book.touched).toEqual(new Set(['refused']));
  book.touched?.clear();
  book.succeeded(refused);
  expect(book.touched).toEqual(new Set(['refused']));
});

describe('reportTables()', () => {
  it('hold the health of each reconciler and a row for each failure', async () => {
    const { db, put, remove, make, clock, stop } = setUp();
    const report = reportTables(db);
    const health = () => {
      using snapshot = db.read();
      return [...snapshot.all(report.health)];
    };
    const failures = () => {
      using snapshot = db.read();
      return [...snapshot.all(report.failures)].map(({ reconciler, key, attempt }) => [reconciler, key, attempt]);
    };
    const broken = new FakeTarget();
    broken.fails = ({ id }) => id !== 'a';
    make(new FakeTarget(), { name: 'sound', report }).start();
    const reconciler = make(broken, { name: 'broken', report, minBackoffMs: 1000, maxBackoffMs: 1000 });
    reconciler.start();
    await reconciler.waitUntil(put({ id: 'a', value: 1 }, { id: 'b', value: 2 }, { id: 'c', value: 3 }));
    clock.advance(100);
    await settle();
    const common = { table: 'rows', state: 'running', attempted: 3, lag: 0 };
    expect(health()).toEqual([
      { ...common, reconciler: 'broken', ok: false, failing: 2 },
      { ...common, reconciler: 'sound', ok: true, failing: 0 },
    ]);
    expect(failures()).toEqual([
      ['broken', 'b', 1],
      ['broken', 'c', 1],
    ]);
    using before = db.read();
    expect(before.get(report.failures, failureKey('broken', 'b'))).toEqual({
      reconciler: 'broken',
      key: 'b',
      revision: 2,
      deleted: false,
      message: 'cannot update b',
      attempt: 1,
      nextRetryAt: expect.any(Number),
    });
    broken.fails = ({ id }) => id === 'c';
    clock.advance(1000);
    await settle();
    clock.advance(100);
    await settle();
    expect(failures()).toEqual([['broken', 'c', 2]]);
    broken.fails = () => false;
    remove('c');
    await settle();
    clock.advance(100);
    await settle();
    expect(failures()).toEqual([]);
    // Nothing new, nothing written, no timer.
    const written = health();
    expect(written).toMatchObject([
      { ok: true, attempted: 4 },
      { ok: true, attempted: 4 },
    ]);
    expect(clock.timers).toBe(0);
    await stop();
    expect(health().map(({ state }) => state)).toEqual(['stopped', 'stopped']);
  });
});
