import { MemoryReturn } from '@weir/process';
import { codeOf, messageOf } from '@weir/process/errors';
import { newId } from '@weir/process/id';
import { line, printableLines } from '@weir/process/printable';
import { pino } from 'pino';
import { Agent } from './agent.ts';
import { parseConfig } from './config/config.ts';
import { ConfigError, PreflightError } from './config/errors.ts';
import { mountBpffs } from './config/mount-bpffs.ts';
import { preflight } from './config/preflight.ts';
import type { AnyAgentPart } from './parts/contract.ts';
import { cleanup } from './uninstall/index.ts';

/** A stop that takes longer than this is cut short, in milliseconds. */
const STOP_TIMEOUT_MS = 5000;

async function run(args: readonly string[], parts: readonly AnyAgentPart[]): Promise<void> {
  const parsed = parseConfig(args, parts);
  if ('printed' in parsed) {
    process.stdout.write(parsed.printed);
    return;
  }
  const { command, config } = parsed;
  if (command === 'mount-bpffs') {
    process.stdout.write(`${await mountBpffs(config)}\n`);
    return;
  }
  preflight(config);
  const log = pino(
    {
      level: config.logLevel,
      base: { node: config.nodeName, instance: newId() },
      hooks: { streamWrite: printableLines },
    },
    pino.destination({ dest: 1, sync: true }),
  );
  if (command === 'cleanup') {
    const agent = await Agent.build({ config, command, log, parts });
    const { removed, left } = await cleanup(config, agent.view.removal(), log);
    for (const what of removed) process.stdout.write(line(`removed ${what}`));
    for (const name of left) process.stdout.write(line(`stays: interface ${name} of a pod that runs, with its route`));
    const more = left.length === 0 ? '' : 'else ';
    if (removed.length === 0) process.stdout.write(`nothing ${more}of Weir was left on this node\n`);
    return;
  }
  const die = (error: unknown): void => {
    log.error({ err: error }, 'unexpected error; the agent ends, what is in the kernel stays enforced');
    process.exit(1);
  };
  process.on('uncaughtException', die);
  process.on('unhandledRejection', die);

  new MemoryReturn().start();
  const agent = await Agent.build({ config, command, log, parts });
  const stop = (signal: NodeJS.Signals): void => {
    log.info({ signal }, 'agent is stopping; what is in the kernel stays enforced');
    setTimeout(() => die(new Error(`did not stop within ${STOP_TIMEOUT_MS} ms`)), STOP_TIMEOUT_MS).unref();
    agent.stop().then(() => process.exit(0), die);
  };
  // Before the start: as process 1 of its container it would not hear a signal that nobody handles.
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
  await agent.start();
}

/**
 * `weir-agent` of these parts: parses the configuration, checks the machine, runs the agent until a signal (or one of the other commands). Exit
 * codes: 1 failure, 2 wrong configuration.
 */
export async function runAgent(args: readonly string[], parts: readonly AnyAgentPart[]): Promise<void> {
  try {
    await run(args, parts);
  } catch (error) {
    // Errors of ours carry a code and say what to do; anything else needs its stack.
    const known = codeOf(error) !== undefined || error instanceof ConfigError || error instanceof PreflightError;
    process.stderr.write(
      printableLines(
        `weir-agent: ${known || !(error instanceof Error) ? messageOf(error) : (error.stack ?? error.message)}\n`,
      ),
    );
    process.exit(error instanceof ConfigError ? 2 : 1);
  }
}
