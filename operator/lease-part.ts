import { type KubeClient, LeaderElector, LeadershipLostError } from '@weir/kube';
import { electionPart } from './election-part.ts';
import { failuresPart } from './failures-part.ts';
import { gauge } from './metrics.ts';
import { definePart, type OperatorPart } from './parts/contract.ts';

export interface Leadership {
  /** Writes only while this process leads. */
  readonly client: KubeClient;
  readonly leading: boolean;
}

/** Leadership: what follows starts when this process leads, and stops before another can. */
export const leasePart = definePart({
  name: 'lease',
  needs: { election: electionPart, failures: failuresPart },
  startWithinMs: Infinity,
  stopWithinMs: Infinity,
  build: ({ election, failures }, { client, log, lost }): OperatorPart<Leadership> & { provides: Leadership } => {
    const { lease } = election;
    if (lease === undefined) return alone(client);
    const leads = Promise.withResolvers<void>();
    const elector = new LeaderElector({
      ...lease,
      client,
      onElected: () => {
        log.info({ lease: lease.name, identity: lease.identity }, 'leading');
        leads.resolve();
      },
      onLost: (error) => {
        log.warn({ error: error.message }, 'leadership lost: nothing is written until this replica leads again');
        lost();
      },
      onLeader: (leader) => log.info({ leader }, 'leader seen'),
      onError: (error) => {
        const message = 'leader election failed to reach the lease';
        // While there is time for another try nobody need do anything.
        const early = elector.unreached === undefined;
        failures.failed({ component: 'leader-election', error, message, ...(early ? { early } : {}) });
      },
    });
    const provides: Leadership = {
      client: client.fenced(elector.fence),
      get leading() {
        return elector.leading;
      },
    };
    return {
      provides,
      start: () => {
        elector.start();
        return leads.promise;
      },
      // Where somebody may still write, the lease is not given back: it expires.
      stop: async (inUse) => {
        await (inUse ? elector.abandon() : elector.stop());
        leads.resolve();
      },
      // Who waits for the lease does its whole work while it could take it.
      unready: () => (elector.leading ? undefined : elector.unreached),
      standsBy: () => !elector.leading,
      // What was under way when leadership was lost ends with it.
      expected: (error) => error instanceof LeadershipLostError,
      metrics: (registry) => leadingMetric(registry, provides),
    };
  },
});

/** There is no lease: this process leads at once. */
function alone(client: KubeClient): OperatorPart<Leadership> & { provides: Leadership } {
  let leading = false;
  const provides: Leadership = {
    client,
    get leading() {
      return leading;
    },
  };
  return {
    provides,
    start: () => {
      leading = true;
    },
    metrics: (registry) => leadingMetric(registry, provides),
  };
}

function leadingMetric(registry: Parameters<typeof gauge>[0], leadership: Leadership): void {
  gauge(registry, 'leading', '1 when this process leads.', () => (leadership.leading ? 1 : 0));
}
