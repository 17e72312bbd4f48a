import { missingKinds } from './input-sources.ts';
import { adopted } from './kubernetes/targets.ts';
import { targetsPart } from './kubernetes/targets-part.ts';
import { identityGcPart } from './model/identity-gc-part.ts';
import { SyncLoop } from './model/sync-loop.ts';
import { modelPart } from './model-part.ts';
import { onceComplete } from './once-complete.ts';
import { definePart } from './parts/contract.ts';
import { tablesPart } from './tables-part.ts';

/** From the input tables into the desired ones. */
export const syncLoopPart = definePart({
  name: 'sync-loop',
  needs: { tables: tablesPart, targets: targetsPart, identityGc: identityGcPart, model: modelPart },
  stopWithinMs: Infinity,
  build: ({ tables, targets, identityGc, model }, { db, fail }) => {
    const syncLoop = new SyncLoop({
      db,
      tables,
      model,
      adopted: () => adopted(targets),
      missingKinds: () => missingKinds(db, tables.inputSources),
      collectIntervalMs: identityGc.intervalMs,
      onError: fail,
    });
    targets.onStatusDrift((policy) => {
      if (syncLoop.started) syncLoop.touchStatus(policy);
    });
    const beginning = onceComplete(db, tables.inputSources, () => syncLoop.start(), fail);
    return {
      provides: syncLoop,
      start: () => beginning.start(),
      stop: async () => {
        beginning.stop();
        await syncLoop.stop();
      },
    };
  },
});
