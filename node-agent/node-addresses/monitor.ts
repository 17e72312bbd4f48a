import { spawn } from 'node:child_process';
import { messageOf } from '@weir/process/errors';
import type { Start } from '@weir/process/supervised';

/** In each line of `ip monitor` about the local table. */
const LOCAL = 'table local ';

/** `ip monitor route` in the node's network namespace: calls back for each change of the local table. */
export function routeMonitor(inNode: <T>(body: () => T) => T, onChange: () => void): Start {
  return () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    // The child is in the namespace from its start.
    const { child } = inNode(() => ({
      child: spawn('ip', ['-oneline', 'monitor', 'route'], { stdio: ['ignore', 'pipe', 'ignore'] }),
    }));
    child.on('error', (error) => {
      if (child.pid === undefined) resolve(messageOf(error));
    });
    // Routers change other routes by the thousand. A line in two pieces is missed, and found at the next look.
    child.stdout.on('data', (lines: Buffer) => {
      if (lines.includes(LOCAL)) onChange();
    });
    child.once('exit', (code, signal) => resolve(code === null ? `signal ${signal}` : `exit code ${code}`));
    return { ended: promise, stop: () => void child.kill('SIGTERM'), kill: () => void child.kill('SIGKILL') };
  };
}
