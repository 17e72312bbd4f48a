/** Derived tables, by example. */
import { describe, expect, it, jest } from '@jest/globals';
import {
  createStateDB,
  InitialiserError,
  ReentrantWriteError,
  SnapshotDisposedError,
  type StateDB,
  UniqueIndexError,
  type Watch,
} from '../index.ts';
import { type DeriveFailure, type DeriveOptions, derive } from './derive.ts';
import { DerivationDisposedError, DeriveInputError } from './errors.ts';

interface Pod {
  readonly name: string;
  readonly node: string;
  readonly port?: number;
}
interface Node {
  readonly name: string;
  readonly zone: string;
}
interface Place {
  readonly id: string;
  readonly zone: string;
}
type Options = DeriveOptions<Pod, Place>;

/** Each pod with the zone of its node; pods of no known node have none. */
function setUp(options: Partial<Options> = {}) {
  const db = createStateDB({ freeze: true });
  const pods = db.table<Pod>({
    name: 'pods',
    key: (pod) => pod.name,
    indexes: [{ name: 'node', keys: (pod) => [pod.node] }],
  });
  const nodes = db.table<Node>({ name: 'nodes', key: (node) => node.name });
  const places = db.table<Place>({
    name: 'places',
    key: (place) => place.id,
    indexes: [{ name: 'zone', unique: true, keys: ({ zone }) => (zone.startsWith('only-') ? [zone] : []) }],
  });
  const zone = (pod: Pod, read: Parameters<Options['fn']>[1]): Place[] => {
    const node = read.get(nodes, pod.node);
    return node === undefined ? [] : [{ id: pod.name, zone: node.zone }];
  };
  const fn = jest.fn<Options['fn']>(options.fn ?? zone);
  const failures: DeriveFailure[] = [];
  const derivation = derive(db, {
    name: 'places-of-pods',
    into: places,
    inputs: [pods, nodes],
    onError: (failure) => failures.push(failure),
    // One turn does it all, however slow the machine is.
    slice: Number.POSITIVE_INFINITY,
    ...options,
    fn,
  });
  const pod = (name: string, node: string): void => {
    db.write([pods], (txn) => txn.upsert(pods, { name, node }));
  };
  const node = (name: string, of: string): void => {
    db.write([nodes], (txn) => txn.upsert(nodes, { name, zone: of }));
  };
  const evaluated = (): string[] => {
    const names = fn.mock.calls.map(([row]) => row.name);
    fn.mockClear();
    return names.sort();
  };
  const result = (): string[] => {
    using snapshot = db.read();
    return [...snapshot.all(places)].map((place) => `${place.id}:${place.zone}`);
  };
  return { db, pods, nodes, places, zone, fn, failures, derivation, pod, node, evaluated, result };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The database, counting the watches that are asked for of snapshots, and the callbacks that wait on any. */
function counting(db: StateDB) {
  const counts = { asked: 0, listening: 0 };
  const seen = new WeakSet<Watch>();
  const count = (watch: Watch): Watch => {
    // A watch is shared by all who ask the same.
    if (seen.has(watch)) return watch;
    seen.add(watch);
    const onFire = watch.onFire.bind(watch);
    watch.onFire = (callback) => {
      let on = 1;
      counts.listening++;
      const off = (): void => {
        counts.listening -= on;
        on = 0;
      };
      const stop = onFire(() => {
        off();
        callback();
      });
      return () => {
        off();
        stop();
      };
    };
    return watch;
  };
  const own: Pick<StateDB, 'read' | 'changes'> = {
    read() {
      const snapshot = db.read();
      const watch = snapshot.watch.bind(snapshot);
      snapshot.watch = (query) => {
        counts.asked++;
        const answer = watch(query);
        return { ...answer, watch: count(answer.watch) };
      };
      return snapshot;
    },
    changes(...args) {
      const stream = db.changes(...args);
      const watch = stream.watch.bind(stream);
      stream.watch = () => count(watch());
      return stream;
    },
  };
  const counted = new Proxy(db, {
    get: (target, name: keyof StateDB) =>
      name === 'read' || name === 'changes' ? own[name] : (target[name] as () => unknown).bind(target),
  });
  return { counted, counts };
}

describe('derive', () => {
  it('runs by itself once after the commits of a turn, in one transaction', async () => {
    const { db, places, pod, node, result, evaluated } = setUp();
    node('n1', 'z1');
    pod('a', 'n1');
    pod('b', 'n1');
    using stream = db.changes(places);
    const fired = jest.fn();
    stream.watch().onFire(fired);
    expect(result()).toEqual([]);
    await turn();
    expect(result()).toEqual(['a:z1', 'b:z1']);
    expect(evaluated()).toEqual(['a', 'b']);
    expect(fired).toHaveBeenCalledTimes(1);
  });

  it('evaluates a unit anew exactly when its row or an answer that it read has changed', () => {
    const { db, pods, nodes, derivation, pod, node, result, evaluated } = setUp();
    node('n1', 'z1');
    node('n2', 'z2');
    pod('a', 'n1');
    pod('b', 'n2');
    pod('c', 'n3');
    derivation.flush();
    evaluated();
    node('n1', 'z3');
    derivation.flush();
    expect(evaluated()).toEqual(['a']);
    node('n3', 'z3');
    derivation.flush();
    expect(evaluated()).toEqual(['c']);
    pod('b', 'n1');
    derivation.flush();
    expect(evaluated()).toEqual(['b']);
    // n2 is read by nobody any more.
    node('n2', 'z9');
    node('n9', 'z9');
    derivation.flush();
    expect(evaluated()).toEqual([]);
    expect(() =>
      db.write([pods, nodes], (txn) => {
        txn.deleteAll(nodes);
        txn.delete(pods, 'a');
        throw new Error('aborted');
      }),
    ).toThrow('aborted');
    derivation.flush();
    expect(evaluated()).toEqual([]);
    db.write([nodes, pods], (txn) => {
      txn.delete(pods, 'a');
      txn.delete(nodes, 'n3');
    });
    derivation.flush();
    expect(evaluated()).toEqual(['c']);
    expect(result()).toEqual(['b:z3']);
  });

  it('does not write rows that are equal', () => {
    const { db, places, derivation, pod, node } = setUp({ equals: (a, b) => a.zone === b.zone });
    node('n1', 'z1');
    node('n2', 'z1');
    pod('a', 'n1');
    derivation.flush();
    using before = db.read();
    pod('a', 'n2');
    derivation.flush();
    using after = db.read();
    expect(after.revision(places)).toBe(before.revision(places));
    expect(after.get(places, 'a')).toBe(before.get(places, 'a'));
  });

  it('of two units with one output key the smallest driving key stands, and the next one after it', () => {
    const { db, pods, derivation, pod, result } = setUp({ fn: ({ name, node }) => [{ id: node, zone: name }] });
    for (const name of ['b', 'c', 'a']) pod(name, 'n1');
    derivation.flush();
    expect(result()).toEqual(['n1:a']);
    pod('a', 'n2');
    derivation.flush();
    expect(result()).toEqual(['n1:b', 'n2:a']);
    db.write([pods], (txn) => txn.delete(pods, 'b'));
    derivation.flush();
    expect(result()).toEqual(['n1:c', 'n2:a']);
    pod('0', 'n1');
    pod('c', 'n3');
    derivation.flush();
    expect(result()).toEqual(['n1:0', 'n2:a', 'n3:c']);
  });

  it('of one unit the first row of a key stands', () => {
    const { derivation, pod, result } = setUp({
      *fn({ name }) {
        yield { id: name, zone: 'first' };
        yield { id: name, zone: 'second' };
      },
    });
    pod('a', 'n1');
    derivation.flush();
    expect(result()).toEqual(['a:first']);
  });

  it('a unit that throws keeps its last good rows, is reported, and does not stop the others', () => {
    const { db, pods, nodes, derivation, pod, node, zone, fn, result, failures, evaluated } = setUp();
    const broken = new Error('zone x');
    fn.mockImplementation((row, read) => {
      const places = zone(row, read);
      if (places[0]?.zone === 'x') throw broken;
      return places;
    });
    node('n1', 'z1');
    node('n2', 'z2');
    pod('a', 'n1');
    pod('b', 'n2');
    derivation.flush();
    node('n1', 'x');
    node('n2', 'z3');
    pod('c', 'n1');
    derivation.flush();
    expect(result()).toEqual(['a:z1', 'b:z3']);
    expect(derivation.failing()).toEqual([
      { key: 'a', error: broken },
      { key: 'c', error: broken },
    ]);
    expect(failures.map(({ key }) => key).sort()).toEqual(['a', 'c']);
    evaluated();
    node('n2', 'z4');
    derivation.flush();
    expect(evaluated()).toEqual(['b']);
    node('n1', 'z5');
    db.write([pods], (txn) => txn.delete(pods, 'c'));
    derivation.flush();
    expect(derivation.failing()).toEqual([]);
    expect(result()).toEqual(['a:z5', 'b:z4']);
    node('n1', 'x');
    derivation.flush();
    db.write([pods, nodes], (txn) => txn.delete(pods, 'a'));
    derivation.flush();
    expect([result(), derivation.failing()]).toEqual([['b:z4'], []]);
  });

  it('rows swap what is unique between them', () => {
    const { db, pods, derivation, pod, node, result } = setUp();
    node('n1', 'only-1');
    node('n2', 'only-2');
    pod('a', 'n1');
    pod('b', 'n2');
    derivation.flush();
    db.write([pods], (txn) => {
      txn.upsert(pods, { name: 'a', node: 'n2' });
      txn.upsert(pods, { name: 'b', node: 'n1' });
    });
    derivation.flush();
    expect(result()).toEqual(['a:only-2', 'b:only-1']);
    expect(derivation.failing()).toEqual([]);
  });

  it('a row that the table refuses is reported once, and comes when it can; what was there stays', () => {
    const { db, pods, derivation, pod, node, result, failures } = setUp();
    node('n1', 'only-1');
    node('n2', 'z2');
    pod('a', 'n1');
    pod('b', 'n2');
    derivation.flush();
    pod('b', 'n1');
    pod('c', 'n1');
    derivation.flush();
    expect(result()).toEqual(['a:only-1', 'b:z2']);
    const refused = ['b', 'c'].map((key) => ({ key, error: expect.any(UniqueIndexError) }));
    expect(derivation.failing()).toEqual(refused);
    pod('d', 'n2');
    derivation.flush();
    expect(result()).toEqual(['a:only-1', 'b:z2', 'd:z2']);
    expect(failures).toEqual(refused);
    db.write([pods], (txn) => txn.delete(pods, 'a'));
    derivation.flush();
    expect(result()).toEqual(['b:only-1', 'd:z2']);
    expect(derivation.failing()).toEqual(refused.slice(1));
    db.write([pods], (txn) => txn.delete(pods, 'c'));
    derivation.flush();
    expect(derivation.failing()).toEqual([]);
  });

  it('by default a failure is a process warning', async () => {
    const warned = jest.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const db = createStateDB();
    const table = db.table<Pod>({ name: 'pods', key: (p) => p.name });
    const into = db.table<Place>({ name: 'places', key: (p) => p.id });
    const fn = (): never => {
      throw new Error('broken');
    };
    using derivation = derive(db, { name: 'd', into, inputs: [table], fn });
    db.write([table], (txn) => txn.upsert(table, { name: 'a', node: 'n' }));
    derivation.flush();
    expect(warned).toHaveBeenCalledWith('derivation "d", row "a": broken', { code: 'STATEDB_DERIVE' });
    warned.mockRestore();
  });

  it('what the callback for failures throws is thrown anew, apart from the run', () => {
    const { derivation, pod, result } = setUp({
      fn: ({ name }) => {
        if (name === 'a') throw new Error('in fn');
        return [{ id: name, zone: 'z' }];
      },
      onError: ({ error }) => {
        throw new Error('in the callback', { cause: error });
      },
    });
    pod('a', 'n1');
    pod('b', 'n1');
    const queued: (() => void)[] = [];
    const spy = jest.spyOn(globalThis, 'queueMicrotask').mockImplementation((callback) => queued.push(callback));
    derivation.flush();
    spy.mockRestore();
    expect(result()).toEqual(['b:z']);
    expect(queued).toHaveLength(1);
    expect(queued[0]).toThrow('in the callback');
  });

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
