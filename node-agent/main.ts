/** `weir-agent`: parses the configuration, checks the machine, runs the agent until a signal. Exit codes: 1 failure, 2 wrong configuration. */
import { pino } from 'pino';
import { Agent } from './agent.ts';
import { parseConfig } from './config/config.ts';
import { ConfigError, PreflightError } from './config/errors.ts';
import { preflight } from './config/preflight.ts';
import { codeOf, messageOf } from './config/system-error.ts';
import { createCore } from './create-core.ts';

/** A stop that takes longer than this is cut short, in milliseconds. */
const STOP_TIMEOUT_MS = 10_000;

async function main(args: readonly string[]): Promise<void> {
  const parsed = parseConfig(args);
  if ('printed' in parsed) {
    process.stdout.write(parsed.printed);
    return;
  }
  const { config } = parsed;
  preflight(config);
  const log = pino(
    { level: config.logLevel, base: { node: config.nodeName } },
    pino.destination({ dest: 1, sync: true }),
  );
  const die = (error: unknown): void => {
    log.error({ err: error }, 'unexpected error; the agent ends, what is in the kernel stays enforced');
    process.exit(1);
  };
  process.on('uncaughtException', die);
  process.on('unhandledRejection', die);

  const agent = new Agent({ config, log, createCore });
  const stop = (signal: NodeJS.Signals): void => {
    log.info({ signal }, 'agent is stopping; what is in the kernel stays enforced');
    setTimeout(() => die(new Error(`did not stop within ${STOP_TIMEOUT_MS} ms`)), STOP_TIMEOUT_MS).unref();
    agent.stop().then(() => process.exit(0), die);
  };
  await agent.start();
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  // Errors of ours carry a code and say what to do; anything else needs its stack.
  const known = codeOf(error) !== undefined || error instanceof ConfigError || error instanceof PreflightError;
  process.stderr.write(
    `weir-agent: ${known || !(error instanceof Error) ? messageOf(error) : (error.stack ?? error.message)}\n`,
  );
  process.exit(error instanceof ConfigError ? 2 : 1);
}
