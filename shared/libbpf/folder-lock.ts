import { closeSync, constants as files, fstatSync, openSync, statSync } from 'node:fs';
import { constants } from 'node:os';
import { BpfError } from './errors.ts';
import { lastErrno, libcFunction } from './native.ts';

/** LOCK_EX | LOCK_NB */
const EXCLUSIVE_AT_ONCE = 2 | 4;

/** A folder that this process has for itself (flock(2)): until it is released, or the process ends, however that happens. */
export interface FolderLock {
  /** The folder that is locked is still the one of that name. */
  readonly current: boolean;
  release(): void;
}

/**
 * Locks a folder of any file system, one of bpf too; undefined when another descriptor has the lock. Who may open the folder may lock it:
 * it should be its owner's alone (mode 0700).
 * @throws Error ENOENT when there is no such folder; BpfError when the file system has no locks
 */
export function lockFolder(path: string): FolderLock | undefined {
  const fd = openSync(path, files.O_RDONLY | files.O_DIRECTORY);
  if (Number(libcFunction('int flock(int fd, int operation)')(fd, EXCLUSIVE_AT_ONCE)) !== 0) {
    const errno = lastErrno();
    closeSync(fd);
    if (errno === constants.errno.EWOULDBLOCK) return undefined;
    throw new BpfError({ operation: `lock the folder ${path}`, errno });
  }
  let open = true;
  return {
    get current(): boolean {
      const { dev, ino } = fstatSync(fd);
      const now = statSync(path, { throwIfNoEntry: false });
      return now?.dev === dev && now.ino === ino;
    },
    release: () => {
      if (open) closeSync(fd);
      open = false;
    },
  };
}
