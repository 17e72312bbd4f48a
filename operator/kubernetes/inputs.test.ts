/** What parts read: each kind once, whoever asks for it. */
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { ApiError, type KubeClient, type KubeObject, type Resource } from '@weir/kube';
import { createStateDB } from '@weir/statedb';
import type { Source } from '../parts/contract.ts';
import { createTables } from '../tables.ts';
import { Inputs } from './inputs.ts';

const things: Resource<KubeObject> = { group: '', version: 'v1', kind: 'Thing', plural: 'things', namespaced: true };
const others: Resource<KubeObject> = { ...things, kind: 'Other', plural: 'others' };

type PageOptions = Parameters<KubeClient['listPage']>[1];

let asked: string[];
/** Kinds that are not served. */
let unserved: Set<string>;
let inputs: Inputs;
let db: ReturnType<typeof createStateDB>;

beforeEach(() => {
  asked = [];
  unserved = new Set();
});
afterEach(() => inputs.stop());

const client = {
  listPage: async ({ plural }: Resource<KubeObject>, { limit, labelSelector }: PageOptions) => {
    asked.push([plural, limit, labelSelector].filter((each) => each !== undefined).join(' '));
    if (unserved.has(plural)) throw new ApiError('no such kind', { status: 404, reason: 'NotFound' });
    return { items: [{ apiVersion: 'v1', kind: 'Thing', metadata: { name: plural } }], resourceVersion: '1' };
  },
  watch: async function* (_: unknown, { signal }: { readonly signal?: AbortSignal }): AsyncGenerator<never> {
    await new Promise((resolve) => signal?.addEventListener('abort', resolve));
  },
} as unknown as KubeClient;

function read(...sources: readonly Source[]): Promise<void> {
  db = createStateDB({ freeze: true });
  const table = createTables(db).inputSources;
  inputs = new Inputs({ client, db, table, sources: () => sources, onError: () => undefined });
  return inputs.start();
}

/** A source that tells of what it is given. */
function source(
  name: string,
  told: string[],
  resource = things,
  more: Pick<Source, 'list' | 'pageSize' | 'trim' | 'optional'> = {},
): Source {
  const tell = ({ kind, metadata }: KubeObject): void => void told.push(`${name}: ${kind} ${metadata.name}`);
  return { ...more, resource, sink: { replace: (items) => items.forEach(tell), upsert: tell, delete: tell } };
}

it('sources of one kind share its list: the smallest pages, reduced by each, go to all in order', async () => {
  const told: string[] = [];
  await read(
    source('first', told, things, { pageSize: 20 }),
    source('other', told, others),
    source('second', told, things, { pageSize: 10, trim: (object) => ({ ...object, kind: `${object.kind}!` }) }),
    source('third', told, things, { trim: (object) => ({ ...object, kind: `${object.kind}?` }) }),
  );
  expect(asked.sort()).toEqual(['others 500', 'things 10']);
  expect(told.sort()).toEqual([
    'first: Thing!? things',
    'other: Thing others',
    'second: Thing!? things',
    'third: Thing!? things',
  ]);
});

it('sources of one kind that ask for different objects are refused', async () => {
  const some = { list: { labelSelector: 'a=b' } };
  await read(source('one', [], things, some), source('same', [], things, some));
  expect(asked).toEqual(['things 500 a=b']);
  await inputs.stop();
  await expect(read(source('one', [], things, some), source('all', []))).rejects.toThrow(
    'parts ask for different things: all sources of a kind must have the same `list`',
  );
});

it('a kind that is not served holds nothing up where all of its sources are optional', async () => {
  unserved.add('things');
  const missing: (string | undefined)[] = [];
  const optional = { optional: { missing: (because: string | undefined) => missing.push(because) } };
  await read(source('one', [], things, optional), source('two', [], things, optional), source('other', [], others));
  expect(missing).toEqual(['no such kind', 'no such kind']);
  unserved.clear();
  while (missing.length < 4) await new Promise((resolve) => setTimeout(resolve, 10));
  expect(missing.slice(2)).toEqual([undefined, undefined]);
  await inputs.stop();

  unserved.add('things');
  const started = read(source('one', [], things, optional), source('needs it', [], things));
  while (inputs.waiting().join('') === 'things') await new Promise((resolve) => setTimeout(resolve, 10));
  expect(inputs.waiting()).toEqual(['things (no such kind; the API server does not serve things (v1))']);
  expect(missing).toHaveLength(4);
  unserved.clear();
  await started;
});
