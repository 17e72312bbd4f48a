/** The sample part's worker thread: it does nothing, and ends when told so. */
import { parentPort } from 'node:worker_threads';

parentPort?.on('message', (message: unknown) => {
  if (message === 'stop') process.exit(0);
});
