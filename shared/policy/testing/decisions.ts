/** Decisions of all four kinds. For tests. */
import fc from 'fast-check';
import type { Decision } from '../types.ts';

/** Few listeners, so that two decisions are often the same. */
export const anyDecision: fc.Arbitrary<Decision> = fc.oneof(
  fc.constantFrom<Decision>({ verdict: 'allow' }, { verdict: 'deny' }, { verdict: 'authenticate' }),
  fc
    .record({ port: fc.constantFrom(0, 1, 2, 4), priority: fc.constantFrom(1, 101, 126) })
    .map((listener) => ({ verdict: 'redirect' as const, listener })),
);
