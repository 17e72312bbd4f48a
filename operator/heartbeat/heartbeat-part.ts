import { heartbeatName } from '@weir/kube';
import { electionPart } from '../election-part.ts';
import { failuresPart } from '../failures-part.ts';
import { leasePart } from '../lease-part.ts';
import { definePart } from '../parts/contract.ts';
import { Heartbeat } from './heartbeat.ts';

/** Tells agents that an operator leads. Last in the list: it begins once the inputs are read, and ends before anything else does. */
export const heartbeatPart = definePart({
  name: 'heartbeat',
  needs: { lease: leasePart, election: electionPart, failures: failuresPart },
  stopWithinMs: Infinity,
  build: ({ lease, election, failures }, { config }) => {
    const heartbeat = new Heartbeat({
      client: lease.client,
      namespace: election.namespace,
      name: heartbeatName(election.name),
      identity: config.identity,
      now: config.now,
      onError: (error) => failures.failed({ component: 'heartbeat', error, message: 'could not write the heartbeat' }),
    });
    return { start: () => heartbeat.start(), stop: () => heartbeat.stop() };
  },
});
