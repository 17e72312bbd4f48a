import { describe, expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { Backoff, backoffDelay } from './backoff.ts';
import { DueHeap } from './due-heap.ts';
import { InvalidOptionError, type ReconcilerOptions } from './index.ts';
import { FakeTarget, type Row, setUp } from './test-kit.ts';

describe('bad input', () => {
  it.each<[string, object, string]>([
    ['name', { name: '' }, 'a string that is not empty'],
    ['db', { db: {} }, 'a StateDB'],
    ['table', { table: 'rows' }, 'what db.table() returned'],
    ['operations.update', { operations: { delete: () => {} } }, 'a function'],
    ['operations.delete', { operations: { update: () => {}, delete: 1 } }, 'a function'],
    ['operations.prune', { operations: { update: () => {}, delete: () => {}, prune: 'x' } }, 'a function, or leave'],
    ['minBackoffMs', { minBackoffMs: 0 }, 'a number from 1'],
    ['maxBackoffMs', { minBackoffMs: 100, maxBackoffMs: 99 }, 'a number from 100'],
    ['pruneIntervalMs', { pruneIntervalMs: -1 }, 'a number from 0'],
    ['refreshIntervalMs', { refreshIntervalMs: Number.NaN }, 'a number from 0'],
    ['batchSize', { batchSize: 1.5 }, 'a whole number from 1'],
    ['concurrency', { concurrency: 0 }, 'a whole number from 1'],
    ['roundsPerSecond', { roundsPerSecond: 0 }, 'a number above 0'],
    ['operationsPerSecond', { operationsPerSecond: '5' }, 'a number above 0'],
    ['burst', { operationsPerSecond: 10, burst: 0.5 }, 'a number from 1'],
    ['operationTimeoutMs', { operationTimeoutMs: -1 }, 'a number from 0'],
    ['stopGraceMs', { stopGraceMs: -1 }, 'a number from 0'],
  ])('names %s', (option, given, wanted) => {
    const { make } = setUp();
    const create = () => make(new FakeTarget(), given as Partial<ReconcilerOptions<Row>>);
    expect(create).toThrow(InvalidOptionError);
    expect(create).toThrow(`${option} is `);
    expect(create).toThrow(wanted);
  });

  it('refuses tables of another StateDB, and leaves nothing behind', () => {
    const { make, held } = setUp();
    const foreign = createStateDB().table<Row>({ name: 'rows', key: (row) => row.id });
    expect(() => make(new FakeTarget(), { table: foreign })).toThrow('does not belong to this StateDB');
    expect(() => make(new FakeTarget(), { inputs: [foreign] })).toThrow('does not belong to this StateDB');
    expect(held()).toEqual({ snapshots: 0, streams: 0, deleteMarkers: 0 });
  });

  it.each([
    [Number.NaN, {}, 'revision is NaN'],
    [Number.POSITIVE_INFINITY, {}, 'revision is Infinity'],
    [1, { timeoutMs: -1 }, 'timeoutMs is -1'],
  ])('refuses to wait for %p with %p', async (revision, options, message) => {
    const { make, stop } = setUp();
    const refused = make(new FakeTarget()).waitUntil(revision, options);
    await expect(refused).rejects.toThrow(InvalidOptionError);
    await expect(refused).rejects.toThrow(message);
    await stop();
  });
});

describe('backoff', () => {
  it('doubles up to its maximum, with full jitter', () => {
    const delays = (random: number) =>
      [1, 2, 3, 4, 5, 2000].map((n) => backoffDelay(n, { minMs: 10, maxMs: 100, random: () => random }));
    expect(delays(0)).toEqual([10, 20, 40, 80, 100, 100]);
    expect(delays(0.75)).toEqual([2.5, 5, 10, 20, 25, 25]);
  });

  it('counts failures since the last success, waits no less than is asked for, and never not at all', () => {
    const backoff = new Backoff({ minMs: 10, maxMs: 100, random: () => 0.99 });
    expect([backoff.next(), backoff.next(), backoff.next(50)]).toEqual([1, 1, 50]);
    const long = new Backoff({ minMs: 10, maxMs: 100, random: () => 0 });
    expect([long.next(), long.next()]).toEqual([10, 20]);
    long.reset();
    expect([long.next(), long.next(15)]).toEqual([10, 20]);
  });

  it('hands out what is due, earliest first', () => {
    const heap = new DueHeap<number>();
    const times = Array.from({ length: 200 }, (_, i) => (i * 7919) % 211);
    for (const at of times) heap.push(at, at);
    const out: (number | undefined)[] = [];
    while (heap.size > 0) out.push(heap.pop());
    expect(out).toEqual(times.toSorted((a, b) => a - b));
  });
});
