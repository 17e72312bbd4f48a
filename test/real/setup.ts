/**
 * Before any test on a real Kubernetes: what earlier runs left is taken away, and the cluster's programs are there. They are built before
 * the tests, because a build takes ten minutes, and the time limit of a test says how long a cluster may take to start.
 */
import { assets } from '../cluster/real/index.ts';
import removeLeftovers from '../leftovers.ts';

export default async function prepare(): Promise<void> {
  await removeLeftovers();
  await assets((line) => console.log(`real cluster: ${line}`));
}
