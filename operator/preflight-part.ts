import { delay } from '@weir/process/delay';
import { messageOf } from '@weir/process/errors';
import { Backoff } from '@weir/reconciler/backoff';
import { electionPart } from './election-part.ts';
import { PreflightError } from './errors.ts';
import { failuresPart } from './failures-part.ts';
import { defineProcessPart } from './parts/contract.ts';
import { preflight } from './preflight.ts';
import { totalsPart } from './totals-part.ts';

/** Whether Weir may run in this cluster: asked until it may, once a process. No term begins before. */
export const preflightPart = defineProcessPart({
  name: 'preflight',
  needs: { totals: totalsPart, failures: failuresPart, election: electionPart },
  // Who removes Cilium or installs a CRD waits no longer than this.
  settings: { preflightRetryMs: 10_000 },
  startWithinMs: Infinity,
  stopWithinMs: Infinity,
  build: ({ totals, failures, election }, { client, config, log }) => {
    const { preflightRetryMs } = config;
    const { namespace, lease } = election;
    const stop = new AbortController();
    const backoff = new Backoff({ minMs: 500, maxMs: 5_000 });
    let refused: string | undefined = 'preflight is still running';
    const look = async (): Promise<void> => {
      try {
        for (const warning of await preflight(client, { namespace, lease: lease?.name, signal: stop.signal }))
          log.warn({ warning }, 'found something that looks like Cilium');
        failures.answered();
        refused = undefined;
      } catch (error) {
        if (stop.signal.aborted) return;
        if (error instanceof PreflightError) {
          totals.error('preflight');
          if (refused !== error.message)
            log.error(
              { error: error.message, retryInMs: preflightRetryMs },
              'the operator cannot work in this cluster yet',
            );
          refused = error.message;
          await delay(preflightRetryMs, stop.signal);
          return;
        }
        const retryInMs = backoff.next();
        const message = 'preflight could not ask the API server';
        failures.failed({ component: 'preflight', error, message, fields: { retryInMs } });
        refused = `${message}: ${messageOf(error)}`;
        await delay(retryInMs, stop.signal);
      }
    };
    return {
      unready: () => refused,
      start: async () => {
        while (refused !== undefined && !stop.signal.aborted) await look();
      },
      stop: () => stop.abort(),
    };
  },
});
