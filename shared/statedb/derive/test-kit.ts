/** Test kit: pods, nodes, and a table derived from both. */
import { jest } from '@jest/globals';
import { createStateDB, type StateDB, type Watch } from '../index.ts';
import { type DeriveFailure, type DeriveOptions, derive } from './derive.ts';

export interface Pod {
  readonly name: string;
  readonly node: string;
  readonly port?: number;
}
export interface Node {
  readonly name: string;
  readonly zone: string;
}
export interface Place {
  readonly id: string;
  readonly zone: string;
}
export type Options = DeriveOptions<Pod, Place>;

/** Each pod with the zone of its node; pods of no known node have none. */
export function setUp(options: Partial<Options> = {}) {
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

export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The database, counting the watches that are asked for of snapshots, and the callbacks that wait on any. */
export function counting(db: StateDB) {
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
