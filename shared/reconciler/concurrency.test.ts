import { describe, expect, it } from '@jest/globals';
import type { Operations } from './index.ts';
import { OperationTimeoutError } from './index.ts';
import { gate, type Row, settle, setUp } from './test-kit.ts';

/** Operations that end when the test says so. */
function held() {
  const log: string[] = [];
  const open = new Map<string, ReturnType<typeof gate>>();
  const signals = new Map<string, AbortSignal>();
  const run = (name: string, signal: AbortSignal): Promise<void> => {
    const hold = gate();
    log.push(name);
    open.set(name, hold);
    signals.set(name, signal);
    return hold.promise.finally(() => open.delete(name));
  };
  const operations: Operations<Row> = {
    update: (row, _revision, signal) => run(`${row.id}=${row.value}`, signal),
    delete: (row, _revision, signal) => run(`-${row.id}`, signal),
  };
  const end = async (name: string, error?: Error): Promise<void> => {
    if (error === undefined) open.get(name)?.open();
    else open.get(name)?.break(error);
    await settle();
  };
  return { log, open, signals, operations, end };
}

const row = (id: string, value = 1): Row => ({ id, value });

describe('operations that return a promise', () => {
  it('run at most as many at once as allowed, begun in the order of changes', async () => {
    const { put, make, stop } = setUp();
    const { log, open, operations, end } = held();
    const reconciler = make(operations, { concurrency: 2 });
    reconciler.start();
    const revision = put(row('a'), row('b'), row('c'), row('d'));
    await settle();
    expect(log).toEqual(['a=1', 'b=1']);
    expect(reconciler.metrics().running).toBe(2);
    await end('b=1');
    expect(log).toEqual(['a=1', 'b=1', 'c=1']);
    expect(reconciler.status('b')).toEqual({ kind: 'done', revision: 2 });
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 1 });
    await end('c=1');
    await end('d=1');
    const waiting = reconciler.waitUntil(revision);
    await end('a=1');
    expect(await waiting).toEqual({ revision, reached: true, failing: [] });
    expect(open.size).toBe(0);
    await stop();
  });

  it('let other rows go by while one takes its time', async () => {
    const { put, make, clock, stop } = setUp();
    const { log, operations, end } = held();
    const reconciler = make(operations, { concurrency: 2, batchSize: 1 });
    reconciler.start();
    put(row('slow'));
    for (const id of ['a', 'b', 'c']) {
      put(row(id));
      await settle();
      await end(`${id}=1`);
    }
    expect(log).toEqual(['slow=1', 'a=1', 'b=1', 'c=1']);
    const asked = reconciler.waitUntil(4, { timeoutMs: 0 });
    clock.advance(0);
    expect((await asked).reached).toBe(false);
    await end('slow=1');
    expect((await reconciler.waitUntil(4)).reached).toBe(true);
    await stop();
  });

  it('never overlap on one row, and only the newest of what waited is carried out', async () => {
    const { put, remove, make, stop } = setUp();
    const { log, operations, end } = held();
    const reconciler = make(operations, { concurrency: 5 });
    reconciler.start();
    put(row('a', 1));
    await settle();
    for (const step of [() => put(row('a', 2)), () => remove('a'), () => put(row('a', 3))]) {
      step();
      await settle();
    }
    put(row('b'));
    await settle();
    expect(log).toEqual(['a=1', 'b=1']);
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 4 });
    await end('b=1');
    const waiting = reconciler.waitUntil(2);
    await end('a=1');
    expect(log).toEqual(['a=1', 'b=1', 'a=3']);
    await end('a=3', new Error('refused'));
    // Whoever waited for the superseded revision hears that the row is not there.
    expect((await waiting).failing).toMatchObject([{ key: 'a', revision: 4, error: { message: 'refused' } }]);
    expect((await reconciler.waitUntil(1)).failing).toEqual([]);
    await stop();
  });

  it('say of an older revision what became of it while a newer one waits', async () => {
    const { put, make, stop } = setUp();
    const { operations, end } = held();
    const reconciler = make(operations, { concurrency: 1 });
    reconciler.start();
    put(row('a', 1));
    await settle();
    put(row('a', 2));
    await settle();
    await end('a=1', new Error('refused'));
    expect((await reconciler.waitUntil(1)).failing).toMatchObject([{ attempt: 0, error: { message: 'refused' } }]);
    await end('a=2');
    expect((await reconciler.waitUntil(2)).failing).toEqual([]);
    expect(reconciler.failing()).toEqual([]);
    await stop();
  });

  it('end a round started by reconcile() only when all are attempted', async () => {
    const { put, make, stop } = setUp();
    const { operations, end, log } = held();
    const reconciler = make(operations, { concurrency: 4 });
    put(row('a'), row('b'));
    let progress: unknown;
    void reconciler.reconcile().then((answer) => {
      progress = answer;
    });
    await settle();
    await end('b=1', new Error('refused'));
    expect(progress).toBeUndefined();
    await end('a=1');
    expect(progress).toMatchObject({ revision: 2, reached: true, failing: [{ key: 'b' }] });
    expect(log).toEqual(['a=1', 'b=1']);
    await stop();
  });
});

describe('an operation that takes too long', () => {
  it('fails, has its signal aborted, and is tried again once it has really ended', async () => {
    const { put, make, clock, stop } = setUp();
    const { log, signals, operations, end } = held();
    const reconciler = make(operations, { concurrency: 2, operationTimeoutMs: 100 });
    reconciler.start();
    const waiting = reconciler.waitUntil(put(row('a')));
    await settle();
    clock.advance(99);
    expect(signals.get('a=1')?.aborted).toBe(false);
    clock.advance(1);
    expect((await waiting).failing).toMatchObject([{ key: 'a', attempt: 1, error: expect.any(OperationTimeoutError) }]);
    expect(signals.get('a=1')?.reason).toBeInstanceOf(OperationTimeoutError);
    clock.advance(1000);
    await settle();
    expect(log).toEqual(['a=1']);
    await end('a=1', new Error('aborted'));
    expect(log).toEqual(['a=1', 'a=1']);
    expect(reconciler.failing()).toMatchObject([{ attempt: 1, error: expect.any(OperationTimeoutError) }]);
    await end('a=1');
    expect(reconciler.status('a')).toEqual({ kind: 'done', revision: 1 });
    expect(reconciler.metrics().update).toMatchObject({ done: 1, failed: 1 });
    await stop();
    expect(clock.timers).toBe(0);
  });

  it('says nothing of the newer revision that waits for it', async () => {
    const { put, make, clock, stop } = setUp();
    const { log, operations, end } = held();
    const errors: string[] = [];
    const onError = ({ id }: Row, error: Error): unknown => errors.push(`${id} ${error.message}`);
    const reconciler = make(operations, { operationTimeoutMs: 100, concurrency: 2, onError });
    reconciler.start();
    put(row('a', 1));
    await settle();
    put(row('a', 2));
    await settle();
    clock.advance(100);
    await settle();
    expect([errors, reconciler.metrics().failing]).toEqual([[], 0]);
    expect(reconciler.status('a')).toEqual({ kind: 'pending', revision: 2 });
    await end('a=1', new Error('aborted'));
    expect(log).toEqual(['a=1', 'a=2']);
    expect(reconciler.metrics().failing).toBe(1);
    await end('a=2');
    expect(reconciler.metrics().failing).toBe(0);
    await stop();
  });

  it('is done after all when the target acknowledges late', async () => {
    const { put, make, clock, stop } = setUp();
    const { log, operations, end } = held();
    const reconciler = make(operations, { operationTimeoutMs: 100 });
    reconciler.start();
    put(row('a'));
    await settle();
    clock.advance(100);
    expect(reconciler.status('a')?.kind).toBe('error');
    await end('a=1');
    expect(reconciler.status('a')).toEqual({ kind: 'done', revision: 1 });
    clock.advance(1000);
    await settle();
    expect(log).toEqual(['a=1']);
    await stop();
  });

  it('may also be a prune', async () => {
    const { put, make, clock, stop, held: open } = setUp();
    const hold = gate();
    const log: string[] = [];
    const reconciler = make(
      { update: ({ id }) => void log.push(id), delete: () => {}, prune: () => hold.promise },
      { operationTimeoutMs: 100, concurrency: 9 },
    );
    const refused = expect(reconciler.prune()).rejects.toThrow(OperationTimeoutError);
    await settle();
    clock.advance(100);
    await refused;
    put(row('a'));
    const round = reconciler.reconcile();
    await settle();
    // It may still take away what it does not know.
    expect(log).toEqual([]);
    expect(open().snapshots).toBe(1);
    hold.open();
    await round;
    expect(log).toEqual(['a']);
    expect(open().snapshots).toBe(0);
    await stop();
  });
});
