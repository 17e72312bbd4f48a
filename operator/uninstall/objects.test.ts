import { expect, it } from '@jest/globals';
import type { CiliumPolicyObject, KubeClient } from '@weir/kube';
import { cnp } from '../testing.ts';
import { withdrawStatuses } from './objects.ts';

it('takes its status back from a policy that is nested deep: nobody keeps Weir from being uninstalled', async () => {
  let deep: unknown = 1;
  for (let at = 0; at < 20_000; at += 1) deep = [deep];
  const policy = {
    ...cnp('a/p', { endpointSelector: {}, unknown: deep }),
    status: { observedGeneration: 1, conditions: [] },
  };
  const replaced: string[] = [];
  const client: Pick<KubeClient, 'listPage' | 'replace'> = {
    listPage: <T>({ plural }: { readonly plural: string }) =>
      Promise.resolve({
        items: (plural === 'ciliumnetworkpolicies' ? [policy as unknown as CiliumPolicyObject] : []) as T[],
        resourceVersion: '1',
      }),
    replace: (_, object) => {
      replaced.push(JSON.stringify(object));
      return Promise.resolve(object);
    },
  };
  await withdrawStatuses(
    client as KubeClient,
    () => undefined,
    () => false,
  );
  expect(replaced.map((text) => Object.keys(JSON.parse(text) as object))).toEqual([
    ['apiVersion', 'kind', 'metadata', 'spec'],
  ]);
});
