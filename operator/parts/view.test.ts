import { expect, it } from '@jest/globals';
import { Registry } from 'prom-client';
import type { DesiredKind, OperatorPart, Source } from './contract.ts';
import { viewOf } from './view.ts';

const view = (...parts: readonly OperatorPart[]) =>
  viewOf(
    () => parts,
    () => new Registry(),
  );

it('the first reason why it is not ready is told, and a part that stands by keeps those after it from being asked', () => {
  const waits = { unready: () => 'waiting for pods' };
  expect(view({}, { unready: () => undefined }).unready()).toBeUndefined();
  expect(view({}, waits, { unready: () => 'later' }).unready()).toBe('waiting for pods');
  expect(view({ standsBy: () => true }, waits).unready()).toBeUndefined();
  expect(view({ standsBy: () => true, unready: () => 'no lease' }, waits).unready()).toBe('no lease');
  expect(view({ standsBy: () => false }, waits).unready()).toBe('waiting for pods');
});

it('each part may say that the process must be restarted, and which failures no line is about', () => {
  const all = view({}, { unhealthy: () => 'stuck', expected: (error) => error === 'usual' });
  expect([all.unhealthy(), all.expected('usual'), all.expected('other')]).toEqual(['stuck', true, false]);
  expect(view({}).unhealthy()).toBeUndefined();
});

it('sources are read, and desired tables written, in the order of the parts', () => {
  const source = (plural: string): Source => ({
    resource: { plural } as Source['resource'],
    sink: {} as Source['sink'],
  });
  const kind = (name: string) => ({ name }) as DesiredKind<never>;
  const all = view(
    { sources: [source('a'), source('b')], desired: [kind('c')] },
    {},
    { sources: [source('a')], desired: [kind('d')] },
  );
  expect(all.desired().map(({ name }) => name)).toEqual(['c', 'd']);
  expect(all.sources().map(({ resource }) => resource.plural)).toEqual(['a', 'b', 'a']);
  expect(view({}).sources()).toEqual([]);
});
