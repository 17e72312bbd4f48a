import { failuresPart } from '../failures-part.ts';
import { leasePart } from '../lease-part.ts';
import { modelPart } from '../model/model-part.ts';
import { syncLoopPart } from '../model/sync-loop-part.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { tenantLogPart } from '../tenant-log-part.ts';
import { totalsPart } from '../totals-part.ts';
import { Inputs } from './inputs.ts';
import { targetsPart } from './targets-part.ts';

/** From the API into the input tables and the targets. Whoever waits for all of it waits for table `input-sources` to be complete. */
export const inputsPart = definePart({
  name: 'inputs',
  needs: {
    tables: tablesPart,
    lease: leasePart,
    targets: targetsPart,
    tenantLog: tenantLogPart,
    model: modelPart,
    syncLoop: syncLoopPart,
    totals: totalsPart,
    failures: failuresPart,
  },
  // For how long a kind may not be followed: API servers that restart take less; a rule that is not seen for longer is worth a page.
  settings: { staleMs: 60_000 },
  startWithinMs: Infinity,
  stopWithinMs: Infinity,
  build: ({ tables, lease, targets, tenantLog, model, syncLoop, totals, failures }, { config, db, log }) => {
    const inputs = new Inputs({
      client: lease.client,
      db,
      tables,
      targets,
      policyLimits: model.policyLimits,
      onError: (error, fields) =>
        failures.failed({
          component: 'reflector',
          error,
          message: 'watch failed',
          fields,
          kind: `watch failed ${fields.resource}`,
        }),
      onBad: (kind, object, error) => {
        totals.error('object');
        tenantLog.objectUnreadable(kind, object, error);
      },
      onMissing: (kind, because) => {
        if (because === undefined) {
          log.info({ kind }, 'policies of this kind can be read again');
          syncLoop.poke();
          return;
        }
        totals.error('reflector');
        log.error(
          { kind, because },
          'policies of this kind cannot be read: what is enforced of them stays as it is, the others are served; grant the operator get, list and watch on them',
        );
      },
    });
    const stopped = Promise.withResolvers<'stopped'>();
    return {
      start: async () => {
        if ((await Promise.race([inputs.start(), stopped.promise])) !== 'stopped') log.info('inputs complete');
      },
      stop: async () => {
        stopped.resolve('stopped');
        await inputs.stop();
      },
      unready: () => {
        if (syncLoop.started) {
          const stale = inputs.stale(config.staleMs);
          return stale.length === 0 ? undefined : `what it goes by is old: ${stale.join(', ')}`;
        }
        const waiting = inputs.waiting();
        return waiting.length === 0 ? 'the first state is being derived' : `waiting for ${waiting.join(', ')}`;
      },
    };
  },
});
