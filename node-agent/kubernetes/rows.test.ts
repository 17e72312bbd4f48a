import { expect, it } from '@jest/globals';
import { mergePolicy } from './rows.ts';

it('of two ResolvedPolicies of one policy the newer generation counts, in whichever order they are read', () => {
  const [old, now] = [1, 2].map((generation) => ({
    uid: 'u',
    kind: 'CiliumNetworkPolicy' as const,
    name: 'p',
    generation,
    rules: [],
  }));
  if (old === undefined || now === undefined) throw new Error('no policies');
  for (const parts of [[old, now], [now, old], [now]]) expect(mergePolicy('u', parts)).toBe(now);
  expect(mergePolicy('u', [])).toBeUndefined();
});
