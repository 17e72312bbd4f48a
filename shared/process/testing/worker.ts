/** A worker of a test: says its data, ends when told so, and throws at anything else. */
import { parentPort, workerData } from 'node:worker_threads';

parentPort?.postMessage(workerData);
parentPort?.on('message', (message: unknown) => {
  if (message === 'stop') process.exit(0);
  throw new Error(`the worker got ${String(message)}`);
});
