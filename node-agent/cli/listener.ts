import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { resolve } from 'node:path';

/** Who listens on a unix socket. */
export interface Listener {
  readonly pid: number;
  /** It was stopped by a signal (SIGSTOP), or by a debugger. */
  readonly stopped: boolean;
}

/** The process that listens at the path, in whichever network namespace; undefined when that cannot be seen. Linux: proc_pid(5). */
export function listenerOf(socket: string): Listener | undefined {
  const path = resolve(socket);
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const inodes = new Set(listening(readFileSync(`/proc/${pid}/net/unix`, 'utf8'), path));
      if (inodes.size === 0) continue;
      const owns = readdirSync(`/proc/${pid}/fd`).some((fd) => inodes.has(readlinkSync(`/proc/${pid}/fd/${fd}`)));
      if (owns) return { pid: Number(pid), stopped: isStopped(readFileSync(`/proc/${pid}/stat`, 'utf8')) };
    } catch {
      // It has ended meanwhile, or is another user's.
    }
  }
  return undefined;
}

/** `socket:[INODE]` of each socket at the path that takes connections: flag __SO_ACCEPTCON of net/unix/af_unix.c. */
function listening(table: string, path: string): string[] {
  return table.split('\n').flatMap((line) => {
    const [, , , flags, , , inode, name] = line.split(/\s+/);
    return name === path && flags === '00010000' ? [`socket:[${inode}]`] : [];
  });
}

/** The name, in parentheses, may hold anything. */
function isStopped(stat: string): boolean {
  return /^[Tt]/.test(stat.slice(stat.lastIndexOf(')') + 2));
}
