import { missingKinds } from '../kubernetes/input-sources.ts';
import { adopted, type TargetName } from '../kubernetes/targets.ts';
import { targetsPart } from '../kubernetes/targets-part.ts';
import { onceComplete } from '../once-complete.ts';
import { definePart } from '../parts/contract.ts';

import { tablesPart } from '../tables-part.ts';
import { Engine } from './engine.ts';
import { identityGcPart } from './identity-gc-part.ts';
import { modelPart } from './model-part.ts';

/** From the input tables into the desired ones. */
export const enginePart = definePart({
  name: 'engine',
  needs: { tables: tablesPart, targets: targetsPart, identityGc: identityGcPart, model: modelPart },
  stopWithinMs: Infinity,
  build: ({ tables, targets, identityGc, model }, { db, fail }) => {
    const engine = new Engine({
      db,
      tables,
      model,
      adopted: () => adopted(targets),
      missingKinds: () => missingKinds(db, tables.inputSources),
      collectIntervalMs: identityGc.intervalMs,
      onError: fail,
    });
    const { identities, peerSets, resolved, slices } = tables;
    const touch: Readonly<Record<TargetName, (key: string) => void>> = {
      identities: (key) => engine.touch(identities, key),
      peerSets: (key) => engine.touch(peerSets, key),
      resolved: (key) => engine.touch(resolved, key),
      slices: (key) => engine.touch(slices, key),
      statuses: (key) => engine.touchStatus(key),
    };
    targets.onDrift(({ target, key }) => {
      if (engine.started) touch[target](key);
    });
    const beginning = onceComplete(db, tables.inputSources, () => engine.start(), fail);
    return {
      provides: engine,
      start: () => beginning.start(),
      stop: async () => {
        beginning.stop();
        await engine.stop();
      },
    };
  },
});
