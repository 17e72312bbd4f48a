import { setTimeout as sleep } from 'node:timers/promises';
import type { Stage } from './stage.ts';

/** Waits until no node reports a policy that the API no longer has: a deleted policy has no condition to wait for. */
export async function settled(stage: Stage): Promise<void> {
  const end = Date.now() + 60_000;
  for (;;) {
    const uids = (await stage.cluster.kubectl(['get', 'cnp', '-o', 'jsonpath={.items[*].metadata.uid}'])).split(' ');
    const reported = (await stage.cluster.kubectl(['get', 'nodepolicystatuses', '-o', 'json'])) || '{}';
    const items = (
      JSON.parse(reported) as {
        readonly items: readonly { readonly status?: { readonly policies?: Readonly<Record<string, unknown>> } }[];
      }
    ).items;
    const gone = items.flatMap((item) => Object.keys(item.status?.policies ?? {})).filter((uid) => !uids.includes(uid));
    if (gone.length === 0) return;
    if (Date.now() > end) throw new Error(`nodes still report deleted policies after 60 s: ${gone.join(', ')}`);
    await sleep(50);
  }
}
