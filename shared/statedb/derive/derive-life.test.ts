/** Derived tables, by example: from the first result to the last. */
import { describe, expect, it } from '@jest/globals';
import { createStateDB, InitialiserError, ReentrantWriteError, SnapshotDisposedError } from '../index.ts';
import { derive } from './derive.ts';
import { DerivationDisposedError, DeriveInputError } from './errors.ts';
import { counting, type Options, type Place, type Pod, setUp, turn } from './test-kit.ts';

describe('a derivation', () => {
  it('is initialised when its inputs are and the first result is written', () => {
    const { db, pods, nodes, places, derivation, pod, node, result } = setUp();
    const podsDone = db.initialiser(pods, 'p');
    const nodesDone = db.initialiser(nodes, 'n');
    pod('a', 'n1');
    node('n1', 'z1');
    derivation.flush();
    expect(result()).toEqual(['a:z1']);
    expect(db.pendingInitialisers(places)).toEqual(['places-of-pods']);
    db.write([pods], podsDone);
    derivation.flush();
    expect(db.pendingInitialisers(places)).toEqual(['places-of-pods']);
    db.write([nodes], (txn) => {
      nodesDone(txn);
      txn.upsert(nodes, { name: 'n1', zone: 'z2' });
    });
    expect(db.pendingInitialisers(places)).toEqual(['places-of-pods']);
    const watch = db.initialisedWatch(places);
    let then: string[] = [];
    watch.onFire(() => {
      then = result();
    });
    derivation.flush();
    expect(then).toEqual(['a:z2']);
    expect(db.pendingInitialisers(places)).toEqual([]);
  });

  it('wakes by itself when an input becomes initialised, without a row', async () => {
    const { db, nodes, places } = setUp();
    const done = db.initialiser(nodes, 'n');
    await turn();
    expect(db.pendingInitialisers(places)).toHaveLength(1);
    db.write([nodes], done);
    await turn();
    expect(db.pendingInitialisers(places)).toEqual([]);
  });

  it('goes on where it was: stop, start', async () => {
    const { db, pods, derivation, pod, node, result, evaluated } = setUp();
    node('n1', 'z1');
    for (const name of ['a', 'b', 'c']) pod(name, 'n1');
    await turn();
    derivation.stop();
    evaluated();
    db.write([pods], (txn) => txn.delete(pods, 'a'));
    pod('d', 'n1');
    await turn();
    expect(result()).toEqual(['a:z1', 'b:z1', 'c:z1']);
    derivation.start();
    await turn();
    expect(result()).toEqual(['b:z1', 'c:z1', 'd:z1']);
    expect(evaluated()).toEqual(['d']);
    derivation.stop();
    node('n1', 'z2');
    derivation.flush();
    expect(result()).toEqual(['b:z2', 'c:z2', 'd:z2']);
  });

  it('works in slices that show nothing before the end, as of one instant', async () => {
    const { db, pods, node, derivation, result, evaluated } = setUp({ slice: 0 });
    node('n1', 'z1');
    db.write([pods], (txn) => {
      for (let i = 0; i < 10; i++) txn.upsert(pods, { name: `${i}`, node: 'n1' });
    });
    await turn();
    await turn();
    await turn();
    const early = evaluated();
    expect(early.length).toBeGreaterThan(0);
    expect(early.length).toBeLessThan(10);
    node('n1', 'z2');
    await turn();
    expect(result()).toEqual([]);
    // Whatever was seen first, rows of two instants were never there together.
    const seen = new Set<string>();
    for (let i = 0; i < 40; i++) {
      await turn();
      seen.add(
        result()
          .map((line) => line.slice(2))
          .join(' '),
      );
    }
    const all = (zone: string): string => Array.from({ length: 10 }, () => zone).join(' ');
    expect([...seen]).toEqual(['', all('z1'), all('z2')]);
    expect(db.stats().snapshots).toBe(0);
    expect(derivation.failing()).toEqual([]);
  });

  it('a stop in the middle of a run loses nothing and holds nothing; so does a flush', async () => {
    const { db, pods, node, derivation, result } = setUp({ slice: 0 });
    node('n1', 'z1');
    const put = (from: number): void =>
      db.write([pods], (txn) => {
        for (let i = from; i < from + 5; i++) txn.upsert(pods, { name: `${i}`, node: 'n1' });
      });
    put(0);
    await turn();
    await turn();
    await turn();
    expect(db.stats().snapshots).toBe(1);
    derivation.stop();
    expect(db.stats().snapshots).toBe(0);
    expect(result()).toEqual([]);
    derivation.start();
    await turn();
    await turn();
    put(5);
    derivation.flush();
    expect(result()).toHaveLength(10);
    expect(db.stats().snapshots).toBe(0);
  });

  it('takes over rows that were there before', () => {
    const db = createStateDB();
    const table = db.table<Pod>({ name: 'pods', key: (p) => p.name });
    const into = db.table<Place>({ name: 'places', key: (p) => p.id });
    const kept = { id: 'a', zone: 'n' };
    db.write([table, into], (txn) => {
      txn.upsert(table, { name: 'a', node: 'n' });
      txn.upsert(into, kept);
      txn.upsert(into, { id: 'left over', zone: 'n' });
    });
    using derivation = derive(db, {
      name: 'd',
      into,
      inputs: [table],
      fn: ({ name, node }) => [{ id: name, zone: node }],
      equals: (a, b) => a.zone === b.zone,
    });
    derivation.flush();
    using snapshot = db.read();
    expect([...snapshot.all(into)]).toEqual([kept]);
    expect(snapshot.get(into, 'a')).toBe(kept);
  });

  it('derivations of derivations: each flush passes on what the one before wrote', async () => {
    const { db, places, pod, node } = setUp();
    const zones = db.table<{ zone: string }>({ name: 'zones', key: ({ zone }) => zone });
    const slice = Number.POSITIVE_INFINITY;
    using _second = derive(db, { name: 'zones', into: zones, inputs: [places], fn: ({ zone }) => [{ zone }], slice });
    pod('a', 'n1');
    pod('b', 'n1');
    node('n1', 'z1');
    await turn();
    using snapshot = db.read();
    expect([...snapshot.all(zones)]).toEqual([{ zone: 'z1' }]);
    expect(snapshot.initialised(zones)).toBe(true);
  });

  it('lets go of everything when disposed', async () => {
    const { db, pods, places, derivation, pod, node, result } = setUp();
    pod('a', 'n1');
    node('n1', 'z1');
    derivation.flush();
    derivation[Symbol.dispose]();
    derivation[Symbol.dispose]();
    expect(db.stats()).toMatchObject({ snapshots: 0, streams: 0 });
    expect(() => derivation.flush()).toThrow(DerivationDisposedError);
    expect(() => derivation.start()).toThrow(DerivationDisposedError);
    node('n1', 'z2');
    pod('b', 'n1');
    await turn();
    expect(result()).toEqual(['a:z1']);
    const again = { name: 'again', into: places, inputs: [pods] as const, fn: () => [] };
    expect(() => derive(db, again)).toThrow(InitialiserError);
    expect(db.stats().streams).toBe(0);
  });

  it('asks each query once in a run, listens to each answer once, and lets go of what no unit reads any more', async () => {
    const { db, pods, nodes, derivation, pod, node, zone } = setUp();
    derivation[Symbol.dispose]();
    const into = db.table<Place>({ name: 'into', key: (place) => place.id });
    const { counted, counts } = counting(db);
    using other = derive(counted, { name: 'other', into, inputs: [pods, nodes], fn: zone, slice: 0 });
    for (let i = 0; i < 30; i++) pod(`${i}`, 'n1');
    for (let i = 0; i < 4; i++) await turn();
    expect(counts).toEqual({ asked: 1, listening: 2 });
    // From here on the answer is not the present one any more, but still the run's.
    node('n1', 'z');
    for (let i = 0; i < 8; i++) await turn();
    expect(counts.asked).toBe(1);
    other.flush();
    expect(counts).toEqual({ asked: 2, listening: 2 });
    for (let i = 0; i < 20; i++) {
      node('n1', `z${i}`);
      other.flush();
    }
    // The stream and the one query.
    expect(counts).toEqual({ asked: 22, listening: 2 });
    for (let i = 0; i < 20; i++) {
      pod('0', `m${i}`);
      other.flush();
    }
    expect(counts).toEqual({ asked: 42, listening: 3 });
    db.write([pods], (txn) => txn.deleteAll(pods));
    other.flush();
    expect(counts.listening).toBe(1);
    pod('0', 'n1');
    other.flush();
    other[Symbol.dispose]();
    expect(counts.listening).toBe(0);
  });

  it('names misuse', () => {
    const { db, pods, nodes, places, derivation, pod, failures } = setUp({
      fn: (_, read) => [...read.all(places)],
    });
    expect(() => derive(db, { name: 'd', into: pods, inputs: [nodes, pods], fn: () => [] })).toThrow(DeriveInputError);
    pod('a', 'n1');
    derivation.flush();
    expect(failures).toEqual([{ key: 'a', error: expect.any(DeriveInputError) }]);
    expect(() => db.write([pods], () => derivation.flush())).toThrow(ReentrantWriteError);
  });

  it('a reader kept by the function is of no use to it later, a flush within it neither', () => {
    let kept: Parameters<Options['fn']>[1] | undefined;
    const { pods, derivation, pod, failures, fn } = setUp({
      fn: (_, read) => {
        kept = read;
        read.get(pods, 'a');
        return [];
      },
    });
    pod('a', 'n1');
    derivation.flush();
    expect(() => kept?.get(pods, 'a')).toThrow(SnapshotDisposedError);
    fn.mockImplementation(() => {
      derivation.flush();
      return [];
    });
    pod('b', 'n1');
    derivation.flush();
    expect(failures).toEqual([{ key: 'b', error: expect.any(ReentrantWriteError) }]);
  });
});
