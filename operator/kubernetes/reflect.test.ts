import { expect, it } from '@jest/globals';
import type { KubeObject } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import { tableSink } from './reflect.ts';

const object = (name: string, value: unknown): KubeObject & { readonly value: unknown } => ({
  apiVersion: 'v1',
  kind: 'Thing',
  metadata: { name },
  value,
});

it('an object that cannot be read is left out alone: others go on, and what was known of it stays', () => {
  const db = createStateDB({ freeze: true });
  const table = db.table<{ readonly name: string; readonly letters: number }>({
    name: 'things',
    key: ({ name }) => name,
  });
  const bad: string[] = [];
  const sink = tableSink({
    db,
    table,
    name: 'things',
    key: ({ metadata }) => metadata.name,
    row: ({ metadata: { name }, value }: ReturnType<typeof object>) => ({
      name,
      letters: (value as { length: number }).length,
    }),
    onBad: ({ metadata: { name } }, error) => bad.push(`${name}: ${(error as Error).name}`),
  });
  const rows = (): string[] => {
    using snapshot = db.read();
    return [...snapshot.all(table)].map(({ name, letters }) => `${name}=${letters}`);
  };

  sink.replace([object('a', 'a'), object('b', null), object('c', 'ab')], '1');
  expect([rows(), db.pendingInitialisers(table)]).toEqual([['a=1', 'c=2'], []]);
  sink.upsert(object('a', null));
  sink.upsert(object('b', 'abc'));
  expect(rows()).toEqual(['a=1', 'b=3', 'c=2']);
  sink.replace([object('a', 'word'), object('b', null)], '2');
  expect(rows()).toEqual(['a=4', 'b=3']);
  sink.delete(object('b', null));
  expect(rows()).toEqual(['a=4']);
  expect(bad).toEqual(['b: TypeError', 'a: TypeError', 'b: TypeError']);
});
