import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type FolderLock, lockFolder } from 'libbpf-ts';
import { AgentRunningError } from '../errors.ts';
import { makeRoot } from './pins.ts';

/**
 * One agent a bpf root: the folder itself is locked (flock(2)), which only root can open. The kernel frees it with the process, however
 * that ends, so that there is no stale lock; and it is one for all network namespaces and containers that see the folder.
 */
export class RootLock {
  readonly #root: string;
  readonly #pidFile: string;
  #lock: FolderLock | undefined;

  constructor(bpfRoot: string, stateDir: string) {
    this.#root = bpfRoot;
    this.#pidFile = join(stateDir, 'agent.pid');
  }

  /** Makes the root where it is not there. @throws AgentRunningError when another process holds it */
  acquire(): void {
    makeRoot(this.#root);
    this.acquireExisting();
    this.#writePid();
  }

  /** Writes the holder's pid down again when somebody has removed it. */
  look(): void {
    if (this.#lock !== undefined && !existsSync(this.#pidFile)) this.#writePid();
  }

  #writePid(): void {
    try {
      mkdirSync(dirname(this.#pidFile), { recursive: true, mode: 0o700 });
      writeFileSync(this.#pidFile, `${process.pid}\n`);
    } catch {
      // It only names the holder, for people; a folder that cannot be written is told by what belongs there.
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
