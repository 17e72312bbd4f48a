import { chmodSync, existsSync, readFileSync, statSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf, messageOf } from '@weir/process/errors';
import { makeFolder, makeFolderSync } from '@weir/process/folders';
import { type FolderLock, lockFolder } from 'libbpf-ts';
import type { Logger } from '../core.ts';
import { AgentRunningError } from '../errors.ts';
import { isGone } from '../state/persist.ts';
import { makeRoot } from './pin-files.ts';

/**
 * One agent a bpf root, and one a state folder: the folders themselves are locked (flock(2)), which only root can open. The kernel frees them with
 * the process, however that ends, so that there is no stale lock; and it is one for all network namespaces and containers that see the
 * folder. Nothing that is enforced needs the state folder: one that cannot be locked is logged, and keeps no agent from running.
 */
export class RootLock {
  readonly #root: string;
  readonly #stateDir: string;
  readonly #pidFile: string;
  readonly #log: Pick<Logger, 'warn'>;
  #lock: FolderLock | undefined;
  #stateLock: FolderLock | undefined;
  /** Whether it was logged that the state folder cannot be locked. */
  #reported = false;
  /** The pid is being written: a disk may be slow to answer. */
  #writing = false;

  constructor(bpfRoot: string, stateDir: string, log: Pick<Logger, 'warn'>) {
    this.#root = bpfRoot;
    this.#stateDir = stateDir;
    this.#log = log;
    this.#pidFile = join(stateDir, 'agent.pid');
  }

  /** Makes both folders where they are not there; for who has them, the root alone. @throws AgentRunningError when another process holds one */
  acquire(): void {
    makeRoot(this.#root);
    this.#lockBoth(() => {
      makeFolderSync(this.#stateDir, 0o700);
      closeToOthers(this.#stateDir);
    });
    void this.#writePid();
  }

  /** Writes the holder's pid down again when somebody has removed it, and locks the folder that was recreated. Nobody waits for that. */
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
      await makeFolder(this.#stateDir, 0o700);
      if (this.#lock === undefined) return;
      if (unlessThere) this.#lockAgain();
      await writeFile(this.#pidFile, `${process.pid}\n`);
    } catch {
      // It only names the holder, for people; whoever writes there reports a folder that cannot be written.
    } finally {
      this.#writing = false;
    }
  }

  /** As `acquire`, for who removes: where a folder is not there, no agent uses it either. */
  acquireExisting(): void {
    this.#lockBoth();
  }

  #lockBoth(makeState = (): void => undefined): void {
    const root = lockOf(this.#root, () => new AgentRunningError(`drives the maps under ${this.#root}`, this.#holder()));
    const before = this.#lock;
    before?.release();
    this.#lock = root;
    // An agent that runs waits for no disk: `look` sees to the state folder.
    if (before !== undefined) return;
    try {
      makeState();
      this.#lockState();
    } catch (error) {
      if (error instanceof AgentRunningError) {
        this.release();
        throw error;
      }
      this.#unlocked(error);
    }
  }

  /** @throws AgentRunningError, and what the file system answers */
  #lockState(): void {
    if (this.#stateLock?.current === true) return;
    const taken = (): Error => new AgentRunningError(`keeps its state in ${this.#stateDir}`, this.#holder());
    const lock = lockOf(this.#stateDir, taken);
    this.#stateLock?.release();
    this.#stateLock = lock;
  }

  /** The agent goes on, whoever has the folder that was recreated. */
  #lockAgain(): void {
    try {
      this.#lockState();
    } catch (error) {
      this.#unlocked(error);
    }
  }

  #unlocked(error: unknown): void {
    if (!this.#reported)
      this.#log.warn(
        { folder: this.#stateDir, error: messageOf(error) },
        'the state folder cannot be locked; a second agent that uses it is not noticed',
      );
    this.#reported = true;
  }

  /** The folder of that name is another one than was locked. */
  get lost(): boolean {
    return this.#lock?.current !== true;
  }

  release(): void {
    this.#lock?.release();
    this.#lock = undefined;
    this.#stateLock?.release();
    this.#stateLock = undefined;
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

/** Whoever may open a folder may lock it. On a read-only file system it stays as it is. */
function closeToOthers(folder: string): void {
  if ((statSync(folder).mode & 0o777) === 0o700) return;
  try {
    chmodSync(folder, 0o700);
  } catch (error) {
    if (codeOf(error) !== 'EROFS') throw error;
  }
}

/** Undefined: there is no such folder. Throws `taken` when another process holds it. */
function lockOf(folder: string, taken: () => Error): FolderLock | undefined {
  while (existsSync(folder)) {
    const lock = lockFolder(folder);
    if (lock === undefined) throw taken();
    // It may have been removed, and recreated, before it was locked.
    if (lock.current) return lock;
    lock.release();
  }
  return undefined;
}
