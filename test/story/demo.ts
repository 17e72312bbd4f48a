/** `npm run demo`: plays the story on a cluster of its own, prints it, and ends with code 1 when anything was not as it must be. */

import { type Listener, Stage } from './stage.ts';
import { STEPS } from './steps.ts';

const began = performance.now();
const seconds = (): string => `${((performance.now() - began) / 1000).toFixed(1)} s`;
let faults = 0;

const print: Listener = {
  title: (text) => process.stdout.write(`\n\n=== ${text}   [${seconds()}]\n`),
  say: (text) => process.stdout.write(`\n${text.replaceAll(/^/gm, '  ')}\n`),
  fault: (text) => {
    faults += 1;
    process.stdout.write(`\n  FAULT ${text}\n`);
  },
};

async function main(): Promise<void> {
  print.title('Starting a cluster: API server, operator, two nodes with an agent each, five pods');
  const stage = await Stage.set(print);
  const interrupted = () => {
    process.stdout.write('\ninterrupted: taking the cluster away\n');
    stage.close().then(
      () => process.exit(130),
      (error: unknown) => {
        process.stderr.write(`${String(error)}\n`);
        process.exit(1);
      },
    );
  };
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted);
  try {
    for (const step of STEPS) {
      print.title(step.title);
      await step.play(stage);
    }
  } finally {
    await stage.close();
  }
}

main().then(
  () => {
    process.stdout.write(
      faults === 0 ? `\nThe story came out as told, in ${seconds()}.\n` : `\n${faults} fault(s), in ${seconds()}.\n`,
    );
    process.exitCode = faults === 0 ? 0 : 1;
  },
  (error: unknown) => {
    process.stderr.write(
      `\nThe demo could not go on: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
    );
    process.exitCode = 1;
  },
);
