import { Failures } from './failures.ts';
import { defineProcessPart } from './parts/contract.ts';
import { totalsPart } from './totals-part.ts';

/** Logs requests that fail, over all terms. */
export const failuresPart = defineProcessPart({
  name: 'failures',
  needs: { totals: totalsPart },
  build: ({ totals }, { log, operator }) => ({
    provides: new Failures({ totals, log, expected: (error) => operator.expected(error) }),
  }),
});
