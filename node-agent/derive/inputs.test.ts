import { expect, it } from '@jest/globals';
import { createStateDB } from '@weir/statedb';
import { createTables } from '../create-tables.ts';
import { Inputs } from './inputs.ts';

it('takes tables in as they are named, so many changes at a time; what is said stays until all are taken in', () => {
  const db = createStateDB({ freeze: true });
  const { namespaces, localPods } = createTables(db);
  const namespace = (name: string): void =>
    void db.write([namespaces], (txn) => txn.upsert(namespaces, { name, labels: {} }));
  const pod = (name: string): void =>
    void db.write([localPods], (txn) =>
      txn.upsert(localPods, {
        ...{ namespace: 'a', name, uid: name, labels: {}, serviceAccount: '', namedPorts: [], addresses: [] },
      }),
    );
  const inputs = new Inputs(db);
  const taken: string[] = [];
  const said = (): number => inputs.snapshot.count(namespaces) + inputs.snapshot.count(localPods);
  inputs.on(localPods, ({ name }) => taken.push(`pod ${name}, ${said()} said`));
  inputs.on(namespaces, ({ name }, deleted) => taken.push(`${deleted ? 'no ' : ''}namespace ${name}, ${said()} said`));
  for (const name of ['x', 'y']) namespace(name);
  for (const name of ['p', 'q']) pod(name);
  const pull = (): unknown => [inputs.pull(3), taken.splice(0), said()];
  expect(pull()).toEqual([true, ['pod p, 0 said', 'pod q, 0 said', 'namespace x, 0 said'], 0]);
  // What comes meanwhile has its turn, and whoever is named first goes first.
  pod('r');
  expect(pull()).toEqual([false, ['pod r, 0 said', 'namespace y, 0 said'], 5]);
  db.write([namespaces], (txn) => txn.delete(namespaces, 'x'));
  expect(pull()).toEqual([false, ['no namespace x, 5 said'], 4]);
  inputs.dispose();
});
