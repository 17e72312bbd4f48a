#!/usr/bin/env node
/** Entry of the operator. */
import { createKubeClient } from '@weir/kube';
import { pino } from 'pino';
import { parseConfig } from './config.ts';
import { createOperator } from './operator.ts';

const config = parseConfig(process.argv.slice(2), process.env);
const logger = pino({ level: config.logLevel, name: 'weir-operator' });

let ending = false;
const end = (status: number): void => {
  if (ending) return;
  ending = true;
  operator.stop().then(
    () => process.exit(status),
    (error: unknown) => {
      logger.error({ err: error }, 'stop failed');
      process.exit(1);
    },
  );
};

const client = createClient();
const operator = createOperator({
  client,
  logger,
  clusterName: config.clusterName,
  identityGraceMs: config.identityGcGraceMs,
  identityGcIntervalMs: config.identityGcIntervalMs,
  ...(config.healthAddress === undefined ? {} : { healthAddress: config.healthAddress }),
  ...(config.leaderElect
    ? {
        leaderElection: {
          namespace: config.leaseNamespace,
          name: config.leaseName,
          identity: config.identity,
        },
      }
    : {}),
  // Another replica may lead now: nothing more may be written, not even to finish.
  onFatal: () => process.exit(1),
});

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  process.once(signal, () => {
    logger.info({ signal }, 'stopping');
    end(0);
  });
}

operator.start().then(
  () => logger.info({ leaderElect: config.leaderElect }, 'started'),
  (error: unknown) => {
    logger.fatal({ err: error }, 'cannot start');
    end(1);
  },
);

function createClient(): ReturnType<typeof createKubeClient> {
  try {
    return createKubeClient({
      kubeconfig: config.kubeconfig,
      userAgent: 'weir-operator/0.1.0',
      requestTimeoutMs: config.requestTimeoutMs,
    });
  } catch (error) {
    logger.fatal({ err: error }, 'cannot use the kubeconfig');
    process.exit(1);
  }
}
