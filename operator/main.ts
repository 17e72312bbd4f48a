#!/usr/bin/env node
/** Entry of the operator. */
import { createKubeClient } from '@weir/kube';
import { MemoryReturn } from '@weir/process';
import { printableLines } from '@weir/process/printable';
import { pino } from 'pino';
import { type OperatorConfig, parseConfig, type UninstallConfig, VERSION } from './config.ts';
import { createOperator } from './operator.ts';
import { uninstall } from './uninstall/uninstall.ts';

const config = parseConfig(process.argv.slice(2), process.env);
const logger = pino({ level: config.logLevel, name: 'weir-operator', hooks: { streamWrite: printableLines } });
const client = createClient();

if (config.command === 'run') run(config);
else remove(config);

/** Milliseconds that an operator which failed may take to end what it writes and to release its lease. */
const LAST_WILL_MS = 2_000;

function run(options: OperatorConfig): void {
  // The lease names its holder by the same word.
  const log = logger.child({ instance: options.identity });
  let ending = false;
  const end = (status: number, withinMs?: number): void => {
    if (ending) return;
    ending = true;
    if (withinMs !== undefined) setTimeout(() => process.exit(status), withinMs);
    operator.stop().then(
      () => process.exit(status),
      (error: unknown) => {
        log.error({ err: error }, 'stop failed');
        process.exit(1);
      },
    );
  };
  const operator = createOperator({
    client,
    logger: log,
    clusterName: options.clusterName,
    namespace: options.leaseNamespace,
    identityGraceMs: options.identityGcGraceMs,
    identityGcIntervalMs: options.identityGcIntervalMs,
    limits: options.limits,
    ...(options.healthAddress === undefined ? {} : { healthAddress: options.healthAddress }),
    ...(options.metrics === undefined ? {} : { metrics: options.metrics }),
    ...(options.leaderElect
      ? {
          leaderElection: {
            namespace: options.leaseNamespace,
            name: options.leaseName,
            identity: options.identity,
          },
        }
      : {}),
    onFatal: () => end(1, LAST_WILL_MS),
  });
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(event, (error) => {
      log.fatal({ err: error, event }, 'operator cannot go on');
      end(1, LAST_WILL_MS);
    });
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.once(signal, () => {
      log.info({ signal }, 'stopping');
      end(0);
    });
  }
  new MemoryReturn().start();
  operator.start().then(
    () => log.info({ leaderElect: options.leaderElect, version: VERSION }, 'started'),
    (error: unknown) => {
      log.fatal({ err: error }, 'cannot start');
      end(1);
    },
  );
}

function remove(options: UninstallConfig): void {
  uninstall({
    client,
    namespace: options.namespace,
    daemonSet: options.daemonSet,
    deployment: options.deployment,
    lease: options.leaseName,
    timeoutMs: options.timeoutMs,
    log: (message) => logger.info(message),
  }).then(
    () => process.exit(0),
    (error: unknown) => {
      logger.fatal({ err: error }, error instanceof Error ? error.message : 'uninstall failed');
      process.exit(1);
    },
  );
}

function createClient(): ReturnType<typeof createKubeClient> {
  try {
    return createKubeClient({
      kubeconfig: config.kubeconfig,
      userAgent: `weir-operator/${VERSION}`,
      requestTimeoutMs: config.requestTimeoutMs,
    });
  } catch (error) {
    logger.fatal({ err: error }, 'cannot use the kubeconfig');
    process.exit(1);
  }
}
