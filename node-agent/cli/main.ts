import { VERSION } from '../config/version.ts';
import { InterruptedError } from './errors.ts';
import { runCli } from './program.ts';

const interrupted = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => interrupted.abort(new InterruptedError(signal)));
}
// `weir monitor | head` closes the pipe: that is an end, not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  interrupted.abort();
});

process.exitCode = await runCli({
  args: process.argv.slice(2),
  version: VERSION,
  out: process.stdout,
  err: process.stderr,
  signal: interrupted.signal,
});
