import type { KubeObject } from '@weir/kube';
import { leasePart } from '../lease-part.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { totalsPart } from '../totals-part.ts';
import type { ObjectTarget } from './target.ts';
import { createTargets, targetOf, targetSources } from './targets.ts';
import { writersPart } from './writers-part.ts';
import { writtenKinds } from './written-kinds.ts';

/** What Weir writes: what the API holds of it, and how it is written. */
export const targetsPart = definePart({
  name: 'targets',
  needs: { tables: tablesPart, lease: leasePart, writers: writersPart, totals: totalsPart },
  build: ({ tables, lease, writers, totals }, { db }) => {
    const statusDrifted = new Set<(policy: string) => void>();
    const statusWritten = new Set<(policy: string) => void>();
    const tell = (listeners: ReadonlySet<(policy: string) => void>) => (policy: string) => {
      for (const listener of listeners) listener(policy);
    };
    const shared = { db, client: lease.client, onWrite: totals.write.bind(totals) };
    const targets = createTargets({ ...shared, tables, onStatusDrift: tell(statusDrifted) });
    return {
      sources: targetSources(targets),
      desired: writtenKinds({
        ...shared,
        tables,
        targets,
        attempted: writers.attempted,
        onStatus: tell(statusWritten),
      }),
      provides: {
        ...targets,
        /** The target of another desired table. */
        targetOf: <T extends KubeObject>(
          table: Parameters<typeof targetOf>[1],
          options: Parameters<typeof targetOf<T>>[2],
        ): ObjectTarget<T> => targetOf(shared, table, options),
        /** Tells by its key of a policy whose status another hand has changed. */
        onStatusDrift: (listener: (policy: string) => void): void => void statusDrifted.add(listener),
        /** Tells by its key of a policy whose status was written. */
        onStatus: (listener: (policy: string) => void): void => void statusWritten.add(listener),
      },
    };
  },
});
