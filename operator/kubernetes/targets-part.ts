import { leasePart } from '../lease-part.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { totalsPart } from '../totals-part.ts';
import { createTargets, type TargetName, targetSources } from './targets.ts';

/** An object that is not as it was left. */
export interface Drift {
  readonly target: TargetName;
  /** Of the desired row. */
  readonly key: string;
}

/** What the API holds of what is written. */
export const targetsPart = definePart({
  name: 'targets',
  needs: { tables: tablesPart, lease: leasePart, totals: totalsPart },
  build: ({ lease, totals }, { db }) => {
    const drifted = new Set<(drift: Drift) => void>();
    const targets = createTargets({
      db,
      client: lease.client,
      onDrift: (target, key) => {
        for (const listener of drifted) listener({ target, key });
      },
      onWrite: (verb, resource) => totals.write(verb, resource),
    });
    return {
      sources: targetSources(targets),
      provides: {
        ...targets,
        /** Tells of drifts. */
        onDrift: (listener: (drift: Drift) => void): void => {
          drifted.add(listener);
        },
      },
    };
  },
});
