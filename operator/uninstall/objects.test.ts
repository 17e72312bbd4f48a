import { expect, it } from '@jest/globals';
import type { KubeClient } from '@weir/kube';
import { cnp } from '../testing.ts';
import { withdrawStatuses } from './objects.ts';

/** What is written where these policies are. */
async function written(...policies: readonly object[]): Promise<unknown[]> {
  const replaced: unknown[] = [];
  const client: Pick<KubeClient, 'listPage' | 'replace'> = {
    listPage: <T>({ plural }: { readonly plural: string }) =>
      Promise.resolve({ items: (plural === 'ciliumnetworkpolicies' ? policies : []) as T[], resourceVersion: '1' }),
    replace: (_, object) => {
      replaced.push(JSON.parse(JSON.stringify(object)));
      return Promise.resolve(object);
    },
  };
  await withdrawStatuses(
    client as KubeClient,
    () => undefined,
    () => false,
  );
  return replaced;
}

it('takes nothing but its own out of a status, and leaves alone where nothing is its own', async () => {
  const policy = cnp('a/p', { endpointSelector: {} });
  const [ours, theirs] = ['Ready', 'Theirs'].map((type) => ({ type, status: 'True', reason: 'r', message: 'm' }));
  const status = {
    observedGeneration: 1,
    summary: {},
    failures: [],
    failureCount: 0,
    conditions: [ours, theirs],
    more: 1,
  };
  expect(await written({ ...policy, status })).toEqual([{ ...policy, status: { conditions: [theirs], more: 1 } }]);
  expect(await written({ ...policy, status: { conditions: [ours] } })).toEqual([policy]);
  for (const left of [{}, { status: {} }, { status: { conditions: [theirs], more: 1 } }])
    expect(await written({ ...policy, ...left })).toEqual([]);
});

it('takes its status back from a policy that is nested deep: nobody keeps Weir from being uninstalled', async () => {
  let deep: unknown = 1;
  for (let at = 0; at < 20_000; at += 1) deep = [deep];
  const policy = {
    ...cnp('a/p', { endpointSelector: {}, unknown: deep }),
    status: { observedGeneration: 1, conditions: [] },
  };
  expect((await written(policy)).map((object) => Object.keys(object as object))).toEqual([
    ['apiVersion', 'kind', 'metadata', 'spec'],
  ]);
});
