import { setTimeout as sleep } from 'node:timers/promises';
import type { Stage } from './stage.ts';

/** Waits until every node has as many policies as the API: a deleted policy has no condition to wait for. */
export async function settled(stage: Stage): Promise<void> {
  const end = Date.now() + 60_000;
  const read = async (kind: string, path: string): Promise<readonly string[]> =>
    (await stage.cluster.kubectl(['get', kind, '-o', `jsonpath={.items[*].${path}}`]))
      .split(' ')
      .filter((text) => text !== '');
  for (;;) {
    const [policies, resolved, nodes] = await Promise.all([
      read('cnp', 'metadata.uid'),
      read('resolvedpolicies', 'metadata.uid'),
      read('nodepolicystatuses', 'status.counts.policies'),
    ]);
    const left = nodes.filter((count) => Number(count) !== policies.length);
    if (resolved.length === policies.length && left.length === 0) return;
    if (Date.now() > end)
      throw new Error(`there are ${policies.length} policies, and after 60 s nodes still have ${left.join(', ')}`);
    await sleep(50);
  }
}
