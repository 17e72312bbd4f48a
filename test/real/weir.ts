/** A real Kubernetes with Weir installed on it as a user does: images, chart, defaults. */
import { setTimeout as sleep } from 'node:timers/promises';
import { buildImages } from '../../scripts/images/build.ts';
import { RealCluster, type RealClusterOptions } from '../cluster/real/index.ts';

/** Tar files of the operator's, the agent's and the test pods' images; built when they are not there. */
export async function imageFiles(): Promise<string[]> {
  return (await buildImages(['operator', 'node-agent', 'pod'])).map(({ path }) => path);
}

/** Starts a cluster and installs the chart with these values; `install: false` leaves that to the caller. */
export async function weirCluster(options: Omit<RealClusterOptions, 'images'> = {}): Promise<RealCluster> {
  return RealCluster.start({ install: {}, ...options, images: await imageFiles() });
}

/** Asks until `check` holds, at most `seconds`; returns the last answer, so that an expectation can show it. */
export async function eventually<T>(get: () => Promise<T>, check: (value: T) => boolean, seconds = 30): Promise<T> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await get();
    if (check(value) || Date.now() > end) return value;
    await sleep(100);
  }
}
