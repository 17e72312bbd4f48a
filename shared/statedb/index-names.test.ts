import { expect, it } from '@jest/globals';
import { createStateDB, query, type Table, UnknownIndexError } from './index.ts';

interface Pod {
  readonly name: string;
  readonly node: string;
}

it("the compiler knows the names of a table's indexes", () => {
  const db = createStateDB();
  const pods = db.table({
    name: 'pods',
    key: (pod: Pod) => pod.name,
    indexes: [{ name: 'node', keys: (pod) => [pod.node] }],
  });
  const nodes: Table<Pod, never> = db.table({ name: 'nodes', key: ({ name }) => name });
  db.write([pods], (txn) => txn.insert(pods, { name: 'a', node: 'n1' }));
  using snapshot = db.read();

  expect([...snapshot.list(pods, 'node', 'n1')]).toEqual([{ name: 'a', node: 'n1' }]);
  expect([...snapshot.select(query.list(pods, 'node', 'n1'))]).toHaveLength(1);

  // @ts-expect-error it has no such index
  expect(() => snapshot.list(pods, 'nod', 'n1')).toThrow(UnknownIndexError);
  // @ts-expect-error it has no such index
  expect(() => snapshot.prefix(pods, 'n', 'nod')).toThrow(UnknownIndexError);
  // @ts-expect-error it has no such index
  expect(() => snapshot.select(query.list(pods, 'nod', 'n1'))).toThrow(UnknownIndexError);
  // @ts-expect-error it has none
  expect(() => snapshot.list(nodes, 'node', 'n1')).toThrow(UnknownIndexError);
  // @ts-expect-error what it is said to have, it has not
  const wrong: Table<Pod, 'zone'> = pods;

  // Where nobody says which there are, the name is looked up when the query runs.
  const some: Table<Pod> = pods;
  expect([...snapshot.list(some, 'node', 'n1')]).toHaveLength(1);
  expect(wrong).toBe(some);
});
