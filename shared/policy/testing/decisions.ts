/** Decisions of all four kinds. For tests. */
import fc from 'fast-check';
import type { Decision } from '../types.ts';

/** Few listeners, so that two decisions are often the same. */
export const anyDecision: fc.Arbitrary<Decision> = fc.oneof(
  fc.constantFrom<Decision>({ verdict: 'allow' }, { verdict: 'deny' }, { verdict: 'authenticate' }),
  fc
    .record({ port: fc.integer({ min: 15_000, max: 15_002 }), priority: fc.constantFrom(1, 101, 126) })
    .map((listener) => ({ verdict: 'redirect' as const, listener })),
);
