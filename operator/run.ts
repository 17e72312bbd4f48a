import { createKubeClient, type FencingClient, type KubeClient } from '@weir/kube';
import { MemoryReturn } from '@weir/process';
import { printableLines } from '@weir/process/printable';
import { type Logger, pino } from 'pino';
import { type Environment, parseConfig, type RunConfig, type UninstallConfig, VERSION } from './config.ts';
import { createOperator } from './operator.ts';
import type { AnyOperatorPart } from './parts/contract.ts';
import { uninstall } from './uninstall/uninstall.ts';

/** Milliseconds that an operator which failed may take to end what it writes and to release its lease. */
const LAST_WILL_MS = 2_000;

/** `weir-operator` of these parts: parses the configuration, and runs the operator until a signal, or takes Weir out of the cluster. */
export async function runOperator(
  args: readonly string[],
  env: Environment,
  parts: readonly AnyOperatorPart[],
): Promise<void> {
  const config = parseConfig(args, env, parts);
  const logger = pino({ level: config.logLevel, name: 'weir-operator', hooks: { streamWrite: printableLines } });
  const client = createClient(config, logger);
  if (config.command === 'run') await run({ config, parts, client, logger });
  else remove(config, client, logger);
}

interface RunOptions {
  readonly config: RunConfig;
  readonly parts: readonly AnyOperatorPart[];
  readonly client: KubeClient & FencingClient;
  readonly logger: Logger;
}

async function run({ config, parts, client, logger }: RunOptions): Promise<void> {
  // The lease names its holder by the same word.
  const log = logger.child({ instance: config.identity });
  let ending: { status: number } | undefined;
  const end = (status: number, withinMs?: number): void => {
    const begun = ending;
    const own = begun ?? { status };
    ending = own;
    // What fails while it stops counts, too.
    own.status = Math.max(own.status, status);
    if (withinMs !== undefined) setTimeout(() => process.exit(own.status), withinMs);
    if (begun !== undefined) return;
    operator.stop().then(
      () => process.exit(own.status),
      (error: unknown) => {
        log.error({ err: error }, 'stop failed');
        process.exit(1);
      },
    );
  };
  const operator = await createOperator({ client, logger: log, config, parts, onFatal: () => end(1, LAST_WILL_MS) });
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
    () => {
      if (ending === undefined) log.info({ leaderElect: config.leaderElect, version: VERSION }, 'started');
    },
    (error: unknown) => {
      log.fatal({ err: error }, 'cannot start');
      end(1);
    },
  );
}

function remove(options: UninstallConfig, client: KubeClient, logger: Logger): void {
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

function createClient(config: RunConfig | UninstallConfig, logger: Logger): ReturnType<typeof createKubeClient> {
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
