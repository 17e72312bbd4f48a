import { MemoryReturn } from '@weir/process';
import { codeOf, messageOf } from '@weir/process/errors';
import { printableLines } from '@weir/process/printable';
import { pino } from 'pino';
import { ProxyConfigError, parseProxyConfig } from './config.ts';
import { DnsProxy } from './proxy.ts';

/** A stop that takes longer than this is cut short, in milliseconds. */
const STOP_TIMEOUT_MS = 2000;

async function run(args: readonly string[]): Promise<void> {
  const parsed = parseProxyConfig(args);
  if ('printed' in parsed) {
    process.stdout.write(parsed.printed);
    return;
  }
  const { config } = parsed;
  const log = pino(
    { level: config.logLevel, base: { process: 'dns-proxy' }, hooks: { streamWrite: printableLines } },
    pino.destination({ dest: 1, sync: true }),
  );
  const die = (error: unknown): void => {
    log.error({ err: error }, 'unexpected error; the DNS proxy ends, names that it learned stay in the kernel');
    process.exit(1);
  };
  process.on('uncaughtException', die);
  process.on('unhandledRejection', die);
  new MemoryReturn().start();
  const proxy = new DnsProxy(config, log);
  const stop = (signal: NodeJS.Signals): void => {
    log.info({ signal }, 'the DNS proxy is stopping; names that it learned stay in the kernel');
    setTimeout(() => die(new Error(`did not stop within ${STOP_TIMEOUT_MS} ms`)), STOP_TIMEOUT_MS).unref();
    proxy.stop().then(() => process.exit(0), die);
  };
  // Before the start: as process 1 of its container it would not hear a signal that nobody handles.
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
  await proxy.start();
}

try {
  await run(process.argv.slice(2));
} catch (error) {
  // Errors of ours carry a code and say what to do; anything else needs its stack.
  const known = codeOf(error) !== undefined;
  const text = known || !(error instanceof Error) ? messageOf(error) : (error.stack ?? error.message);
  process.stderr.write(printableLines(`weir-dns-proxy: ${text}\n`));
  process.exit(error instanceof ProxyConfigError ? 2 : 1);
}
