/**
 * Each cluster writes who it is before it makes anything. A cluster whose owner died is taken away by the next one that starts:
 * the processes in its namespaces, the namespaces, pins, files.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { alive, mark, type ProcessMark } from './owner.ts';
import { attempt } from './run.ts';

/** Where clusters keep their files: `<CLUSTERS>/<id>`. */
export const CLUSTERS = '/run/weir-cluster';
const BPF = '/sys/fs/bpf';

/** Names of a cluster's namespaces and pins begin with this. */
export const prefixOf = (id: string): string => `weir-${id}`;
export const bpfRootOf = (id: string, node: string): string => join(BPF, `${prefixOf(id)}-${node}`);

/** The cgroup that is a node's root. */
export const cgroupOf = (id: string, node: string): string => join(rootCgroup(), `${prefixOf(id)}-${node}`);

function rootCgroup(): string {
  const root = /^\S+ (\S+) cgroup2 /m.exec(readFileSync('/proc/mounts', 'utf8'))?.[1];
  if (root === undefined) throw new Error('no cgroup of version 2 is mounted: mount -t cgroup2 none /sys/fs/cgroup');
  return root;
}

/** Claims the folder of a new cluster. */
export function claim(id: string): string {
  // Complete before it has its name: another cluster that starts meanwhile never sees a folder without an owner.
  const draft = join(CLUSTERS, `.${id}`);
  const folder = join(CLUSTERS, id);
  mkdirSync(join(draft, 'logs'), { recursive: true, mode: 0o700 });
  writeFileSync(join(draft, 'owner.json'), JSON.stringify(mark(process.pid)));
  renameSync(draft, folder);
  return folder;
}

/** Removes what a cluster left: also used by its own orderly stop. */
export async function remove(id: string): Promise<void> {
  const prefix = `${prefixOf(id)}-`;
  const names = existsSync('/var/run/netns')
    ? readdirSync('/var/run/netns').filter((name) => name.startsWith(prefix))
    : [];
  for (const name of names) {
    const pids = await attempt('ip', ['netns', 'pids', name]);
    for (const pid of pids.stdout.split('\n').filter((line) => line !== '')) {
      try {
        process.kill(Number(pid), 'SIGKILL');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
    }
    await attempt('ip', ['netns', 'delete', name]);
  }
  if (existsSync(BPF))
    for (const name of readdirSync(BPF))
      if (name.startsWith(prefix)) rmSync(join(BPF, name), { recursive: true, force: true });
  for (const name of readdirSync(rootCgroup()))
    if (name.startsWith(prefix)) await attempt('rmdir', [join(rootCgroup(), name)]);
  const folder = join(CLUSTERS, id);
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n');
  for (const mount of mounts.map((line) => line.split(' ')[1] ?? '').filter((path) => path.startsWith(`${folder}/`)))
    await attempt('umount', ['--lazy', mount]);
  rmSync(folder, { recursive: true, force: true });
}

/** undefined: the cluster is being removed, by itself or by another that starts. */
function ownerOf(id: string): ProcessMark | undefined {
  try {
    return JSON.parse(readFileSync(join(CLUSTERS, id, 'owner.json'), 'utf8')) as ProcessMark;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Removes every cluster whose owner has died. Returns their ids. */
export async function sweep(): Promise<readonly string[]> {
  if (!existsSync(CLUSTERS)) return [];
  const dead: string[] = [];
  for (const id of readdirSync(CLUSTERS).filter((name) => !name.startsWith('.'))) {
    const owner = ownerOf(id);
    if (owner !== undefined && alive(owner)) continue;
    await remove(id);
    dead.push(id);
  }
  return dead;
}

/** Namespaces and pins of a cluster that exist now; empty after an orderly stop. */
export function remains(id: string): readonly string[] {
  const prefix = `${prefixOf(id)}-`;
  return ['/var/run/netns', BPF].flatMap((folder) =>
    existsSync(folder)
      ? readdirSync(folder)
          .filter((name) => name.startsWith(prefix))
          .map((name) => join(folder, name))
      : [],
  );
}
