/**
 * What a cluster has on this machine: a folder, processes, network namespaces, cgroups; all are found by the cluster's prefix. A cluster
 * says who owns it before it makes anything. The processes of a cluster whose owner died are ended by the kernel, the rest is taken away
 * by the next cluster that starts.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { alive, mark, type ProcessMark, signal } from '../owner.ts';
import { attempt } from '../run.ts';
import { childrenOf, members, remove as removeCgroups } from './cgroups.ts';
import { folderOf, idOf, prefixOf } from './names.ts';

const NETNS = '/var/run/netns';
const CGROUP = '/sys/fs/cgroup';

/** Claims the folder of a new cluster. */
export function claim(id: string): string {
  const folder = folderOf(id);
  // Complete before it has its name: another cluster that starts meanwhile never sees a folder without an owner.
  const draft = join(dirname(folder), `.${prefixOf(id)}`);
  mkdirSync(join(draft, 'logs'), { recursive: true, mode: 0o700 });
  writeFileSync(join(draft, 'owner.json'), JSON.stringify(mark(process.pid)));
  writeFileSync(join(draft, 'processes.json'), '{}');
  renameSync(draft, folder);
  return folder;
}

/** The processes of a cluster by name, for those that come after this one. */
export class Records {
  readonly #file: string;
  readonly #marks = new Map<string, ProcessMark>();

  constructor(folder: string) {
    this.#file = join(folder, 'processes.json');
  }

  set(name: string, pid: number): void {
    this.#marks.set(name, mark(pid));
    this.#write();
  }

  delete(name: string): void {
    this.#marks.delete(name);
    this.#write();
  }

  #write(): void {
    writeFileSync(this.#file, JSON.stringify(Object.fromEntries(this.#marks)));
  }
}

function recorded(id: string): readonly (readonly [string, ProcessMark])[] {
  const file = join(folderOf(id), 'processes.json');
  if (!existsSync(file)) return [];
  return Object.entries(JSON.parse(readFileSync(file, 'utf8')) as Record<string, ProcessMark>);
}

const namespaces = (id: string): string[] =>
  existsSync(NETNS) ? readdirSync(NETNS).filter((name) => name.startsWith(`${prefixOf(id)}-`)) : [];

/** The cluster's cgroup in each hierarchy, wherever its owner's was. */
function cgroups(id: string): string[] {
  const found: string[] = [];
  const look = (folder: string, depth: number) => {
    for (const path of childrenOf(folder)) {
      const name = basename(path);
      if (name === prefixOf(id)) found.push(path);
      else if (depth > 0 && idOf(name) === undefined) look(path, depth - 1);
    }
  };
  if (existsSync(CGROUP)) look(CGROUP, 5);
  return found;
}

/** Removes what a cluster left: also used by its own orderly stop. */
export async function remove(id: string): Promise<void> {
  for (const [, process] of recorded(id)) signal(process, 'SIGKILL');
  const groups = cgroups(id);
  for (const pid of groups.flatMap(members)) signal(mark(pid), 'SIGKILL');
  for (const name of namespaces(id)) {
    const { stdout } = await attempt('ip', ['netns', 'pids', name]);
    for (const pid of stdout.split('\n').filter(Boolean)) signal(mark(Number(pid)), 'SIGKILL');
    await attempt('ip', ['netns', 'delete', name]);
  }
  await removeCgroups(groups);
  const end = Date.now() + 60_000;
  while (recorded(id).some(([, process]) => alive(process)) && Date.now() < end) await sleep(50);
  // Never into something that is mounted there: a node's folders are the machine's nowhere but in the node.
  if (mounts(id).length === 0) rmSync(folderOf(id), { recursive: true, force: true });
}

const mounts = (id: string): string[] =>
  readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((path) => path.startsWith(`${folderOf(id)}/`));

/** What a cluster has on this machine now; empty after an orderly stop. */
export function remains(id: string): readonly string[] {
  const running = recorded(id)
    .filter(([, process]) => alive(process))
    .map(([name, { pid }]) => `process ${pid} (${name})`);
  const folder = folderOf(id);
  const names = namespaces(id).map((name) => join(NETNS, name));
  return [...running, ...mounts(id), ...names, ...cgroups(id), ...(existsSync(folder) ? [folder] : [])];
}

/** Removes every cluster whose owner has died. Returns their ids. */
export async function sweep(): Promise<readonly string[]> {
  const dead: string[] = [];
  for (const name of readdirSync(tmpdir())) {
    const id = idOf(name);
    if (id === undefined || name !== prefixOf(id)) continue;
    const file = join(folderOf(id), 'owner.json');
    // A folder without an owner is no cluster: its name is a coincidence.
    if (!existsSync(file) || alive(JSON.parse(readFileSync(file, 'utf8')) as ProcessMark)) continue;
    await remove(id);
    const left = remains(id);
    if (left.length > 0)
      throw new Error(`cluster ${id}, whose owner was killed, cannot be removed: ${left.join(', ')}`);
    dead.push(id);
  }
  return dead;
}
