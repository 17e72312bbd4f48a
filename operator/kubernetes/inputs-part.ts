import { failuresPart } from '../failures-part.ts';
import { leasePart } from '../lease-part.ts';
import { definePart } from '../parts/contract.ts';
import { tablesPart } from '../tables-part.ts';
import { Inputs } from './inputs.ts';

/** From the API into what parts keep of it. Whoever waits for all of it waits for table `inputSources` to be complete. */
export const inputsPart = definePart({
  name: 'inputs',
  needs: { tables: tablesPart, lease: leasePart, failures: failuresPart },
  // For how long a kind may not be followed: API servers that restart take less; a rule that is not seen for longer is worth a page.
  settings: { staleMs: 60_000 },
  startWithinMs: Infinity,
  stopWithinMs: Infinity,
  build: ({ tables, lease, failures }, { config, db, log, operator }) => {
    const inputs = new Inputs({
      client: lease.client,
      db,
      table: tables.inputSources,
      sources: () => operator.sources(),
      onError: (error, fields) =>
        failures.failed({
          component: 'reflector',
          error,
          message: 'watch failed',
          fields,
          kind: `watch failed ${fields.resource}`,
        }),
    });
    const isDerived = (): boolean => {
      using snapshot = db.read();
      return snapshot.initialised(tables.resolved);
    };
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
        if (isDerived()) {
          const stale = inputs.stale(config.staleMs);
          return stale.length === 0 ? undefined : `its inputs are stale: ${stale.join(', ')}`;
        }
        const waiting = inputs.waiting();
        return waiting.length === 0 ? 'the first state is being derived' : `waiting for ${waiting.join(', ')}`;
      },
    };
  },
});
