/**
 * Before any test: what an earlier run left when it was killed is taken away. Namespaces and pins of tests are named
 * `wt<pid>-...`; those whose process is gone are nobody's. Clusters that lost their owner go the same way.
 */
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { sweep } from './cluster/leftovers.ts';
import { run } from './cluster/run.ts';

const orphaned = (name: string): boolean => {
  const pid = /^wt(\d+)-/.exec(name)?.[1];
  return pid !== undefined && !existsSync(`/proc/${pid}`);
};
const list = (folder: string): string[] => (existsSync(folder) ? readdirSync(folder).filter(orphaned) : []);

export default async function removeLeftovers(): Promise<void> {
  for (const name of list('/var/run/netns')) await run('ip', ['netns', 'delete', name]);
  for (const name of list('/sys/fs/bpf')) rmSync(join('/sys/fs/bpf', name), { recursive: true, force: true });
  await sweep();
}
