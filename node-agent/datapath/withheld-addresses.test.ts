import { expect, it } from '@jest/globals';
import type { Decision } from '@weir/policy';
import { both } from '../derive/contract.ts';
import type { EndpointStateRow, SlotContent } from '../tables.ts';
import { withheldAddresses } from './withheld-addresses.ts';

const PEER = 300;
const ALLOW: Decision = { verdict: 'allow' };
const DENY: Decision = { verdict: 'deny' };
const REDIRECT: Decision = { verdict: 'redirect', listener: { port: 15_000, priority: 101 } };
const ELSEWHERE: Decision = { verdict: 'redirect', listener: { port: 15_001, priority: 101 } };

function content(decision: Decision): SlotContent {
  const blocks = [{ protocol: 6, port: 80, bits: 16, ...decision, cookie: 1 }];
  return { elements: both(() => new Map([[PEER, 16]])), rows: both(() => new Map([[16, blocks]])) };
}

it.each<[string, Decision, Decision, boolean]>([
  ['allows what is to be redirected', ALLOW, REDIRECT, true],
  ['redirects to another listener', REDIRECT, ELSEWHERE, true],
  ['redirects what is to be denied', REDIRECT, DENY, true],
  ['redirects as is wanted', REDIRECT, REDIRECT, false],
  ['redirects what is to be allowed', REDIRECT, ALLOW, false],
  ['denies what is to be redirected', DENY, REDIRECT, false],
])('an address waits for a refused slot that %s: %#', (_, there, wanted, held) => {
  const enforced = { ingress: true, egress: true };
  const steps = withheldAddresses([{ prefix: '10.0.0.2/32', identity: PEER, source: 'endpoint' }], {
    refused: new Map([[1, content(wanted)]]),
    states: [{ id: 1, slot: 1, enforced } as EndpointStateRow],
    waiting: new Set(),
    word: () => ({ slot: 1, enforced }),
    content: () => content(there),
    around: (identity) => identity,
  });
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  expect(step.value.size).toBe(held ? 1 : 0);
});
