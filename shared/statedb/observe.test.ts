import { describe, expect, it, jest } from '@jest/globals';
import { type Change, createStateDB, InvalidLimitError, observe, UnknownTableError } from './index.ts';

interface Row {
  readonly id: string;
  readonly n: number;
}

function setUp(count = 0) {
  const db = createStateDB({ freeze: true });
  const table = db.table<Row>({ name: 'rows', key: (row) => row.id });
  const put = (...rows: readonly Row[]): void =>
    db.write([table], (txn) => {
      for (const row of rows) txn.upsert(table, row);
    });
  put(...Array.from({ length: count }, (_, i) => ({ id: `${i}`.padStart(4, '0'), n: i })));
  return { db, table, put };
}

/** Lets the event loop go round until nothing more comes. */
async function settle(): Promise<void> {
  for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
}

describe('observe', () => {
  it('gives the whole table, then what changes, in batches of at most `batch`', async () => {
    const { db, table, put } = setUp(5);
    const batches: (readonly Change<Row>[])[] = [];
    const subscription = observe(db, table, { batch: 2 }).subscribe((batch) => batches.push(batch));
    expect(batches).toEqual([]);
    await settle();
    expect(batches.map((batch) => batch.map(({ row }) => row.n))).toEqual([[0, 1], [2, 3], [4]]);
    db.write([table], (txn) => txn.delete(table, '0003'));
    put({ id: '0001', n: 7 });
    expect(batches).toHaveLength(3);
    await settle();
    expect(batches.slice(3)).toEqual([
      [
        { row: { id: '0003', n: 3 }, revision: 6, deleted: true },
        { row: { id: '0001', n: 7 }, revision: 7, deleted: false },
      ],
    ]);
    subscription.unsubscribe();
    expect(db.stats().streams).toBe(0);
  });

  it('takes 1000 at a time by default', async () => {
    const { db, table } = setUp(2500);
    const sizes: number[] = [];
    observe(db, table).subscribe((batch) => sizes.push(batch.length));
    await settle();
    expect(sizes).toEqual([1000, 1000, 500]);
  });

  it('takes the next batch when the subscriber is ready, and what it cannot wait for is an error', async () => {
    const { db, table, put } = setUp(3);
    const seen: number[] = [];
    const errors: unknown[] = [];
    let turn = Promise.withResolvers<void>();
    observe(db, table, { batch: 2, ready: () => turn.promise }).subscribe({
      next: (batch) => seen.push(...batch.map(({ row }) => row.n)),
      error: (error: unknown) => errors.push(error),
    });
    await settle();
    expect(seen).toEqual([0, 1]);
    for (let n = 10; n < 20; n += 1) put({ id: '0002', n });
    await settle();
    expect(seen).toEqual([0, 1]);
    const first = turn;
    turn = Promise.withResolvers();
    first.resolve();
    await settle();
    expect(seen).toEqual([0, 1, 19]);
    turn.reject(new Error('too slow'));
    await settle();
    expect([errors, db.stats().streams]).toEqual([[new Error('too slow')], 0]);
  });

  it('buffers nothing: what a slow subscriber has not taken is coalesced in the table', async () => {
    const { db, table, put } = setUp();
    const seen: number[] = [];
    observe(db, table, { batch: 1, name: 'slow' }).subscribe((batch) => {
      seen.push(...batch.map(({ row }) => row.n));
      // While this one is handled, 100 more come.
      if (seen.length === 1) for (let n = 1; n <= 100; n++) put({ id: 'a', n });
    });
    put({ id: 'a', n: 0 });
    await settle();
    expect(seen).toEqual([0, 100]);
    expect(db.tables()[0]?.streams).toEqual([{ name: 'slow', revision: 101, lag: 0 }]);
  });

  it('each subscriber has its own stream, closed when it goes', async () => {
    const { db, table, put } = setUp(1);
    const changes = observe(db, table);
    expect(db.stats().streams).toBe(0);
    const first = jest.fn();
    const one = changes.subscribe(first);
    await settle();
    const second = jest.fn();
    const two = changes.subscribe(second);
    one.unsubscribe();
    put({ id: 'x', n: 1 });
    await settle();
    expect(first).toHaveBeenCalledTimes(1);
    expect(second).toHaveBeenCalledTimes(1);
    expect(db.stats().streams).toBe(1);
    two.unsubscribe();
    expect(db.stats().streams).toBe(0);
    expect(db.tables()[0]?.watches).toBe(0);
  });

  it('can be unsubscribed from within a batch, and before the first', async () => {
    const { db, table } = setUp(3);
    const next = jest.fn(() => subscription.unsubscribe());
    const subscription = observe(db, table, { batch: 1 }).subscribe(next);
    const never = jest.fn();
    observe(db, table).subscribe(never).unsubscribe();
    await settle();
    expect(next).toHaveBeenCalledTimes(1);
    expect(never).not.toHaveBeenCalled();
    expect(db.stats().streams).toBe(0);
  });

  it('completes at the signal, also one that was there before', () => {
    const { db, table } = setUp(1);
    const stop = new AbortController();
    const complete = jest.fn();
    observe(db, table, { signal: stop.signal }).subscribe({ complete });
    stop.abort();
    observe(db, table, { signal: stop.signal }).subscribe({ complete });
    expect(complete).toHaveBeenCalledTimes(2);
    expect(db.stats().streams).toBe(0);
  });

  it('listens to its stream while it is subscribed to, and not more', async () => {
    const { db, table, put } = setUp(1);
    let listening = 0;
    const seen = new WeakSet<object>();
    const counting: typeof db = Object.create(db, {
      changes: {
        value: (...args: Parameters<typeof db.changes<Row>>) => {
          const stream = db.changes(...args);
          const watch = stream.watch.bind(stream);
          stream.watch = () => {
            const pending = watch();
            if (seen.has(pending)) return pending;
            seen.add(pending);
            const onFire = pending.onFire.bind(pending);
            pending.onFire = (callback) => {
              listening++;
              const stop = onFire(() => {
                listening--;
                callback();
              });
              return () => {
                listening--;
                stop();
              };
            };
            return pending;
          };
          return stream;
        },
      },
    });
    const subscription = observe(counting, table).subscribe();
    await settle();
    put({ id: 'x', n: 1 });
    await settle();
    expect(listening).toBe(1);
    subscription.unsubscribe();
    expect(listening).toBe(0);
  });

  it('hands errors of its source to `error`', async () => {
    const { db, table, put } = setUp(1);
    const other = createStateDB();
    const error = jest.fn();
    observe(other, table).subscribe({ error });
    expect(error).toHaveBeenCalledWith(expect.any(UnknownTableError));
    const broken = new Error('source');
    const later = jest.fn();
    const fails: typeof db = Object.create(db, {
      changes: {
        value: (...args: Parameters<typeof db.changes<Row>>) => {
          const stream = db.changes(...args);
          const next = stream.next.bind(stream);
          let calls = 0;
          stream.next = (limit?: number) => {
            if (++calls === 2) throw broken;
            return next(limit);
          };
          return stream;
        },
      },
    });
    observe(fails, table).subscribe({ error: later });
    await settle();
    put({ id: 'x', n: 1 });
    await settle();
    expect(later).toHaveBeenCalledTimes(1);
    expect(later).toHaveBeenCalledWith(broken);
    expect(db.stats().streams).toBe(0);
  });

  it('refuses a batch of nothing', () => {
    const { db, table } = setUp();
    for (const batch of [0, -1, Number.NaN]) expect(() => observe(db, table, { batch })).toThrow(InvalidLimitError);
  });
});
