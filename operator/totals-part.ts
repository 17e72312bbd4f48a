import { Totals } from './metrics.ts';
import { defineProcessPart } from './parts/contract.ts';

/** What is counted over all terms. */
export const totalsPart = defineProcessPart({
  name: 'totals',
  build: () => {
    const totals = new Totals();
    return { provides: totals, metrics: (registry) => totals.register(registry) };
  },
});
