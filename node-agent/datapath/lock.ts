import { existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeFolder } from '@weir/process/folders';
import { type FolderLock, lockFolder } from 'libbpf-ts';
import { AgentRunningError } from '../errors.ts';
import { isGone } from '../persist.ts';
import { makeRoot } from './pins.ts';

/**
 * One agent a bpf root: the folder itself is locked (flock(2)), which only root can open. The kernel frees it with the process, however
 * that ends, so that there is no stale lock; and it is one for all network namespaces and containers that see the folder.
 */
export class RootLock {
  readonly #root: string;
  readonly #pidFile: string;
  #lock: FolderLock | undefined;
  /** The pid is being written: a disk may be slow to answer. */
  #writing = false;

  constructor(bpfRoot: string, stateDir: string) {
    this.#root = bpfRoot;
    this.#pidFile = join(stateDir, 'agent.pid');
  }

  /** Makes the root where it is not there. @throws AgentRunningError when another process holds it */
  acquire(): void {
    makeRoot(this.#root);
    this.acquireExisting();
    void this.#writePid();
  }

  /** Writes the holder's pid down again when somebody has removed it. Nobody waits for that. */
  look(): void {
    void this.#writePid({ unlessThere: true });
  }

  /** One at a time. Never rejects. */
  async #writePid({ unlessThere = false } = {}): Promise<void> {
    if (this.#writing) return;
    this.#writing = true;
    try {
      if (unlessThere && !(await isGone(this.#pidFile))) return;
      if (this.#lock === undefined) return;
      await makeFolder(dirname(this.#pidFile), 0o700);
      if (this.#lock !== undefined) await writeFile(this.#pidFile, `${process.pid}\n`);
    } catch {
      // It only names the holder, for people; a folder that cannot be written is told by what belongs there.
    } finally {
      this.#writing = false;
    }
  }

  /** As `acquire`, for who removes: where no root is, no agent is either. */
  acquireExisting(): void {
    while (existsSync(this.#root)) {
      const lock = lockFolder(this.#root);
      if (lock === undefined) throw new AgentRunningError(this.#root, this.#holder());
      this.#lock?.release();
      this.#lock = lock;
      // It may have been removed, and made anew, before it was locked.
      if (lock.current) return;
    }
  }

  /** The folder of that name is another one than was locked. */
  get lost(): boolean {
    return this.#lock?.current !== true;
  }

  release(): void {
    this.#lock?.release();
    this.#lock = undefined;
  }

  /** The pid that the holder wrote down; undefined when it uses another state folder. */
  #holder(): number | undefined {
    try {
      const pid = Number(readFileSync(this.#pidFile, 'utf8'));
      return Number.isInteger(pid) && pid > 0 ? pid : undefined;
    } catch {
      return undefined;
    }
  }
}
